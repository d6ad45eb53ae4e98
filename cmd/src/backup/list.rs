//! `coracle backup list`: what the server has written by itself, here and in the bucket.

use super::automatic::names;
use super::journal::{Piece, pieces};
use super::keeping::made_at;
use crate::args::BackupListArgs;
use crate::config;
use crate::scheduled::Places;
use crate::table::table;
use jiff::Timestamp;

pub async fn run(args: BackupListArgs) -> Result<String, String> {
    let (data_dir, said) = config::backup_of(args.config.as_deref(), args.data_dir, args.backup)?;
    let mut mistakes = Vec::new();
    let places = said.places(&data_dir, &mut mistakes);
    let Some(Places { directory, bucket }) = places else { return Err(mistakes.join("\n")) };
    let mut rows = vec![["NAME", "MADE", "BYTES", "PLACE"].map(str::to_owned)];
    let here = names(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut found = Vec::new();
    for name in here {
        let bytes = std::fs::metadata(directory.join(&name)).map_or(0, |meta| meta.len());
        found.push((name, bytes, directory.display().to_string()));
    }
    if let Some(bucket) = bucket {
        let place = format!(
            "{}/{}/{}",
            bucket.endpoint.to_string().trim_end_matches('/'),
            bucket.name,
            bucket.prefix
        );
        found.extend(
            bucket.list().await?.into_iter().map(|stored| (stored.name, stored.bytes, place.clone())),
        );
    }
    let mut made: Vec<(Timestamp, _)> =
        found.into_iter().filter_map(|found| Some((made_at(&found.0, None)?, found))).collect();
    made.sort();
    rows.extend(
        made.into_iter().map(|(at, (name, bytes, place))| [name, at.to_string(), bytes.to_string(), place]),
    );
    let mut text = table(&rows).trim_end().to_owned();
    for span in spans(pieces(&directory, None).map_err(|error| format!("{}: {error}", directory.display()))?)
    {
        text += &format!("\n{span}");
    }
    Ok(text)
}

/// What the journals of a directory hold without a gap, node by node.
fn spans(pieces: Vec<Piece>) -> Vec<String> {
    let mut whole: Vec<Piece> = Vec::new();
    for piece in pieces {
        match whole.iter_mut().find(|span| span.node == piece.node && span.upto == piece.after) {
            Some(span) => (span.upto, span.until) = (piece.upto, piece.until),
            None => whole.push(piece),
        }
    }
    whole.sort_by(|a, b| (&a.node, a.until).cmp(&(&b.node, b.until)));
    let text = |span: &Piece| {
        format!(
            "{}: every commit after revision {} up to {}, of {}",
            span.node, span.after, span.upto, span.until
        )
    };
    whole.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_shown() {
        let piece = |name: &str| Piece::parse(&format!("coracle-{name}.journal")).expect("a journal");
        let pieces = [
            "n-20260503T030000Z-1-5",
            "n-20260503T030100Z-5-9",
            "m-20260503T030100Z-5-7",
            "n-20260503T030300Z-12-13",
        ];
        let expected = [
            "m: every commit after revision 5 up to 7, of 2026-05-03T03:01:00Z",
            "n: every commit after revision 1 up to 9, of 2026-05-03T03:01:00Z",
            "n: every commit after revision 12 up to 13, of 2026-05-03T03:03:00Z",
        ];
        assert_eq!(spans(pieces.map(piece).to_vec()), expected);
    }
}

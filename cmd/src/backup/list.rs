//! `coracle backup list`: what the server has written by itself, here and in the bucket.

use super::automatic::names;
use super::journal::{Piece, pieces, spans};
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
    let found = pieces(&directory, None).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut spans = spans(found);
    spans.sort_by(|a, b| (&a.node, a.until).cmp(&(&b.node, b.until)));
    for span in spans {
        let Piece { node, after, upto, until, .. } = span;
        text += &format!("\n{node}: every commit after revision {after} up to {upto}, of {until}");
    }
    Ok(text)
}

//! What happened between two backups: files with all durable commits, beside the backups, so that a restore can be of any
//! revision and any time.
//!
//! ```text
//! journal.json   which commits, of whom and when
//! commits        what they did
//! ```
//! Each file says after which revision it begins, and up to which it goes on; the next one begins where it ends.

mod copy;
mod keep;
mod play;
mod tap;

pub use keep::{Archive, Due};
pub use play::{Target, choose, play};
pub use tap::Tap;

use super::ArchiveError;
use super::archive::{Head, Reader, Writer};
use super::automatic::names;
use super::keeping::{stamp, stamped};
use super::key::Key;
use coracle_apiserver::store::Revision;
use coracle_apiserver::store::sled::{CommitWriter, StoredCommit, read_commits};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

pub const SUMMARY: &str = "journal.json";
const COMMITS: &str = "commits";
const ENDING: &str = ".journal";

/// What a file says of itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub node_name: String,
    /// As in a backup's manifest.
    pub cluster: Option<String>,
    /// Likewise.
    pub sealing: Option<String>,
    pub coracle_version: String,
    /// It holds every durable commit after this revision ...
    pub after: u64,
    /// ... up to this one.
    pub upto: u64,
    /// When the first of them was made, and the last.
    pub from: Timestamp,
    pub until: Timestamp,
    pub commits: u64,
}

impl Summary {
    /// Of these, which are in order and come after `after`; `None` if there are none.
    pub fn of(node: &str, after: Revision, commits: &[StoredCommit]) -> Option<Self> {
        let (first, last) = (commits.first()?, commits.last()?);
        Some(Self {
            node_name: node.to_owned(),
            cluster: None,
            sealing: None,
            coracle_version: env!("CARGO_PKG_VERSION").to_owned(),
            after: after.0,
            upto: last.revision.0,
            from: time(first),
            until: time(last),
            commits: commits.len() as u64,
        })
    }

    /// `coracle-NODE-20260503T030000Z-AFTER-UPTO.journal`, of the time of its last commit.
    pub fn name(&self) -> String {
        let (node, at) = (&self.node_name, stamp(self.until));
        format!("coracle-{node}-{at}-{}-{}{ENDING}", self.after, self.upto)
    }
}

/// When a commit was made, as far as a clock can have told.
pub fn time(commit: &StoredCommit) -> Timestamp {
    i64::try_from(commit.millis)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .unwrap_or(Timestamp::MAX)
}

/// What a file's name tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub name: String,
    pub node: String,
    /// Of its last commit.
    pub until: Timestamp,
    pub after: u64,
    pub upto: u64,
}

impl Piece {
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("coracle-")?.strip_suffix(ENDING)?.rsplitn(4, '-');
        let (upto, after, time, node) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let until = stamped(time)?;
        let (after, upto) = (after.parse().ok()?, upto.parse().ok()?);
        Some(Self { name: name.to_owned(), node: node.to_owned(), until, after, upto })
    }
}

/// Those of a directory, of this node or of any, in the order of their revisions.
pub fn pieces(directory: &Path, node: Option<&str>) -> io::Result<Vec<Piece>> {
    let mut found: Vec<Piece> = names(directory)?.iter().filter_map(|name| Piece::parse(name)).collect();
    found.retain(|piece| node.is_none_or(|node| node == piece.node));
    found.sort_by_key(|piece| (piece.after, piece.upto));
    Ok(found)
}

/// Files that follow one another without a gap, as one: each from the beginning of the first to the end of the last of them.
pub fn spans(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut whole: Vec<Piece> = Vec::new();
    for piece in pieces {
        match whole.iter_mut().rev().find(|span| span.node == piece.node && span.upto == piece.after) {
            Some(span) => (span.upto, span.until) = (piece.upto, piece.until),
            None => whole.push(piece),
        }
    }
    whole
}

/// Those that no backup needs any more whose state is of this revision or a later one.
pub fn superfluous(names: &[String], node: &str, oldest: Revision) -> Vec<String> {
    let pieces = names.iter().filter_map(|name| Piece::parse(name));
    pieces.filter(|piece| piece.node == node && piece.upto <= oldest.0).map(|piece| piece.name).collect()
}

pub fn write(
    out: impl Write,
    key: Option<&Key>,
    summary: &Summary,
    commits: &[StoredCommit],
) -> io::Result<()> {
    let mut archive = Writer::new(out, key)?;
    let head = |name: &str| Head { name: name.to_owned(), mode: 0o600 };
    let text = serde_json::to_vec_pretty(summary)?;
    archive.part(&head(SUMMARY), |part| part.write_all(&text))?;
    archive.part(&head(COMMITS), |part| {
        let mut writer = CommitWriter::new(part);
        commits.iter().try_for_each(|commit| writer.commit(commit))?;
        writer.finish().map(drop)
    })?;
    archive.finish().map(drop)
}

/// A file of which the beginning was read: what it says of itself.
pub struct Opened {
    pub summary: Summary,
    archive: Reader<BufReader<File>>,
}

pub fn open(path: &Path, key: Option<&Key>) -> Result<Opened, ArchiveError> {
    let mut archive = Reader::new(BufReader::new(File::open(path).map_err(ArchiveError::Io)?), key)?;
    if archive.next()?.is_none_or(|head| head.name != SUMMARY) {
        return Err(ArchiveError::Damaged("it is no journal".to_owned()));
    }
    let mut text = Vec::new();
    archive.part().read_to_end(&mut text)?;
    let summary = serde_json::from_slice(&text);
    let summary = summary.map_err(|_| ArchiveError::Damaged(format!("its part {SUMMARY}")))?;
    Ok(Opened { summary, archive })
}

impl Opened {
    /// Reads all of it, handing over its commits. They count only if none of it is damaged, which is told at the end.
    pub fn read(mut self, each: impl FnMut(StoredCommit) -> io::Result<()>) -> Result<Summary, ArchiveError> {
        let damaged = || ArchiveError::Damaged(format!("its part {COMMITS}"));
        if self.archive.next()?.is_none_or(|head| head.name != COMMITS) {
            return Err(damaged());
        }
        read_commits(self.archive.part(), each)?;
        match self.archive.next()? {
            None => Ok(self.summary),
            Some(_) => Err(damaged()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stay() {
        let piece = |name: &str| Piece::parse(&format!("coracle-{name}.journal")).expect("a journal");
        let pieces = [
            "n-20260503T030000Z-1-5",
            "n-20260503T030100Z-5-9",
            "m-20260503T030100Z-5-7",
            "n-20260503T030300Z-12-13",
        ];
        let found = spans(pieces.map(piece).to_vec());
        let shown: Vec<_> = found.iter().map(|span| (&*span.node, span.after, span.upto)).collect();
        assert_eq!(shown, [("n", 1, 9), ("m", 5, 7), ("n", 12, 13)]);
        assert_eq!(found[0].until, piece(pieces[1]).until);
    }

    #[test]
    fn a_name_tells_what_a_file_holds() {
        let until = "2026-05-03T03:00:00Z".parse().expect("a time");
        let (after, upto) = (17, 4000);
        let summary = Summary {
            node_name: "n-1.example".to_owned(),
            cluster: None,
            sealing: None,
            coracle_version: String::new(),
            after,
            upto,
            from: until,
            until,
            commits: 3,
        };
        let name = summary.name();
        assert_eq!(name, "coracle-n-1.example-20260503T030000Z-17-4000.journal");
        let piece = Piece { name: name.clone(), node: summary.node_name, until, after, upto };
        assert_eq!(Piece::parse(&name), Some(piece));
        for foreign in [
            "coracle-n-20260503T030000Z.backup",
            "coracle-n-x-1-2.journal",
            "coracle-20260503T030000Z-1-2.journal",
        ] {
            assert_eq!(Piece::parse(foreign), None, "{foreign}");
        }
        let names = [
            name.clone(),
            name.replace("17-4000", "4000-4001"),
            name.replace("n-1", "n-2"),
            "mine".to_owned(),
        ];
        assert_eq!(superfluous(&names, "n-1.example", Revision(4000)), names[..1]);
        assert!(superfluous(&names, "n-1.example", Revision(3999)).is_empty());
    }
}

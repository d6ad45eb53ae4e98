//! Commits in one stream, so that a state can be had as of any of them.
//!
//! ```text
//! deflate( 3 | revision u64 | milliseconds since 1970 u64 | number of changes u32 | that many entries of a dump
//!          ... | 0 | number of commits u64 | CRC32C of everything before u32 )
//! ```
//! Nothing of it counts unless all of it is intact.

use super::dump::{Body, END, Entry, Reader, damaged};
use crate::item::Item;
use crate::{Change, Commit, Revision};
use std::io::{self, BufReader, Read, Write};

const COMMIT: u8 = 3;

/// Writes commits as [`read_commits`] reads them.
pub struct CommitWriter<W: Write> {
    body: Body<W>,
    count: u64,
}

impl<W: Write> CommitWriter<W> {
    pub fn new(out: W) -> Self {
        Self { body: Body::new(out), count: 0 }
    }

    pub fn commit(&mut self, commit: &StoredCommit) -> io::Result<()> {
        self.count += 1;
        self.body.write(&[COMMIT])?;
        self.body.write(&commit.revision.0.to_le_bytes())?;
        self.body.write(&commit.millis.to_le_bytes())?;
        self.body.write(&u32::try_from(commit.changes.len()).map_err(io::Error::other)?.to_le_bytes())?;
        commit.changes.iter().try_for_each(|(key, item)| self.body.entry(key, item.as_ref()))
    }

    pub fn finish(self) -> io::Result<W> {
        self.body.close(self.count)
    }
}

/// What a commit did, without what was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCommit {
    pub revision: Revision,
    /// The wall clock in milliseconds since 1970 when it happened.
    pub millis: u64,
    pub(super) changes: Vec<Entry>,
}

impl StoredCommit {
    pub fn of(commit: &Commit, millis: u64) -> Self {
        let revision = commit.revision;
        let item = |change: &Change| {
            let created = change.created;
            change.value.clone().map(|value| Item { value, created, modified: revision })
        };
        let changes = commit.changes.iter().map(|change| (change.key.clone(), item(change))).collect();
        Self { revision, millis, changes }
    }

    /// Bytes of its keys and values in memory.
    pub fn held_len(&self) -> usize {
        let of = |(key, item): &Entry| key.len() + item.as_ref().map_or(0, |item| item.value.held_len());
        self.changes.iter().map(of).sum()
    }
}

/// Hands over commits in the order in which they were written.
///
/// # Errors
/// `InvalidData` if anything is damaged; what was handed over before must then be thrown away. And what `each` returns.
pub fn read_commits(
    input: impl Read,
    mut each: impl FnMut(StoredCommit) -> io::Result<()>,
) -> io::Result<()> {
    let mut body = Reader::new(BufReader::with_capacity(64 << 10, input));
    let mut count = 0;
    loop {
        match body.array()? {
            [COMMIT] => each(commit(&mut body)?)?,
            [END] => return body.close(count),
            _ => return Err(damaged("a commit is damaged")),
        }
        count += 1;
    }
}

fn commit<R: io::BufRead>(body: &mut Reader<R>) -> io::Result<StoredCommit> {
    let revision = Revision(u64::from_le_bytes(body.array()?));
    let millis = u64::from_le_bytes(body.array()?);
    let mut changes = Vec::new();
    for _ in 0..u32::from_le_bytes(body.array()?) {
        changes.push(body.entry()?.ok_or_else(|| damaged("a commit is cut short"))?);
    }
    Ok(StoredCommit { revision, millis, changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sled::Playback;
    use crate::sled::dump::{self, Head};
    use std::sync::Arc;

    fn put(key: &str, value: &str, created: u64) -> Change {
        let value = Some(value.as_bytes().to_vec().into());
        Change { key: key.into(), value, created: Revision(created), previous: None }
    }

    fn deleted(key: &str) -> Change {
        Change { key: key.into(), value: None, created: Revision(1), previous: None }
    }

    fn written() -> Vec<u8> {
        let mut writer = CommitWriter::new(Vec::new());
        let commits = [
            (4, vec![put("a", "old", 2), deleted("b")]),
            (5, vec![put("c", "new", 5)]),
            (9, vec![deleted("c"), put("a", "newest", 2)]),
        ];
        for (revision, changes) in commits {
            let commit = Commit { revision: Revision(revision), changes, durable: true };
            writer.commit(&StoredCommit::of(&commit, 1000 * revision)).expect("written");
        }
        writer.finish().expect("an end")
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<StoredCommit>> {
        let mut found = Vec::new();
        read_commits(bytes, |commit| {
            found.push(commit);
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = written();
        let found = read(&good).expect("whole");
        assert_eq!(
            found.iter().map(|c| (c.revision.0, c.millis)).collect::<Vec<_>>(),
            [(4, 4000), (5, 5000), (9, 9000)]
        );
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(read(&bad).is_err() || read(&bad).is_ok_and(|bad| bad == found), "a flipped bit at {at}");
            assert!(read(&good[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_state_is_had_as_of_any_of_them() {
        let at = |upto: u64| {
            let mut picture = Vec::new();
            let head = Head { revision: Revision(3), other: Revision(3), standalone: true };
            let item = |value: &str| Item {
                value: value.as_bytes().to_vec().into(),
                created: Revision(2),
                modified: Revision(3),
            };
            let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
            let (first, second) = (item("first"), item("second"));
            dump::write(&mut picture, head, [(&a, Some(&first)), (&b, Some(&second))].into_iter())
                .expect("written");
            let mut playback = Playback::read(&picture[..]).expect("a picture");
            for commit in
                read(&written()).expect("whole").into_iter().filter(|commit| commit.revision.0 <= upto)
            {
                playback.play(commit);
            }
            let dir = tempfile::tempdir().expect("temporary directory");
            assert_eq!(playback.revision().0, upto);
            playback.write(dir.path().join("db"), 100).expect("a store");
            let picture = crate::sled::Picture::of_stopped(dir.path().join("db")).expect("a store");
            let shown = picture.items().map(|kv| {
                (kv.key.to_string(), String::from_utf8_lossy(&kv.value.peek()).into_owned(), kv.created.0)
            });
            (picture.revision().0, shown.collect::<Vec<_>>())
        };
        let of = |key: &str, value: &str, created| (key.to_owned(), value.to_owned(), created);
        assert_eq!(at(3), (103, vec![of("a", "first", 2), of("b", "second", 2)]));
        assert_eq!(at(4), (104, vec![of("a", "old", 2)]));
        assert_eq!(at(5), (105, vec![of("a", "old", 2), of("c", "new", 5)]));
        assert_eq!(at(9), (109, vec![of("a", "newest", 2)]));
    }
}

//! Reading a tree from both ends at once: a start waits for little else, and has a second core to spare for it.
//!
//! Each end says now and then how far it is, and stops where it meets the other. Nobody has to know the middle.

use super::tree::{META, PIECE, TreeError, item, split};
use crate::store::keyspace::Item;
use ::sled::{Db, IVec};
use parking_lot::Mutex;
use std::sync::Arc;

/// Values between two looks at the other end; so many may be read twice where the ends meet.
const LOOK: usize = 64;

type Value = (Arc<str>, Item);

/// The last keys that either end has read.
#[derive(Default)]
struct Ends {
    low: Option<Arc<str>>,
    high: Option<Arc<str>>,
}

impl Ends {
    fn met(&self) -> bool {
        self.low.is_some() && self.high.is_some() && self.low >= self.high
    }
}

/// All values of a tree in the order of their keys, each with its checksum checked.
pub(super) fn read(db: &Db) -> Result<Vec<Value>, TreeError> {
    let ends = Mutex::new(Ends::default());
    let (low, high) = std::thread::scope(|scope| {
        let high = scope.spawn(|| from_high(db, &ends));
        let low = from_low(db, &ends);
        (low, high.join())
    });
    let mut all = low?;
    let mut high = match high {
        Ok(high) => high?,
        // The caller catches panics.
        Err(panic) => std::panic::resume_unwind(panic),
    };
    high.reverse();
    let known = all.last().map_or(0, |(last, _)| high.partition_point(|(key, _)| key <= last));
    all.extend(high.drain(known..));
    Ok(all)
}

fn from_low(db: &Db, ends: &Mutex<Ends>) -> Result<Vec<Value>, TreeError> {
    let mut all = Vec::new();
    let mut value = Pieces::default();
    for entry in db.iter() {
        let (name, piece) = entry?;
        if &*name == META {
            continue;
        }
        let (key, index) = named(&name)?;
        if index == 0 {
            value.finish(&mut all)?;
            if all.len() % LOOK == LOOK - 1 && meets(ends, &all, |ends| &mut ends.low) {
                return Ok(all);
            }
            value = Pieces { key: Some(key.into()), pieces: Vec::new() };
        }
        value.add(key, index, piece)?;
    }
    value.finish(&mut all)?;
    Ok(all)
}

/// The largest key first.
fn from_high(db: &Db, ends: &Mutex<Ends>) -> Result<Vec<Value>, TreeError> {
    let mut all = Vec::new();
    let mut later: Vec<(u16, IVec)> = Vec::new();
    for entry in db.iter().rev() {
        let (name, piece) = entry?;
        if &*name == META {
            break;
        }
        let (key, index) = named(&name)?;
        later.push((index, piece));
        if index > 0 {
            continue;
        }
        let mut value = Pieces { key: Some(key.into()), pieces: Vec::new() };
        for (index, piece) in later.drain(..).rev() {
            value.add(key, index, piece)?;
        }
        value.finish(&mut all)?;
        if all.len() % LOOK == LOOK - 1 && meets(ends, &all, |ends| &mut ends.high) {
            return Ok(all);
        }
    }
    if later.is_empty() { Ok(all) } else { Err(headless()) }
}

fn named(name: &[u8]) -> Result<(&str, u16), TreeError> {
    split(name).ok_or_else(|| TreeError::Disagrees("a strange key".into()))
}

fn headless() -> TreeError {
    TreeError::Disagrees("the first piece of a value is missing".into())
}

/// Tells how far one end is; true if that is far enough.
fn meets(ends: &Mutex<Ends>, all: &[Value], mine: fn(&mut Ends) -> &mut Option<Arc<str>>) -> bool {
    let mut ends = ends.lock();
    *mine(&mut ends) = all.last().map(|(key, _)| key.clone());
    ends.met()
}

/// What was read of a value, from its first piece on.
#[derive(Default)]
struct Pieces {
    key: Option<Arc<str>>,
    pieces: Vec<IVec>,
}

impl Pieces {
    fn add(&mut self, key: &str, index: u16, piece: IVec) -> Result<(), TreeError> {
        if self.key.as_deref() != Some(key) {
            return Err(headless());
        }
        let whole = self.pieces.iter().all(|piece| piece.len() == PIECE);
        if self.pieces.len() != usize::from(index) || !whole {
            return Err(TreeError::Disagrees("a piece of a value is missing".into()));
        }
        self.pieces.push(piece);
        Ok(())
    }

    fn finish(&mut self, all: &mut Vec<Value>) -> Result<(), TreeError> {
        let Some(key) = self.key.take() else { return Ok(()) };
        let item = match self.pieces.as_slice() {
            [one] => item(&key, one)?,
            many => item(&key, &many.concat())?,
        };
        self.pieces.clear();
        all.push((key, item));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Revision;
    use crate::store::keyspace::Present;
    use crate::store::sled::tree;
    use bytes::Bytes;

    fn present(amount: u64) -> Present {
        let of = |n: u64| {
            let key: Arc<str> = format!("things./a/{n:06}").into();
            // Some in several pieces, one of them of exactly two.
            let length = if n.is_multiple_of(7) {
                3 * PIECE
            } else if n.is_multiple_of(11) {
                2 * PIECE - 24
            } else {
                100
            };
            let value = Bytes::from(vec![u8::try_from(n % 251).unwrap(); length]);
            (key, Item { value, created: Revision(n + 1), modified: Revision(n + 1) })
        };
        (0..amount).map(of).collect()
    }

    #[test]
    fn both_ends_together_read_everything_once() {
        for amount in [0, 1, 2, 63, 64, 129, 1000] {
            let dir = tempfile::tempdir().unwrap();
            let whole = present(amount);
            tree::build(dir.path(), &whole, Revision(amount)).unwrap();
            let loaded = tree::load(dir.path()).unwrap();
            assert!(loaded.present == whole, "{amount}");
            assert_eq!(loaded.revision, Revision(amount));
        }
    }

    #[test]
    fn an_end_that_is_alone_reads_everything_too() {
        let dir = tempfile::tempdir().unwrap();
        let whole = present(300);
        tree::build(dir.path(), &whole, Revision(300)).unwrap();
        let db = ::sled::Config::new().path(dir.path()).open().unwrap();
        let nobody = Mutex::new(Ends::default());
        let low: Present = from_low(&db, &nobody).unwrap().into_iter().collect();
        let high: Present = from_high(&db, &Mutex::default()).unwrap().into_iter().collect();
        assert!(low == whole && high == whole);
        // The other one is past everything already.
        let first = whole.keys().next().cloned();
        let met = Mutex::new(Ends { low: None, high: first });
        assert_eq!(from_low(&db, &met).unwrap().len(), LOOK - 1);
    }

    #[test]
    fn a_missing_piece_is_found_from_either_end() {
        for (gone, from_start) in [(0_u16, true), (1, true), (0, false), (1, false)] {
            let dir = tempfile::tempdir().unwrap();
            tree::build(dir.path(), &present(1), Revision(1)).unwrap();
            let db = ::sled::Config::new().path(dir.path()).open().unwrap();
            let name = [b"things./a/000000\0".as_slice(), &gone.to_be_bytes()].concat();
            assert!(db.remove(name).unwrap().is_some());
            let read = if from_start { from_low } else { from_high };
            assert!(matches!(read(&db, &Mutex::default()), Err(TreeError::Disagrees(_))), "{gone}");
        }
    }
}

//! How far something is that reads or writes a whole store, for whoever looks on.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Reading,
    Writing,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading",
            Self::Writing => "writing",
        })
    }
}

/// How far it is, in bytes, of which some may be read more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub doing: Doing,
    pub done: u64,
    pub total: u64,
}

/// Told again and again. What is done comes to the total where nothing fails.
pub type Watch<'a> = &'a dyn Fn(Step);

pub(super) const NOBODY: Watch<'static> = &|_| {};

pub(super) struct Meter<'a> {
    watch: Watch<'a>,
    doing: Doing,
    total: u64,
    done: Cell<u64>,
}

impl<'a> Meter<'a> {
    pub fn new(watch: Watch<'a>, doing: Doing, total: u64) -> Self {
        Self { watch, doing, total, done: Cell::new(0) }
    }

    /// For the same who look on, at something else.
    pub fn of(&self, total: u64) -> Self {
        Self::new(self.watch, self.doing, total)
    }

    pub fn unseen() -> Self {
        Self::new(NOBODY, Doing::Reading, 0)
    }

    pub fn add(&self, bytes: u64) {
        self.done.set(self.done.get() + bytes);
        (self.watch)(Step { doing: self.doing, done: self.done.get(), total: self.total });
    }

    /// For a part of the work that is worth so many bytes, whatever is counted in it.
    pub fn share(&self, bytes: u64) -> Share<'_> {
        Share { meter: self, left: Cell::new(bytes) }
    }
}

/// What is left of it is done when it goes.
pub(super) struct Share<'m> {
    meter: &'m Meter<'m>,
    left: Cell<u64>,
}

impl Share<'_> {
    pub fn add(&self, bytes: u64) {
        let bytes = bytes.min(self.left.get());
        self.left.set(self.left.get() - bytes);
        self.meter.add(bytes);
    }

    pub fn over<R>(&self, inner: R) -> Metered<'_, R> {
        Metered { inner, share: self }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.meter.add(self.left.get());
    }
}

pub(super) struct Metered<'s, R> {
    inner: R,
    share: &'s Share<'s>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.share.add(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sled::{Options, SledStore, check_watched, compact_watched, make_watched};
    use crate::{KeyValue, Revision, Store, Value};
    use std::cell::RefCell;
    use std::sync::Arc;

    #[test]
    fn shares_come_to_the_total() {
        let seen = Cell::new((0, 0));
        let watch = |step: Step| seen.set((step.done, step.total));
        let meter = Meter::new(&watch, Doing::Reading, 30);
        let share = meter.share(10);
        share.over(&b"abc"[..]).read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(seen.get(), (3, 30));
        share.add(100);
        assert_eq!(seen.get(), (10, 30), "no more than its worth");
        drop(share);
        drop(meter.share(20));
        assert_eq!(seen.get(), (30, 30), "what was left out is done, too");
    }

    /// What was told of one thing after the other: how far each came, and of how much.
    fn told(work: impl FnOnce(Watch<'_>)) -> Vec<(Doing, u64, u64)> {
        let seen = RefCell::new(Vec::<Step>::new());
        work(&|step| seen.borrow_mut().push(step));
        let mut ends: Vec<(Doing, u64, u64)> = Vec::new();
        for Step { doing, done, total } in seen.into_inner() {
            match ends.last_mut() {
                Some((last, before, of)) if *last == doing => {
                    assert!(*before <= done && done <= total && *of == total, "{doing} {done} of {total}");
                    *before = done;
                }
                _ => ends.push((doing, done, total)),
            }
        }
        ends
    }

    #[tokio::test]
    async fn progress_comes_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        let item = |n: u64| KeyValue {
            key: Arc::from(format!("a/{n:03}")),
            value: Value::from(vec![7; 1000]),
            created: Revision(n),
            modified: Revision(n),
        };
        let made = told(|watch| {
            make_watched((1..=50).map(item), Revision(50), &db, 10, watch).unwrap();
        });
        assert_eq!(made, [(Doing::Writing, 50 * 1005, 50 * 1005)]);
        // Journal and tree, too.
        SledStore::open(&db, Options::default()).unwrap().close().await.unwrap();
        let checked = told(|watch| assert!(!check_watched(&db, watch).unwrap().is_damaged()));
        let compacted = told(|watch| assert_eq!(compact_watched(&db, watch).unwrap().objects, 50));
        let both = [Doing::Reading, Doing::Writing];
        for (all, doing) in [(checked, &both[..1]), (compacted, &both[..])] {
            assert_eq!(all.iter().map(|(doing, ..)| *doing).collect::<Vec<_>>(), doing);
            assert!(all.iter().all(|(_, done, total)| done == total && *total > 0), "{all:?}");
        }
    }
}

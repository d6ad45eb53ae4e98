//! A file on a disk with a volatile cache: what is read is the cache; what survives a cut is what was flushed, and some of
//! the rest.

use super::content::{Content, PAGE, Page, SECTOR};
use super::luck::Luck;
use nix::errno::Errno;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Change {
    Page(u64, Page),
    Grow(u64),
    Shrink(u64),
    Room(u64),
}

/// Changes that were not flushed yet, each with the moment it was made.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub cached: Content,
    stable: Content,
    pending: Vec<(u64, Change)>,
}

impl File {
    /// A file that is wholly on the disk.
    pub fn stable(content: Content) -> Self {
        Self { cached: content.clone(), stable: content, pending: Vec::new() }
    }

    pub fn write(&mut self, moment: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        for (number, page) in self.cached.with(offset, data)? {
            self.cached.pages.insert(number, page.clone());
            self.pending.push((moment, Change::Page(number, page)));
        }
        self.grow(moment, offset + data.len() as u64);
        Ok(())
    }

    /// Pages that a write needs blocks for.
    pub fn needs(&self, offset: u64, len: u64) -> u64 {
        let end = (offset + len).div_ceil(PAGE as u64);
        (offset / PAGE as u64..end).filter(|number| !self.cached.holds(*number)).count() as u64
    }

    fn grow(&mut self, moment: u64, size: u64) {
        if size > self.cached.size {
            self.cached.size = size;
            self.pending.push((moment, Change::Grow(size)));
        }
    }

    pub fn truncate(&mut self, moment: u64, size: u64) {
        if size >= self.cached.size {
            return self.grow(moment, size);
        }
        self.cached.shrink(size);
        self.pending.push((moment, Change::Shrink(size)));
    }

    pub fn allocate(&mut self, moment: u64, end: u64, keep_size: bool) {
        if end > self.cached.room {
            self.cached.room = end;
            self.pending.push((moment, Change::Room(end)));
        }
        if !keep_size {
            self.grow(moment, end);
        }
    }

    /// Whether the first page waits to be flushed and is more than zeroes.
    pub fn begins(&self) -> bool {
        let begins =
            |change: &Change| matches!(change, Change::Page(0, page) if page.iter().any(|b| *b != 0));
        self.pending.iter().any(|(_, change)| begins(change))
    }

    /// Puts on the disk what was changed up to `moment`; what came later stays volatile.
    pub fn flush(&mut self, moment: u64) {
        for (_, change) in self.take(moment) {
            apply(&mut self.stable, change);
        }
    }

    /// A flush that fails: some of it got there, and nobody tries the rest again, as kernels do it. Reads still find it.
    pub fn fail_flush(&mut self, moment: u64, luck: &mut Luck) {
        let pending = self.take(moment);
        settle(&mut self.stable, pending, luck);
    }

    fn take(&mut self, moment: u64) -> Vec<(u64, Change)> {
        let later = self.pending.partition_point(|(at, _)| *at <= moment);
        let rest = self.pending.split_off(later);
        std::mem::replace(&mut self.pending, rest)
    }

    /// What the disk holds after the power went.
    pub fn cut(mut self, luck: &mut Luck) -> Content {
        settle(&mut self.stable, self.pending, luck);
        let size = self.stable.size;
        self.stable.shrink(size);
        self.stable
    }
}

fn apply(stable: &mut Content, change: Change) {
    match change {
        Change::Page(number, page) => drop(stable.pages.insert(number, page)),
        Change::Grow(size) => stable.size = stable.size.max(size),
        Change::Shrink(size) => stable.shrink(size),
        Change::Room(room) => stable.room = stable.room.max(room),
    }
}

/// Lets a random part of the changes happen. Shrinking is the file system's affair: it happens in order, so of what came
/// after the first that did not happen, nothing did.
fn settle(stable: &mut Content, pending: Vec<(u64, Change)>, luck: &mut Luck) {
    let shrinks = pending.iter().filter(|(_, change)| matches!(change, Change::Shrink(_))).count();
    let mut allowed = luck.below(shrinks + 1);
    for (_, change) in pending {
        match change {
            Change::Shrink(_) if allowed == 0 => return,
            Change::Shrink(_) => {
                allowed -= 1;
                apply(stable, change);
            }
            Change::Page(number, page) => survive(stable, number, &page, luck),
            Change::Grow(_) | Change::Room(_) if luck.keeps() => apply(stable, change),
            Change::Grow(_) | Change::Room(_) => {}
        }
    }
}

fn survive(stable: &mut Content, number: u64, page: &Page, luck: &mut Luck) {
    if luck.tears() {
        let mut torn = stable.page(number);
        for sector in (0..PAGE).step_by(SECTOR).filter(|_| luck.half()) {
            torn[sector..sector + SECTOR].copy_from_slice(&page[sector..sector + SECTOR]);
        }
        stable.pages.insert(number, Arc::new(torn));
    } else if luck.keeps() {
        stable.pages.insert(number, page.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE]
    }

    #[test]
    fn flushed_pages_survive_whatever_the_luck() {
        for seed in 0..50 {
            let mut file = File::default();
            file.write(1, 0, &page(1)).unwrap();
            file.write(2, PAGE as u64, &page(2)).unwrap();
            file.flush(1);
            file.write(3, 0, &[9; 10]).unwrap();
            assert_eq!(file.cached.read(0, 12), [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 1]);
            let left = file.cut(&mut Luck::new(seed));
            assert!(left.size >= PAGE as u64);
            assert_eq!(left.read(SECTOR as u64, 100), [1; 100], "seed {seed}");
        }
    }

    #[test]
    fn what_was_not_flushed_is_lost_kept_and_torn() {
        let mut seen = [false; 3];
        for seed in 0..200 {
            let mut file = File::stable(Content { size: PAGE as u64, ..Content::default() });
            file.write(1, 0, &page(7)).unwrap();
            let left = file.cut(&mut Luck::new(seed)).read(0, PAGE as u64);
            let kept = left.iter().filter(|byte| **byte == 7).count();
            assert_eq!(kept % SECTOR, 0);
            seen[if kept == 0 {
                0
            } else if kept == PAGE {
                1
            } else {
                2
            }] = true;
        }
        assert_eq!(seen, [true; 3]);
    }

    /// Old bytes do not come back behind a truncation that happened, and new ones not in front of one that did not.
    #[test]
    fn truncation_keeps_its_order() {
        for seed in 0..100 {
            let mut file = File::stable(Content::default());
            file.write(1, 0, &page(1)).unwrap();
            file.flush(1);
            file.truncate(2, 0);
            file.write(3, 0, &page(2)).unwrap();
            let left = file.cut(&mut Luck::new(seed)).read(0, PAGE as u64);
            let mixed = left.contains(&1) && left.contains(&2);
            assert!(!mixed, "seed {seed}");
        }
    }

    #[test]
    fn a_failed_flush_is_not_made_good_by_the_next() {
        let lost = (0..100).filter(|seed| {
            let mut file = File::stable(Content { size: PAGE as u64, ..Content::default() });
            file.write(1, 0, &page(1)).unwrap();
            file.fail_flush(1, &mut Luck::new(*seed));
            file.flush(1);
            assert_eq!(file.cached.read(0, 1), [1]);
            file.cut(&mut Luck::new(*seed)).read(0, 1) == [0]
        });
        assert!(lost.count() > 10);
    }
}

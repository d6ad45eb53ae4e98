//! What a file holds: pages of 4 KiB that exist once they were written, and a size.

use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const PAGE: usize = 4096;
/// What a device writes whole or not at all.
pub const SECTOR: usize = 512;

pub type Page = Arc<[u8; PAGE]>;

/// Beyond it lies a mistake of the caller, not a file.
const LONGEST: u64 = 1 << 30;

/// Lengths and offsets of this disk fit into memory.
pub fn small(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[derive(Clone, Debug, Default)]
pub struct Content {
    pub pages: BTreeMap<u64, Page>,
    pub size: u64,
    /// Bytes from the beginning that have their blocks, written or not.
    pub room: u64,
}

impl Content {
    pub fn page(&self, number: u64) -> [u8; PAGE] {
        self.pages.get(&number).map_or([0; PAGE], |page| **page)
    }

    /// What lies at `offset`, up to the file's end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(len));
        let mut bytes = Vec::with_capacity(small(end.saturating_sub(offset)));
        let mut at = offset;
        while at < end {
            let (number, within) = (at / PAGE as u64, small(at % PAGE as u64));
            let part = (PAGE - within).min(small(end - at));
            match self.pages.get(&number) {
                Some(page) => bytes.extend_from_slice(&page[within..within + part]),
                None => bytes.resize(bytes.len() + part, 0),
            }
            at += part as u64;
        }
        bytes
    }

    /// The pages as they are with `data` at `offset`, which are not put in.
    pub fn with(&self, offset: u64, data: &[u8]) -> Result<Vec<(u64, Page)>, Errno> {
        if offset.saturating_add(data.len() as u64) > LONGEST {
            return Err(Errno::EFBIG);
        }
        let mut pages = Vec::new();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (number, within) = (at / PAGE as u64, small(at % PAGE as u64));
            let part = (PAGE - within).min(data.len() - done);
            let mut page = self.page(number);
            page[within..within + part].copy_from_slice(&data[done..done + part]);
            pages.push((number, Arc::new(page)));
            done += part;
        }
        Ok(pages)
    }

    /// Cuts off what lies beyond `size`, so that it reads as zeroes should the file grow again.
    pub fn shrink(&mut self, size: u64) {
        let (last, within) = (size / PAGE as u64, small(size % PAGE as u64));
        self.pages.split_off(&size.div_ceil(PAGE as u64));
        if within > 0 && self.pages.contains_key(&last) {
            let mut page = self.page(last);
            page[within..].fill(0);
            self.pages.insert(last, Arc::new(page));
        }
        self.size = size;
        self.room = self.room.min(size);
    }

    /// Blocks that the file takes up, in pages.
    pub fn blocks(&self) -> u64 {
        self.room.div_ceil(PAGE as u64).max(self.pages.len() as u64)
    }

    /// Whether a page has its block already.
    pub fn holds(&self, number: u64) -> bool {
        number < self.room / PAGE as u64 || self.pages.contains_key(&number)
    }
}

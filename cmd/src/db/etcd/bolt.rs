//! Reading a bbolt file (<https://github.com/etcd-io/bbolt>): one bucket, whole, in the order of its keys.
//!
//! ```text
//! page     id u64 | flags u16 | count u16 | further pages u32 | elements
//! meta     magic u32 | version u32 | page size u32 | flags u32 | root bucket 16 | free list u64 | pages u64 | transaction u64 | FNV-1a u64
//! branch   at u32 | key's length u32 | page u64
//! leaf     flags u32 | at u32 | key's length u32 | value's length u32
//! bucket   root page u64 | sequence u64 | its only page, if the root is 0
//! ```
//! Little-endian; `at` counts from its own element. Nothing in the file is believed: every offset is looked at, a page is
//! visited once, and keys have to ascend.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const PAGE_HEAD: usize = 16;
const META: usize = 64;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const IS_META: u16 = 4;
/// Of a leaf's element: its value is a bucket.
const IS_BUCKET: u32 = 1;
/// Page sizes that systems have.
const SIZES: std::ops::RangeInclusive<u32> = 512..=65_536;
/// A value of etcd is smaller than this; a longer page is damage.
const LONGEST: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    #[error("it is no bbolt file")]
    Foreign,
    #[error("both of its meta pages are damaged")]
    Meta,
    #[error("page {0} is damaged: {1}")]
    Page(u64, &'static str),
    #[error("there is no bucket {0:?} in it")]
    NoBucket(&'static str),
    #[error("it cannot be read")]
    Io(#[from] io::Error),
}

#[derive(Clone, Copy)]
struct Meta {
    page_size: u64,
    root: u64,
    pages: u64,
    transaction: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Meta {
    fn parse(page: &[u8]) -> Option<Self> {
        let meta = page.get(PAGE_HEAD..PAGE_HEAD + META)?;
        let good = u16_at(page, 8)? == IS_META
            && u32_at(meta, 0)? == MAGIC
            && u32_at(meta, 4)? == VERSION
            && SIZES.contains(&u32_at(meta, 8)?)
            && u64_at(meta, 56)? == fnv(&meta[..56]);
        good.then_some(Self {
            page_size: u64::from(u32_at(meta, 8)?),
            root: u64_at(meta, 16)?,
            pages: u64_at(meta, 40)?,
            transaction: u64_at(meta, 48)?,
        })
    }
}

pub struct Bolt {
    file: File,
    meta: Meta,
}

/// An element of a leaf.
struct Pair<'a> {
    key: &'a [u8],
    value: &'a [u8],
    is_bucket: bool,
}

impl Bolt {
    /// By the newer of its meta pages that is whole.
    pub fn open(file: File) -> Result<Self, BoltError> {
        let mut first = vec![0; PAGE_HEAD + META];
        file.read_exact_at(&mut first, 0).map_err(|_| BoltError::Foreign)?;
        let of_first = Meta::parse(&first);
        let mut second = vec![0; PAGE_HEAD + META];
        // Where the first is damaged, the second is where a page of some size ends.
        let sizes: Vec<u64> = match of_first {
            Some(meta) => vec![meta.page_size],
            None => (9..=16).map(|power| 1 << power).collect(),
        };
        let of_second = sizes.into_iter().find_map(|size| {
            file.read_exact_at(&mut second, size).ok()?;
            Meta::parse(&second).filter(|meta| meta.page_size == size)
        });
        let newest = of_first.into_iter().chain(of_second).max_by_key(|meta| meta.transaction);
        let is_bolt = u32_at(&first, PAGE_HEAD) == Some(MAGIC) || u16_at(&first, 8) == Some(IS_META);
        let meta = newest.ok_or(if is_bolt { BoltError::Meta } else { BoltError::Foreign })?;
        Ok(Self { file, meta })
    }

    fn page(&self, id: u64) -> Result<Vec<u8>, BoltError> {
        let damaged = |why| BoltError::Page(id, why);
        if id >= self.meta.pages {
            return Err(damaged("it is beyond the end"));
        }
        let cut = |_| damaged("the file ends before it does");
        let mut head = [0; PAGE_HEAD];
        let at = id.checked_mul(self.meta.page_size).ok_or(damaged("it is beyond the end"))?;
        self.file.read_exact_at(&mut head, at).map_err(cut)?;
        if u64_at(&head, 0) != Some(id) {
            return Err(damaged("it bears another number"));
        }
        let further = u64::from(u32_at(&head, 12).unwrap_or_default());
        let len = (further + 1).checked_mul(self.meta.page_size).filter(|len| *len <= LONGEST);
        let len = len.and_then(|len| usize::try_from(len).ok()).ok_or(damaged("it is too long"))?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).map_err(cut)?;
        Ok(bytes)
    }

    /// Every pair of the bucket of this name, in order, in pieces that `each` is given.
    pub fn bucket(
        &self,
        name: &'static str,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
    ) -> Result<Result<(), String>, BoltError> {
        let mut found: Option<Vec<u8>> = None;
        let mut wanted = |pair: &Pair<'_>| {
            if pair.is_bucket && pair.key == name.as_bytes() {
                found = Some(pair.value.to_vec());
            }
            Ok(())
        };
        let mut walk = Walk { bolt: self, seen: HashSet::new(), last: None };
        if let Err(why) = walk.page(self.meta.root, &mut wanted)? {
            return Ok(Err(why));
        }
        let bucket = found.ok_or(BoltError::NoBucket(name))?;
        let root =
            u64_at(&bucket, 0).ok_or(BoltError::Page(self.meta.root, "a bucket's head is too short"))?;
        let mut pairs = |pair: &Pair<'_>| if pair.is_bucket { Ok(()) } else { each(pair.key, pair.value) };
        let mut walk = Walk { bolt: self, seen: HashSet::new(), last: None };
        if root == 0 {
            walk.leaf(0, &bucket[16.min(bucket.len())..], &mut pairs)
        } else {
            walk.page(root, &mut pairs)
        }
    }
}

type Each<'e> = dyn FnMut(&Pair<'_>) -> Result<(), String> + 'e;

struct Walk<'b> {
    bolt: &'b Bolt,
    seen: HashSet<u64>,
    last: Option<Vec<u8>>,
}

impl Walk<'_> {
    fn page(&mut self, id: u64, each: &mut Each<'_>) -> Result<Result<(), String>, BoltError> {
        if !self.seen.insert(id) {
            return Err(BoltError::Page(id, "it is reached twice"));
        }
        let bytes = self.bolt.page(id)?;
        match u16_at(&bytes, 8) {
            Some(LEAF) => self.leaf(id, &bytes, each),
            Some(BRANCH) => self.branch(id, &bytes, each),
            _ => Err(BoltError::Page(id, "it is neither a branch nor a leaf")),
        }
    }

    fn branch(
        &mut self,
        id: u64,
        bytes: &[u8],
        each: &mut Each<'_>,
    ) -> Result<Result<(), String>, BoltError> {
        let count = usize::from(u16_at(bytes, 10).unwrap_or_default());
        for number in 0..count {
            let child = u64_at(bytes, PAGE_HEAD + number * 16 + 8);
            let child = child.ok_or(BoltError::Page(id, "it has more elements than room"))?;
            if let Err(why) = self.page(child, each)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    fn leaf(&mut self, id: u64, bytes: &[u8], each: &mut Each<'_>) -> Result<Result<(), String>, BoltError> {
        let damaged = |why| BoltError::Page(id, why);
        let count = usize::from(u16_at(bytes, 10).ok_or(damaged("it is too short"))?);
        for number in 0..count {
            let pair = pair(bytes, PAGE_HEAD + number * 16).ok_or(damaged("an element leads out of it"))?;
            if self.last.as_deref().is_some_and(|last| last >= pair.key) {
                return Err(damaged("its keys are not in their order"));
            }
            self.last = Some(pair.key.to_vec());
            if let Err(why) = each(&pair) {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }
}

fn pair(bytes: &[u8], at: usize) -> Option<Pair<'_>> {
    let number = |offset| u32_at(bytes, at + offset).and_then(|number| usize::try_from(number).ok());
    let (start, key, value) = (at.checked_add(number(4)?)?, number(8)?, number(12)?);
    let middle = start.checked_add(key)?;
    let is_bucket = u32_at(bytes, at)? & IS_BUCKET != 0;
    Some(Pair {
        key: bytes.get(start..middle)?,
        value: bytes.get(middle..middle.checked_add(value)?)?,
        is_bucket,
    })
}

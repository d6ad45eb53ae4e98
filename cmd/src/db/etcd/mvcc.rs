//! etcd's bucket `key`: every revision of every key, of which the newest count.
//!
//! ```text
//! main revision u64 | '_' | number within it u64 | 't' where it is a deletion      big-endian
//! mvccpb.KeyValue: key 1, create_revision 2, mod_revision 3, version 4, value 5, lease 6
//! ```

use std::collections::BTreeMap;

/// The present state, as far as it was taken in.
#[derive(Default)]
pub struct Newest {
    pub present: BTreeMap<Vec<u8>, Entry>,
    pub revision: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub created: u64,
    pub modified: u64,
    pub value: Vec<u8>,
}

impl Newest {
    /// Records come in the order of their revisions.
    pub fn take(&mut self, revision: &[u8], record: &[u8]) -> Result<(), String> {
        let (main, deleted) = parse(revision).ok_or("a revision is damaged")?;
        let (key, entry) = decoded(record).ok_or_else(|| format!("the record of revision {main}"))?;
        self.revision = self.revision.max(main);
        if deleted {
            self.present.remove(&key);
        } else {
            self.present.insert(key, entry);
        }
        Ok(())
    }
}

fn parse(revision: &[u8]) -> Option<(u64, bool)> {
    let deleted = match revision.get(17..)? {
        [] => false,
        [b't'] => true,
        _ => return None,
    };
    let main = u64::from_be_bytes(revision.get(..8)?.try_into().ok()?);
    (revision[8] == b'_').then_some((main, deleted))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f).checked_shl(place * 7)?;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn decoded(mut record: &[u8]) -> Option<(Vec<u8>, Entry)> {
    let (mut key, mut entry) = (Vec::new(), Entry::default());
    while !record.is_empty() {
        let tag = varint(&mut record)?;
        match tag & 7 {
            0 => {
                let number = varint(&mut record)?;
                match tag >> 3 {
                    2 => entry.created = number,
                    3 => entry.modified = number,
                    _ => {}
                }
            }
            2 => {
                let len = usize::try_from(varint(&mut record)?).ok()?;
                let (bytes, rest) = record.split_at_checked(len)?;
                record = rest;
                match tag >> 3 {
                    1 => key = bytes.to_vec(),
                    5 => entry.value = bytes.to_vec(),
                    _ => {}
                }
            }
            _ => return None,
        }
    }
    Some((key, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_revision_counts_and_deletions_take_away() {
        let revision = |main: u64, end: &[u8]| [&main.to_be_bytes()[..], b"_", &[0; 8], end].concat();
        let record = |modified: u8, value: &[u8]| {
            let len = u8::try_from(value.len()).expect("short");
            [&[0x0a, 1, b'k', 0x10, 2, 0x18, modified, 0x20, 1, 0x2a, len][..], value].concat()
        };
        let mut newest = Newest::default();
        newest.take(&revision(2, b""), &record(2, b"a")).expect("taken");
        newest.take(&revision(3, b""), &record(3, b"b")).expect("taken");
        let entry = Entry { created: 2, modified: 3, value: b"b".to_vec() };
        assert_eq!(newest.present, BTreeMap::from([(b"k".to_vec(), entry)]));
        newest.take(&revision(4, b"t"), &[0x0a, 1, b'k']).expect("taken");
        assert!(newest.present.is_empty() && newest.revision == 4);
        for (key, value) in [
            (revision(5, b"x"), record(5, b"")),
            (b"short".to_vec(), record(5, b"")),
            (revision(5, b""), b"\x0a\x7f".to_vec()),
            (revision(5, b""), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()),
        ] {
            assert!(newest.take(&key, &value).is_err(), "{key:?} {value:?}");
        }
    }
}

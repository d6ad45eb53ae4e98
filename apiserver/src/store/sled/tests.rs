//! Properties of what reads the disk: whatever the bytes are, nothing panics and nothing wrong is taken for right.

use super::dump::{self, Head};
use super::record::{Batch, Record};
use super::report::IncidentKind;
use super::segment::{self, Head as SegmentHead, START, Step};
use super::{Options, SledStore};
use crate::store::keyspace::Item;
use crate::store::{Change, Commit, Revision};
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;

const SEGMENT: u64 = 7;

fn commit(revision: u64, changes: Vec<(String, Option<Vec<u8>>)>) -> Commit {
    let changes = changes.into_iter().map(|(key, value)| Change {
        key: key.into(),
        value: value.map(Bytes::from),
        created: Revision(1),
        previous: None,
    });
    Commit { revision: Revision(revision), changes: changes.collect() }
}

type Changes = Vec<(String, Option<Vec<u8>>)>;

fn groups() -> impl Strategy<Value = Vec<Changes>> {
    let change = ("[a-z]{0,8}", proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)));
    proptest::collection::vec(proptest::collection::vec(change, 0..3), 1..8)
}

/// A segment with one group for each commit, and where each ends.
fn written(groups: &[Changes]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = vec![0; START];
    let mut ends = Vec::new();
    for (revision, changes) in (1..).zip(groups) {
        let mut batch = Batch::default();
        batch.commit(&commit(revision, changes.clone()), 0);
        batch.seal(SEGMENT, u32::try_from(bytes.len()).unwrap());
        bytes.extend_from_slice(batch.bytes());
        ends.push(bytes.len());
    }
    bytes.resize(bytes.len() + 256, 0);
    (bytes, ends)
}

/// Revisions in the order they are found, 0 for a hole, and where the scan ended.
fn found(seq: u64, bytes: &[u8], end: Option<usize>) -> (Vec<u64>, usize) {
    let mut steps = Vec::new();
    let end = segment::scan(seq, bytes, end, |step| match step {
        Step::Hole(_) => steps.push(0),
        Step::Record(Record::Commit { revision, .. }) => steps.push(revision.0),
        Step::Record(_) => {}
    });
    (steps, end.offset)
}

proptest! {
    #[test]
    fn what_was_written_is_read(groups in groups()) {
        let (bytes, ends) = written(&groups);
        let mut read = Vec::new();
        segment::scan(SEGMENT, &bytes, None, |step| {
            if let Step::Record(Record::Commit { ops, .. }) = step {
                let pairs = ops.into_iter().map(|op| (op.key.to_string(), op.value.map(|(_, value)| value.to_vec())));
                read.push(pairs.collect::<Changes>());
            }
        });
        prop_assert_eq!(&read, &groups);
        prop_assert_eq!(found(SEGMENT, &bytes, None).1, *ends.last().unwrap());
        prop_assert_eq!(found(SEGMENT + 1, &bytes, None).0, Vec::<u64>::new());
    }

    /// A changed byte in an acknowledged group is a hole, in the last one a torn tail, and never anything else.
    #[test]
    fn damage_is_a_hole_or_a_torn_tail(groups in groups(), place in any::<prop::sample::Index>(), change in 1..=255u8) {
        let (mut bytes, ends) = written(&groups);
        let at = START + place.index(ends.last().unwrap() - START);
        bytes[at] ^= change;
        let hit = ends.iter().position(|end| at < *end).unwrap() as u64 + 1;
        let count = groups.len() as u64;
        let (steps, end) = found(SEGMENT, &bytes, None);
        let whole: Vec<u64> = (1..=count).collect();
        let without: Vec<u64> = if hit == count {
            (1..count).collect()
        } else {
            (1..=count).map(|revision| if revision == hit { 0 } else { revision }).collect()
        };
        // Padding belongs to no checksum.
        prop_assert!(steps == whole || steps == without, "{:?} for damage at {}", steps, at);
        prop_assert!(end <= *ends.last().unwrap());
        let sealed = found(SEGMENT, &bytes, ends.last().copied()).0;
        prop_assert!(sealed == whole || sealed.contains(&0), "{:?}", sealed);
    }

    #[test]
    fn arbitrary_bytes_are_no_records(bytes in proptest::collection::vec(any::<u8>(), 0..4096), end in 0..5000usize) {
        prop_assert_eq!(found(SEGMENT, &bytes, None).0, Vec::<u64>::new());
        found(SEGMENT, &bytes, Some(end));
        prop_assert!(dump::read(&bytes[..], drop).is_err());
    }

    #[test]
    fn a_dump_is_whole_or_refused(
        entries in proptest::collection::btree_map("[a-z]{1,8}", proptest::option::of(any::<Vec<u8>>()), 0..6),
        place in any::<prop::sample::Index>(),
        change in 1..=255u8,
    ) {
        let entries: Vec<(Arc<str>, Option<Item>)> = entries
            .into_iter()
            .map(|(key, value)| {
                let item = |value: Vec<u8>| Item { value: value.into(), created: Revision(3), modified: Revision(4) };
                (Arc::from(key), value.map(item))
            })
            .collect();
        let head = Head { revision: Revision(9), other: Revision(10), standalone: true };
        let mut bytes = Vec::new();
        dump::write(&mut bytes, head, entries.iter().map(|(key, item)| (key, item.as_ref()))).unwrap();
        let read = |bytes: &[u8]| {
            let mut all = Vec::new();
            dump::read(bytes, |entry| all.push(entry)).map(|head| (head, all))
        };
        prop_assert_eq!(read(&bytes).unwrap(), (head, entries.clone()));
        let at = place.index(bytes.len());
        bytes[at] ^= change;
        if let Ok(same) = read(&bytes) {
            // Bits that deflate does not use.
            prop_assert_eq!(same, (head, entries));
        }
        prop_assert!(read(&bytes[..at]).is_err());
    }
}

/// Commits `from..=to` as one group, written when the segment was durable up to `durable`.
fn group(from: u64, to: u64, durable: usize) -> Batch {
    let mut batch = Batch::default();
    for revision in from..=to {
        let key = format!("a./n/{revision}");
        batch.commit(&commit(revision, vec![(key, Some(vec![b'x'; 2000]))]), 0);
    }
    batch.seal(1, u32::try_from(durable).unwrap());
    batch
}

/// A store with one segment, whose first page never reached the disk.
fn headless(groups: &[Batch]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let head = SegmentHead { seq: 1, base: Revision(0), reserved: Revision(0), previous_end: 0 };
    let mut bytes = head.encode().to_vec();
    groups.iter().for_each(|group| bytes.extend_from_slice(group.bytes()));
    bytes.resize(usize::try_from(segment::SIZE).unwrap(), 0);
    bytes[..4096].fill(0);
    std::fs::write(segment::path(dir.path(), 1), bytes).unwrap();
    dir
}

#[test]
fn a_first_group_without_a_header_was_never_acknowledged() {
    let dir = headless(&[group(1, 5, START)]);
    let store = SledStore::open(dir.path(), Options::default()).unwrap();
    assert_eq!(store.shared.space.present().0.len(), 0);
    let incidents = store.report().incidents;
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert_eq!(incidents[0].kind, IncidentKind::TailCut);
    assert!(incidents[0].text.contains("header never reached the disk"), "{incidents:?}");
    drop(store);
    SledStore::open(dir.path(), Options::default()).unwrap();
}

#[test]
fn a_second_group_vouches_for_a_segment_without_a_header() {
    let first = group(1, 5, START);
    let second = group(6, 6, START + first.len());
    let dir = headless(&[first, second]);
    let error = SledStore::open(dir.path(), Options::default())
        .err()
        .expect("acknowledged commits are lost")
        .to_string();
    assert!(error.contains("damaged header"), "{error}");
    assert!(error.contains("coracle db repair --accept-loss-after 0"), "{error}");
}

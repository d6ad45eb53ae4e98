//! Properties of what reads the disk: whatever the bytes are, nothing panics and nothing wrong is taken for right.

use super::dump::{self, Head};
use super::format::Format;
use super::record::{Batch, Body};
use super::report::{IncidentKind, Reporter};
use super::segment::{self, Content, End, Head as SegmentHead, START, Step, Tail};
use super::{Options, SledStore};
use crate::item::Item;
use crate::{Change, Commit, Revision, Store, Value};
use proptest::prelude::*;
use std::sync::Arc;

const SEGMENT: u64 = 7;

fn commit(revision: u64, changes: Vec<(String, Option<Vec<u8>>)>) -> Commit {
    let changes = changes.into_iter().map(|(key, value)| Change {
        key: key.into(),
        value: value.map(Value::from),
        created: Revision(1),
        previous: None,
    });
    Commit { revision: Revision(revision), changes: changes.collect(), durable: true }
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
        batch.commit(&commit(revision, changes.clone()), 0, Revision(revision - 1));
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
    let end = segment::scan(seq, bytes, end, false, |step| match step {
        Step::Hole(_) => steps.push(0),
        Step::Record(record) => steps.extend(record.revision().map(|revision| revision.0)),
    });
    (steps, end.offset)
}

proptest! {
    #[test]
    fn what_was_written_is_read(groups in groups()) {
        let (bytes, ends) = written(&groups);
        let mut read = Vec::new();
        segment::scan(SEGMENT, &bytes, None, false, |step| {
            if let Step::Record(record) = step
                && let Body::Commit { ops, .. } = record.body
            {
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
        batch.commit(&commit(revision, vec![(key, Some(vec![b'x'; 2000]))]), 0, Revision(revision - 1));
    }
    batch.seal(1, u32::try_from(durable).unwrap());
    batch
}

/// A store with one segment, whose first page never reached the disk.
fn headless(groups: &[Batch]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let head = SegmentHead {
        seq: 1,
        base: Revision(0),
        reserved: Revision(0),
        previous_end: 0,
        size: segment::SIZE,
        marked: true,
    };
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

/// The same bytes where files get their names after their headers: it was damaged.
#[test]
fn a_named_segment_without_a_header_is_damaged() {
    let dir = headless(&[group(1, 5, START)]);
    Format::settle(dir.path()).unwrap();
    let error = SledStore::open(dir.path(), Options::default()).err().expect("a group is lost").to_string();
    assert!(error.contains("damaged header"), "{error}");
}

#[test]
fn a_store_of_a_later_version_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("format"), "4 4\n").unwrap();
    let error = SledStore::open(dir.path(), Options::default()).err().expect("it is too new").to_string();
    assert!(error.contains("a later version"), "{error}");
    std::fs::write(dir.path().join("format"), "4 3\n").unwrap();
    SledStore::open(dir.path(), Options::default()).expect("damage is no later version");
    assert_eq!(std::fs::read_to_string(dir.path().join("format")).unwrap(), "3 3\n");
}

/// A record as versions before the newest layout wrote it.
fn old_record(kind: u8, rest: &[u8], durable: usize) -> Vec<u8> {
    let payload = [&[kind], rest].concat();
    let durable = u32::try_from(durable).unwrap().to_le_bytes();
    let seed = crc32c::crc32c(&[&1_u64.to_le_bytes()[..], &durable].concat());
    let crc = crc32c::crc32c_append(seed, &payload);
    let len = u32::try_from(payload.len()).unwrap();
    let mut bytes =
        [&0x4a72_436f_u32.to_le_bytes()[..], &len.to_le_bytes(), &crc.to_le_bytes(), &durable, &payload]
            .concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn old_commit(revision: u64, key: &str, value: &[u8], durable: usize) -> Vec<u8> {
    let (key_len, value_len) = (u32::try_from(key.len()).unwrap(), u32::try_from(value.len()).unwrap());
    let mut rest = [revision, 0].map(u64::to_le_bytes).concat();
    rest.extend_from_slice(&1_u32.to_le_bytes());
    rest.extend_from_slice(&[&key_len.to_le_bytes()[..], key.as_bytes(), &[1]].concat());
    rest.extend_from_slice(&revision.to_le_bytes());
    rest.extend_from_slice(&[&value_len.to_le_bytes()[..], value].concat());
    old_record(1, &rest, durable)
}

/// Every kind of record, a clean stop, and a segment that was prepared and not used.
#[tokio::test]
async fn a_store_of_the_first_layout_opens_and_gets_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = [&b"COROJRN1"[..], &[1_u64, 0, 0, 0].map(u64::to_le_bytes).concat()].concat();
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.resize(START, 0);
    for revision in 1..=3 {
        bytes.extend(old_commit(revision, &format!("a./n/{revision}"), b"old", bytes.len()));
    }
    bytes.extend(old_record(2, &50_u64.to_le_bytes(), bytes.len()));
    bytes.extend(old_record(3, &0_u64.to_le_bytes(), bytes.len()));
    bytes.extend(old_record(4, &7_u64.to_le_bytes(), bytes.len()));
    bytes.resize(usize::try_from(segment::SIZE).unwrap(), 0);
    std::fs::write(segment::path(dir.path(), 1), bytes).unwrap();
    std::fs::write(segment::path(dir.path(), 2), []).unwrap();

    let store = SledStore::open(dir.path(), Options::default()).unwrap();
    assert_eq!(store.revision(), Revision(7), "nothing is skipped after a clean stop");
    assert!(store.report().incidents.is_empty(), "{:?}", store.report().incidents);
    let keys: Vec<Arc<str>> = store.shared.space.present().0.keys().cloned().collect();
    assert_eq!(keys, ["a./n/1", "a./n/2", "a./n/3"].map(Arc::from));
    assert!(!segment::path(dir.path(), 2).exists(), "a name without a header means damage from here on");
    assert_eq!(Format::of(dir.path()).unwrap(), Format::EndsMarked);
    store.commit(crate::suite::txn(vec![crate::suite::put("a./n/4", "new")])).await.unwrap();
    drop(store);
    let store = SledStore::open(dir.path(), Options::default()).unwrap();
    assert_eq!(store.shared.space.present().0.len(), 4);
    assert!(store.report().incidents.is_empty(), "{:?}", store.report().incidents);
}

#[tokio::test]
async fn incidents_come_one_after_the_other_and_a_storm_is_cut_short() {
    let reporter = Arc::new(Reporter::default());
    reporter.incident(IncidentKind::TailCut, "0".to_owned());
    let mut told = reporter.subscribe();
    assert_eq!(told.next().await.text, "0", "what happened before");
    for n in 1..=100 {
        reporter.incident(IncidentKind::CheckpointFailed, n.to_string());
    }
    for n in 37..=100 {
        assert_eq!(told.next().await.text, n.to_string());
    }
    let (next, ()) = tokio::join!(told.next(), async {
        tokio::task::yield_now().await;
        reporter.incident(IncidentKind::Writable, "101".to_owned());
    });
    assert_eq!(next.text, "101");
    let total =
        |wanted| reporter.report().incident_totals.into_iter().find(|(kind, _)| *kind == wanted).unwrap().1;
    assert_eq!((total(IncidentKind::CheckpointFailed), total(IncidentKind::TailCut)), (100, 1));
}

#[test]
fn only_what_stands_at_the_end_can_have_been_acknowledged() {
    let unsure = |offset, tail, unreadable: &[usize]| {
        let content = Content { bytes: vec![0; 16384], unreadable: unreadable.to_vec() };
        content.is_unsure_at(End { offset, tail })
    };
    assert!(!unsure(5000, Tail::Clean, &[8192]), "nothing begins there");
    assert!(unsure(5000, Tail::Clean, &[4096]));
    assert!(unsure(8184, Tail::Clean, &[8192]), "the next record may reach into it");
    assert!(unsure(5000, Tail::Broken, &[8192]), "the next record does reach into it");
    assert!(unsure(16376, Tail::Clean, &[]), "there is no room for a record");
}

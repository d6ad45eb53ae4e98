//! Commits from before this process, as the journal still tells them.

use super::commits::StoredCommit;
use super::record::{Body, Record};
use super::segment::{self, Segment, Step};
use crate::item::Item;
use crate::{Revision, StoreError};
use std::collections::BTreeSet;
use std::path::Path;

/// What happened while nobody listened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Everything up to this revision was there already.
    pub after: Revision,
    pub commits: Vec<StoredCommit>,
}

/// Beyond so many bytes nothing is told: they would all be in memory.
const MOST_BYTES: usize = 64 << 20;

/// Of the revisions `known` the newest that the journal has seen, and every durable commit after it, in order. `None`: it has
/// seen none of them, or something of what came after cannot be read.
pub(super) fn since(dir: &Path, known: &BTreeSet<Revision>) -> Result<Option<Missed>, StoreError> {
    let mut segments = segment::list(dir)?;
    if segments.last().is_some_and(|last| last.head.is_none()) {
        // Not begun yet. Had it been, recovery would have told what is lost with it.
        segments.pop();
    }
    let mut seen = None;
    for (index, segment) in segments.iter().enumerate() {
        let follows = index == 0 || segments[index - 1].seq + 1 == segment.seq;
        // What is in front of a gap tells nothing.
        let mut found = seen.filter(|_| follows);
        let mut note = |revision: Revision| found = found.max(known.get(&revision).copied());
        note(segment.head.map_or(Revision(0), |head| head.base));
        let whole = scan(segment, segments.get(index + 1), |record| {
            [record.revision(), record.before].into_iter().flatten().for_each(&mut note);
        })?;
        seen = found.filter(|_| whole);
    }
    let Some(after) = seen else { return Ok(None) };
    let first = segments.iter().rposition(|segment| segment.head.is_some_and(|head| head.base <= after));
    let (mut commits, mut bytes) = (Vec::new(), 0);
    for (index, segment) in segments.iter().enumerate().skip(first.unwrap_or(0)) {
        scan(segment, segments.get(index + 1), |record| {
            if record.revision().is_some_and(|revision| revision > after) && bytes <= MOST_BYTES {
                commits.extend(commit(record));
                bytes += commits.last().map_or(0, StoredCommit::held_len);
            }
        })?;
    }
    Ok((bytes <= MOST_BYTES).then_some(Missed { after, commits }))
}

/// Whether all of it could be read.
fn scan(segment: &Segment, next: Option<&Segment>, mut each: impl FnMut(Record)) -> Result<bool, StoreError> {
    let Some(head) = segment.head else { return Ok(false) };
    let content = segment.read()?;
    let end = next.and_then(|next| next.head).map(|head| head.previous_end);
    let end = end.map(|end| usize::try_from(end).unwrap_or(usize::MAX));
    let mut whole = content.unreadable.is_empty();
    segment::scan(segment.seq, &content.bytes, end, head.marked, |step| match step {
        Step::Record(record) => each(record),
        Step::Hole(_) => whole = false,
    });
    Ok(whole)
}

fn commit(record: Record) -> Option<StoredCommit> {
    let Body::Commit { revision, millis, ops } = record.body else { return None };
    let item = |(created, value): (Revision, bytes::Bytes)| Item {
        value: value.into(),
        created,
        modified: revision,
    };
    let changes = ops.into_iter().map(|op| (op.key, op.value.map(item))).collect();
    Some(StoredCommit { revision, millis, changes })
}

#[cfg(test)]
mod tests {
    use super::Missed;
    use crate::sled::{Options, SledStore};
    use crate::{Durability, Op, Revision, Store, Txn};

    async fn commit(store: &SledStore, key: &str, value: &str, durability: Durability) -> u64 {
        let op = Op::Put { key: key.into(), value: value.to_owned().into() };
        let txn = Txn { durability, ops: vec![op], guards: Vec::new() };
        store.commit(txn).await.expect("committed").0
    }

    fn since(dir: &std::path::Path, after: &[u64]) -> Option<Missed> {
        let options = Options {
            since: after.iter().map(|revision| Revision(*revision)).collect(),
            snapshot_bytes: 1,
            checkpoint_bytes: 1,
            ..Options::default()
        };
        let store = SledStore::open(dir, options).expect("a store");
        let missed = store.take_missed();
        assert_eq!(store.take_missed(), None, "once");
        missed
    }

    #[tokio::test]
    async fn what_is_durable_is_told_after_any_stop_and_damage_or_a_gap_is_admitted() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let store = SledStore::open(dir.path(), Options::default()).expect("a store");
        assert_eq!(store.take_missed(), None, "nobody asked");
        let first = commit(&store, "a./n/1", "x", Durability::Synced).await;
        commit(&store, "leases./n/1", "x", Durability::Volatile).await;
        let batched = commit(&store, "events./n/1", "x", Durability::Batched).await;
        let last = commit(&store, "a./n/1", "y", Durability::Synced).await;
        store.close().await.expect("closed");
        drop(store);
        let told_of = |known: &[u64]| {
            let of = |missed: Missed| {
                (missed.after.0, missed.commits.iter().map(|c| c.revision.0).collect::<Vec<_>>())
            };
            since(dir.path(), known).map(of)
        };
        let told = |after| told_of(&[after]).map(|(_, commits)| commits);
        assert_eq!(told(0), Some(vec![first, batched, last]));
        assert_eq!(told(first), Some(vec![batched, last]));
        assert_eq!(told(last), Some(Vec::new()));
        assert_eq!(
            told_of(&[first, batched, last + 500]),
            Some((batched, vec![last])),
            "the newest that was there"
        );
        assert_eq!(told(last + 500), None, "of another past");
        assert_eq!(told_of(&[]), None);

        let store = SledStore::open(dir.path(), Options::default()).expect("a store");
        let large = "x".repeat(3 << 20);
        // More than twice what is there in the end, so that a snapshot is due.
        for _ in 0..5 {
            commit(&store, "a./n/2", &large, Durability::Synced).await;
        }
        let later = commit(&store, "a./n/5", "x", Durability::Synced).await;
        drop(store);
        assert_eq!(told(later - 1), Some(vec![later]), "killed");
        let options = Options { snapshot_bytes: 1, checkpoint_bytes: 1, ..Options::default() };
        let store = SledStore::open(dir.path(), options).expect("a store");
        let newest = commit(&store, "a./n/5", "y", Durability::Synced).await;
        store.close().await.expect("closed");
        drop(store);
        assert_eq!(told(last), None, "the snapshot has let the journal go");
        assert_eq!(told(newest), Some(Vec::new()));
    }
}

//! Commits from before this process, as the journal still tells them.

use super::commits::StoredCommit;
use super::record::{Body, Record};
use super::segment::{self, Segment, Step};
use crate::item::Item;
use crate::{Revision, StoreError};

/// Every durable commit after `after`, in order. `None`: the journal does not reach back so far, or something of it cannot be
/// read.
pub(super) fn since(dir: &std::path::Path, after: Revision) -> Result<Option<Vec<StoredCommit>>, StoreError> {
    let mut segments = segment::list(dir)?;
    if segments.last().is_some_and(|last| last.head.is_none()) {
        // Not begun yet. Had it been, recovery would have told what is lost with it.
        segments.pop();
    }
    let Some(first) =
        segments.iter().rposition(|segment| segment.head.is_some_and(|head| head.base <= after))
    else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for (index, segment) in segments.iter().enumerate().skip(first) {
        let next = segments.get(index + 1);
        if next.is_some_and(|next| next.seq != segment.seq + 1) || !collect(segment, next, &mut found)? {
            return Ok(None);
        }
    }
    found.retain(|commit| commit.revision > after);
    Ok(Some(found))
}

/// Whether all of it could be read.
fn collect(
    segment: &Segment,
    next: Option<&Segment>,
    found: &mut Vec<StoredCommit>,
) -> Result<bool, StoreError> {
    let Some(head) = segment.head else { return Ok(false) };
    let content = segment.read()?;
    let end = next.and_then(|next| next.head).map(|head| head.previous_end);
    let end = end.map(|end| usize::try_from(end).unwrap_or(usize::MAX));
    let mut whole = content.unreadable.is_empty();
    segment::scan(segment.seq, &content.bytes, end, head.marked, |step| match step {
        Step::Record(record) => found.extend(commit(record)),
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
    use crate::sled::{Options, SledStore, StoredCommit};
    use crate::{Durability, Op, Revision, Store, Txn};

    async fn commit(store: &SledStore, key: &str, value: &str, durability: Durability) -> u64 {
        let op = Op::Put { key: key.into(), value: value.to_owned().into() };
        let txn = Txn { durability, ops: vec![op], guards: Vec::new() };
        store.commit(txn).await.expect("committed").0
    }

    fn since(dir: &std::path::Path, after: u64) -> Option<Vec<StoredCommit>> {
        let options = Options {
            since: Some(Revision(after)),
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
        let told = |after| {
            since(dir.path(), after).map(|found| found.iter().map(|c| c.revision.0).collect::<Vec<_>>())
        };
        assert_eq!(told(0), Some(vec![first, batched, last]));
        assert_eq!(told(first), Some(vec![batched, last]));
        assert_eq!(told(last), Some(Vec::new()));

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

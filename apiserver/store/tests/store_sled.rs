//! The sled backend: the suite that every backend passes, and what outlives its process.

#![allow(
    clippy::unwrap_used,
    reason = "all of this file is a test; clippy sees only its test functions as such"
)]

use bytes::Bytes;
use coracle_store::sled::{Options, Picture, SledStore, inspect, restore};
use coracle_store::suite::{bytes_of, delete, put, txn, value};
use coracle_store::{Durability, Limits, Range, Revision, Store, StoreError, Txn};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

coracle_store::store_suite!({
    let dir = TempDir::new().unwrap();
    let store: Arc<dyn Store> = SledStore::open(dir.path(), Options::default()).unwrap();
    (store, dir)
});

/// Small limits, so that checkpoints, snapshots and rotations happen all the time.
fn busy() -> Options {
    Options {
        checkpoint_bytes: 64 << 10,
        snapshot_bytes: 256 << 10,
        tree_bytes: 2 << 20,
        ..Options::default()
    }
}

fn open(dir: &Path) -> Arc<SledStore> {
    SledStore::open(dir, Options::default()).unwrap()
}

/// What a kill at this moment leaves: the files as they are.
fn killed(dir: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    let status =
        std::process::Command::new("cp").arg("-a").arg(dir.join(".")).arg(copy.path()).status().unwrap();
    assert!(status.success());
    copy
}

async fn commit(store: &SledStore, durability: Durability, key: &str, text: &str) -> Revision {
    let ops = vec![put(key, text.to_owned())];
    store.commit(Txn { ops, durability, ..Txn::default() }).await.unwrap()
}

#[tokio::test]
async fn durability_classes() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    commit(&store, Durability::Synced, "a./n/both", "durable").await;
    commit(&store, Durability::Synced, "a./n/gone", "durable").await;
    commit(&store, Durability::Volatile, "a./n/both", "heartbeat").await;
    commit(&store, Durability::Volatile, "a./n/volatile", "heartbeat").await;
    let gone = Txn { ops: vec![delete("a./n/gone")], durability: Durability::Volatile, ..Txn::default() };
    store.commit(gone).await.unwrap();
    let last = commit(&store, Durability::Batched, "a./n/event", "batched").await;
    assert_eq!(value(&*store, "a./n/both").await.unwrap(), "heartbeat");

    let crashed = killed(dir.path());
    let after = open(crashed.path());
    assert!(after.revision() >= last, "revisions are monotonic over a crash");
    assert_eq!(value(&*after, "a./n/both").await.unwrap(), "durable");
    assert_eq!(value(&*after, "a./n/gone").await.unwrap(), "durable");
    assert_eq!(value(&*after, "a./n/volatile").await, None);
    assert_eq!(value(&*after, "a./n/event").await, None, "not yet due, and nothing durable came after it");
    drop(after);

    commit(&store, Durability::Synced, "a./n/later", "durable").await;
    let after = open(killed(dir.path()).path());
    assert_eq!(
        value(&*after, "a./n/event").await.unwrap(),
        "batched",
        "a durable commit takes along what waits"
    );

    let last = commit(&store, Durability::Batched, "a./n/event", "again").await;
    store.close().await.unwrap();
    let after = open(dir.path());
    assert_eq!(after.revision(), last, "a clean stop skips no revision");
    assert_eq!(value(&*after, "a./n/event").await.unwrap(), "again");
    assert_eq!(value(&*after, "a./n/both").await.unwrap(), "durable");
    let next = commit(&after, Durability::Synced, "a./n/next", "x").await;
    assert_eq!(next, Revision(last.0 + 1));
}

#[tokio::test]
async fn batched_commits_become_durable_in_time() {
    let dir = TempDir::new().unwrap();
    let options = Options { batch_delay: Duration::from_millis(50), ..Options::default() };
    let store = SledStore::open(dir.path(), options).unwrap();
    commit(&store, Durability::Volatile, "a./n/reserves", "x").await;
    let groups = store.report().groups;
    commit(&store, Durability::Batched, "a./n/event", "x").await;
    assert_eq!(store.report().groups, groups, "acknowledged before it is durable");
    let written = async {
        while store.report().groups == groups {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), written).await.expect("durable in time");
    let after = open(killed(dir.path()).path());
    assert_eq!(value(&*after, "a./n/event").await.unwrap(), "x");
}

/// Heartbeats on a store that has its revisions reserved write nothing at all.
#[tokio::test]
async fn volatile_commits_do_not_touch_the_disk() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    commit(&store, Durability::Volatile, "leases./n/1", "x").await;
    let before = store.report();
    for _ in 0..1000 {
        commit(&store, Durability::Volatile, "leases./n/1", "x").await;
    }
    let after = store.report();
    assert_eq!(after.journal_bytes_written, before.journal_bytes_written);
    assert_eq!(after.groups, before.groups);
    assert_eq!(after.commits, before.commits + 1000);
}

#[tokio::test]
async fn everything_outlives_checkpoints_and_snapshots() {
    let dir = TempDir::new().unwrap();
    let mut expected = std::collections::BTreeMap::new();
    for round in 0..6u32 {
        let store = SledStore::open(dir.path(), busy()).unwrap();
        assert_eq!(store.report().incidents.len(), 0);
        for index in 0..200u32 {
            let key = format!("a./n/{}", (index * 7 + round) % 300);
            if index % 10 == 9 {
                store.commit(txn(vec![delete(&key)])).await.unwrap();
                expected.remove(&key);
                continue;
            }
            let len = if index % 50 == 0 { 200_000 } else { 3000 + (index + round) as usize };
            store.commit(txn(vec![put(&key, bytes_of(len))])).await.unwrap();
            expected.insert(key, bytes_of(len));
        }
        if round % 2 == 0 {
            store.close().await.unwrap();
        }
        let report = store.report();
        assert!(report.checkpoints > 0, "{report:?}");
        drop(store);
    }
    assert!(dir.path().join("snapshot").exists(), "the journal outgrew its limit");
    let blobs = std::fs::read_dir(dir.path().join("sled/blobs")).unwrap().count();
    assert_eq!(blobs, 0);
    let store = open(dir.path());
    let listing = store.range(Range::default()).await.unwrap();
    let held: std::collections::BTreeMap<String, Bytes> =
        listing.items.into_iter().map(|kv| (kv.key.to_string(), kv.value.bytes())).collect();
    assert!(held == expected, "{} keys, expected {}", held.len(), expected.len());
}

/// History is there again after a clean stop (which makes a checkpoint) and after a kill: same commits, same previous
/// values, same lists at old revisions.
#[tokio::test]
async fn history_outlives_the_process() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    for index in 0..20 {
        commit(&store, Durability::Synced, &format!("a./n/{}", index % 3), &index.to_string()).await;
        if index == 10 {
            store.close().await.unwrap();
        }
        if index == 10 {
            break;
        }
    }
    let told = |store: &SledStore, after| {
        let mut events = store.watch("a.", after).unwrap();
        let mut seen = Vec::new();
        while let Ok(event) = events.try_recv() {
            seen.push(format!("{event:?}"));
        }
        seen
    };
    let store = open(dir.path());
    assert_eq!(store.oldest(), Revision(0));
    for index in 11..20 {
        commit(&store, Durability::Synced, &format!("a./n/{}", index % 3), &index.to_string()).await;
    }
    let before = told(&store, Revision(0));
    assert_eq!(before.len(), 20);
    let past = store.range(Range { at: Some(Revision(7)), ..Range::default() }).await.unwrap();
    let crashed = killed(dir.path());
    store.close().await.unwrap();
    for dir in [crashed.path(), dir.path()] {
        let store = open(dir);
        assert_eq!(store.oldest(), Revision(0));
        assert_eq!(told(&store, Revision(0)), before);
        let again = store.range(Range { at: Some(Revision(7)), ..Range::default() }).await.unwrap();
        assert_eq!(again.items, past.items);
    }
}

#[tokio::test]
async fn history_limits_hold_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let options = || Options { history: Limits { revisions: 10, ..Limits::default() }, ..Options::default() };
    let store = SledStore::open(dir.path(), options()).unwrap();
    for index in 0..30 {
        commit(&store, Durability::Synced, "a./n/1", &index.to_string()).await;
    }
    store.close().await.unwrap();
    let store = SledStore::open(dir.path(), options()).unwrap();
    assert_eq!(store.oldest(), Revision(20));
    assert!(matches!(store.watch("", Revision(19)), Err(StoreError::Compacted { .. })));
}

#[tokio::test]
async fn one_process_at_a_time() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    match SledStore::open(dir.path(), Options::default()).map(|_| ()) {
        Err(StoreError::Io { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::ResourceBusy);
        }
        other => panic!("opened twice: {other:?}"),
    }
    store.close().await.unwrap();
    open(dir.path());
}

#[tokio::test]
async fn backup_and_restore() {
    const AHEAD: u64 = 1 << 20;
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let created = commit(&store, Durability::Synced, "a./n/1", "x").await;
    let last = commit(&store, Durability::Synced, "a./n/1", "y").await;
    let mut backup = Vec::new();
    let picture = store.picture();
    commit(&store, Durability::Synced, "a./n/1", "later").await;
    assert_eq!((picture.revision(), picture.objects()), (last, 1));
    picture.write(&mut backup).unwrap();
    assert_eq!(inspect(&backup[..]).unwrap(), (last, 1));

    let target = TempDir::new().unwrap();
    let revision = restore(&backup[..], target.path().join("db"), AHEAD).unwrap();
    assert_eq!(revision.0, last.0 + AHEAD);
    for _ in 0..2 {
        let restored = open(&target.path().join("db"));
        assert!(restored.revision() >= revision);
        let kv = restored.get("a./n/1").await.unwrap().unwrap();
        assert_eq!((&*kv.value.bytes(), kv.created, kv.modified), (&b"y"[..], created, last));
        commit(&restored, Durability::Synced, "a./n/2", "z").await;
        restored.close().await.unwrap();
    }

    let full = restore(&backup[..], target.path().join("db"), AHEAD);
    assert!(
        matches!(full, Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::DirectoryNotEmpty)
    );
    for at in [3, 20, backup.len() / 2, backup.len() - 1] {
        let mut bad = backup.clone();
        bad[at] ^= 1;
        let target = TempDir::new().unwrap();
        assert!(restore(&bad[..], target.path(), AHEAD).is_err(), "a flipped bit at {at}");
        assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    }
    assert!(
        restore(&backup[..backup.len() - 1], TempDir::new().unwrap().path(), AHEAD).is_err(),
        "cut short"
    );
}

#[tokio::test]
async fn a_stopped_store_is_read_and_not_changed() {
    let dir = TempDir::new().unwrap();
    let absent = Picture::of_stopped(dir.path().join("none"));
    assert!(absent.is_err() && !dir.path().join("none").exists());
    let store = open(dir.path());
    let first = commit(&store, Durability::Synced, "a./n/1", "x").await;
    assert!(Picture::of_stopped(dir.path()).is_err(), "a process has it open");
    drop(store);
    let files = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    let picture = Picture::of_stopped(dir.path()).unwrap();
    assert_eq!((picture.revision(), picture.objects()), (first, 1));
    assert_eq!(picture.items().next().map(|kv| kv.value.bytes()).as_deref(), Some(&b"x"[..]));
    assert_eq!(files(), before);
}

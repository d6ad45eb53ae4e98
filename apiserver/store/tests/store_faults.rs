//! Faults under the sled backend: kill -9, torn and flipped bytes, a full disk.

#![allow(
    clippy::unwrap_used,
    reason = "all of this file is a test; clippy sees only its test functions as such"
)]

#[path = "store_faults/full.rs"]
mod full;
#[path = "store_faults/journal.rs"]
mod journal;
#[path = "store_faults/kill.rs"]
mod kill;
#[path = "store_faults/random.rs"]
mod random;
#[path = "store_faults/repair.rs"]
mod repair;
#[path = "store_faults/tree.rs"]
mod tree;

use coracle_store::sled::{self, IncidentKind, Options, Refusal, SledStore};
use coracle_store::suite::{bytes_of, put, txn, value};
use coracle_store::{Durability, Range, Revision, Store, StoreError, Txn};
use rand::Rng;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

fn open(dir: &Path) -> Result<Arc<SledStore>, StoreError> {
    SledStore::open(dir, Options::default())
}

/// A store with `count` acknowledged values that was killed, and where its files are.
async fn written(count: usize, options: Options) -> (TempDir, TempDir) {
    written_by(1, count, options).await
}

/// Likewise, by several writers: in no certain order, and much quicker.
async fn written_by(writers: usize, count: usize, options: Options) -> (TempDir, TempDir) {
    let dir = TempDir::new().unwrap();
    // No note of the last commit, however slow the machine is.
    let options = Options { vouch_delay: Duration::from_secs(3600), ..options };
    let store = SledStore::open(dir.path(), options).unwrap();
    for first in (0..count).step_by(writers) {
        let put = |index| put(&format!("a./n/{index:04}"), bytes_of(1000 + index));
        let group = (first..count.min(first + writers)).map(|index| store.commit(txn(vec![put(index)])));
        futures::future::try_join_all(group).await.unwrap();
    }
    let copy = TempDir::new().unwrap();
    let from = dir.path().join(".");
    assert!(Command::new("cp").arg("-a").arg(from).arg(copy.path()).status().unwrap().success());
    drop(store);
    (copy, dir)
}

/// The same after a clean stop, with some more commits after the checkpoint it made.
async fn checkpointed() -> TempDir {
    let (_, dir) = written(100, Options::default()).await;
    open(dir.path()).unwrap().close().await.unwrap();
    let store = open(dir.path()).unwrap();
    for index in 100..110 {
        store.commit(txn(vec![put(&format!("a./n/{index:04}"), bytes_of(1000 + index))])).await.unwrap();
    }
    dir
}

async fn intact(store: &SledStore, count: usize) {
    let listing = store.range(Range::default()).await.unwrap();
    assert_eq!(listing.items.len(), count);
    for (index, kv) in listing.items.iter().enumerate() {
        assert!(kv.value.bytes() == bytes_of(1000 + index), "{}", kv.key);
    }
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("journal-000000000001")
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Where the record that holds the key begins, and where its value ends.
fn record_of(bytes: &[u8], key: &str) -> (usize, usize) {
    let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
    let mark = bytes[64..68].to_vec();
    let start = (0..at).rev().find(|start| bytes[*start..*start + 4] == mark).unwrap();
    let len = u32::from_le_bytes(bytes[start + 4..start + 8].try_into().unwrap()) as usize;
    (start, start + 16 + len)
}

/// Drops a store whose newest commit is noted, as a kill would.
async fn noted(dir: &Path, store: Arc<SledStore>) {
    let path = dir.join("witness");
    let _ = std::fs::remove_file(&path);
    let ops = vec![put("a./n/0000", bytes_of(1000))];
    store.commit(txn(ops)).await.unwrap();
    let noted = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), noted).await.expect("a note of the commit");
    drop(store);
}

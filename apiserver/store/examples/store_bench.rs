//! Figures of the sled backend on the disk that holds a directory: `store_bench [DIR]`.
//!
//! Prints durable commits a second with 1 and 64 writers (values of 1.5 KB, each key created and then updated, as
//! objects are), bytes that reach the block device for each, and how long opening takes empty and with 10,000 objects.

use coracle_store::sled::{Options, SledStore};
use coracle_store::{Durability, Op, Store, Txn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_secs(5);
const OBJECTS: usize = 10_000;
const VALUE_BYTES: usize = 1500;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = parent.join(format!("store-bench-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let result = run(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    result
}

async fn run(dir: &Path) -> Result<(), Failure> {
    println!("{:<40} {:>12}", "figure", "value");
    print("fdatasync of 2 KB in a zeroed file, alone", raw(&dir.join("raw"))?, "/s");
    let start = Instant::now();
    let store = SledStore::open(dir.join("empty"), Options::default())?;
    print("open, empty directory", start.elapsed().as_secs_f64() * 1e3, "ms");
    let start = Instant::now();
    store.commit(transaction("a./n/first", Durability::Synced)).await?;
    print("first durable commit", start.elapsed().as_secs_f64() * 1e3, "ms");
    store.close().await?;
    for (writers, durability, what) in [
        (1, Durability::Synced, "durable"),
        (64, Durability::Synced, "durable"),
        (1, Durability::Volatile, "volatile"),
    ] {
        throughput(&dir.join(format!("{writers}-{what}")), writers, durability, what).await?;
    }
    start_up(&dir.join("start")).await
}

/// What the disk gives at best: appends to a file whose blocks are written already, each synced.
fn raw(path: &Path) -> Result<f64, Failure> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path)?;
    for page in 0..8192u64 {
        file.write_all_at(&[0; 4096], page * 4096)?;
    }
    file.sync_all()?;
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed() < RUN && count < 16_000 {
        file.write_all_at(&[1; 2048], u64::from(count) * 2048)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

fn print(figure: &str, value: f64, unit: &str) {
    println!("{figure:<40} {value:>12.1} {unit}");
}

fn transaction(key: &str, durability: Durability) -> Txn {
    let mut value = vec![b'x'; VALUE_BYTES];
    value[..key.len()].copy_from_slice(key.as_bytes());
    let ops = vec![Op::Put { key: key.into(), value: value.into() }];
    Txn { ops, durability, ..Txn::default() }
}

async fn throughput(dir: &Path, writers: usize, durability: Durability, what: &str) -> Result<(), Failure> {
    let store = SledStore::open(dir, Options::default())?;
    let written = device_bytes();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        tasks.spawn(write_until(store.clone(), writer, durability, start + RUN));
    }
    let mut count = 0;
    while let Some(done) = tasks.join_next().await {
        count += done?.map_err(|error| error.to_string())?;
    }
    let elapsed = start.elapsed().as_secs_f64();
    print(&format!("{what} commits, {writers} writers"), count as f64 / elapsed, "/s");
    let report = store.report();
    print("  commits a sync", report.commits as f64 / report.groups.max(1) as f64, "");
    let device = device_bytes().saturating_sub(written);
    store.close().await?;
    print("  to the journal a commit", report.journal_bytes_written as f64 / count as f64 / 1e3, "KB");
    print("  written by the process a commit", device as f64 / count as f64 / 1e3, "KB");
    print("  checkpoints meanwhile", report.checkpoints as f64, "");
    Ok(())
}

async fn write_until(
    store: Arc<SledStore>,
    writer: usize,
    durability: Durability,
    end: Instant,
) -> Result<u64, coracle_store::StoreError> {
    let mut count = 0;
    while Instant::now() < end {
        store.commit(transaction(&format!("pods./bench/{writer}-{}", count % 500), durability)).await?;
        count += 1;
    }
    Ok(count)
}

async fn start_up(dir: &Path) -> Result<(), Failure> {
    let store = SledStore::open(dir, Options::default())?;
    for index in 0..OBJECTS {
        store.commit(transaction(&format!("pods./bench/{index}"), Durability::Batched)).await?;
    }
    store.close().await?;
    for what in ["open, 10,000 objects, after a clean stop", "again"] {
        let start = Instant::now();
        let store = SledStore::open(dir, Options::default())?;
        print(what, start.elapsed().as_secs_f64() * 1e3, "ms");
        assert_eq!(store.report().objects, OBJECTS as u64);
        store.close().await?;
    }
    let store = SledStore::open(dir, Options::default())?;
    for index in 0..5_000 {
        store.commit(transaction(&format!("pods./bench/{index}"), Durability::Batched)).await?;
    }
    drop(store);
    let start = Instant::now();
    let store = SledStore::open(dir, Options::default())?;
    print("open, 10,000 objects, 5,000 in the journal", start.elapsed().as_secs_f64() * 1e3, "ms");
    let start = Instant::now();
    store.close().await?;
    print("close", start.elapsed().as_secs_f64() * 1e3, "ms");
    let held: u64 =
        std::fs::read_dir(dir.join("sled"))?.flatten().flat_map(|e| e.metadata()).map(|m| m.len()).sum();
    print("sled's files", held as f64 / 1e6, "MB");
    Ok(())
}

/// Bytes that this process sent towards block devices.
fn device_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

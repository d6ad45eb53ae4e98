//! What the embedded store costs in memory: `store_memory DIR [objects] [bytes]`.
//!
//! Prints the resident memory of the process before and after so many objects were created, checkpoints included, and
//! after each was written once more.

use coracle_store::sled::{Options, SledStore};
use coracle_store::{Op, Store, Txn};
use std::sync::Arc;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

fn anonymous_mib() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? / 1024)
}

async fn write_all(store: &Arc<SledStore>, objects: usize, bytes: usize) -> Result<(), Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..16 {
        let store = store.clone();
        tasks.spawn(async move {
            for number in (worker..objects).step_by(16) {
                let key = format!("configmaps./default/object-{number}").into();
                let value = vec![b'x'; bytes].into();
                store.commit(Txn { ops: vec![Op::Put { key, value }], ..Txn::default() }).await?;
            }
            Ok::<_, coracle_store::StoreError>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: store_memory DIR [objects] [bytes]")?;
    let objects: usize = args.next().map_or(Ok(10_000), |a| a.parse())?;
    let bytes: usize = args.next().map_or(Ok(3700), |a| a.parse())?;
    let store = SledStore::open(&dir, Options::default())?;
    println!("| moment | anonymous memory, MiB | checkpoints |");
    println!("|---|---|---|");
    println!("| opened | {} | 0 |", anonymous_mib()?);
    for moment in ["created", "written again"] {
        write_all(&store, objects, bytes).await?;
        tokio::time::sleep(Duration::from_secs(8)).await;
        println!("| {moment} | {} | {} |", anonymous_mib()?, store.report().checkpoints);
    }
    println!("| of that, values | {} | |", (objects * bytes) >> 20);
    store.close().await?;
    println!("| closed | {} | |", anonymous_mib()?);
    Ok(())
}

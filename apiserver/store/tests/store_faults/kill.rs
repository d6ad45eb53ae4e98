//! kill -9 of a process that writes.

use super::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

const CHILD: &str = "CORACLE_STORE_CHILD";
const WRITERS: usize = 6;

/// Limits so small that the kill hits checkpoints, snapshots, rotations and rebuilds too.
fn busy() -> Options {
    Options {
        checkpoint_bytes: 512 << 10,
        snapshot_bytes: 3 << 20,
        tree_bytes: 4 << 20,
        reserve_block: 50,
        ..Options::default()
    }
}

/// Not a test: what the parent kills. Prints a line for every acknowledged write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child process of kill_9"]
async fn kill_9_child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let store = SledStore::open(dir, busy()).unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write_forever(store.clone(), writer));
    }
    writers.join_next().await;
    panic!("a writer ended");
}

async fn write_forever(store: Arc<SledStore>, writer: usize) {
    let durability =
        [Durability::Synced, Durability::Batched, Durability::Volatile][writer.saturating_sub(3)];
    for count in 0.. {
        let key = format!("k./{writer}/{}", count % 40);
        let held = value(&*store, &key).await.map_or(0, |value| count_in(&value));
        let len = if count % 64 == 63 { 200_000 } else { 1500 };
        let mut bytes = format!("{:020}", held + 1).into_bytes();
        bytes.extend_from_slice(&bytes_of(len));
        let ops = vec![put(&key, bytes)];
        let revision = store.commit(Txn { ops, durability, ..Txn::default() }).await.unwrap();
        let line = format!("ack {key} {} {} {durability:?}\n", held + 1, revision.0);
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        if durability != Durability::Synced {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn count_in(value: &[u8]) -> u64 {
    std::str::from_utf8(&value[..20]).unwrap().parse().unwrap()
}

#[derive(Default)]
struct Acknowledged {
    /// Newest durable count of a key.
    counts: HashMap<String, u64>,
    durable: Vec<Revision>,
    newest: Revision,
}

impl Acknowledged {
    fn line(&mut self, line: &str) {
        let Some(at) = line.find("ack k./") else { return };
        let fields: Vec<&str> = line[at..].split_whitespace().collect();
        let [_, key, count, revision, durability] = fields[..] else { return };
        let revision = Revision(revision.parse().unwrap());
        self.newest = self.newest.max(revision);
        if durability == "Synced" {
            let held = self.counts.entry(key.to_owned()).or_default();
            *held = (*held).max(count.parse().unwrap());
            self.durable.push(revision);
        }
    }
}

#[tokio::test]
async fn kill_9() {
    let dir = TempDir::new().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..8 {
        let before = acknowledged.durable.len();
        run_and_kill(dir.path(), &mut acknowledged);
        let durable = &mut acknowledged.durable[before..];
        assert!(!durable.is_empty(), "round {round}: nothing was written");
        durable.sort();
        let store = SledStore::open(dir.path(), busy()).unwrap();
        let incidents = store.report().incidents;
        assert!(
            incidents.iter().all(|incident| costs_nothing(incident.kind)),
            "round {round}: {incidents:?}"
        );
        assert!(store.revision() >= acknowledged.newest, "round {round}: revisions went back");
        for (key, count) in &acknowledged.counts {
            let held = value(&*store, key).await.map(|value| count_in(&value));
            assert!(held >= Some(*count), "round {round}: {key} holds {held:?}, acknowledged {count}");
        }
        let durable = &acknowledged.durable[before..];
        let from = store.oldest().max(Revision(durable[0].0 - 1));
        let mut events = store.watch("", from).unwrap();
        let mut seen = Vec::new();
        while let Ok(event) = events.try_recv() {
            seen.push(event.revision);
        }
        assert!(seen.is_sorted());
        for revision in durable.iter().filter(|revision| **revision > from) {
            assert!(seen.binary_search(revision).is_ok(), "round {round}: watchers miss {revision:?}");
        }
        drop(store);
    }
}

/// What is said of a write that was not finished, and of a checkpoint that is made anew because sled was not done with it.
/// The journal and the snapshot are never damaged by a kill.
fn costs_nothing(kind: IncidentKind) -> bool {
    matches!(kind, IncidentKind::TailCut | IncidentKind::CheckpointDamaged)
}

fn run_and_kill(dir: &Path, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::kill_9_child", "--ignored", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    let (first, started) = std::sync::mpsc::channel();
    let killer = std::thread::spawn(move || {
        started.recv().expect("the child writes something");
        std::thread::sleep(Duration::from_millis(rand::rng().random_range(1..900)));
        nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
    });
    for line in lines.map_while(Result::ok) {
        acknowledged.line(&line);
        if line.ends_with("Synced") {
            let _ = first.send(());
        }
    }
    killer.join().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "the child ended by itself: {status}");
}

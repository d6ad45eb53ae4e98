//! Faults under the sled backend: kill -9, torn and flipped bytes, a full disk.

#![allow(
    clippy::unwrap_used,
    reason = "all of this file is a test; clippy sees only its test functions as such"
)]

use coracle_apiserver::store::sled::{self, IncidentKind, Options, Refusal, SledStore};
use coracle_apiserver::store::suite::{bytes_of, put, txn, value};
use coracle_apiserver::store::{Durability, Range, Revision, Store, StoreError, Txn};
use rand::Rng;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const CHILD: &str = "CORACLE_STORE_CHILD";
const WRITERS: usize = 6;

fn open(dir: &Path) -> Result<Arc<SledStore>, StoreError> {
    SledStore::open(dir, Options::default())
}

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

// ---- kill -9

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
        assert!(incidents.iter().all(|incident| incident.kind == IncidentKind::TailCut), "{incidents:?}");
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

fn run_and_kill(dir: &Path, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill_9_child", "--ignored", "--nocapture"])
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

// ---- damage

/// A store with `count` acknowledged values that was killed, and where its files are.
async fn written(count: usize, options: Options) -> (TempDir, TempDir) {
    let dir = TempDir::new().unwrap();
    // Nothing behind the last commit says that it was durable, however slow the machine is.
    let options = Options { vouch_delay: Duration::from_secs(3600), ..options };
    let store = SledStore::open(dir.path(), options).unwrap();
    for index in 0..count {
        store.commit(txn(vec![put(&format!("a./n/{index:04}"), bytes_of(1000 + index))])).await.unwrap();
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
        assert!(kv.value == bytes_of(1000 + index), "{}", kv.key);
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

#[tokio::test]
async fn a_torn_tail_is_cut() {
    let (pristine, _dir) = written(50, Options::default()).await;
    for cut in 0..40 {
        let dir = TempDir::new().unwrap();
        let mut bytes = std::fs::read(segment(pristine.path())).unwrap();
        let (start, end) = record_of(&bytes, "a./n/0049");
        let at = rand::rng().random_range(start..end);
        if cut % 2 == 0 {
            bytes[at..end].fill(0);
        } else {
            bytes[at] ^= 1 << rand::rng().random_range(0..8);
        }
        std::fs::write(segment(dir.path()), bytes).unwrap();
        let store = open(dir.path()).unwrap_or_else(|error| panic!("at {at} of {start}..{end}: {error}"));
        if value(&*store, "a./n/0049").await.is_some() {
            panic!("a damaged record was taken, at {at} of {start}..{end}");
        }
        intact(&store, 49).await;
        store.commit(txn(vec![put("a./n/0049", bytes_of(1049))])).await.unwrap();
        drop(store);
        intact(&open(dir.path()).unwrap(), 50).await;
    }
}

/// Acknowledged data that only the journal has: the store says what is lost and does not open.
#[tokio::test]
async fn a_flipped_bit_in_the_journal_is_reported() {
    let (pristine, _dir) = written(50, Options::default()).await;
    let mut reported = 0;
    for _ in 0..40 {
        let dir = TempDir::new().unwrap();
        let mut bytes = std::fs::read(segment(pristine.path())).unwrap();
        let (last, _) = record_of(&bytes, "a./n/0048");
        let at = rand::rng().random_range(64..last);
        bytes[at] ^= 0x10;
        std::fs::write(segment(dir.path()), bytes).unwrap();
        match open(dir.path()) {
            Err(StoreError::Damaged(text)) => {
                reported += 1;
                assert!(text.contains("journal-000000000001"), "{text}");
            }
            Err(other) => panic!("at {at}: {other}"),
            // A record's padding is no data.
            Ok(store) => intact(&store, 50).await,
        }
    }
    assert!(reported > 30, "{reported} of 40");
}

#[tokio::test]
async fn a_damaged_header_costs_nothing_and_a_missing_segment_is_reported() {
    let (dir, _) = written(20, Options::default()).await;
    edit(&segment(dir.path()), |bytes| bytes[10] ^= 1);
    let store = open(dir.path()).unwrap();
    intact(&store, 20).await;
    assert_eq!(store.report().incidents[0].kind, IncidentKind::JournalDamaged);
    store.commit(txn(vec![put("a./n/0020", bytes_of(1020))])).await.unwrap();
    drop(store);
    intact(&open(dir.path()).unwrap(), 21).await;

    let options = Options { checkpoint_bytes: u64::MAX, ..Options::default() };
    let (dir, _) = written(6000, options).await;
    assert!(dir.path().join("journal-000000000003").exists(), "several segments");
    std::fs::remove_file(dir.path().join("journal-000000000002")).unwrap();
    assert!(matches!(open(dir.path()), Err(StoreError::Damaged(_))));
}

#[tokio::test]
async fn damage_that_the_checkpoint_covers_is_repaired() {
    let dir = checkpointed().await;
    edit(&segment(dir.path()), |bytes| {
        let (start, end) = record_of(bytes, "a./n/0050");
        bytes[(start + end) / 2] ^= 4;
    });
    let store = open(dir.path()).unwrap();
    intact(&store, 110).await;
    let incidents = store.report().incidents;
    assert_eq!(incidents[0].kind, IncidentKind::JournalDamaged, "{incidents:?}");
    assert_eq!(store.oldest(), Revision(100), "history does not reach over the gap");
    store.close().await.unwrap();
    let store = open(dir.path()).unwrap();
    intact(&store, 110).await;
    drop(store);
    // The new snapshot insures what the damaged journal no longer can.
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    let store = open(dir.path()).unwrap();
    intact(&store, 110).await;
    assert_eq!(store.report().incidents[0].kind, IncidentKind::CheckpointDamaged);
}

#[tokio::test]
async fn a_damaged_tree_is_set_aside_and_rebuilt() {
    let pristine = checkpointed().await;
    let size = std::fs::metadata(pristine.path().join("sled/db")).unwrap().len();
    let mut noticed = 0;
    for round in 0..12 {
        let dir = TempDir::new().unwrap();
        let from = pristine.path().join(".");
        assert!(Command::new("cp").arg("-a").arg(from).arg(dir.path()).status().unwrap().success());
        edit(&dir.path().join("sled/db"), |bytes| match round {
            0 => bytes.fill(0),
            1 => bytes.truncate(bytes.len() / 2),
            _ => {
                for _ in 0..20 {
                    let at = rand::rng().random_range(0..size);
                    bytes[usize::try_from(at).unwrap()] ^= 1 << rand::rng().random_range(0..8);
                }
            }
        });
        let store = open(dir.path()).unwrap();
        intact(&store, 110).await;
        let incidents = store.report().incidents;
        if !incidents.is_empty() {
            noticed += 1;
            assert_eq!(incidents[0].kind, IncidentKind::CheckpointDamaged, "{incidents:?}");
            let aside =
                |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("sled.bad-");
            assert!(std::fs::read_dir(dir.path()).unwrap().flatten().any(aside));
        }
        store.close().await.unwrap();
        let store = open(dir.path()).unwrap();
        assert_eq!(store.report().incidents.len(), 0, "rebuilt");
        intact(&store, 110).await;
    }
    assert!(noticed >= 2, "damage was noticed {noticed} times");
}

/// A tree that is whole, but of an earlier time.
#[tokio::test]
async fn a_tree_that_fell_back_is_noticed() {
    let (_, dir) = written(50, Options::default()).await;
    open(dir.path()).unwrap().close().await.unwrap();
    let old = TempDir::new().unwrap();
    assert!(
        Command::new("cp").arg("-a").arg(dir.path().join("sled")).arg(old.path()).status().unwrap().success()
    );
    let store = open(dir.path()).unwrap();
    for index in 50..110 {
        store.commit(txn(vec![put(&format!("a./n/{index:04}"), bytes_of(1000 + index))])).await.unwrap();
    }
    store.close().await.unwrap();
    std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
    std::fs::rename(old.path().join("sled"), dir.path().join("sled")).unwrap();
    let store = open(dir.path()).unwrap();
    assert_eq!(store.report().incidents[0].kind, IncidentKind::CheckpointDamaged);
    intact(&store, 110).await;
}

/// One bit in the last commit before a clean stop: the checkpoint that the stop made has it.
#[tokio::test]
async fn damage_before_a_clean_stop_is_covered_by_its_checkpoint() {
    for extra in [0, 10] {
        let (_, dir) = written(100, Options::default()).await;
        let store = open(dir.path()).unwrap();
        for index in 100..100 + extra {
            store.commit(txn(vec![put(&format!("a./n/{index:04}"), bytes_of(1000 + index))])).await.unwrap();
        }
        // Heartbeats use revisions up that no commit of the journal has.
        let ops = vec![put("leases./n/1", "x")];
        store.commit(Txn { ops, durability: Durability::Volatile, ..Txn::default() }).await.unwrap();
        store.close().await.unwrap();
        edit(&segment(dir.path()), |bytes| {
            let (start, end) = record_of(bytes, &format!("a./n/{:04}", 99 + extra));
            bytes[(start + end) / 2] ^= 1;
        });
        let store = open(dir.path()).unwrap();
        intact(&store, 100 + extra).await;
        assert_eq!(store.report().incidents[0].kind, IncidentKind::JournalDamaged);
    }
}

/// A header in which one bit has flipped, of a segment that goes on where the one before ended: no commit is missing.
#[tokio::test]
async fn a_damaged_header_between_two_commits_in_a_row_loses_nothing() {
    let options = Options { checkpoint_bytes: u64::MAX, ..Options::default() };
    let (dir, _) = written(6000, options).await;
    let second = dir.path().join("journal-000000000002");
    edit(&second, |bytes| bytes[20] ^= 8);
    let store = open(dir.path()).unwrap();
    intact(&store, 6000).await;
    assert_eq!(store.report().incidents[0].kind, IncidentKind::JournalDamaged);
    let revision = store.revision();
    assert!(revision >= Revision(6000 + 100_000), "{revision:?}: what the damage hid was not skipped");
}

/// Segments have their size before their first record, so that a shorter one has lost something.
#[tokio::test]
async fn a_truncated_journal_is_refused_and_repaired_on_demand() {
    let (dir, _) = written(50, Options::default()).await;
    let whole = std::fs::read(segment(dir.path())).unwrap();
    let (_, end) = record_of(&whole, "a./n/0029");
    std::fs::write(segment(dir.path()), &whole[..end.next_multiple_of(8)]).unwrap();
    let error = open(dir.path()).err().expect("twenty acknowledged commits are gone").to_string();
    assert!(error.contains("wrong size") && error.contains("--accept-loss-after 30"), "{error}");
    let found = sled::check(dir.path()).unwrap();
    assert!(found.is_damaged() && found.outcome.is_err(), "{found:?}");

    let too_little =
        sled::repair(dir.path(), Revision(31)).err().expect("revision 31 cannot be had").to_string();
    assert!(too_little.contains("--accept-loss-after 30"), "{too_little}");
    assert!(open(dir.path()).is_err(), "a refused repair changed something");
    let repaired = sled::repair(dir.path(), Revision(30)).unwrap();
    assert_eq!((repaired.revision, repaired.objects), (Revision(30), 30));
    assert!(
        !repaired.lost.is_empty() && repaired.aside.join("journal-000000000001").exists(),
        "{repaired:?}"
    );
    let store = open(dir.path()).unwrap();
    intact(&store, 30).await;
    assert!(store.revision() > Revision(1_000_000), "a revision could mean two things");
    store.close().await.unwrap();
    assert!(!sled::check(dir.path()).unwrap().is_damaged());
}

#[tokio::test]
async fn a_truncated_journal_after_a_clean_stop_loses_nothing() {
    let (_, dir) = written(50, Options::default()).await;
    open(dir.path()).unwrap().close().await.unwrap();
    edit(&segment(dir.path()), |bytes| bytes.truncate(bytes.len() / 2));
    let store = open(dir.path()).unwrap();
    intact(&store, 50).await;
    assert_eq!(store.report().incidents[0].kind, IncidentKind::JournalDamaged);
}

/// A store that is too young for a checkpoint has nothing but its first segment.
#[tokio::test]
async fn a_lost_beginning_is_not_taken_for_a_new_store() {
    for round in 0..3 {
        let (dir, _) = written(2, Options::default()).await;
        edit(&segment(dir.path()), |bytes| match round {
            0 => bytes[..4096].fill(0),
            1 => bytes.clear(),
            _ => bytes.truncate(20),
        });
        let error = open(dir.path()).err().expect("two acknowledged commits are gone").to_string();
        assert!(error.contains("damaged header") && error.contains("--accept-loss-after 0"), "{error}");
    }
}

/// A checkpoint alone does not tell what came after it.
#[tokio::test]
async fn a_journal_that_is_gone_is_missed() {
    let dir = checkpointed().await;
    std::fs::remove_file(segment(dir.path())).unwrap();
    let error = open(dir.path()).err().expect("ten acknowledged commits are gone").to_string();
    assert!(error.contains("the journal is missing"), "{error}");
    let found = sled::check(dir.path()).unwrap();
    assert!(found.outcome.is_err(), "{found:?}");
    let repaired = sled::repair(dir.path(), Revision(100)).unwrap();
    assert_eq!(repaired.objects, 100);
    intact(&open(dir.path()).unwrap(), 100).await;
}

/// The same damage as above, two seconds later: a note behind the commit says that it was durable.
#[tokio::test]
async fn damage_to_the_last_commit_is_told_once_it_was_durable_for_a_while() {
    let dir = TempDir::new().unwrap();
    let options = Options { vouch_delay: Duration::from_millis(10), ..Options::default() };
    let store = SledStore::open(dir.path(), options).unwrap();
    store.commit(txn(vec![put("a./n/0000", bytes_of(1000))])).await.unwrap();
    let vouched = async {
        while store.report().groups < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), vouched).await.expect("a note behind the commit");
    drop(store);
    edit(&segment(dir.path()), |bytes| {
        let (start, end) = record_of(bytes, "a./n/0000");
        bytes[(start + end) / 2] ^= 1;
    });
    let error = open(dir.path()).err().expect("an acknowledged commit is gone").to_string();
    assert!(error.contains("--accept-loss-after 0"), "{error}");
}

/// A snapshot and a checkpoint of the same state, both damaged: the start says so, and what can be read is not thrown away.
#[tokio::test]
async fn what_is_left_of_a_damaged_checkpoint_is_kept_on_demand() {
    let (_, dir) = written(100, Options::default()).await;
    let store = open(dir.path()).unwrap();
    store.scrub("the journal does not go back to the beginning any more").await.unwrap();
    for index in 100..110 {
        store.commit(txn(vec![put(&format!("a./n/{index:04}"), bytes_of(1000 + index))])).await.unwrap();
    }
    drop(store);
    edit(&dir.path().join("snapshot"), |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
    });
    let value = bytes_of(1042);
    edit(&dir.path().join("sled/db"), |bytes| {
        // Every place where it stands: sled may have written the page more than once.
        while let Some(at) = bytes.windows(value.len()).position(|window| window == &value[..]) {
            bytes[at + 500] ^= 1;
        }
    });
    let error = open(dir.path()).err().expect("a hundred objects are not sure").to_string();
    for part in ["sled cannot be trusted", "the snapshot is damaged", "`coracle db repair --salvage`"] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    let repaired = sled::salvage(dir.path()).unwrap();
    assert!(!repaired.lost.is_empty(), "{repaired:?}");
    let store = open(dir.path()).unwrap();
    let listing = store.range(Range::default()).await.unwrap();
    assert_eq!(listing.items.len(), repaired.objects);
    for kv in &listing.items {
        let index: usize = kv.key[5..].parse().unwrap();
        assert!(kv.value == bytes_of(1000 + index), "{}", kv.key);
    }
    let newer = listing.items.iter().filter(|kv| kv.key[5..].parse::<usize>().unwrap() >= 100).count();
    assert_eq!(newer, 10, "the journal is intact");
}

/// What a stop in the middle of a repair leaves does not open as something else, and can be repaired.
#[tokio::test]
async fn a_repair_that_broke_off_is_repeated() {
    let damaged = checkpointed().await;
    edit(&segment(damaged.path()), |bytes| {
        let (start, end) = record_of(bytes, "a./n/0105");
        bytes[(start + end) / 2] ^= 1;
    });
    let copy = || {
        let dir = TempDir::new().unwrap();
        let from = damaged.path().join(".");
        assert!(Command::new("cp").arg("-a").arg(from).arg(dir.path()).status().unwrap().success());
        dir
    };
    let whole = copy();
    let command = "--accept-loss-after ";
    let error = open(whole.path()).err().expect("a commit is lost").to_string();
    let digits: String =
        error.split_once(command).unwrap().1.chars().take_while(char::is_ascii_digit).collect();
    let after = Revision(digits.parse().unwrap());
    assert_eq!(sled::repair(whole.path(), after).unwrap().objects, 105);
    for round in 0..2 {
        let dir = copy();
        std::fs::copy(whole.path().join("snapshot"), dir.path().join("snapshot")).unwrap();
        if round == 1 {
            std::fs::remove_dir_all(dir.path().join("sled")).unwrap();
        }
        let error = open(dir.path()).err().expect("it is not repaired yet").to_string();
        assert!(error.contains(&format!("{command}{digits}`")), "{error}");
        assert_eq!(sled::repair(dir.path(), after).unwrap().objects, 105);
        intact(&open(dir.path()).unwrap(), 105).await;
    }
}

/// What was cut off the end is said, and its revisions are never used again.
#[tokio::test]
async fn a_tail_that_was_cut_is_told() {
    let (dir, _) = written(50, Options::default()).await;
    edit(&segment(dir.path()), |bytes| {
        let (start, end) = record_of(bytes, "a./n/0049");
        bytes[(start + end) / 2] ^= 1;
    });
    let store = open(dir.path()).unwrap();
    let incidents = store.report().incidents;
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert_eq!(incidents[0].kind, IncidentKind::TailCut);
    assert!(incidents[0].text.contains("journal-000000000001"), "{incidents:?}");
    let next = store.commit(txn(vec![put("a./n/0049", bytes_of(1049))])).await.unwrap();
    assert!(next > Revision(50 + 1000), "{next:?} may have been another object's");
}

/// Damage is found before anybody needs what is damaged, and mended from memory.
#[tokio::test]
async fn damage_is_found_and_mended_before_anybody_needs_what_is_damaged() {
    let options = Options { verify_delay: Duration::from_millis(20), ..Options::default() };
    let (_, dir) = written(50, Options::default()).await;
    let store = open(dir.path()).unwrap();
    store.scrub("writes a snapshot").await.unwrap();
    store.close().await.unwrap();
    let snapshot = dir.path().join("snapshot");
    edit(&snapshot, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
    });
    let store = SledStore::open(dir.path(), options).unwrap();
    let mut told = store.incidents();
    let told = tokio::time::timeout(Duration::from_secs(30), told.next()).await.unwrap();
    assert_eq!(told.kind, IncidentKind::SnapshotDamaged);
    let mended = async {
        while store.report().snapshots == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), mended).await.expect("a new snapshot");
    store.close().await.unwrap();
    let found = sled::check(dir.path()).unwrap();
    assert!(!found.is_damaged(), "{found:?}");
}

// ---- a full disk

/// A small file system of its own, unmounted at the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("skipped: mounting a small file system needs root");
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_space() {
    let Some(disk) = SmallDisk::mount("size=48m") else { return };
    let dir = disk.0.path().join("db");
    let store = open(&dir).unwrap();
    let heartbeat =
        || Txn { ops: vec![put("leases./n/1", "x")], durability: Durability::Volatile, ..Txn::default() };
    let fill = |name: &str| {
        let path = disk.0.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[1; 64 << 10]).is_ok() {}
        path
    };
    store.commit(txn(vec![put("a./n/0000", bytes_of(1000))])).await.unwrap();
    let ballast = fill("ballast");
    let mut count = 1;
    let error = loop {
        match store.commit(txn(vec![put(&format!("a./n/{count:04}"), bytes_of(1000 + count))])).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 100_000, "the disk is never full");
    };
    assert!(matches!(&error, StoreError::ReadOnly(why) if why.contains("full")), "{error}");
    assert!(store.read_only().is_some());
    assert!(value(&*store, "a./n/0000").await.is_some(), "reads go on");
    store.commit(heartbeat()).await.expect("heartbeats go on");
    assert!(store.commit(txn(vec![put("a./n/9999", "x")])).await.is_err());

    // It opens on a full disk, too.
    drop(store);
    let reopened = open(&dir).unwrap();
    let copy: Vec<_> = reopened.range(Range { prefix: "a.".into(), ..Range::default() }).await.unwrap().items;
    assert_eq!(copy.len(), count, "acknowledged is acknowledged");
    let _ = reopened.commit(txn(vec![put(&format!("a./n/{count:04}"), bytes_of(1_500_000))])).await;
    let refused = fill("more");
    let full = reopened.commit(txn(vec![put("a./n/large", bytes_of(3_000_000))])).await;
    assert!(matches!(full, Err(StoreError::ReadOnly(_))), "{full:?}");

    std::fs::remove_file(ballast).unwrap();
    std::fs::remove_file(refused).unwrap();
    let recovered = async {
        while reopened.read_only().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), recovered)
        .await
        .expect("writes are accepted again by themselves");
    reopened.commit(txn(vec![put("a./n/after", "x")])).await.unwrap();
    reopened.close().await.unwrap();
    let again = open(&dir).unwrap();
    assert!(value(&*again, "a./n/after").await.is_some());
}

/// There is space, and no file can be made.
#[tokio::test]
async fn a_disk_without_inodes_refuses_in_its_own_words() {
    let Some(disk) = SmallDisk::mount("size=64m,nr_inodes=200") else { return };
    let store = open(&disk.0.path().join("db")).unwrap();
    store.commit(txn(vec![put("a./n/0000", "x")])).await.unwrap();
    let mut files = 0;
    while std::fs::File::create(disk.0.path().join(format!("file-{files}"))).is_ok() {
        files += 1;
    }
    let large = || txn(vec![put("a./n/large", bytes_of(1_500_000))]);
    let error = loop {
        if let Err(error) = store.commit(large()).await {
            break error;
        }
    };
    assert!(matches!(&error, StoreError::ReadOnly(why) if why.contains("no inodes left")), "{error}");
    let kind = IncidentKind::ReadOnly(Refusal::NoInodes);
    assert_eq!(store.report().incidents.last().map(|incident| incident.kind), Some(kind));
    (0..files).for_each(|file| std::fs::remove_file(disk.0.path().join(format!("file-{file}"))).unwrap());
    let mut told = store.incidents();
    let healed = async { while told.next().await.kind != IncidentKind::Writable {} };
    tokio::time::timeout(Duration::from_secs(30), healed).await.expect("writes are accepted again");
    store.commit(large()).await.unwrap();
}

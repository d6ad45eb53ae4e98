//! Damage to the checkpoint and the snapshot.

use super::*;

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

#[tokio::test]
async fn one_tree_after_another_is_set_aside() {
    let dir = checkpointed().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for second in now..now + 30 {
        let taken = dir.path().join(format!("sled.bad-{second}"));
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(taken.join("db"), "an earlier one").unwrap();
    }
    edit(&dir.path().join("sled/db"), |bytes| bytes.fill(0));
    let store = open(dir.path()).unwrap();
    assert_eq!(store.report().incidents[0].kind, IncidentKind::CheckpointDamaged);
    intact(&store, 110).await;
}

/// sled's threads hold its lock for as long as a slow disk takes to sync a file that they made shorter.
#[tokio::test]
async fn a_tree_that_is_still_locked_is_waited_for() {
    let dir = checkpointed().await;
    let file = std::fs::File::open(dir.path().join("sled/db")).unwrap();
    let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).unwrap();
    let unlocks = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        drop(lock);
    });
    let store = open(dir.path()).unwrap();
    assert!(unlocks.is_finished(), "it was opened too early");
    assert_eq!(store.report().incidents.len(), 0, "{:?}", store.report().incidents);
    intact(&store, 110).await;
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

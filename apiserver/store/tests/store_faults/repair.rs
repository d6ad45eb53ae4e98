//! The ways out of a start that is refused.

use super::*;

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
        sled::repair(dir.path(), Revision(31)).expect_err("revision 31 cannot be had").to_string();
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
        assert!(kv.value.bytes() == bytes_of(1000 + index), "{}", kv.key);
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

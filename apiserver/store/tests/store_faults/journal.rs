//! Damage to the journal: what is a torn write, what is covered, and what is refused.

use super::*;

#[tokio::test]
async fn a_torn_tail_is_cut() {
    let (pristine, _dir) = written(50, Options::default()).await;
    for cut in 0..12 {
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
        let incidents = store.report().incidents;
        let told = incidents.iter().any(|incident| incident.kind == IncidentKind::TailCut);
        assert!(told, "in silence, at {at} of {start}..{end}: {incidents:?}");
        intact(&store, 49).await;
        store.commit(txn(vec![put("a./n/0049", bytes_of(1049))])).await.unwrap();
        drop(store);
        intact(&open(dir.path()).unwrap(), 50).await;
    }
}

/// Whatever of the last record is left, its loss is told: also where nothing looks like a record any more.
#[tokio::test]
async fn nothing_goes_from_the_end_in_silence() {
    let (pristine, _dir) = written(50, Options::default()).await;
    let whole = std::fs::read(segment(pristine.path())).unwrap();
    let (start, end) = record_of(&whole, "a./n/0049");
    type Damage = fn(&mut [u8]);
    let damages: [Damage; 4] = [
        |record| record[3] ^= 0x20,
        |record| record.fill(0),
        |record| record.fill(0xa5),
        |record| record[..16].copy_from_slice(&[7; 16]),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let dir = TempDir::new().unwrap();
        let mut bytes = whole.clone();
        damage(&mut bytes[start..end]);
        std::fs::write(segment(dir.path()), bytes).unwrap();
        let store = open(dir.path()).unwrap();
        intact(&store, 49).await;
        let incidents = store.report().incidents;
        assert_eq!(incidents.len(), 1, "{number}: {incidents:?}");
        assert_eq!(incidents[0].kind, IncidentKind::TailCut, "{number}");
    }
    let dir = TempDir::new().unwrap();
    std::fs::write(segment(dir.path()), whole).unwrap();
    assert!(open(dir.path()).unwrap().report().incidents.is_empty(), "nothing was damaged");
}

/// A segment that was begun and holds nothing yet, and one whose only group is gone, are two things.
#[tokio::test]
async fn an_only_group_does_not_go_in_silence() {
    let (pristine, _dir) = written(1, Options::default()).await;
    edit(&segment(pristine.path()), |bytes| bytes[64..4096].fill(0));
    let incidents = open(pristine.path()).unwrap().report().incidents;
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert_eq!(incidents[0].kind, IncidentKind::TailCut);
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

/// Acknowledged data that only the journal has: the store says what is lost and does not open.
#[tokio::test]
async fn a_flipped_bit_in_the_journal_is_reported() {
    let (pristine, _dir) = written(50, Options::default()).await;
    let mut reported = 0;
    for _ in 0..12 {
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
    assert!(reported >= 9, "{reported} of 12");
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
    let (dir, _) = written_by(64, 3600, options).await;
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
    let (dir, _) = written_by(64, 2400, options).await;
    let second = dir.path().join("journal-000000000002");
    edit(&second, |bytes| bytes[20] ^= 8);
    let store = open(dir.path()).unwrap();
    intact(&store, 2400).await;
    assert_eq!(store.report().incidents[0].kind, IncidentKind::JournalDamaged);
    let revision = store.revision();
    assert!(revision >= Revision(2400 + 100_000), "{revision:?}: what the damage hid was not skipped");
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

/// Damage as of a torn write, to what a note says was durable.
#[tokio::test]
async fn damage_to_the_last_commit_is_told_once_it_was_durable_for_a_while() {
    let dir = TempDir::new().unwrap();
    let options = Options { vouch_delay: Duration::from_millis(10), ..Options::default() };
    let store = SledStore::open(dir.path(), options).unwrap();
    store.commit(txn(vec![put("a./n/0000", bytes_of(1000))])).await.unwrap();
    noted(dir.path(), store).await;
    edit(&segment(dir.path()), |bytes| {
        let (start, end) = record_of(bytes, "a./n/0000");
        bytes[(start + end) / 2] ^= 1;
    });
    let error = open(dir.path()).err().expect("an acknowledged commit is gone").to_string();
    assert!(error.contains("--accept-loss-after 0"), "{error}");
}

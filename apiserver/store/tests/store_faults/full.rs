//! Disks on which there is no room.

use super::*;
use std::io::Write;

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

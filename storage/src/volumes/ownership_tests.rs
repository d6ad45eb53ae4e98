use super::*;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn a_group_may_read_and_write_what_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let group = fs::metadata(dir.path()).unwrap().gid();
    let file = dir.path().join("f");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    apply(dir.path(), Some(group), false).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&file), 0o660);
    assert_eq!(mode(dir.path()) & 0o2770, 0o2770);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    apply(dir.path(), Some(group), true).unwrap();
    assert_eq!(mode(&file), 0o600, "the root is right, so nothing was done");
}

/// Owner, group, mode and what it is, by path.
fn seen(root: &Path) -> BTreeMap<PathBuf, (u32, u32, u32)> {
    let mut all = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.insert(path, (meta.uid(), meta.gid(), meta.mode()));
    }
    all
}

/// The attack on the walk: what a root container does with its volume while the node gives the volume to a group. It
/// exchanges a directory for a link to the node's own files, in a loop.
#[test]
fn exchanging_directories_for_links_meanwhile_changes_nothing_outside() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: giving files to another group needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (node, volume) = (dir.path().join("node"), dir.path().join("volume"));
    fs::create_dir_all(node.join("etc/deeper")).unwrap();
    fs::write(node.join("etc/shadow"), "root").unwrap();
    fs::set_permissions(node.join("etc/shadow"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir_all(volume.join("a/b/deeper")).unwrap();
    fs::write(volume.join("a/b/shadow"), "mine").unwrap();
    symlink(node.join("etc"), volume.join("a/to-the-node")).unwrap();
    symlink(node.join("etc/shadow"), volume.join("a/file-of-the-node")).unwrap();
    fs::write(volume.join("a/file"), "mine").unwrap();
    let before = seen(&node);
    let (stop, exchanged) = (AtomicBool::new(false), AtomicU64::new(0));
    let exchange = |one: &str, other: &str| {
        let (one, other) = (volume.join(one), volume.join(other));
        renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).unwrap();
        exchanged.fetch_add(1, Ordering::Relaxed);
    };
    let given = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange("a/b", "a/to-the-node");
                exchange("a/file", "a/file-of-the-node");
            }
        });
        let given = (0..5000).try_for_each(|round| apply(&volume, Some(4000 + round % 2), false));
        stop.store(true, Ordering::Relaxed);
        given
    });
    given.unwrap();
    assert!(exchanged.load(Ordering::Relaxed) > 1000, "the attack ran: {exchanged:?}");
    assert_eq!(seen(&node), before);
    assert_eq!(fs::metadata(&volume).unwrap().gid(), 4001, "the volume was given away meanwhile");
}

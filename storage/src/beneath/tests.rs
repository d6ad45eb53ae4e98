use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn errno(result: io::Result<impl Sized>) -> Option<Errno> {
    result.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw)
}

#[test]
fn nothing_is_reached_through_links_or_upwards() {
    let outer = tempfile::tempdir().unwrap();
    fs::write(outer.path().join("secret"), "s").unwrap();
    fs::create_dir_all(outer.path().join("root/real")).unwrap();
    fs::write(outer.path().join("root/real/file"), "f").unwrap();
    symlink("..", outer.path().join("root/up")).unwrap();
    symlink("../secret", outer.path().join("root/leak")).unwrap();
    symlink("real", outer.path().join("root/inner")).unwrap();
    let root = Dir::open(&outer.path().join("root")).unwrap();
    assert_eq!(root.read("real/file", 10).unwrap(), b"f");
    for path in ["up/secret", "leak", "inner/file", "up", "inner"] {
        assert_eq!(errno(root.file(path)), Some(Errno::ELOOP), "{path}");
    }
    for path in ["../secret", "real/../../secret", "/etc/passwd"] {
        assert_eq!(errno(root.file(path)), Some(Errno::EXDEV), "{path}");
        assert_eq!(errno(root.remove(path)), Some(Errno::EXDEV), "{path}");
    }
    assert_eq!(errno(root.make_dir_all("up/new", 0o755)), Some(Errno::ELOOP));
    assert_eq!(errno(root.create("leak", b"x", Permissions::of(0o644))), Some(Errno::EEXIST));
    root.replace("leak", b"mine", 0o640).unwrap();
    assert_eq!(fs::read_to_string(outer.path().join("secret")).unwrap(), "s");
    let mine = fs::symlink_metadata(outer.path().join("root/leak")).unwrap();
    assert_eq!((mine.is_file(), mine.mode() & 0o777), (true, 0o640));
}

#[test]
fn a_pipe_in_the_place_of_a_file_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&dir.path().join("log"), Mode::from_bits_truncate(0o600)).unwrap();
    let error = Dir::open(dir.path()).unwrap().file("log").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn what_is_made_has_its_mode_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let root = Dir::open(dir.path()).unwrap();
    root.make_dir_all("a/b", 0o777).unwrap();
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("a"), mode("a/b")), (0o777, 0o777));
    fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o700)).unwrap();
    root.make_dir("a", 0o777).unwrap();
    assert_eq!(mode("a"), 0o700, "what was there stays as it was");
    root.create("a/f", b"", Permissions::of(0o666)).unwrap();
    assert_eq!(mode("a/f"), 0o666);
}

#[test]
fn a_tree_is_removed_and_what_its_links_point_at_stays() {
    let outer = tempfile::tempdir().unwrap();
    fs::create_dir_all(outer.path().join("kept/below")).unwrap();
    fs::create_dir_all(outer.path().join("root/tree/a/b")).unwrap();
    symlink(outer.path().join("kept"), outer.path().join("root/tree/a/link")).unwrap();
    fs::write(outer.path().join("root/tree/a/b/file"), "").unwrap();
    let root = Dir::open(&outer.path().join("root")).unwrap();
    root.remove("tree").unwrap();
    root.remove("tree").unwrap();
    assert!(outer.path().join("kept/below").is_dir());
    assert_eq!(root.entries().unwrap().count(), 0);
    assert_eq!(errno(remove_below(outer.path(), Path::new("/etc/x"))), Some(Errno::EXDEV));
    assert_eq!(errno(remove_below(outer.path(), outer.path())), Some(Errno::EXDEV));
    remove_below(outer.path(), &outer.path().join("kept")).unwrap();
    assert!(!outer.path().join("kept").exists());
}

/// Makes a chain of `depth` directories, deeper than any path is long.
fn nest(root: &Path, depth: usize) {
    let mut dir = Dir::open(root).unwrap();
    for _ in 0..depth {
        dir = dir.make_dir("d", 0o755).unwrap();
    }
    dir.create("bottom", b"x", Permissions::of(0o644)).unwrap();
}

#[test]
fn trees_deeper_than_any_path_are_walked_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("deep")).unwrap();
    nest(&dir.path().join("deep"), 6000);
    let root = Dir::open(dir.path()).unwrap();
    let mut seen = (0, 0);
    let reached = walk(&root.dir("deep").unwrap(), |node| {
        seen = (seen.0 + u32::from(node.is_dir()), seen.1 + u32::from(node.is_file()));
        Ok(())
    });
    assert_eq!((reached.unwrap(), seen), (Reached::All, (6001, 1)));
    root.remove("deep").unwrap();
    assert_eq!(root.entries().unwrap().count(), 0);
}

#[test]
fn the_deepest_of_all_are_left_out_and_that_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let name = "n".repeat(255);
    let mut below = Dir::open(dir.path()).unwrap();
    for _ in 0..1200 {
        below = below.make_dir(&name, 0o755).unwrap();
    }
    let root = Dir::open(dir.path()).unwrap();
    let reached = walk(&root, |_| Ok(())).unwrap();
    assert_eq!(reached, Reached::NotTheDeepest);
    assert!(reached.whole().is_err());
    root.remove(&name).unwrap();
}

#[test]
fn mounts_are_neither_entered_nor_emptied() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let dir = tempfile::tempdir().unwrap();
    let (tree, other) = (dir.path().join("tree"), dir.path().join("other"));
    fs::create_dir_all(tree.join("a/mounted")).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.join("kept"), "").unwrap();
    // Of the same file system: a device number would not tell.
    let bound = mount(Some(&other), &tree.join("a/mounted"), None::<&str>, MsFlags::MS_BIND, None::<&str>);
    if let Err(errno) = bound {
        eprintln!("skipped: no mounts here: {errno}");
        return;
    }
    let root = Dir::open(dir.path()).unwrap();
    let mut files = 0;
    let reached = walk(&root.dir("tree").unwrap(), |node| {
        files += u32::from(node.is_file());
        Ok(())
    });
    let refused = errno(root.remove("tree"));
    umount2(&tree.join("a/mounted"), MntFlags::MNT_DETACH).unwrap();
    assert_eq!((reached.unwrap(), files), (Reached::All, 0));
    assert_eq!(refused, Some(Errno::EXDEV));
    assert!(other.join("kept").is_file());
    root.remove("tree").unwrap();
}

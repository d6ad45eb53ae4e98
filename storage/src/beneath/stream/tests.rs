use super::*;
use crate::beneath::Dir;
use nix::sys::stat::{Mode, UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// A tree with all that a volume may hold. Whether attributes could be written.
fn planted(root: &Path) -> bool {
    fs::create_dir_all(root.join("a/deep")).unwrap();
    fs::write(root.join("a/deep/file"), "gold").unwrap();
    fs::hard_link(root.join("a/deep/file"), root.join("b")).unwrap();
    fs::set_permissions(root.join("b"), Permissions::from_mode(0o4751)).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    let holes = File::create(root.join("holes")).unwrap();
    holes.write_all_at(b"end", 40 << 20).unwrap();
    holes.set_len(64 << 20).unwrap();
    symlink("/etc/passwd", root.join("link")).unwrap();
    nix::unistd::mkfifo(&root.join("pipe"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    fs::set_permissions(root.join("a"), Permissions::from_mode(0o3777)).unwrap();
    fs::set_permissions(root, Permissions::from_mode(0o2770)).unwrap();
    let given = setxattr(root.join("b"), "user.said", b"yes", XattrFlags::empty()).is_ok();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(root, Some(999), Some(998)).unwrap();
        std::os::unix::fs::lchown(root.join("link"), Some(7), Some(8)).unwrap();
        std::os::unix::fs::chown(root.join("holes"), Some(70), Some(71)).unwrap();
    }
    for (path, seconds) in [("b", 1_000_000_001), ("a", 1_000_000_002), ("link", 1_000_000_003)] {
        let time = TimeSpec::new(seconds, 5);
        utimensat(nix::fcntl::AT_FDCWD, &root.join(path), &time, &time, UtimensatFlags::NoFollowSymlink)
            .unwrap();
    }
    given
}

fn sent(root: &Path) -> (Sent, Vec<u8>) {
    let mut bytes = Vec::new();
    let sent = send(&Dir::open(root).unwrap(), &mut bytes, false).unwrap();
    (sent, bytes)
}

#[test]
fn a_tree_arrives_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    let attributes = planted(&from);
    let (first, bytes) = sent(&from);
    assert!(bytes.len() < 1 << 20, "holes are not sent: {}", bytes.len());
    assert_eq!(
        (first.files, first.left_out, first.named.clone()),
        (7, 2, vec!["pipe".into(), "socket".into()])
    );
    let received = receive(&bytes[..], &Dir::open(&to).unwrap()).unwrap();
    assert_eq!(received, first);
    let again = send(&Dir::open(&to).unwrap(), io::sink(), true).unwrap();
    assert_eq!(again.digest, first.digest, "the copy is the same tree");
    assert_eq!(fs::read_to_string(to.join("b")).unwrap(), "gold");
    let of = |root: &Path, path: &str| {
        let stat = fs::symlink_metadata(root.join(path)).unwrap();
        (stat.mode(), stat.uid(), stat.gid(), stat.mtime(), stat.mtime_nsec(), stat.nlink(), stat.len())
    };
    for path in ["", "a", "a/deep/file", "b", "empty", "holes", "link"] {
        let (mut was, mut is) = (of(&from, path), of(&to, path));
        if fs::symlink_metadata(from.join(path)).unwrap().is_dir() {
            // A file system's own affair, as the number of a directory's names is.
            (was.5, is.5, was.6, is.6) = (0, 0, 0, 0);
        }
        assert_eq!(was, is, "{path}");
    }
    let inode = |path: &str| fs::metadata(to.join(path)).unwrap().ino();
    assert_eq!(inode("b"), inode("a/deep/file"), "two names of one file");
    assert!(fs::metadata(to.join("holes")).unwrap().blocks() < 1024, "holes are holes");
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/passwd"));
    assert!(!to.join("pipe").exists() && !to.join("socket").exists());
    let mut said = [0; 3];
    let read = getxattr(to.join("b"), "user.said", &mut said[..]);
    assert_eq!(read.is_ok_and(|length| &said[..length] == b"yes"), attributes);
    // Whatever is different is seen.
    let file = File::options().write(true).open(to.join("holes")).unwrap();
    file.write_all_at(b"x", 5).unwrap();
    assert_ne!(sent(&to).0.digest, first.digest);
}

#[test]
fn a_stream_that_ends_early_or_lies_is_no_tree() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    fs::create_dir(&from).unwrap();
    planted(&from);
    let (_, bytes) = sent(&from);
    let fresh = |name: &str| {
        let path = place.path().join(name);
        fs::create_dir(&path).unwrap();
        Dir::open(&path).unwrap()
    };
    for (i, length) in [0, 3, 40, bytes.len() / 2, bytes.len() - 1].into_iter().enumerate() {
        let cut = receive(&bytes[..length], &fresh(&format!("cut-{i}"))).unwrap_err();
        assert!(matches!(cut, ReceiveError::Cut(_)), "{length}: {cut}");
    }
    let at = bytes.windows(4).position(|four| four == b"gold").unwrap();
    let mut other = bytes.clone();
    other[at] = b'c';
    let wrong = receive(&other[..], &fresh("wrong")).unwrap_err();
    assert!(matches!(wrong, ReceiveError::Cut(_)), "{wrong}");
}

/// Frames by hand: what leads out of the directory is refused, whoever sent it.
#[test]
fn nothing_is_written_outside() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("outside"), "mine").unwrap();
    let meta = frames::Meta { mode: 0o777, ..Default::default() };
    let attempts: [(u8, &[&[u8]]); 6] = [
        (kind::DIRECTORY, &[b".."]),
        (kind::FILE, &[b"../new", &[0; 8]]),
        (kind::FILE, &[b"/tmp/new", &[0; 8]]),
        (kind::NAME, &[b"taken", b"../outside"]),
        (kind::LINK, &[b"a/../../link", b"/etc"]),
        (kind::FILE, &[b"way/new", &[0; 8]]),
    ];
    for (i, (of, fields)) in attempts.into_iter().enumerate() {
        let root = place.path().join(format!("root-{i}"));
        fs::create_dir(&root).unwrap();
        symlink(place.path(), root.join("way")).unwrap();
        let mut bytes = Vec::new();
        let mut out = frames::Writer::new(&mut bytes);
        out.frame(kind::ROOT, &[&frames::encode(&meta, &[])]).unwrap();
        out.frame(of, &[&frames::encode(&meta, fields)]).unwrap();
        let refused = receive(&bytes[..], &Dir::open(&root).unwrap()).unwrap_err();
        assert!(matches!(refused, ReceiveError::Write(_)), "{i}: {refused}");
        let names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["way"], "{i}");
    }
    assert_eq!(fs::read_to_string(place.path().join("outside")).unwrap(), "mine");
    assert!(!place.path().join("new").exists() && !place.path().join("link").exists());
}

/// Takes some bytes and no more, as a full disk does.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_cannot_be_read_is_told_to_whoever_reads() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    let mut deep = from.clone();
    for _ in 0..=MAX_DEPTH + 1 {
        deep = deep.join("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let mut bytes = Vec::new();
    let error = send(&Dir::open(&from).unwrap(), &mut bytes, false).unwrap_err();
    let to = place.path().join("to");
    fs::create_dir(&to).unwrap();
    let told = receive(&bytes[..], &Dir::open(&to).unwrap()).unwrap_err();
    assert!(matches!(&told, ReceiveError::Unread(said) if *said == error.to_string()), "{told}");
    assert!(send(&Dir::open(&to).unwrap(), Full(20), false).is_err());
}

/// Numbers that are the same each time (xorshift).
fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    }
}

#[test]
fn streams_with_random_mistakes_are_survived() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("from");
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::write(from.join("a/b/file"), "gold").unwrap();
    fs::hard_link(from.join("a/b/file"), from.join("name")).unwrap();
    symlink("a", from.join("link")).unwrap();
    let (_, whole) = sent(&from);
    let mut next = numbers(0x9e37_79b9_7f4a_7c15);
    for i in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = u8::try_from(next(256)).unwrap(),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b'/'),
            }
        }
        let root = place.path().join(format!("to-{i}"));
        fs::create_dir(&root).unwrap();
        let received = receive(&bytes[..], &Dir::open(&root).unwrap());
        assert!(received.is_err() || bytes == whole, "{i}: a mistake is seen");
        drop(fs::remove_dir_all(&root));
    }
    let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let beside: Vec<_> = names.filter(|name| !name.to_string_lossy().starts_with("to-")).collect();
    assert_eq!(beside, ["from"], "nothing is written beside");
}

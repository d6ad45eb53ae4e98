//! Copying all that lies below a directory, however containers rearrange it meanwhile.

use super::{Dir, MAX_DEPTH, Node, is_gone};
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, fchown};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Copies files, directories and links with their owners, permissions and times into an empty directory. Where the file
/// system can share blocks between files, they are shared (copy_file_range). Pipes, sockets, devices, extended attributes and
/// what is mounted below are left out; names of one file become files of their own.
///
/// # Errors
/// What the kernel refuses, and directories that are nested too deep. The copy is not whole then.
pub fn copy(from: &Dir, to: &Dir) -> io::Result<()> {
    below(from, to, 0)
}

fn below(from: &Dir, to: &Dir, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(Errno::ENAMETOOLONG.into());
    }
    for entry in from.entries()? {
        let name = entry?.file_name();
        match one(from, to, &name, depth) {
            Err(error) if is_gone(&error) && from.node(&name).is_err() => {}
            copied => copied?,
        }
    }
    Ok(())
}

fn one(from: &Dir, to: &Dir, name: &OsStr, depth: usize) -> io::Result<()> {
    let node = from.node(name)?;
    if node.is_link() {
        to.link(from.read_link(name)?, name)?;
        return to.node(name)?.chown(Some(node.uid()), Some(node.gid()));
    }
    if node.is_dir() {
        let made = to.make_dir(name, 0o700)?;
        below(&from.dir(Path::new(name))?, &made, depth + 1)?;
        let made = made.itself()?;
        made.chown(Some(node.uid()), Some(node.gid()))?;
        return made.chmod(node.mode());
    }
    if node.is_file() { file(&node, to, name) } else { Ok(()) }
}

fn file(node: &Node, to: &Dir, name: &OsStr) -> io::Result<()> {
    let mut source = node.open()?;
    let mut target = to.new_file(name)?;
    io::copy(&mut source, &mut target)?;
    fchown(&target, Some(Uid::from_raw(node.uid())), Some(Gid::from_raw(node.gid())))?;
    target.set_permissions(fs::Permissions::from_mode(node.mode()))?;
    target.set_modified(source.metadata()?.modified()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_is_copied_and_links_lead_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("a/b/file"), "gold").unwrap();
        fs::set_permissions(from.join("a/b/file"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o1777)).unwrap();
        symlink("/etc/passwd", from.join("link")).unwrap();
        nix::unistd::mkfifo(&from.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        copy(&Dir::open(&from).unwrap(), &Dir::open(&to).unwrap()).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/b/file")).unwrap(), "gold");
        let mode = |path: &str| fs::metadata(to.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("a/b/file"), mode("a")), (0o4751, 0o1777));
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/passwd"));
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(time(&to.join("a/b/file")), time(&from.join("a/b/file")));
        assert!(!to.join("pipe").exists());
    }
}

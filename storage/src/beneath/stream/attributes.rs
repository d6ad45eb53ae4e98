//! What is kept of a file beside its content, as the kernel has it.

use super::frames::Meta;
use crate::beneath::Node;
use nix::errno::Errno;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use rustix::fs::{XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query, setxattr};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Attributes that are the place's and not the file's: our own marks, and labels that the machine's policy gives.
const LEFT: [&[u8]; 2] = [b"trusted.coracle.", b"security.selinux"];

pub(super) fn read(node: &Node) -> io::Result<Meta> {
    let stat = node.stat();
    Ok(Meta {
        mode: node.mode(),
        uid: node.uid(),
        gid: node.gid(),
        modified: (stat.st_mtime, stat.st_mtime_nsec),
        attributes: attributes(&node.path())?,
    })
}

/// By name. A file system that has none, has none.
fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = match listed(path) {
        Err(error) if is(&error, &[Errno::EOPNOTSUPP]) => return Ok(Vec::new()),
        names => names?,
    };
    let kept = |name: &&[u8]| !name.is_empty() && !LEFT.iter().any(|left| name.starts_with(left));
    let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).filter(kept).collect();
    names.sort_unstable();
    names.into_iter().map(|name| Ok((name.to_vec(), value(path, name)?))).collect()
}

fn listed(path: &Path) -> io::Result<Vec<u8>> {
    let length = listxattr_query(path)?;
    let mut names = vec![0; length];
    if length > 0 {
        let read = listxattr(path, &mut names[..])?;
        names.truncate(read);
    }
    Ok(names)
}

fn value(path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    let name = OsStr::from_bytes(name);
    let length = getxattr_query(path, name)?;
    let mut value = vec![0; length];
    if length > 0 {
        let read = getxattr(path, name, &mut value[..])?;
        value.truncate(read);
    }
    Ok(value)
}

/// Gives a file or a directory all that it shall have; of a link only what links have. The owner comes first, because
/// giving a file away takes rights from it, and the time last.
pub(super) fn write(node: &Node, meta: &Meta) -> io::Result<()> {
    node.chown(Some(meta.uid), Some(meta.gid))?;
    if !node.is_link() {
        node.chmod(meta.mode)?;
    }
    let path = node.path();
    for (name, value) in &meta.attributes {
        let name = OsStr::from_bytes(name);
        setxattr(path.as_path(), name, value, XattrFlags::empty()).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("attribute {}: {error}", name.to_string_lossy()))
        })?;
    }
    let modified = TimeSpec::new(meta.modified.0, meta.modified.1);
    Ok(utimensat(
        nix::fcntl::AT_FDCWD,
        path.as_path(),
        &TimeSpec::UTIME_OMIT,
        &modified,
        UtimensatFlags::FollowSymlink,
    )?)
}

fn is(error: &io::Error, errnos: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|raw| errnos.contains(&Errno::from_raw(raw)))
}

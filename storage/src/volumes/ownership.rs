//! fsGroup: the volume belongs to a group and new files inherit it.
//!
//! Containers of other pods may be running in the volume meanwhile, and rearrange it: see [`crate::beneath`].

use super::VolumeError;
use crate::beneath::{Dir, Node, walk};
use std::io;
use std::path::Path;

/// The group of a pod's volumes, as a number of the kernel's.
pub fn group(fs_group: Option<i64>) -> Option<u32> {
    fs_group.and_then(|group| u32::try_from(group).ok())
}

/// Gives everything at and below `dir` to `group`, readable and writable by it; directories pass the group on. With
/// `on_root_mismatch` nothing is done when the root looks right already. A `None` group is no-op. Other mounts below are
/// left alone. Blocks for as long as the volume has files.
pub fn apply(dir: &Path, group: Option<u32>, on_root_mismatch: bool) -> Result<(), VolumeError> {
    let Some(group) = group else { return Ok(()) };
    let failed = |error| VolumeError::io("set ownership of", dir, error);
    let root = Dir::open(dir).map_err(failed)?;
    let itself = root.itself().map_err(failed)?;
    if on_root_mismatch && itself.gid() == group && itself.mode() & wanted(true) == wanted(true) {
        return Ok(());
    }
    let walked = walk(&root, |node| give(node, group));
    walked.and_then(crate::beneath::Reached::whole).map_err(failed)
}

fn wanted(directory: bool) -> u32 {
    if directory { 0o2770 } else { 0o660 }
}

fn give(node: &Node, group: u32) -> io::Result<()> {
    node.chown(None, Some(group))?;
    if node.is_link() {
        return Ok(());
    }
    node.chmod(node.mode() | wanted(node.is_dir()))
}

#[cfg(test)]
#[path = "ownership_tests.rs"]
mod tests;

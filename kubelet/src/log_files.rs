//! Where the files of container logs lie, and how large they are.

use coracle_storage::beneath;
use std::path::Path;

/// Below the log directory: `<namespace>_<name>_<uid>/<container>/<n>.log`.
pub const LEVELS: usize = 3;

/// Bytes and number of the files beside a log, itself among them.
pub fn written(path: &Path) -> (u64, u64) {
    let Ok(dir) = beneath::parent_below(LEVELS, path) else { return (0, 0) };
    let names = dir.entries().into_iter().flatten().flatten().map(|entry| entry.file_name());
    let files = names.filter_map(|name| dir.node(name).ok()).filter(beneath::Node::is_file);
    files.fold((0, 0), |(bytes, count), file| (bytes + file.len(), count + 1))
}

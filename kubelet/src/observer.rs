//! Reads how much there is of what may run short: /proc and file systems.

use crate::cri::Runtime;
use crate::facts::{MemInfo, PID_MAX, THREADS_MAX, most_processes};
use crate::signal::{Amount, Observations, Signal};
use nix::sys::statvfs::statvfs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long the runtime may take to say where images lie. Until it has said so, nothing is known of them.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Observer {
    runtime: Arc<dyn Runtime>,
    /// On the file system that is the node's ephemeral storage.
    data_dir: PathBuf,
    /// Where the runtime has images. That does not change while it runs.
    images: OnceLock<PathBuf>,
}

impl Observer {
    pub fn new(runtime: Arc<dyn Runtime>, data_dir: PathBuf) -> Self {
        Self { runtime, data_dir, images: OnceLock::new() }
    }

    pub async fn look(&self) -> Observations {
        if self.images.get().is_none() {
            let asked = tokio::time::timeout(ANSWER_TIMEOUT, self.runtime.image_fs_info()).await;
            let told = asked.ok().and_then(Result::ok).into_iter().flatten().find_map(|f| f.fs_id);
            if let Some(id) = told {
                let _ = self.images.set(PathBuf::from(id.mountpoint));
            }
        }
        read(&self.data_dir, self.images.get().map(PathBuf::as_path))
    }
}

fn read(data_dir: &Path, images: Option<&Path>) -> Observations {
    let mut at = Observations::default();
    let memory = MemInfo::read();
    let memory = Amount { available: memory.available, capacity: memory.total };
    at.amounts.extend((memory.capacity > 0).then_some((Signal::MemoryAvailable, memory)));
    at.amounts.extend(processes().map(|amount| (Signal::PidAvailable, amount)));
    let disks = [
        (Some(data_dir), Signal::NodefsAvailable, Signal::NodefsInodesFree),
        (images, Signal::ImagefsAvailable, Signal::ImagefsInodesFree),
    ];
    for (path, bytes, inodes) in disks {
        if let Some((free, files)) = path.and_then(disk) {
            at.amounts.extend([(bytes, free), (inodes, files)]);
        }
    }
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    at.imagefs_apart = images.is_some_and(|images| device(images) != device(data_dir));
    at
}

/// Bytes and inodes. As `df` counts: blocks that are reserved, or a quota keeps from this machine, are neither used nor
/// free.
fn disk(path: &Path) -> Option<(Amount, Amount)> {
    let fs = statvfs(path).ok()?;
    let reserved = fs.blocks_free().saturating_sub(fs.blocks_available());
    let unit = fs.fragment_size();
    let bytes = Amount {
        available: fs.blocks_available() * unit,
        capacity: fs.blocks().saturating_sub(reserved) * unit,
    };
    Some((bytes, Amount { available: fs.files_available(), capacity: fs.files() }))
}

fn processes() -> Option<Amount> {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let capacity = most_processes(&text(PID_MAX), &text(THREADS_MAX))?;
    // The fourth field is runnable/existing scheduling entities.
    let loadavg = std::fs::read_to_string("/proc/loadavg").ok()?;
    let used: u64 = loadavg.split(' ').nth(3)?.split_once('/')?.1.parse().ok()?;
    Some(Amount { available: u64::saturating_sub(capacity, used), capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_of_a_machine_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = read(dir.path(), Some(dir.path()));
        assert_eq!(at.amounts.len(), Signal::ALL.len());
        assert!(!at.imagefs_apart);
        assert_eq!(at.amounts[&Signal::NodefsInodesFree], at.amounts[&Signal::ImagefsInodesFree]);
        for signal in [Signal::MemoryAvailable, Signal::NodefsAvailable, Signal::PidAvailable] {
            let Amount { available, capacity } = at.amounts[&signal];
            assert!(available <= capacity && capacity > 0, "{signal:?}");
        }
        let apart = read(dir.path(), Some(Path::new("/proc")));
        assert!(apart.imagefs_apart);
        assert!(!read(dir.path(), None).amounts.contains_key(&Signal::ImagefsAvailable));
    }
}

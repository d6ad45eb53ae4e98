//! Rotation of container logs, so that a talkative container fills no disk.

use crate::cri::Runtime;
use crate::kubelet::{Kubelet, Register};
use crate::pod::observed::State;
use coracle_storage::beneath::{self, Dir};
use jiff::Timestamp;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between looks at the sizes; upstream's containerLogMonitorInterval is 10 s, which an idle node need not spend.
const LOOK: Duration = Duration::from_secs(30);

/// Below the log directory: `<namespace>_<name>_<uid>/<container>/<n>.log`.
pub const LEVELS: usize = 3;

pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        for (id, path) in running(&kubelet.register) {
            let limit = kubelet.config.container_log_max_bytes;
            if size(&path).is_ok_and(|bytes| bytes > limit) {
                let files = kubelet.config.container_log_max_files;
                if let Err(error) =
                    rotate(kubelet.runtime.as_ref(), &id, &path, files, Timestamp::now()).await
                {
                    tracing::warn!(path = %path.display(), %error, "container log not rotated");
                }
            }
        }
    }
}

fn running(register: &Register) -> Vec<(String, PathBuf)> {
    let register = register.lock();
    let all = register.values().flat_map(|slot| slot.observed.containers.iter());
    all.filter(|c| c.state == State::Running).map(|c| (c.id.clone(), c.log_path.clone())).collect()
}

/// Bytes of a log.
fn size(path: &Path) -> io::Result<u64> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(beneath::parent_below(LEVELS, path)?.node(name)?.len())
}

/// Bytes and number of the files beside a log, itself among them.
pub fn written(path: &Path) -> (u64, u64) {
    let Ok(dir) = beneath::parent_below(LEVELS, path) else { return (0, 0) };
    let names = dir.entries().into_iter().flatten().flatten().map(|entry| entry.file_name());
    let files = names.filter_map(|name| dir.node(name).ok()).filter(beneath::Node::is_file);
    files.fold((0, 0), |(bytes, count), file| (bytes + file.len(), count + 1))
}

/// Puts the log aside as `<n>.log.<time>`, has the runtime open a new one, and keeps at most `files` in all.
async fn rotate(runtime: &dyn Runtime, id: &str, path: &Path, files: u32, now: Timestamp) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = beneath::parent_below(LEVELS, path)?;
    let mut aside = name.to_owned();
    aside.push(format!(".{}", now.strftime("%Y%m%d-%H%M%S")));
    dir.rename(name, &aside)?;
    if let Err(error) = runtime.reopen_container_log(id).await {
        // The runtime still writes to the old file, wherever it is.
        dir.rename(&aside, name)?;
        return Err(io::Error::other(error));
    }
    surplus(&dir, &name.to_string_lossy(), files)?.into_iter().try_for_each(|old| dir.remove(old))
}

/// Rotated files beyond `files` less the one being written, the oldest first.
fn surplus(dir: &Dir, name: &str, files: u32) -> io::Result<Vec<OsString>> {
    let prefix = format!("{name}.");
    let mut rotated: Vec<OsString> = dir
        .entries()?
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with(&prefix))
        .collect();
    rotated.sort();
    let keep = usize::try_from(files.saturating_sub(1)).unwrap_or(usize::MAX);
    rotated.truncate(rotated.len().saturating_sub(keep));
    Ok(rotated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["0.log", "0.log.20260101-000003", "0.log.20260101-000001", "0.log.20260101-000002", "1.log"]
        {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let dir = Dir::open(dir.path()).unwrap();
        assert_eq!(surplus(&dir, "0.log", 3).unwrap(), ["0.log.20260101-000001"]);
        assert!(surplus(&dir, "0.log", 5).unwrap().is_empty());
    }
}

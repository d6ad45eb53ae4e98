//! Rotation of container logs, so that a talkative container fills no disk.

use crate::cri::Runtime;
use crate::kubelet::{Kubelet, Register};
use crate::pod::observed::State;
use jiff::Timestamp;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Between looks at the sizes; upstream's containerLogMonitorInterval is 10 s, which an idle node need not spend.
const LOOK: Duration = Duration::from_secs(30);

pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        for (id, path) in running(&kubelet.register) {
            let limit = kubelet.config.container_log_max_bytes;
            if fs::metadata(&path).is_ok_and(|m| m.len() > limit) {
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

/// Puts the log aside as `<n>.log.<time>`, has the runtime open a new one, and keeps at most `files` in all.
async fn rotate(runtime: &dyn Runtime, id: &str, path: &Path, files: u32, now: Timestamp) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", now.strftime("%Y%m%d-%H%M%S")));
    fs::rename(path, &aside)?;
    if let Err(error) = runtime.reopen_container_log(id).await {
        // The runtime still writes to the old file, wherever it is.
        fs::rename(&aside, path)?;
        return Err(io::Error::other(error));
    }
    for old in surplus(path, files)? {
        fs::remove_file(old)?;
    }
    Ok(())
}

/// Rotated files beyond `files` less the one being written, the oldest first.
fn surplus(path: &Path, files: u32) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut rotated: Vec<PathBuf> = fs::read_dir(dir)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
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
        let path = dir.path().join("0.log");
        for name in
            ["0.log", "0.log.20260101-000003", "0.log.20260101-000001", "0.log.20260101-000002", "1.log"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(surplus(&path, 3).unwrap(), [dir.path().join("0.log.20260101-000001")]);
        assert!(surplus(&path, 5).unwrap().is_empty());
    }
}

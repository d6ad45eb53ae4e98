//! Rotation of container logs, so that a talkative container fills no disk, and the links to them.
//!
//! As upstream: what is written becomes `<n>.log.<time>`, which collectors may still read; the ones before are compressed to
//! `<n>.log.<time>.gz`, and the oldest go.

use crate::blocking::{self, reading};
use crate::cri::Runtime;
use crate::kubelet::{Kubelet, PodTable};
use crate::log_files::LEVELS;
use crate::log_links::{mend, name};
use crate::pod_facts::observed::State;
use coracle_storage::beneath::{self, Dir};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const COMPRESSED: &str = ".gz";
/// Of a file that is being compressed.
const UNFINISHED: &str = ".tmp";
/// Bytes that are compressed at a time.
const PIECE: usize = 64 * 1024;

/// Between looks; a container's link is there as soon as it has started, and goes with it. This finds what was missed.
const LINKS_INTERVAL: Duration = Duration::from_secs(60);

pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    loop {
        let interval = kubelet.now().logs.interval;
        if stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_none() {
            break;
        }
        let settings = kubelet.now().logs.clone();
        let due = running(&kubelet.register)
            .into_iter()
            .filter(|(_, path)| size(path).is_ok_and(|bytes| bytes > settings.max_bytes));
        let rotations = futures::stream::iter(due.collect::<Vec<_>>());
        let all = rotations.for_each_concurrent(settings.workers, async |(id, path)| {
            let rotated =
                rotate(kubelet.runtime.as_ref(), &id, &path, settings.max_files, Timestamp::now()).await;
            if let Err(error) = rotated {
                tracing::warn!(path = %path.display(), %error, "container log not rotated");
            }
        });
        all.await;
    }
}

fn running(register: &PodTable) -> Vec<(String, PathBuf)> {
    let register = register.lock();
    let all = register.values().flat_map(|slot| slot.observed.containers.iter());
    all.filter(|c| c.state == State::Running).map(|c| (c.id.clone(), c.log_path.clone())).collect()
}

/// Bytes of a log.
fn size(path: &Path) -> io::Result<u64> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(beneath::parent_below(LEVELS, path)?.node(name)?.len())
}

/// Puts the log aside as `<n>.log.<time>`, has the runtime open a new one, and keeps at most `files` in all.
async fn rotate(runtime: &dyn Runtime, id: &str, path: &Path, files: u32, now: Timestamp) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let dir = beneath::parent_below(LEVELS, path)?;
    // What was put aside last time has been read by now, and this rotation's is not there yet.
    let before = name.clone();
    let dir =
        blocking::reading("old logs", move || tidy(&dir, &before.to_string_lossy(), files).map(|()| dir));
    let dir = dir.await.unwrap_or_else(|| Err(io::Error::other("compressing panicked")))?;
    let mut aside = name.clone();
    aside.push(format!(".{}", now.strftime("%Y%m%d-%H%M%S")));
    dir.rename(&name, &aside)?;
    if let Err(error) = runtime.reopen_container_log(id).await {
        // The runtime still writes to the old file, wherever it is.
        dir.rename(&aside, &name)?;
        return Err(io::Error::other(error));
    }
    Ok(())
}

/// Leaves room for one more among at most `files`, and compresses what stays.
fn tidy(dir: &Dir, name: &str, files: u32) -> io::Result<()> {
    let prefix = format!("{name}.");
    let mut rotated = Vec::new();
    for entry in dir.entries()? {
        let other = entry?.file_name();
        let text = other.to_string_lossy();
        if text.starts_with(&prefix) && text.ends_with(UNFINISHED) {
            // A kubelet was ended in the middle.
            dir.remove(&other)?;
        } else if text.starts_with(&prefix) {
            rotated.push(other);
        }
    }
    for old in surplus(&mut rotated, files) {
        dir.remove(old)?;
    }
    let plain = rotated.iter().filter(|name| !name.to_string_lossy().ends_with(COMPRESSED));
    plain.into_iter().try_for_each(|name| compress(dir, name))
}

/// Takes out the oldest: with the one being written and the one about to be put aside there are to be `files`.
fn surplus(rotated: &mut Vec<OsString>, files: u32) -> Vec<OsString> {
    rotated.sort();
    let keep = usize::try_from(files.saturating_sub(2)).unwrap_or(usize::MAX);
    rotated.drain(..rotated.len().saturating_sub(keep)).collect()
}

fn compress(dir: &Dir, name: &OsStr) -> io::Result<()> {
    let ending = |end: &str| {
        let mut other = name.to_owned();
        other.push(end);
        other
    };
    let (unfinished, finished) = (ending(UNFINISHED), ending(COMPRESSED));
    let node = dir.node(name)?;
    if !node.is_file() {
        return Ok(());
    }
    let mut from = node.open()?;
    dir.create(&unfinished, &[], beneath::Permissions::of(0o640))?;
    let packed = std::fs::OpenOptions::new().write(true).open(dir.node(&unfinished)?.path())?;
    let mut encoder = GzEncoder::new(packed, Compression::default());
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece)? {
            0 => break,
            read => encoder.write_all(&piece[..read])?,
        }
    }
    encoder.finish()?.sync_all()?;
    dir.rename(&unfinished, &finished)?;
    dir.remove(name)
}

/// Mends until `stop`, where links are wanted.
pub async fn keep_links(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let Some(links) = kubelet.config.log_links.clone() else { return };
    let work = async {
        loop {
            let mut wanted = BTreeMap::new();
            for slot in kubelet.register.lock().values() {
                for seen in slot.observed.containers.iter().filter(|seen| seen.log_path.is_absolute()) {
                    wanted.insert(name(&slot.pod, &seen.name, &seen.id), seen.log_path.clone());
                }
            }
            wanted.retain(|_, log| log.exists());
            let (links, logs) = (links.clone(), kubelet.config.log_dir.clone());
            let mended = reading("links to logs", move || mend(&links, &logs, &wanted)).await;
            if let Some(Err(error)) = mended {
                tracing::warn!(%error, "links to containers' logs not mended");
            }
            tokio::time::sleep(LINKS_INTERVAL).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_the_rest_is_compressed() {
        let root = tempfile::tempdir().unwrap();
        let names = [
            "0.log",
            "0.log.20260101-000003",
            "0.log.20260101-000001.gz",
            "0.log.20260101-000002",
            "0.log.20260101-000002.tmp",
            "1.log.20260101-000001",
        ];
        names.iter().for_each(|name| std::fs::write(root.path().join(name), *name).unwrap());
        let left = || {
            let mut left: Vec<String> = std::fs::read_dir(root.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            left.sort();
            left
        };
        let dir = Dir::open(root.path()).unwrap();
        tidy(&dir, "0.log", 4).unwrap();
        let expected =
            ["0.log", "0.log.20260101-000002.gz", "0.log.20260101-000003.gz", "1.log.20260101-000001"];
        assert_eq!(left(), expected);
        let packed = std::fs::File::open(root.path().join(expected[2])).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "0.log.20260101-000003");
        tidy(&dir, "0.log", 2).unwrap();
        assert_eq!(
            left(),
            ["0.log", "1.log.20260101-000001"],
            "two are the one that is written and the next"
        );
    }
}

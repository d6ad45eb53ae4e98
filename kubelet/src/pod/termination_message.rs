//! What a container leaves behind for `state.terminated.message`.

use super::observed::Container as Seen;
use crate::log_files;
use coracle_storage::beneath::open_below;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Below the pod's directory: `containers/<container>/termination-log.<n>`.
const LEVELS: usize = 3;
/// Bytes of a termination message; the API's limit.
const MAX_MESSAGE: u64 = 4096;
/// Bytes and lines of a log that stand in for one; upstream's limits.
const MAX_LOG: u64 = 2048;
const MAX_LINES: usize = 80;
/// Bytes of all messages of a pod together; upstream's limit, so that a pod of many containers stays a small object.
const MAX_POD: usize = 12 * 1024;

/// Bytes of each message of a pod.
pub fn limit(spec: Option<&PodSpec>) -> usize {
    let containers = spec.map_or(1, |s| s.containers.len() + s.init_containers.as_ref().map_or(0, Vec::len));
    MAX_POD / containers.max(1)
}

/// The termination message, or the end of the log where the policy says so and the container failed in silence; no more
/// than `limit` bytes of it.
pub fn read(spec: &Container, seen: &Seen, limit: usize) -> String {
    let mut words = whole(spec, seen);
    words.truncate(words.floor_char_boundary(limit));
    words
}

fn whole(spec: &Container, seen: &Seen) -> String {
    let written = seen.termination_log.as_deref().and_then(|path| head(path).ok()).unwrap_or_default();
    let fall_back = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    if !written.is_empty() || !fall_back || seen.exit_code == 0 {
        return written;
    }
    tail(&seen.log_path).unwrap_or_default()
}

fn head(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    open_below(LEVELS, path)?.take(MAX_MESSAGE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = open_below(log_files::LEVELS, path)?;
    let length = file.metadata()?.len();
    // Each line carries some 45 bytes of time and stream before its text.
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG * 4)))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG * 4).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // Time, stream, tag, text; the tag P says that the line goes on.
    let parts = text.lines().map(|line| line.splitn(4, ' ').collect::<Vec<_>>());
    let texts: Vec<[&str; 2]> = parts
        .filter_map(|parts| match parts[..] {
            [_, _, tag, text] => Some([text, if tag == "P" { "" } else { "\n" }]),
            _ => None,
        })
        .collect();
    let joined: String = texts[texts.len().saturating_sub(MAX_LINES)..].concat().concat();
    let limit = usize::try_from(MAX_LOG).unwrap_or(usize::MAX);
    let mut start = joined.len().saturating_sub(limit);
    while !joined.is_char_boundary(start) {
        start += 1;
    }
    Ok(joined[start..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_containers_share_what_a_pod_may_say() {
        let spec = |containers: usize| {
            let one = serde_json::json!({ "name": "c" });
            let spec =
                serde_json::json!({ "initContainers": [one], "containers": vec![one.clone(); containers] });
            serde_json::from_value::<PodSpec>(spec).expect("a spec")
        };
        assert_eq!((limit(Some(&spec(1))), limit(Some(&spec(11)))), (6144, 1024));
    }

    #[test]
    fn a_line_without_an_end_gets_none() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("pod/c/0.log");
        std::fs::create_dir_all(dir.path().join("pod/c")).expect("directories");
        let line = |tag: &str, text: &str| format!("2026-01-01T00:00:00.1Z stdout {tag} {text}\n");
        std::fs::write(&file, line("F", "one") + &line("P", "DO") + &line("P", "NE")).expect("a log");
        assert_eq!(tail(&file).expect("read"), "one\nDONE");
        std::fs::rename(dir.path().join("pod/c"), dir.path().join("elsewhere")).expect("moved");
        std::os::unix::fs::symlink("../elsewhere", dir.path().join("pod/c")).expect("a link");
        assert!(tail(&file).is_err(), "no link is followed to a log");
    }
}

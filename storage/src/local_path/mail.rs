//! How other nodes are told what to do for their volumes, and how they answer: by annotations of their Node.
//!
//! A node may write its own Node and read little else, so nothing more has to be granted. Each volume has two annotations, so
//! nobody overwrites what another one writes.

use super::job::Job;
use crate::facts;
use crate::volumes::KINDS;
use coracle_api::storage::{ANSWERED_BY_NODE as DONE, ASKED_OF_NODE as WANTED};
use coracle_api::well_known::VOLUME_KINDS;
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where a node keeps its local-path volumes; written by itself. Without it the node has none.
const ROOT: &str = "coracle.io/local-path-root";
/// Bytes that are free there, as they were last told; written by the node itself.
const ROOM: &str = "coracle.io/local-path-room";
/// Whether quotas hold volumes to their sizes there; written by the node itself.
const QUOTAS: &str = "coracle.io/local-path-quotas";

/// What a node says of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub job: Job,
    /// Empty when it was done.
    #[serde(default)]
    pub error: String,
    /// Whether it was not done for lack of room.
    #[serde(default)]
    pub full: bool,
}

pub fn root(node: &Node) -> Option<PathBuf> {
    facts::annotation(node, ROOT).map(PathBuf::from).filter(|root| root.is_absolute())
}

/// Bytes that are free for the node's volumes.
pub fn room(node: &Node) -> Option<i64> {
    facts::annotation(node, ROOM)?.parse().ok().filter(|bytes| *bytes >= 0)
}

pub fn has_quotas(node: &Node) -> bool {
    facts::annotation(node, QUOTAS) == Some("true")
}

/// Whether the node says of its volumes what [`introducing`] has it say.
pub fn is_introduced(node: &Node, root: &Path, quotas: bool) -> bool {
    self::root(node).as_deref() == Some(root)
        && has_quotas(node) == quotas
        && facts::annotation(node, VOLUME_KINDS) == Some(KINDS)
}

/// A patch of the Node that tells where its volumes lie, whether quotas hold them to their sizes, and what it can mount.
pub fn introducing(root: &Path, quotas: bool) -> Value {
    let quotas = if quotas { Value::from("true") } else { Value::Null };
    let told = json!({ ROOT: root.to_string_lossy(), QUOTAS: quotas, VOLUME_KINDS: KINDS });
    json!({ "metadata": { "annotations": told } })
}

/// The same that tells what room there is.
pub fn telling(room: i64) -> Value {
    json!({ "metadata": { "annotations": { ROOM: room.to_string() } } })
}

/// What the node says of this job of the volume.
pub fn answer(node: &Node, volume: &str, job: &Job) -> Option<Answer> {
    let text = facts::annotation(node, &format!("{DONE}{volume}"))?;
    serde_json::from_str::<Answer>(text).ok().filter(|answer| &answer.job == job)
}

pub fn is_asked(node: &Node, volume: &str, job: &Job) -> bool {
    let text = facts::annotation(node, &format!("{WANTED}{volume}"));
    text.and_then(|text| serde_json::from_str::<Job>(text).ok()).as_ref() == Some(job)
}

/// A patch of the Node by which it is asked.
pub fn asking(volume: &str, job: &Job) -> Value {
    json!({ "metadata": { "annotations": { format!("{WANTED}{volume}"): json!(job).to_string() } } })
}

/// The same by which the matter is closed.
pub fn closing(volume: &str) -> Value {
    let (wanted, done) = (format!("{WANTED}{volume}"), format!("{DONE}{volume}"));
    json!({ "metadata": { "annotations": { wanted: null, done: null } } })
}

/// The same by which the node answers.
pub fn answering(volume: &str, answer: &Answer) -> Value {
    json!({ "metadata": { "annotations": { format!("{DONE}{volume}"): json!(answer).to_string() } } })
}

/// Volumes that the node has answered for.
pub fn answered(node: &Node) -> impl Iterator<Item = &str> {
    node.metadata.annotations.iter().flatten().filter_map(|(key, _)| key.strip_prefix(DONE))
}

/// The name of what the node was asked to work on for the volume.
pub fn directory(node: &Node, volume: &str) -> Option<String> {
    let text = facts::annotation(node, &format!("{WANTED}{volume}"))?;
    match serde_json::from_str(text).ok()? {
        Job::Make { directory, .. } | Job::Grow { directory, .. } | Job::Remove { directory } => {
            Some(directory)
        }
    }
}

/// What the node has not answered yet, by the volumes' names.
pub fn open(node: &Node) -> Vec<(String, Job)> {
    let asked = node.metadata.annotations.iter().flatten();
    let asked =
        asked.filter_map(|(key, text)| Some((key.strip_prefix(WANTED)?, serde_json::from_str(text).ok()?)));
    asked
        .filter(|(volume, job)| answer(node, volume, job).is_none())
        .map(|(volume, job): (&str, Job)| (volume.to_owned(), job))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_open_until_it_is_answered() {
        let job = Job::Grow { directory: "d".to_owned(), bytes: 5 };
        let node = |patches: &[Value]| {
            let mut annotations = serde_json::Map::new();
            for patch in patches {
                annotations.extend(patch["metadata"]["annotations"].as_object().unwrap().clone());
            }
            serde_json::from_value::<Node>(json!({ "metadata": { "annotations": annotations } })).unwrap()
        };
        let asked = node(&[asking("pvc-1", &job)]);
        assert_eq!(open(&asked), [("pvc-1".to_owned(), job.clone())]);
        assert!(is_asked(&asked, "pvc-1", &job) && answer(&asked, "pvc-1", &job).is_none());
        let said = Answer { job: job.clone(), error: "full".to_owned(), full: true };
        let done = node(&[asking("pvc-1", &job), answering("pvc-1", &said)]);
        assert!(open(&done).is_empty());
        assert_eq!(answered(&done).collect::<Vec<_>>(), ["pvc-1"]);
        assert_eq!(answer(&done, "pvc-1", &job), Some(said.clone()));
        // Of another job nothing is said.
        let other = Job::Remove { directory: "d".to_owned() };
        let next = node(&[asking("pvc-1", &other), answering("pvc-1", &said)]);
        assert_eq!(open(&next).len(), 1);
    }
}

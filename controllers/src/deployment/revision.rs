//! Which ReplicaSet is of which template: hashes, revisions, history.

use super::shape::{DESIRED, MAX, Shape};
use crate::common::ownership::controller_reference;
use crate::common::revisions::safe_hash;
use coracle_api::well_known;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const HASH_LABEL: &str = "pod-template-hash";
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Asks for an earlier revision.
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Longest list of revisions in an annotation; upstream's.
const HISTORY_CHARS: usize = 2000;
/// Annotations of a Deployment that its ReplicaSets do not inherit.
pub const OWN: [&str; 6] = [well_known::LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, ROLLBACK_TO];
/// A name-safe hash of a template; a collision count makes it another one. Stable as long as the API's field order.
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    safe_hash(serde_json::to_vec(template).unwrap_or_default(), collisions)
}

/// The template that a set was made from.
pub fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = template.metadata.as_mut() {
        if let Some(labels) = meta.labels.as_mut() {
            labels.remove(HASH_LABEL);
        }
        meta.labels = meta.labels.take().filter(|l| !l.is_empty());
        // The server may or may not store it; it says nothing in a template.
        meta.creation_timestamp = None;
    }
    template.metadata = template.metadata.filter(|m| m != &ObjectMeta::default());
    template
}

/// Whether a set was made from this Deployment's present template.
pub fn is_current(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let wanted = deployment.spec.as_ref().map(|s| without_hash(&s.template));
    let has = set.spec.as_ref().and_then(|s| s.template.as_ref()).map(without_hash);
    wanted.is_some() && wanted == has
}

/// Splits the sets into the one of the present template (the oldest, should there be several) and the others.
pub fn split(
    deployment: &Deployment,
    sets: Vec<Arc<ReplicaSet>>,
) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    let age = |s: &ReplicaSet| (s.metadata.creation_timestamp.as_ref().map(|t| t.0), s.metadata.name.clone());
    let new = sets.iter().filter(|s| is_current(deployment, s)).min_by_key(|s| age(s)).cloned();
    let is_new = |s: &ReplicaSet| new.as_ref().is_some_and(|n| n.metadata.uid == s.metadata.uid);
    let old = sets.into_iter().filter(|s| !is_new(s)).collect();
    (new, old)
}

pub fn revision(meta: &ObjectMeta) -> i64 {
    meta.annotations.as_ref().and_then(|a| a.get(REVISION)).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// The revision of the present template: one more than any old set's.
pub fn next_revision(old: &[Arc<ReplicaSet>]) -> i64 {
    old.iter().map(|s| revision(&s.metadata)).max().unwrap_or(0) + 1
}

/// Annotations of the newest set: the Deployment's own, its revision, and, when it takes over again after a roll
/// back, the revisions it had before.
pub fn annotations(
    deployment: &Deployment,
    old: &BTreeMap<String, String>,
    revision: i64,
) -> BTreeMap<String, String> {
    let mut all = old.clone();
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN.contains(&key.as_str()) {
            all.insert(key.clone(), value.clone());
        }
    }
    let before: i64 = old.get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0);
    if before < revision {
        all.insert(REVISION.to_owned(), revision.to_string());
        if before > 0 {
            let history = with_revision(all.get(HISTORY).map_or("", String::as_str), before);
            all.insert(HISTORY.to_owned(), history);
        }
    }
    all
}

/// The list of earlier revisions with one more; the oldest make room.
fn with_revision(history: &str, revision: i64) -> String {
    let revision = revision.to_string();
    let mut rest = history;
    while !rest.is_empty() && rest.len() + 1 + revision.len() > HISTORY_CHARS {
        rest = rest.split_once(',').map_or("", |(_, rest)| rest);
    }
    if rest.is_empty() { revision } else { format!("{rest},{revision}") }
}

/// The annotations by which a set remembers the size it was given its share of.
pub fn size_annotations(shape: &Shape) -> [(String, String); 2] {
    [(DESIRED.to_owned(), shape.replicas.to_string()), (MAX.to_owned(), shape.max_replicas().to_string())]
}

/// The ReplicaSet of the present template, `replicas` large.
pub fn new_set(deployment: &Deployment, shape: &Shape, replicas: i32, revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let collisions = deployment.status.as_ref().and_then(|s| s.collision_count);
    let hash = template_hash(&spec.template, collisions);
    let mut template = spec.template;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let mut annotations = annotations(deployment, &BTreeMap::new(), revision);
    annotations.extend(size_annotations(shape));
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", deployment.metadata.name.as_deref().unwrap_or_default())),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

/// Old sets beyond the history limit that hold no pods, the oldest revisions first.
pub fn beyond_history(deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    let limit = deployment.spec.as_ref().and_then(|s| s.revision_history_limit).unwrap_or(10);
    let mut alive: Vec<_> = old.iter().filter(|s| s.metadata.deletion_timestamp.is_none()).collect();
    let excess = alive.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    alive.sort_by_key(|s| revision(&s.metadata));
    alive.into_iter().take(excess).filter(|s| is_drained(s)).cloned().collect()
}

fn is_drained(set: &ReplicaSet) -> bool {
    let status = set.status.as_ref();
    let observed = status.and_then(|s| s.observed_generation).unwrap_or(0);
    status.is_none_or(|s| s.replicas == 0)
        && set.spec.as_ref().and_then(|s| s.replicas) == Some(0)
        && set.metadata.generation.unwrap_or(0) <= observed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment() -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "x", "uid": "u", "annotations": {
                "note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}" } },
            "spec": { "replicas": 3, "revisionHistoryLimit": 1, "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } },
        }))
        .unwrap()
    }

    fn set_of(deployment: &Deployment, revision: i64, replicas: i32) -> ReplicaSet {
        new_set(deployment, &Shape::of(deployment), replicas, revision)
    }

    #[test]
    fn a_set_is_recognised_by_its_template_and_not_by_its_hash() {
        let mut deployment = deployment();
        let set = set_of(&deployment, 1, 3);
        assert!(is_current(&deployment, &set));
        let name = set.metadata.name.unwrap();
        assert!(name.starts_with("web-") && name.len() > 8, "{name}");
        let hash = template_hash(&deployment.spec.as_ref().unwrap().template, None);
        assert_ne!(hash, template_hash(&deployment.spec.as_ref().unwrap().template, Some(1)));
        deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0].image =
            Some("j".into());
        assert!(!is_current(&deployment, &set_of(&self::deployment(), 1, 3)));
    }

    #[test]
    fn a_set_that_takes_over_again_remembers_its_revisions() {
        let deployment = deployment();
        let first = set_of(&deployment, 1, 3).metadata.annotations.unwrap();
        assert_eq!(first.get("note").map(String::as_str), Some("n"));
        assert!(!first.keys().any(|k| k.contains("last-applied")));
        assert_eq!(annotations(&deployment, &first, 1), first);
        let again = annotations(&deployment, &first, 4);
        assert_eq!((again[REVISION].as_str(), again[HISTORY].as_str()), ("4", "1"));
        let thrice = annotations(&deployment, &again, 7);
        assert_eq!(thrice[HISTORY], "1,4");
        let long = (1000..1400).map(|r| r.to_string()).collect::<Vec<_>>().join(",");
        let cut = with_revision(&long, 1400);
        assert!(
            cut.len() <= HISTORY_CHARS && cut.starts_with("1001,") && cut.ends_with(",1399,1400"),
            "{cut}"
        );
    }

    #[test]
    fn history_drops_the_oldest_drained_sets() {
        let deployment = deployment();
        let sets: Vec<_> =
            [(3, 0), (1, 0), (2, 2)].map(|(rev, size)| Arc::new(set_of(&deployment, rev, size))).into();
        let revisions: Vec<_> =
            beyond_history(&deployment, &sets).iter().map(|s| revision(&s.metadata)).collect();
        assert_eq!(revisions, [1]);
        assert_eq!(next_revision(&sets), 4);
    }
}

//! Going back to an earlier revision when an annotation asks for it: what the API version `extensions/v1beta1` of old
//! left of its `spec.rollbackTo`. kubectl does without.

use super::pass::Pass;
use super::revision::{self, OWN, ROLLBACK_TO};
use coracle_client::ReconcileError;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use kube::api::PostParams;
use std::sync::Arc;

const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";

/// The revision that is asked for, 0 for the one before the present; `None`: none, or no number.
pub fn wanted(deployment: &Deployment) -> Option<i64> {
    deployment.annotations().get(ROLLBACK_TO)?.parse().ok()
}

/// The revision before the newest; 0 if there is none.
fn last_revision(sets: &[&Arc<ReplicaSet>]) -> i64 {
    let mut all: Vec<i64> = sets.iter().map(|set| revision::revision(&set.metadata)).collect();
    all.sort_unstable();
    all.iter().rev().nth(1).copied().unwrap_or(0)
}

/// The set of the revision `to`, and its number; or why there is none.
fn target(sets: &[&Arc<ReplicaSet>], to: i64) -> Result<(Arc<ReplicaSet>, i64), &'static str> {
    let to = if to == 0 { last_revision(sets) } else { to };
    if to == 0 {
        return Err("Unable to find last revision.");
    }
    let found = sets.iter().find(|set| revision::revision(&set.metadata) == to);
    found.map(|set| (Arc::clone(set), to)).ok_or("Unable to find the revision to rollback to.")
}

/// The Deployment with the set's template, and the annotations that it had then.
fn restored(deployment: &Deployment, set: &ReplicaSet) -> Deployment {
    let mut changed = deployment.clone();
    let template = set.spec.as_ref().and_then(|s| s.template.as_ref()).map(revision::without_hash);
    changed.spec.get_or_insert_default().template = template.unwrap_or_default();
    changed.annotations_mut().retain(|key, _| OWN.contains(&key.as_str()));
    let then = set.annotations().iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
    changed.annotations_mut().extend(then.map(|(key, value)| (key.clone(), value.clone())));
    changed
}

impl Pass<'_> {
    /// Goes back to the revision `to`, or says why not. In either case the wish is fulfilled.
    pub async fn roll_back(&mut self, to: i64) -> Result<(), ReconcileError> {
        self.refresh_new().await?;
        self.ensure_new().await?;
        let name = self.deployment.name_any();
        let found = target(&self.all(), to);
        let mut changed = self.deployment.clone();
        let mut done = None;
        match found {
            Err(why) => self.recorder.warning(&self.deployment, NOT_FOUND, why),
            Ok((set, _)) if revision::is_current(&self.deployment, &set) => {
                let why = format!(
                    "The rollback revision contains the same template as current deployment \"{name}\""
                );
                self.recorder.warning(&self.deployment, "DeploymentRollbackTemplateUnchanged", why);
            }
            Ok((set, revision)) => {
                changed = restored(&self.deployment, &set);
                done = Some(revision);
            }
        }
        changed.annotations_mut().remove(ROLLBACK_TO);
        self.deployments.replace(&name, &PostParams::default(), &changed).await?;
        if let Some(revision) = done {
            let message = format!("Rolled back deployment \"{name}\" to revision {revision}");
            self.recorder.normal(&self.deployment, "DeploymentRollback", message);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(revision: i64) -> Arc<ReplicaSet> {
        let annotations = json!({ "deployment.kubernetes.io/revision": revision.to_string(),
            "deployment.kubernetes.io/desired-replicas": "3", "kubernetes.io/change-cause": "then" });
        let labels = json!({ "app": "web", "pod-template-hash": "h" });
        let template =
            json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "then" }] } });
        let spec = json!({ "selector": {}, "template": template });
        let metadata = json!({ "name": format!("web-{revision}"), "annotations": annotations });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
    }

    #[test]
    fn zero_means_the_revision_before_the_newest() {
        let all = [set(1), set(4), set(3)];
        let sets: Vec<&Arc<ReplicaSet>> = all.iter().collect();
        let number = |to| target(&sets, to).map(|(_, revision)| revision);
        assert_eq!((number(0), number(1)), (Ok(3), Ok(1)));
        assert_eq!(number(2), Err("Unable to find the revision to rollback to."));
        assert_eq!(target(&sets[..1], 0).err(), Some("Unable to find last revision."));
    }

    #[test]
    fn template_and_annotations_come_back_and_the_owns_stay() {
        let annotations = json!({ "deployment.kubernetes.io/revision": "4", "kubernetes.io/change-cause": "now",
            "new": "x", ROLLBACK_TO: "1" });
        let template = json!({ "spec": { "containers": [{ "name": "now" }] } });
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": { "name": "web", "annotations": annotations },
            "spec": { "selector": {}, "template": template },
        }))
        .unwrap();
        assert_eq!(wanted(&deployment), Some(1));
        let back = restored(&deployment, &set(1));
        let shown: Vec<(&str, &str)> =
            back.annotations().iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [
            ("deployment.kubernetes.io/revision", "4"),
            (ROLLBACK_TO, "1"),
            ("kubernetes.io/change-cause", "then"),
        ];
        assert_eq!(shown, expected);
        let template = back.spec.unwrap().template;
        assert_eq!(template.spec.unwrap().containers[0].name, "then");
        assert!(!template.metadata.unwrap().labels.unwrap().contains_key(revision::HASH_LABEL));
    }
}

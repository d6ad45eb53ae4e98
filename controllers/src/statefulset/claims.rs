//! The claims of a StatefulSet's pods: made before them, and kept or dropped after them.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention>

use super::identity::{claim_name, claim_templates, pod_name};
use crate::common::ownership::controller_reference;
use crate::common::{code_of, message_of};
use coracle_client::informer::{api_for, deleting, uid_of};
use coracle_client::{Informer, ObjectKey, ReconcileError, Recorder};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};

pub struct Claims<'a> {
    pub client: &'a kube::Client,
    pub recorder: &'a Recorder,
    pub claims: &'a Informer<PersistentVolumeClaim>,
    pub key: &'a ObjectKey,
    pub set: &'a StatefulSet,
}

impl Claims<'_> {
    fn api(&self) -> Api<PersistentVolumeClaim> {
        api_for(self.client, self.key)
    }

    /// As [`ensure`](Self::ensure), for a pod that is to be made. An error too while a claim is to go with the pod before it.
    pub async fn ensure_fresh(&self, ordinal: i32) -> Result<(), ReconcileError> {
        let pod = pod_name(self.set, ordinal);
        for template in claim_templates(self.set) {
            let name = claim_name(self.set, template, ordinal);
            let there = self.claims.get(&self.key.namespace, &name);
            if there.is_some_and(|claim| claim.owner_references().iter().any(|o| is_pods(o, &pod))) {
                return Err(ReconcileError::Other(format!("pvc {name} goes with the pod before")));
            }
        }
        self.ensure(ordinal).await
    }

    /// Makes the claims that an ordinal's pod needs. An error while an old one is still going.
    pub async fn ensure(&self, ordinal: i32) -> Result<(), ReconcileError> {
        for template in claim_templates(self.set) {
            let name = claim_name(self.set, template, ordinal);
            if let Some(there) = self.claims.get(&self.key.namespace, &name) {
                if deleting(there.as_ref()) {
                    return Err(ReconcileError::Other(format!("pvc {name} is being deleted")));
                }
                continue;
            }
            self.create(template, &name, ordinal).await?;
        }
        Ok(())
    }

    async fn create(
        &self,
        template: &PersistentVolumeClaim,
        name: &str,
        ordinal: i32,
    ) -> Result<(), ReconcileError> {
        let meta = template.metadata.clone();
        let mut labels = meta.labels.unwrap_or_default();
        let selector = self.set.spec.as_ref().and_then(|s| s.selector.match_labels.clone());
        labels.extend(selector.unwrap_or_default());
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: self.set.namespace(),
                labels: Some(labels),
                annotations: meta.annotations,
                owner_references: self.owner(None).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        };
        let (pod, set) = (pod_name(self.set, ordinal), self.set.name_any());
        match self.api().create(&PostParams::default(), &claim).await {
            Ok(_) => {
                let message = format!("create Claim {name} Pod {pod} in StatefulSet {set} success");
                self.recorder.normal(self.set, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) if code_of(&error) == 409 => Ok(()),
            Err(error) => {
                let why = message_of(&error);
                let message =
                    format!("create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {why}");
                self.recorder.warning(self.set, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    /// With whom a claim goes: with the set, with `condemned` that is scaled away, or with nobody.
    fn owner(&self, condemned: Option<&Pod>) -> Option<OwnerReference> {
        let spec = self.set.spec.as_ref()?;
        let policy = spec.persistent_volume_claim_retention_policy.as_ref()?;
        let deletes = |when: &Option<String>| when.as_deref() == Some("Delete");
        if let Some(pod) = condemned.filter(|_| deletes(&policy.when_scaled)) {
            return Some(controller_reference(pod));
        }
        deletes(&policy.when_deleted).then(|| controller_reference(self.set))
    }

    /// Lets the claims of a pod go with whom they should.
    pub async fn retain(&self, pod: &Pod, ordinal: i32, condemned: bool) -> Result<(), ReconcileError> {
        let wanted = self.owner(condemned.then_some(pod));
        for template in claim_templates(self.set) {
            let name = claim_name(self.set, template, ordinal);
            let there = self.claims.get(&self.key.namespace, &name);
            let Some(there) = there.filter(|claim| !deleting(claim.as_ref())) else { continue };
            let Some(after) = owners(there.owner_references(), self.set, pod, wanted.as_ref()) else {
                continue;
            };
            let mut changed = PersistentVolumeClaim::clone(&there);
            changed.metadata.owner_references = (!after.is_empty()).then_some(after);
            self.api().replace(&name, &PostParams::default(), &changed).await?;
        }
        Ok(())
    }
}

fn is_pods(owner: &OwnerReference, name: &str) -> bool {
    owner.kind == "Pod" && owner.api_version == "v1" && owner.name == name
}

fn is_sets(owner: &OwnerReference, name: &str) -> bool {
    owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/") && owner.name == name
}

/// The owners that a claim should have, if they are not those that it has. A claim of a namesake that is gone is left to
/// the garbage collector, and one that has another controller gets none of ours.
fn owners(
    before: &[OwnerReference],
    set: &StatefulSet,
    pod: &Pod,
    wanted: Option<&OwnerReference>,
) -> Option<Vec<OwnerReference>> {
    let (set_name, pod_name) = (set.name_any(), pod.name_any());
    let ours = |owner: &OwnerReference| is_sets(owner, &set_name) || is_pods(owner, &pod_name);
    let uids = [uid_of(set), uid_of(pod)];
    if before.iter().any(|owner| ours(owner) && !uids.contains(&owner.uid)) {
        return None;
    }
    let mut after: Vec<_> = before.iter().filter(|owner| !ours(owner)).cloned().collect();
    if !after.iter().any(|owner| owner.controller == Some(true)) {
        after.extend(wanted.cloned());
    }
    let same = after.len() == before.len() && after.iter().all(|owner| before.contains(owner));
    (!same).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_go_with_one_controller() {
        let set: StatefulSet =
            serde_json::from_value(json!({ "metadata": { "name": "db", "uid": "s" } })).unwrap();
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "db-1", "uid": "p" } })).unwrap();
        let (of_set, of_pod) = (controller_reference(&set), controller_reference(&pod));
        let old = OwnerReference { controller: None, block_owner_deletion: None, ..of_set.clone() };
        let namesake = OwnerReference { uid: "another".into(), ..of_pod.clone() };
        let other =
            OwnerReference { kind: "Backup".into(), name: "b".into(), uid: "b".into(), ..of_set.clone() };
        let friend = OwnerReference { controller: None, ..other.clone() };
        for (before, wanted, expected) in [
            (vec![], None, None),
            (vec![], Some(&of_set), Some(vec![of_set.clone()])),
            (vec![of_set.clone()], Some(&of_set), None),
            (vec![old], Some(&of_set), Some(vec![of_set.clone()])),
            (vec![of_set.clone()], Some(&of_pod), Some(vec![of_pod.clone()])),
            (vec![of_pod.clone()], None, Some(vec![])),
            (vec![friend.clone()], Some(&of_set), Some(vec![friend, of_set.clone()])),
            (vec![other.clone()], Some(&of_set), None),
            (vec![other.clone(), of_set.clone()], Some(&of_set), Some(vec![other])),
            (vec![namesake], Some(&of_set), None),
        ] {
            assert_eq!(owners(&before, &set, &pod, wanted), expected, "{before:?}");
        }
    }
}

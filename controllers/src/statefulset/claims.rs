//! The claims of a StatefulSet's pods: made before them, and kept or dropped after them.
//!
//! <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention>

use super::identity::{claim_name, claim_templates, pod_name};
use crate::common::{code_of, message_of};
use coracle_client::informer::{api_for, deleting, uid_of};
use coracle_client::{Informer, ObjectKey, ReconcileError, Recorder};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Resource, ResourceExt};

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
            return Some(reference(pod));
        }
        deletes(&policy.when_deleted).then(|| reference(self.set))
    }

    /// Lets the claims of a pod go with whom they should. Claims that have another controller are left alone.
    pub async fn retain(&self, pod: &Pod, ordinal: i32, condemned: bool) -> Result<(), ReconcileError> {
        let wanted = self.owner(condemned.then_some(pod));
        for template in claim_templates(self.set) {
            let name = claim_name(self.set, template, ordinal);
            let Some(there) = self.claims.get(&self.key.namespace, &name) else { continue };
            let before = there.owner_references();
            let set = uid_of(self.set);
            let ours = |owner: &OwnerReference| {
                owner.uid == set || owner.kind == "Pod" && owner.name == pod_name(self.set, ordinal)
            };
            let mut after: Vec<_> = before.iter().filter(|owner| !ours(owner)).cloned().collect();
            after.extend(wanted.clone());
            let same = after.len() == before.len() && after.iter().all(|owner| before.contains(owner));
            if same || deleting(there.as_ref()) || after.iter().any(|o| o.controller == Some(true)) {
                continue;
            }
            let mut changed = PersistentVolumeClaim::clone(&there);
            changed.metadata.owner_references = (!after.is_empty()).then_some(after);
            self.api().replace(&name, &PostParams::default(), &changed).await?;
        }
        Ok(())
    }
}

fn reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

//! How controllers create, delete, adopt and release pods, with the events that upstream writes about it.

use crate::common::{code_of, message_of, namespace_terminating, ownership, pods};
use coracle_client::informer::{Kind, api_for, deleting, uid_of};
use coracle_client::{Informer, ObjectKey, ReconcileError, Recorder};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Selector;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use std::sync::Arc;

/// The first batch of a slow start: when pods are refused, one refusal is enough to learn it.
const FIRST_BATCH: usize = 1;
/// Longest part of the owner's name in a pod's generateName: a name has 253 characters at most, five of which are
/// random, and one is the dash.
const MAX_PREFIX: usize = 247;

pub struct PodControl {
    client: kube::Client,
    recorder: Recorder,
}

/// What became of a batch: the pods written, the first error, and how many there were.
pub struct Outcome<P> {
    pub pods: Vec<P>,
    pub failed: Option<String>,
    pub failures: usize,
}

impl<P> Outcome<P> {
    fn none() -> Self {
        Self { pods: Vec::new(), failed: None, failures: 0 }
    }

    fn fail(&mut self, why: String) {
        self.failures += 1;
        self.failed.get_or_insert(why);
    }
}

/// What owns pods.
pub trait Owner: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sync {}
impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sync> Owner for K {}

impl PodControl {
    pub fn new(client: kube::Client, component: &str) -> Self {
        Self { recorder: Recorder::new(client.clone(), component, ""), client }
    }

    fn api(&self, namespace: Option<String>) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &namespace.unwrap_or_default())
    }

    /// Creates `count` pods in batches of 1, 2, 4, ..., and stops after the batch in which one failed.
    pub async fn create<K: Owner>(
        &self,
        owner: &K,
        template: &PodTemplateSpec,
        count: usize,
    ) -> Outcome<Pod> {
        let pod = pod_from(owner, template);
        self.create_all(owner, &vec![&pod; count]).await
    }

    /// As [`create`](Self::create), pods that differ.
    pub async fn create_all<K: Owner>(&self, owner: &K, mut pods: &[&Pod]) -> Outcome<Pod> {
        let mut outcome = Outcome::none();
        let mut batch = FIRST_BATCH;
        while !pods.is_empty() && outcome.failed.is_none() {
            let (now, later) = pods.split_at(batch.min(pods.len()));
            let creates = now.iter().map(|pod| self.create_one(owner, pod));
            for result in futures::future::join_all(creates).await {
                match result {
                    Ok(pod) => outcome.pods.push(pod),
                    // The namespace takes the owner with it; nothing to retry.
                    Err(error) if namespace_terminating(&error) => return outcome,
                    Err(error) => outcome.fail(message_of(&error)),
                }
            }
            pods = later;
            batch *= 2;
        }
        outcome
    }

    /// Creates one pod and says so in an event on its owner.
    pub async fn create_one<K: Owner>(&self, owner: &K, pod: &Pod) -> Result<Pod, kube::Error> {
        let result = self.api(owner.namespace()).create(&PostParams::default(), pod).await;
        match &result {
            Ok(pod) => {
                let message = format!("Created pod: {}", pod.name_any());
                self.recorder.normal(owner, "SuccessfulCreate", message);
            }
            Err(error) if namespace_terminating(error) => {}
            Err(error) => {
                let message = format!("Error creating: {}", message_of(error));
                self.recorder.warning(owner, "FailedCreate", message);
            }
        }
        result
    }

    /// Deletes the pods, all at once; one that is gone already counts as deleted.
    pub async fn delete<K: Owner>(&self, owner: &K, pods: &[Arc<Pod>]) -> Outcome<Arc<Pod>> {
        let mut outcome = Outcome::none();
        let deletes = pods.iter().map(|pod| self.delete_one(owner, pod));
        for (pod, result) in pods.iter().zip(futures::future::join_all(deletes).await) {
            match result {
                Ok(()) => outcome.pods.push(pod.clone()),
                Err(error) => outcome.fail(message_of(&error)),
            }
        }
        outcome
    }

    pub async fn delete_one<K: Owner>(&self, owner: &K, pod: &Pod) -> Result<(), kube::Error> {
        let uid = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams::default().preconditions(uid);
        match self.api(pod.namespace()).delete(&pod.name_any(), &params).await {
            Ok(_) => {
                let message = format!("Deleted pod: {}", pod.name_any());
                self.recorder.normal(owner, "SuccessfulDelete", message);
                Ok(())
            }
            Err(error) if code_of(&error) == 404 => Ok(()),
            Err(error) => {
                let message = format!("Error deleting: {}", message_of(&error));
                self.recorder.warning(owner, "FailedDelete", message);
                Err(error)
            }
        }
    }

    /// The owner's pods of `informer`, after taking in orphans that it selects and letting go of those it selects no
    /// more. `finalizer` is what the owner's pods carry besides.
    pub async fn claim<K: Owner + Kind>(
        &self,
        owner: &K,
        informer: &Informer<Pod>,
        selector: &Selector,
        finalizer: Option<&str>,
    ) -> Result<Vec<Arc<Pod>>, ReconcileError> {
        let (key, uid) = (ObjectKey::of(owner), uid_of(owner));
        let in_reach = informer.claimable(&key.namespace, &uid);
        let claims = ownership::claim(in_reach, &uid, selector, deleting(owner));
        for pod in &claims.release {
            self.release(&uid, pod, finalizer).await?;
        }
        let mut owned = claims.keep;
        let orphans: Vec<_> = claims.adopt.into_iter().filter(|p| !pods::is_terminal(p)).collect();
        if !orphans.is_empty() && self.may_adopt::<K>(&key, &uid).await? {
            for pod in orphans {
                owned.extend(self.adopt(owner, &pod, finalizer).await?);
            }
        }
        Ok(owned)
    }

    /// Asks the API itself: the informer may not know yet that the owner is on its way out.
    async fn may_adopt<K: Owner + Kind>(&self, key: &ObjectKey, uid: &str) -> Result<bool, ReconcileError> {
        let live = api_for::<K>(&self.client, key).get_opt(&key.name).await?;
        Ok(live.is_some_and(|live| uid_of(&live) == uid && !deleting(&live)))
    }

    /// Makes `owner` the pod's controller. `None` when the pod is gone or became another's.
    async fn adopt<K: Owner>(
        &self,
        owner: &K,
        pod: &Pod,
        finalizer: Option<&str>,
    ) -> Result<Option<Arc<Pod>>, kube::Error> {
        let mut patch = ownership::adopt_patch(owner, &pod.uid().unwrap_or_default());
        if let Some(finalizer) = finalizer {
            patch["metadata"]["finalizers"] = json!([finalizer]);
        }
        let adopted = self.patch(pod, patch).await?;
        Ok(adopted.map(Arc::new))
    }

    /// Takes the owner with this uid away from the pod, and the finalizer that it carried for it.
    async fn release(&self, owner_uid: &str, pod: &Pod, finalizer: Option<&str>) -> Result<(), kube::Error> {
        let mut patch = ownership::release_patch(owner_uid, &pod.uid().unwrap_or_default());
        if let Some(finalizer) = finalizer {
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
        }
        self.patch(pod, patch).await.map(|_| ())
    }

    /// Takes one finalizer away. `None` when the pod is gone, or a namesake.
    pub async fn remove_finalizer(&self, pod: &Pod, finalizer: &str) -> Result<Option<Pod>, kube::Error> {
        let metadata = json!({ "uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [finalizer] });
        self.patch(pod, json!({ "metadata": metadata })).await
    }

    /// Says something about the owner.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    async fn patch(&self, pod: &Pod, patch: serde_json::Value) -> Result<Option<Pod>, kube::Error> {
        patch_owner(&self.api(pod.namespace()), pod, patch).await
    }
}

/// Sends an ownership patch. `None` when the object is gone, a namesake, or another controller was quicker.
pub async fn patch_owner<K: Kind>(
    api: &Api<K>,
    object: &K,
    patch: serde_json::Value,
) -> Result<Option<K>, kube::Error> {
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(patched) => Ok(Some(patched)),
        Err(error) if matches!(code_of(&error), 404 | 409 | 422) => {
            tracing::debug!(name = %object.name_any(), %error, "ownership not changed");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A pod of the template, owned by `owner`, its name made by the server.
pub fn pod_from<K: Owner>(owner: &K, template: &PodTemplateSpec) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let prefix: String = owner.name_any().chars().take(MAX_PREFIX).collect();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            namespace: owner.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![ownership::controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

//! The claims of a pod, looked up once a cycle.

use crate::cache::PodInfo;
use crate::framework::{Cluster, Status};
use coracle_api::storage::{BIND_COMPLETED, OLD_CLASS, ephemeral_claim, is_moving, named_class};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use std::sync::Arc;

pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What a pod's claims are, as far as placing it goes.
pub struct Claims {
    /// Volumes of bound claims.
    pub bound: Vec<Arc<PersistentVolume>>,
    /// Claims that wait for this pod's node, with their class.
    pub waiting: Vec<(Arc<PersistentVolumeClaim>, Arc<StorageClass>)>,
}

pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether claim and volume have found each other for good.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let marked = claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(BIND_COMPLETED));
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    volume_name(claim).is_some() && (marked || phase == Some("Bound"))
}

pub fn class_name(claim: &PersistentVolumeClaim) -> &str {
    let old = claim.metadata.annotations.as_ref().and_then(|a| a.get(OLD_CLASS)).map(String::as_str);
    let field = claim.spec.as_ref().and_then(|s| s.storage_class_name.as_deref());
    named_class(old, field).unwrap_or_default()
}

pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The claims by name, or upstream's words for why the pod cannot be placed yet.
pub fn named(cluster: &dyn Cluster, pod: &PodInfo) -> Result<Vec<Arc<PersistentVolumeClaim>>, Status> {
    let mut claims = Vec::new();
    for volume in pod.placing_volumes() {
        let (name, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => (source.claim_name.clone(), false),
            (None, Some(_)) => (ephemeral_claim(&pod.key.name, &volume.name), true),
            (None, None) => continue,
        };
        let claim = cluster.claim(&pod.key.namespace, &name).ok_or_else(|| {
            Status::unresolvable(if ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                )
            } else {
                format!("persistentvolumeclaim \"{name}\" not found")
            })
        })?;
        let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
        if phase == Some("Lost") {
            let lost = volume_name(&claim).unwrap_or_default();
            let text =
                format!("persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{lost}\"");
            return Err(Status::unresolvable(text));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(Status::unresolvable(format!("persistentvolumeclaim \"{name}\" is being deleted")));
        }
        let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
        if ephemeral && !owners.iter().any(|o| o.controller == Some(true) && o.uid == pod.uid) {
            let text = format!(
                "PVC {}/{name} was not created for pod {} (pod is not owner)",
                pod.key.namespace, pod.key
            );
            return Err(Status::unresolvable(text));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// The claims sorted by what is still to be done.
pub fn look_up(cluster: &dyn Cluster, pod: &PodInfo) -> Result<Claims, Status> {
    let mut found = Claims { bound: Vec::new(), waiting: Vec::new() };
    let mut immediate = false;
    for claim in named(cluster, pod)? {
        if is_bound(&claim) {
            let volume = cluster.volume(volume_name(&claim).unwrap_or_default());
            let volume = volume.ok_or_else(|| {
                Status::unresolvable(
                    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                )
            })?;
            if is_moving(volume.metadata.annotations.as_ref()) {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                let text = format!("the volume of persistentvolumeclaim \"{name}\" is being moved");
                return Err(Status::unresolvable(text));
            }
            found.bound.push(volume);
            continue;
        }
        let class = cluster.storage_class(class_name(&claim));
        match class.filter(|c| waits_for_consumer(c) && volume_name(&claim).is_none()) {
            Some(class) => found.waiting.push((claim, class)),
            None => immediate = true,
        }
    }
    if immediate {
        return Err(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
    }
    Ok(found)
}

/// Whether a changed claim is one of the pod's.
pub fn is_ours(pod: &PodInfo, namespace: &str, name: &str) -> bool {
    pod.key.namespace == namespace && pod.claim_names().any(|n| n == name)
}

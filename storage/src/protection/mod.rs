//! Keeps claims that pods use, and volumes that claims use, from being deleted under them.
//!
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>

pub mod classes;

use crate::facts;
use coracle_api::storage::ephemeral_claim;
use coracle_api::well_known;
use coracle_client::Clients;
use coracle_client::informer::{api_for, deleting};
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;

const CLAIM_FINALIZER: &str = well_known::PVC_PROTECTION;
const VOLUME_FINALIZER: &str = well_known::PV_PROTECTION;

/// The claims that a pod's volumes name, and whether each was made for an ephemeral volume of this very pod.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = (String, bool)> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some((source.claim_name.clone(), false)),
        (None, Some(_)) => Some((ephemeral_claim(&pod.name_any(), &volume.name), true)),
        (None, None) => None,
    })
}

pub fn uses(pod: &Pod, claim: &str) -> bool {
    claims_of(pod).any(|(name, _)| name == claim)
}

/// A pod that is on a node holds its claims until it is gone, whatever its phase; those of its own ephemeral volumes
/// only until it has ended for good: it may wait for them in turn.
fn holds(pod: &Pod, claim: &str) -> bool {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    let ended = has_ended(pod);
    node.is_some_and(|node| !node.is_empty())
        && claims_of(pod).any(|(name, own)| name == claim && !(own && ended))
}

/// Whether a deleted pod has no time left: its kubelet is done with it, or it was deleted by force.
fn has_ended(pod: &Pod) -> bool {
    deleting(pod) && pod.metadata.deletion_grace_period_seconds == Some(0)
}

struct Claims {
    client: kube::Client,
    claims: Informer<PersistentVolumeClaim>,
}

/// Runs the claims' controller until `stop` is cancelled.
pub async fn run_claims(clients: Clients, stop: CancellationToken) {
    let claims = clients.informers.of::<PersistentVolumeClaim>();
    let pods = clients.informers.of::<Pod>();
    let reconciler = Claims { client: clients.client("pvc-protection-controller"), claims: claims.clone() };
    Controller::new(reconciler).objects(&claims).watch(&pods, claims_of_gone).run(stop).await;
}

/// The claims of a pod that went, or has ended for good.
fn claims_of_gone(delta: &Delta<Pod>) -> Vec<ObjectKey> {
    let went = delta.new.as_deref().is_none_or(has_ended);
    let Some(pod) = delta.old.as_ref().filter(|_| went) else { return Vec::new() };
    let namespace = pod.namespace().unwrap_or_default();
    claims_of(pod).map(|(name, _)| ObjectKey::new(namespace.clone(), name)).collect()
}

impl Reconciler for Claims {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "pvc-protection-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::AwaitChange) };
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, key);
        let mut changed = PersistentVolumeClaim::clone(&claim);
        if deleting(claim.as_ref()) {
            // Asked of the API itself: a pod that the informer does not show yet must not lose its data.
            let pods: Api<Pod> = api_for(&self.client, key);
            let used = pods.list(&ListParams::default()).await?.iter().any(|pod| holds(pod, &key.name));
            if used {
                return Ok(Action::AwaitChange);
            }
            changed.finalizers_mut().retain(|f| f != CLAIM_FINALIZER);
        } else if !claim.finalizers().iter().any(|f| f == CLAIM_FINALIZER) {
            changed.finalizers_mut().push(CLAIM_FINALIZER.to_owned());
        }
        if changed.finalizers() != claim.finalizers() {
            api.replace(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(Action::AwaitChange)
    }
}

struct Volumes {
    client: kube::Client,
    volumes: Informer<PersistentVolume>,
}

/// Runs the volumes' controller until `stop` is cancelled.
pub async fn run_volumes(clients: Clients, stop: CancellationToken) {
    let volumes = clients.informers.of::<PersistentVolume>();
    let reconciler = Volumes { client: clients.client("pv-protection-controller"), volumes: volumes.clone() };
    Controller::new(reconciler).objects(&volumes).run(stop).await;
}

impl Reconciler for Volumes {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "pv-protection-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(volume) = self.volumes.get_key(key) else { return Ok(Action::AwaitChange) };
        let mut changed = PersistentVolume::clone(&volume);
        if deleting(volume.as_ref()) {
            if facts::phase(&volume) == "Bound" {
                return Ok(Action::AwaitChange);
            }
            changed.finalizers_mut().retain(|f| f != VOLUME_FINALIZER);
        } else if !volume.finalizers().iter().any(|f| f == VOLUME_FINALIZER) {
            changed.finalizers_mut().push(VOLUME_FINALIZER.to_owned());
        }
        if changed.finalizers() != volume.finalizers() {
            let api: Api<PersistentVolume> = Api::all(self.client.clone());
            api.replace(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(node: &str, extra: Value) -> Pod {
        let mut metadata = json!({ "name": "web" });
        metadata.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "shared" } },
            { "name": "scratch", "ephemeral": {} }]);
        let spec = json!({ "nodeName": node, "containers": [], "volumes": volumes });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn a_pod_on_a_node_holds_its_claims_to_its_end() {
        let going = |grace| json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace });
        for (pod, shared, own) in [
            (pod("", json!({})), false, false),
            (pod("n", json!({})), true, true),
            (pod("n", going(30)), true, true),
            (pod("n", going(0)), true, false),
        ] {
            assert_eq!(
                (holds(&pod, "shared"), holds(&pod, "web-scratch")),
                (shared, own),
                "{:?}",
                pod.metadata
            );
            assert!(!holds(&pod, "other"));
        }
    }
}

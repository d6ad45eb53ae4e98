//! Keeps claims that pods use, and volumes that claims use, from being deleted under them.
//!
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>

use crate::{Clients, facts};
use coracle_client::informer::{api_for, deleting};
use coracle_client::{Controller, Delta, Informer, Next, ObjectKey, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// The claims that a pod's volumes name, those of ephemeral volumes included.
pub fn claim_names(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| {
        let named = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        named.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name)))
    });
    names.collect()
}

pub fn uses(pod: &Pod, claim: &str) -> bool {
    claim_names(pod).iter().any(|name| name == claim)
}

/// A pod that is on a node holds its claims until it is gone, whatever its phase.
fn holds(pod: &Pod, claim: &str) -> bool {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).is_some_and(|n| !n.is_empty()) && uses(pod, claim)
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

/// The claims of a pod that went.
fn claims_of_gone(delta: &Delta<Pod>) -> Vec<ObjectKey> {
    let Some(pod) = delta.old.as_ref().filter(|_| delta.new.is_none()) else { return Vec::new() };
    let namespace = pod.namespace().unwrap_or_default();
    claim_names(pod).into_iter().map(|name| ObjectKey::new(namespace.clone(), name)).collect()
}

impl Reconciler for Claims {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "pvc-protection-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Next::Done) };
        let api: Api<PersistentVolumeClaim> = api_for(&self.client, key);
        let mut changed = PersistentVolumeClaim::clone(&claim);
        if deleting(claim.as_ref()) {
            // Asked of the API itself: a pod that the informer does not show yet must not lose its data.
            let pods: Api<Pod> = api_for(&self.client, key);
            let used = pods.list(&ListParams::default()).await?.iter().any(|pod| holds(pod, &key.name));
            if used {
                return Ok(Next::Done);
            }
            changed.finalizers_mut().retain(|f| f != CLAIM_FINALIZER);
        } else if !claim.finalizers().iter().any(|f| f == CLAIM_FINALIZER) {
            changed.finalizers_mut().push(CLAIM_FINALIZER.to_owned());
        }
        if changed.finalizers() != claim.finalizers() {
            api.replace(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(Next::Done)
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

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(volume) = self.volumes.get_key(key) else { return Ok(Next::Done) };
        let mut changed = PersistentVolume::clone(&volume);
        if deleting(volume.as_ref()) {
            if facts::phase(&volume) == "Bound" {
                return Ok(Next::Done);
            }
            changed.finalizers_mut().retain(|f| f != VOLUME_FINALIZER);
        } else if !volume.finalizers().iter().any(|f| f == VOLUME_FINALIZER) {
            changed.finalizers_mut().push(VOLUME_FINALIZER.to_owned());
        }
        if changed.finalizers() != volume.finalizers() {
            let api: Api<PersistentVolume> = Api::all(self.client.clone());
            api.replace(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(Next::Done)
    }
}

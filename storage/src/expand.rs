//! The expand controller: says of claims that are to grow who is waited for.
//!
//! All volumes that can grow have somebody else who makes them grow: drivers their resizers (upstream's external-resizer),
//! local-path its provisioner.
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims>

use crate::{Clients, facts};
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use tokio_util::sync::CancellationToken;

/// The service account.
const ACCOUNT: &str = "expand-controller";
/// The events' source; upstream's.
const COMPONENT: &str = "volume_expand";

struct Expand {
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    recorder: Recorder,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let claims = clients.informers.of::<PersistentVolumeClaim>();
    let volumes = clients.informers.of::<PersistentVolume>();
    let recorder = Recorder::new(clients.client(ACCOUNT), COMPONENT, "");
    let reconciler = Expand { claims: claims.clone(), volumes: volumes.clone(), recorder };
    // A claim that asks for what it has is nobody's business, which is nearly all of them.
    let growing = |delta: &coracle_client::Delta<PersistentVolumeClaim>| {
        let claim = delta.new.as_ref().filter(|claim| wants_to_grow(claim))?;
        let before = delta.old.as_ref().map(|old| facts::requested(old));
        (before != Some(facts::requested(claim))).then(|| ObjectKey::of(claim.as_ref()))
    };
    Controller::new(reconciler).watch(&claims, growing).reads(&volumes).run(stop).await;
}

/// Whether a bound claim asks for more than it has.
pub fn wants_to_grow(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.as_ref();
    let bound = status.and_then(|status| status.phase.as_deref()) == Some("Bound");
    let has = facts::storage(status.and_then(|status| status.capacity.as_ref()));
    bound && facts::requested(claim) > has
}

impl Reconciler for Expand {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        ACCOUNT
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.get_key(key).filter(|claim| wants_to_grow(claim)) else {
            return Ok(Action::AwaitChange);
        };
        let volume = facts::volume_name(&claim).and_then(|name| self.volumes.get("", name));
        let ours = volume.is_some_and(|volume| {
            facts::annotation(volume.as_ref(), facts::PROVISIONED_BY) == Some(facts::LOCAL_PATH)
        });
        if !ours {
            let message = "waiting for an external controller to expand this PVC";
            self.recorder.normal(claim.as_ref(), "ExternalExpanding", message);
        }
        Ok(Action::AwaitChange)
    }
}

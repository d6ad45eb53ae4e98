//! Keeps classes of volumes' attributes that claims or volumes name from being deleted (KEP-3751).

use super::{Clients, deleting};
use coracle_api::well_known;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::ResourceExt;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

const FINALIZER: &str = well_known::VAC_PROTECTION;

/// The classes that a claim asks for, has, or is being changed to.
fn of_claim(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let status = claim.status.as_ref();
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let has = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let change = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = change.and_then(|change| change.target_volume_attributes_class_name.as_deref());
    [asked, has, target].into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

fn of_volume(volume: &PersistentVolume) -> Vec<&str> {
    let named = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    named.into_iter().filter(|name| !name.is_empty()).collect()
}

/// The classes that an object named before the change, and may not name any more.
fn left<K>(delta: &Delta<K>, names: fn(&K) -> Vec<&str>) -> Vec<ObjectKey> {
    let before = delta.old.as_deref().map(names).unwrap_or_default();
    before.into_iter().map(|name| ObjectKey::new(String::new(), name)).collect()
}

struct Classes {
    client: kube::Client,
    classes: Informer<VolumeAttributesClass>,
}

/// Runs the classes' controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let classes = clients.informers.of::<VolumeAttributesClass>();
    let claims = clients.informers.of::<PersistentVolumeClaim>();
    let volumes = clients.informers.of::<PersistentVolume>();
    let client = clients.client("volumeattributesclass-protection-controller");
    let reconciler = Classes { client, classes: classes.clone() };
    Controller::new(reconciler)
        .objects(&classes)
        .watch(&claims, |delta| left(delta, of_claim))
        .watch(&volumes, |delta| left(delta, of_volume))
        .run(stop)
        .await;
}

impl Classes {
    /// Asked of the API itself: a claim that no informer shows yet must not lose its class.
    async fn is_used(&self, name: &str) -> Result<bool, ReconcileError> {
        let claims: kube::Api<PersistentVolumeClaim> = kube::Api::all(self.client.clone());
        let volumes: kube::Api<PersistentVolume> = kube::Api::all(self.client.clone());
        let all = kube::api::ListParams::default();
        Ok(claims.list(&all).await?.iter().any(|claim| of_claim(claim).contains(&name))
            || volumes.list(&all).await?.iter().any(|volume| of_volume(volume).contains(&name)))
    }
}

impl Reconciler for Classes {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "volumeattributesclass-protection-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(class) = self.classes.get_key(key) else { return Ok(Action::AwaitChange) };
        let mut changed = VolumeAttributesClass::clone(&class);
        if deleting(class.as_ref()) {
            if self.is_used(&key.name).await? {
                return Ok(Action::AwaitChange);
            }
            changed.finalizers_mut().retain(|f| f != FINALIZER);
        } else if !class.finalizers().iter().any(|f| f == FINALIZER) {
            changed.finalizers_mut().push(FINALIZER.to_owned());
        }
        if changed.finalizers() != class.finalizers() {
            let api: kube::Api<VolumeAttributesClass> = kube::Api::all(self.client.clone());
            api.replace(&key.name, &PostParams::default(), &changed).await?;
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whom_a_class_serves() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "spec": { "volumeAttributesClassName": "gold" },
            "status": { "currentVolumeAttributesClassName": "silver",
                "modifyVolumeStatus": { "status": "Pending", "targetVolumeAttributesClassName": "gold" } },
        }))
        .unwrap();
        assert_eq!(of_claim(&claim), ["gold", "silver", "gold"]);
        assert!(of_claim(&PersistentVolumeClaim::default()).is_empty());
        let volume: PersistentVolume =
            serde_json::from_value(json!({ "spec": { "volumeAttributesClassName": "gold" } })).unwrap();
        assert_eq!(of_volume(&volume), ["gold"]);
    }
}

//! Ends pods that use devices with NoExecute taints which their claims do not tolerate (KEP-5055), with upstream's
//! words for it.

use super::claims::{Claim, Claims, Held};
use crate::common::code_of;
use coracle_client::informer::{deleting, uid_of};
use coracle_client::{
    Change, Informer, Next, ObjectKey, ReconcileError, Reconciler, Recorder, Reflector, Selection,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Driver, pool and name.
pub type DeviceId = (String, String, String);

type Taints = HashMap<DeviceId, Vec<Value>>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// NoExecute taints of devices, by the slice that says so. Slices without any are not kept.
#[derive(Clone, Default)]
pub struct Tainted {
    by_slice: Arc<Mutex<BTreeMap<String, Taints>>>,
}

/// The devices of a slice that have such taints.
fn tainted(slice: &Value) -> Taints {
    let spec = &slice["spec"];
    let devices = spec["devices"].as_array().into_iter().flatten();
    let with = devices.filter_map(|device| {
        let taints = device["taints"].as_array().into_iter().flatten();
        let taints: Vec<Value> = taints.filter(|t| t["effect"] == "NoExecute").cloned().collect();
        let id = (text(&spec["driver"]), text(&spec["pool"]["name"]), text(&device["name"]));
        (!taints.is_empty()).then_some((id, taints))
    });
    with.collect()
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let any = |field: &str| toleration[field].as_str().is_none_or(str::is_empty);
    let exists = toleration["operator"] == "Exists";
    let equal = text(&toleration["value"]) == text(&taint["value"]);
    (any("effect") || toleration["effect"] == taint["effect"])
        && ((any("key") && exists) || toleration["key"] == taint["key"])
        && (exists || equal)
}

/// When whoever holds the device must go for this taint; `None` for never.
fn end(held: &Held, taint: &Value, now: Timestamp) -> Option<Timestamp> {
    let mut matching = held.tolerations.iter().filter(|t| tolerates(t, taint)).peekable();
    if matching.peek().is_none() {
        return Some(Timestamp::MIN);
    }
    let seconds = matching.filter_map(|t| t["tolerationSeconds"].as_i64()).min()?;
    let since = taint["timeAdded"].as_str().and_then(|t| t.parse().ok()).unwrap_or(now);
    since.checked_add(jiff::SignedDuration::from_secs(seconds.max(0))).ok()
}

impl Tainted {
    /// When the claim's consumers must go.
    fn end_of(&self, claim: &Claim, now: Timestamp) -> Option<Timestamp> {
        let by_slice = self.by_slice.lock();
        let ends = claim.held.iter().flat_map(|held| {
            let taints = by_slice.values().filter_map(|devices| devices.get(&held.id)).flatten();
            taints.filter_map(|taint| end(held, taint, now)).collect::<Vec<_>>()
        });
        ends.min()
    }

    /// Replaces what a slice says; whether that concerns anybody.
    fn set(&self, name: &str, devices: HashMap<DeviceId, Vec<Value>>) -> bool {
        let mut by_slice = self.by_slice.lock();
        let gone = devices.is_empty();
        let old = if gone { by_slice.remove(name) } else { by_slice.insert(name.to_owned(), devices) };
        !gone || old.is_some()
    }

    /// Follows the API in a task until `stop` is cancelled, and calls `tell` when taints changed.
    pub fn follow(&self, client: kube::Client, stop: CancellationToken, tell: impl Fn() + Send + 'static) {
        let tainted_devices = self.clone();
        let mut reflector = Reflector::new(client, Selection::of(SLICES));
        tokio::spawn(async move {
            while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
                let concerns = match change {
                    // Slices that went meanwhile took their taints along.
                    Change::Restart => {
                        tainted_devices.by_slice.lock().clear();
                        false
                    }
                    Change::Set(bytes) => tainted_devices.read(&bytes, true),
                    Change::Gone(bytes) => tainted_devices.read(&bytes, false),
                    Change::Synced => true,
                };
                if concerns {
                    tell();
                }
            }
        });
    }

    fn read(&self, bytes: &[u8], present: bool) -> bool {
        let Ok(slice) = serde_json::from_slice::<Value>(bytes) else { return false };
        let devices = if present { tainted(&slice) } else { HashMap::new() };
        self.set(slice["metadata"]["name"].as_str().unwrap_or_default(), devices)
    }
}

/// Its keys are those of claims.
pub struct Eviction {
    pub client: kube::Client,
    pub pods: Informer<Pod>,
    pub claims: Claims,
    pub tainted: Tainted,
    pub recorder: Recorder,
}

impl Reconciler for Eviction {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "device_taint_eviction"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(claim) = self.claims.get(&key.namespace, &key.name) else { return Ok(Next::Done) };
        let now = Timestamp::now();
        let Some(end) = self.tainted.end_of(&claim, now) else { return Ok(Next::Done) };
        if end > now {
            let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
            return Ok(Next::After(left));
        }
        for consumer in claim.consumers.iter().filter(|c| c.is_pod()) {
            let pod = self.pods.get(&key.namespace, &consumer.name);
            let pod = pod.filter(|p| uid_of(p.as_ref()) == consumer.uid && !deleting(p.as_ref()));
            if let Some(pod) = pod {
                self.evict(&key.namespace, &pod).await?;
            }
        }
        Ok(Next::Done)
    }
}

impl Eviction {
    async fn evict(&self, namespace: &str, pod: &Pod) -> Result<(), ReconcileError> {
        let (uid, name) = (uid_of(pod), pod.metadata.name.clone().unwrap_or_default());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": Timestamp::now(),
        });
        let patch = json!({ "metadata": { "uid": uid }, "status": { "conditions": [condition] } });
        match api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(error) if ![404, 409].contains(&code_of(&error)) => return Err(error.into()),
            _ => {}
        }
        self.recorder.normal(pod, "DeviceTaintManagerEviction", "Marking for deletion");
        let exactly = Preconditions { uid: Some(uid), resource_version: None };
        match api.delete(&name, &DeleteParams::default().preconditions(exactly)).await {
            Err(error) if ![404, 409].contains(&code_of(&error)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(tolerations: Value) -> Claim {
        let result = json!({"driver": "d", "pool": "p", "device": "x", "tolerations": tolerations});
        Claim::of(&json!({"metadata": {"name": "c", "namespace": "n"},
            "status": {"allocation": {"devices": {"results": [result]}}}}))
    }

    #[test]
    fn tolerations_put_the_end_off_or_away() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let all = Tainted::default();
        let slice = |effect: &str| {
            json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "x",
                "taints": [{"key": "sick", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}]}]}})
        };
        assert!(!all.set("s", tainted(&slice("NoSchedule"))));
        assert_eq!(all.end_of(&claim(json!([])), now), None);
        assert!(all.set("s", tainted(&slice("NoExecute"))));
        assert_eq!(all.end_of(&claim(json!([])), now), Some(Timestamp::MIN));
        let for_ever = json!([{"key": "sick", "operator": "Exists"}]);
        assert_eq!(all.end_of(&claim(for_ever), now), None);
        let for_a_while = json!([{"key": "sick", "operator": "Exists", "tolerationSeconds": 90}]);
        let end = "2026-01-01T00:01:30Z".parse().expect("a time");
        assert_eq!(all.end_of(&claim(for_a_while), now), Some(end));
        let other = json!([{"key": "sick", "operator": "Equal", "value": "very"}]);
        assert_eq!(all.end_of(&claim(other), now), Some(Timestamp::MIN));
        assert!(all.set("s", HashMap::new()), "whoever waited need not go any more");
    }
}

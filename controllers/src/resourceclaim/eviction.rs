//! Ends pods that use devices with NoExecute taints which their claims do not tolerate (KEP-5055), with upstream's
//! words for it.

use super::claims::{Claim, Claims, Held};
use crate::common::code_of;
use crate::metrics::{Metric, Metrics};
use coracle_api::toleration::Toleration;
use coracle_client::informer::{deleting, uid_of};
use coracle_client::{
    Action, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, Reflector, Selection, Store,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use std::collections::HashMap;
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
    by_slice: Store<Taints>,
}

/// The devices of a slice that have such taints; `None` without any.
fn tainted(slice: &Value) -> Result<Option<Taints>, String> {
    let spec = &slice["spec"];
    let devices = spec["devices"].as_array().into_iter().flatten();
    let with = devices.filter_map(|device| {
        let taints = device["taints"].as_array().into_iter().flatten();
        let taints: Vec<Value> = taints.filter(|t| t["effect"] == "NoExecute").cloned().collect();
        let id = (text(&spec["driver"]), text(&spec["pool"]["name"]), text(&device["name"]));
        (!taints.is_empty()).then_some((id, taints))
    });
    let taints: Taints = with.collect();
    Ok((!taints.is_empty()).then_some(taints))
}

/// The end of what is not tolerated at all.
const AT_ONCE: Timestamp = Timestamp::MIN;

/// When whoever holds the device must go for this taint; `None` for never.
fn end(held: &Held, taint: &Value, now: Timestamp) -> Option<Timestamp> {
    let tolerates = |t: &&Value| Toleration::from(*t).tolerates(taint.into());
    let mut matching = held.tolerations.iter().filter(tolerates).peekable();
    if matching.peek().is_none() {
        return Some(AT_ONCE);
    }
    let seconds = matching.filter_map(|t| t["tolerationSeconds"].as_i64()).min()?;
    let since = taint["timeAdded"].as_str().and_then(|t| t.parse().ok()).unwrap_or(now);
    since.checked_add(jiff::SignedDuration::from_secs(seconds.max(0))).ok()
}

impl Tainted {
    /// When the claim's consumers must go.
    fn end_of(&self, claim: &Claim, now: Timestamp) -> Option<Timestamp> {
        let by_slice = self.by_slice.list();
        let ends = claim.held.iter().flat_map(|held| {
            let taints = by_slice.iter().filter_map(|devices| devices.get(&held.id)).flatten();
            taints.filter_map(|taint| end(held, taint, now)).collect::<Vec<_>>()
        });
        ends.min()
    }

    /// Follows the API in a task until `stop` is cancelled, and calls `tell` when taints changed.
    pub fn follow(&self, client: kube::Client, stop: CancellationToken, tell: impl Fn() + Send + 'static) {
        let reflector = Reflector::new(client, Selection::of(SLICES));
        self.by_slice.follow(reflector, tainted, move |_| tell(), stop);
    }
}

/// Its keys are those of claims.
pub struct Eviction {
    pub client: kube::Client,
    pub pods: Informer<Pod>,
    pub claims: Claims,
    pub tainted: Tainted,
    pub recorder: Recorder,
    pub metrics: Arc<Metrics>,
}

impl Reconciler for Eviction {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "device_taint_eviction"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.get(&key.namespace, &key.name) else { return Ok(Action::AwaitChange) };
        let now = Timestamp::now();
        let Some(end) = self.tainted.end_of(&claim, now) else { return Ok(Action::AwaitChange) };
        if end > now {
            let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
            return Ok(Action::RequeueAfter(left));
        }
        for consumer in claim.consumers.iter().filter(|c| c.is_pod()) {
            let pod = self.pods.get(&key.namespace, &consumer.name);
            let pod = pod.filter(|p| uid_of(p.as_ref()) == consumer.uid && !deleting(p.as_ref()));
            if let Some(pod) = pod {
                self.evict(&key.namespace, &pod, if end == AT_ONCE { now } else { end }).await?;
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl Eviction {
    /// Deletes a pod that had to go at `end`.
    async fn evict(&self, namespace: &str, pod: &Pod, end: Timestamp) -> Result<(), ReconcileError> {
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
            Ok(_) => {
                self.metrics.add(Metric::DeviceEvictions, &[], 1);
                let late = Duration::try_from(Timestamp::now().duration_since(end)).unwrap_or_default();
                self.metrics.observe(Metric::DeviceEvictionDelay, &[], late);
                Ok(())
            }
            Err(error) if [404, 409].contains(&code_of(&error)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use coracle_client::Change;
    use coracle_client::fold::Fold;

    fn claim(tolerations: Value) -> Claim {
        let result = json!({"driver": "d", "pool": "p", "device": "x", "tolerations": tolerations});
        Claim::of(&json!({"metadata": {"name": "c", "namespace": "n"},
            "status": {"allocation": {"devices": {"results": [result]}}}}))
        .expect("a claim")
    }

    #[test]
    fn tolerations_put_the_end_off_or_away() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let all = Tainted::default();
        let mut fold = Fold::new(SLICES);
        let mut say = |change: Change| all.by_slice.apply(&mut fold, change, &tainted).is_some();
        let slice = |effect: &str| {
            let taints = json!([{"key": "sick", "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}]);
            let spec =
                json!({"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "x", "taints": taints}]});
            Bytes::from(json!({"metadata": {"name": "s"}, "spec": spec}).to_string())
        };
        assert!(!say(Change::Applied(slice("NoSchedule"))));
        assert_eq!(all.end_of(&claim(json!([])), now), None);
        assert!(say(Change::Applied(slice("NoExecute"))));
        assert!(!say(Change::Restart));
        assert_eq!(all.end_of(&claim(json!([])), now), Some(Timestamp::MIN), "also while it is listed anew");
        assert!(!say(Change::Applied(slice("NoExecute"))));
        assert!(say(Change::Synced));
        assert_eq!(all.end_of(&claim(json!([])), now), Some(Timestamp::MIN));
        let for_ever = json!([{"key": "sick", "operator": "Exists"}]);
        assert_eq!(all.end_of(&claim(for_ever), now), None);
        let for_a_while = json!([{"key": "sick", "operator": "Exists", "tolerationSeconds": 90}]);
        let end = "2026-01-01T00:01:30Z".parse().expect("a time");
        assert_eq!(all.end_of(&claim(for_a_while), now), Some(end));
        let other = json!([{"key": "sick", "operator": "Equal", "value": "very"}]);
        assert_eq!(all.end_of(&claim(other), now), Some(Timestamp::MIN));
        assert!(say(Change::Applied(slice("NoSchedule"))), "whoever waited need not go any more");
        assert_eq!(all.end_of(&claim(json!([])), now), None);
    }
}

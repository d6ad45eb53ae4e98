//! Takes back what was said of a pod that was to go and did not: an eviction that came to nothing, perhaps.

use super::CONTROLLER;
use crate::clients::Clients;
use crate::common::{disruption, pods};
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a disruption may take to become a deletion, in milliseconds; upstream's two minutes.
const STALE_MILLIS: i64 = 120_000;
/// What the kubelet says of pods that it ends itself, however long that takes.
const BY_KUBELET: &str = "TerminationByKubelet";

struct Stale {
    client: kube::Client,
    pods: Informer<Pod>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let pods = clients.informers.of::<Pod>();
    let reconciler = Stale { client: clients.client(CONTROLLER), pods: pods.clone() };
    let marked = |delta: &Delta<Pod>| {
        let pod = delta.new.as_ref().filter(|pod| left(pod, Timestamp::UNIX_EPOCH).is_some());
        pod.map(|pod| ObjectKey::of(pod.as_ref()))
    };
    Controller::new(reconciler).watch(&pods, marked).run(stop).await;
}

/// How long the pod's mark is still believed; `None` if it has none that could grow stale.
fn left(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let mark = pods::condition(pod, disruption::TARGET)?;
    let stays = deleting(pod) || pods::is_terminal(pod) || mark.reason.as_deref() == Some(BY_KUBELET);
    if mark.status != "True" || stays {
        return None;
    }
    let since = mark.last_transition_time.as_ref().map_or(0, |t| t.0.as_millisecond());
    let left = since.saturating_add(STALE_MILLIS).saturating_sub(now.as_millisecond());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

impl Reconciler for Stale {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "stale-pod-disruption"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::AwaitChange) };
        match left(&pod, Timestamp::now()) {
            None => Ok(Action::AwaitChange),
            Some(left) if !left.is_zero() => Ok(Action::RequeueAfter(left)),
            Some(_) => {
                let (type_, now) = (disruption::TARGET, Timestamp::now());
                let taken_back = json!({ "type": type_, "status": "False", "reason": null, "message": null,
                    "lastTransitionTime": now });
                let status = json!({ "conditions": [taken_back] });
                disruption::patch_status(&self.client, &pod, status).await?;
                Ok(Action::AwaitChange)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn which_marks_grow_stale() {
        let now = "2026-01-01T00:02:30Z".parse().unwrap();
        let mark = |at: &str, status: &str, reason: &str, extra: Value| {
            let at = format!("2026-01-01T00:0{at}Z");
            let mark = json!({ "type": "DisruptionTarget", "status": status, "reason": reason, "lastTransitionTime": at });
            let mut pod = json!({ "metadata": {}, "status": { "phase": "Running", "conditions": [mark] } });
            for (field, value) in extra.as_object().unwrap() {
                pod[field] = value.clone();
            }
            left(&serde_json::from_value(pod).unwrap(), now).map(|left| left.as_secs())
        };
        let none = || json!({});
        assert_eq!(mark("0:00", "True", "EvictionByEvictionAPI", none()), Some(0));
        assert_eq!(mark("2:00", "True", "EvictionByEvictionAPI", none()), Some(90));
        assert_eq!(mark("0:00", "False", "", none()), None);
        assert_eq!(mark("0:00", "True", "TerminationByKubelet", none()), None);
        assert_eq!(
            mark("0:00", "True", "x", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
            None
        );
        let ended =
            json!({ "phase": "Failed", "conditions": [{ "type": "DisruptionTarget", "status": "True" }] });
        assert_eq!(mark("0:00", "True", "x", json!({ "status": ended })), None);
    }
}

//! One shared informer of pods, one queue, and a few workers that write status.

use super::{DURATION_ANNOTATION, SimulateConfig, silence, status};
use crate::pod_facts::termination::is_terminal;
use coracle_client::controller::{self, Action, ReconcileError, Reconciler};
use coracle_client::informer::{api_for, deleting, uid_of};
use coracle_client::{Context, Informer, ObjectKey, WorkQueue, write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::api::{DeleteParams, Patch, Preconditions};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Status writes in flight. The server groups concurrent commits, so a few make a group; more of them would take from who
/// creates and binds pods what the kubelets of machines of their own do not take.
const WORKERS: usize = 8;

pub async fn run(context: &Context, config: Arc<SimulateConfig>) {
    let pods = context.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let (keys, ours) = (queue.clone(), config.clone());
    pods.on_change(move |delta| {
        let Some(pod) = &delta.new else { return };
        if node_of(pod).and_then(|node| ours.index_of(node)).is_some() {
            keys.add(ObjectKey::of(pod.as_ref()));
        }
    });
    let nodes = context.informers.of::<Node>();
    let speaking = silence::speaking(&nodes, config.clone());
    tokio::join!(pods.synced(), nodes.synced());
    let addresses = AtomicU32::new(status::highest_address(pods.iter()).wrapping_add(1));
    let follow = silence::follow(speaking, context.client.clone(), pods.clone(), queue.clone());
    let simulator = Simulator { client: context.client.clone(), pods, nodes, config, addresses };
    let work = controller::run(Arc::new(simulator), queue, WORKERS, context.stop.clone());
    tokio::select! { () = work => {}, () = follow => {} }
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

struct Simulator {
    client: kube::Client,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    config: Arc<SimulateConfig>,
    /// The host part of the next pod's IP.
    addresses: AtomicU32,
}

impl Reconciler for Simulator {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "simulated-kubelet"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::AwaitChange) };
        let Some(index) = node_of(&pod).and_then(|node| self.config.index_of(node)) else {
            return Ok(Action::AwaitChange);
        };
        let node = node_of(&pod).and_then(|name| self.nodes.get("", name));
        if node.is_none_or(|node| !silence::runs_pods(&node)) {
            return Ok(Action::AwaitChange);
        }
        match plan(&pod, Timestamp::now()) {
            Step::Nothing => Ok(Action::AwaitChange),
            Step::Wait(delay) => Ok(Action::RequeueAfter(delay)),
            Step::ConfirmDeletion => self.confirm_deletion(key, &pod).await,
            Step::Start => {
                let host = self.addresses.fetch_add(1, Ordering::Relaxed);
                let status = status::running(
                    &pod,
                    index,
                    status::pod_ips(host, &self.config.families),
                    Timestamp::now(),
                );
                self.write(key, &pod, status).await
            }
            Step::Refresh => {
                let status = status::refreshed(&pod, Timestamp::now());
                self.write(key, &pod, status).await
            }
            Step::Kill => {
                let status = status::killed(&pod, Timestamp::now());
                self.write(key, &pod, status).await
            }
            Step::Finish => {
                let status = status::finished(&pod, Timestamp::now());
                self.write(key, &pod, status).await
            }
        }
    }
}

impl Simulator {
    async fn write(&self, key: &ObjectKey, pod: &Pod, status: PodStatus) -> Result<Action, ReconcileError> {
        // The UID makes the write fail for another pod of the same name.
        let patch = Report { metadata: Identity { uid: pod.metadata.uid.as_deref() }, status };
        write::patch_status::<Pod>(&self.client, key, &Patch::Merge(patch)).await?;
        Ok(Action::AwaitChange)
    }

    async fn confirm_deletion(&self, key: &ObjectKey, pod: &Pod) -> Result<Action, ReconcileError> {
        let preconditions = Preconditions { uid: Some(uid_of(pod)), resource_version: None };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match api_for::<Pod>(&self.client, key).delete(&key.name, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {
                Ok(Action::AwaitChange)
            }
            other => other.map(|_| Action::AwaitChange).map_err(Into::into),
        }
    }
}

/// A merge patch of the status.
#[derive(Serialize)]
struct Report<'a> {
    metadata: Identity<'a>,
    status: PodStatus,
}

#[derive(Serialize)]
struct Identity<'a> {
    uid: Option<&'a str>,
}

/// What a simulated pod needs next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Start,
    Wait(Duration),
    /// Its spec has changed: new images, resources, ephemeral containers.
    Refresh,
    Finish,
    /// Its end will be looked at: somebody's finalizer keeps the pod for that.
    Kill,
    ConfirmDeletion,
}

fn plan(pod: &Pod, now: Timestamp) -> Step {
    if deleting(pod) {
        // Finalizers of others hold the object; the kubelet's part is done with the grace period.
        let confirmed = pod.metadata.deletion_grace_period_seconds == Some(0);
        let ended = pod.status.as_ref().is_some_and(is_terminal);
        let kept = pod.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        return match confirmed {
            true => Step::Nothing,
            false if !ended && kept => Step::Kill,
            false => Step::ConfirmDeletion,
        };
    }
    let status = pod.status.as_ref();
    match status.and_then(|s| s.phase.as_deref()).unwrap_or("Pending") {
        "Pending" => Step::Start,
        "Running" if outdated(pod) => Step::Refresh,
        "Running" => match (run_time(pod), status.and_then(|s| s.start_time.as_ref())) {
            (Some(run), Some(start)) => {
                let elapsed = Duration::try_from(now.duration_since(start.0)).unwrap_or_default();
                let left = run.saturating_sub(elapsed);
                if left.is_zero() { Step::Finish } else { Step::Wait(left) }
            }
            _ => Step::Nothing,
        },
        _ => Step::Nothing,
    }
}

fn outdated(pod: &Pod) -> bool {
    let seen = pod.status.as_ref().and_then(|s| s.observed_generation);
    seen.zip(pod.metadata.generation).is_some_and(|(seen, now)| seen < now)
}

/// How long the pod's containers run, for pods that end.
fn run_time(pod: &Pod) -> Option<Duration> {
    let policy = pod.spec.as_ref()?.restart_policy.as_deref();
    if policy.unwrap_or("Always") == "Always" {
        return None;
    }
    let text = pod.metadata.annotations.as_ref()?.get(DURATION_ANNOTATION)?.trim();
    let (number, unit_millis) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60_000)
    } else {
        (text.strip_suffix('s').unwrap_or(text), 1_000)
    };
    Some(Duration::from_millis(number.parse::<u64>().ok()?.saturating_mul(unit_millis)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_bound_pod_starts_and_a_finite_one_ends() {
        let now = at("2026-01-01T00:00:10Z");
        let fresh = pod(json!({ "spec": { "containers": [] } }));
        assert_eq!(plan(&fresh, now), Step::Start);
        let endless = json!({ "spec": { "containers": [], "restartPolicy": "Always" },
            "metadata": { "annotations": { DURATION_ANNOTATION: "1s" } },
            "status": { "phase": "Running", "startTime": "2026-01-01T00:00:00Z" } });
        assert_eq!(plan(&pod(endless.clone()), now), Step::Nothing);
        let mut changed = endless.clone();
        changed["metadata"]["generation"] = json!(2);
        assert_eq!(plan(&pod(changed.clone()), now), Step::Nothing);
        changed["status"]["observedGeneration"] = json!(1);
        assert_eq!(plan(&pod(changed.clone()), now), Step::Refresh);
        changed["status"]["observedGeneration"] = json!(2);
        assert_eq!(plan(&pod(changed), now), Step::Nothing);
        let mut job = endless;
        job["spec"]["restartPolicy"] = json!("Never");
        assert_eq!(plan(&pod(job.clone()), now), Step::Finish);
        job["metadata"]["annotations"][DURATION_ANNOTATION] = json!("15s");
        assert_eq!(plan(&pod(job.clone()), now), Step::Wait(Duration::from_secs(5)));
        job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        job["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        assert_eq!(plan(&pod(job.clone()), now), Step::ConfirmDeletion);
        let mut kept = job.clone();
        kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
        assert_eq!(plan(&pod(kept.clone()), now), Step::Kill);
        kept["status"]["phase"] = json!("Pending");
        assert_eq!(plan(&pod(kept.clone()), now), Step::Kill, "before it ran");
        kept["status"]["phase"] = json!("Failed");
        assert_eq!(plan(&pod(kept), now), Step::ConfirmDeletion);
        job["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert_eq!(plan(&pod(job), now), Step::Nothing);
    }
}

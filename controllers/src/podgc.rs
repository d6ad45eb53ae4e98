//! Removes pods that nobody else will: of nodes that are gone or out of service, being deleted before they were
//! scheduled, and the oldest of very many terminated ones.
//!
//! <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>

use crate::clients::Clients;
use crate::common::{disruption, pods};
use crate::metrics::{Metric, Metrics};
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "pod-garbage-collector";
/// Terminated pods kept; upstream's --terminated-pod-gc-threshold.
const THRESHOLD: usize = 12_500;
/// A node that is not there may be about to come; upstream's quarantine.
const QUARANTINE_PERIOD: Duration = Duration::from_secs(40);
/// How long terminations are gathered before they are counted; upstream's period.
const SWEEP_DELAY: Duration = Duration::from_secs(20);
/// How long one that goes and has no node is left to whoever holds it: upstream's sweep comes by every 20 s. Longer than the
/// ten seconds after which a Job replaces it, so that both can be seen beside one another.
const UNSCHEDULED_DELAY: Duration = Duration::from_secs(15);
/// Says that a node will not come back by itself, and that its pods' volumes may be used elsewhere.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

struct PodGc {
    client: kube::Client,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    queue: WorkQueue<ObjectKey>,
    /// Since when a node has been missed.
    missed: Mutex<HashMap<String, Instant>>,
    metrics: Arc<Metrics>,
}

/// Why a pod is removed, as upstream's metrics name it.
#[derive(Clone, Copy)]
enum Why {
    Terminated,
    Orphaned,
    OutOfService,
    Unscheduled,
}

impl Why {
    fn label(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::Orphaned => "orphaned",
            Self::OutOfService => "out-of-service",
            Self::Unscheduled => "unscheduled",
        }
    }

    /// Reason and message of the disruption, where it is one.
    fn disruption(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Orphaned => Some(("DeletionByPodGC", "PodGC: node no longer exists")),
            _ => None,
        }
    }
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let (pods, nodes) = (clients.informers.of::<Pod>(), clients.informers.of::<Node>());
    let queue = WorkQueue::new();
    let reconciler = PodGc {
        client: clients.client(CONTROLLER),
        pods: pods.clone(),
        nodes: nodes.clone(),
        queue: queue.clone(),
        missed: Mutex::default(),
        metrics: clients.metrics.clone(),
    };
    let lost = LostNodes { pods: pods.clone(), nodes: nodes.clone(), queue: queue.clone() };
    let by_pod = Controller::with_queue(reconciler, queue).objects(&pods).reads(&nodes);
    let by_node = Controller::new(lost).objects(&nodes).reads(&pods);
    tokio::join!(by_pod.run(stop.clone()), by_node.run(stop));
}

/// Wakes the pods of a node that went, or was put out of service.
struct LostNodes {
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    queue: WorkQueue<ObjectKey>,
}

impl Reconciler for LostNodes {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if self.nodes.get_key(key).is_none_or(|node| is_out_of_service(&node)) {
            let on_it = self.pods.iter().filter(|p| pods::node_name(p) == Some(&key.name));
            on_it.for_each(|pod| self.queue.add(ObjectKey::of(pod.as_ref())));
        }
        Ok(Action::AwaitChange)
    }
}

/// Not ready, and said by somebody to be so for good.
fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    taints.iter().any(|t| t.key == OUT_OF_SERVICE)
        && !conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

impl Reconciler for PodGc {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        // The empty key stands for the sweep over terminated pods.
        if key.name.is_empty() {
            return self.sweep().await;
        }
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::AwaitChange) };
        if pods::is_terminal(&pod) {
            self.queue.add_after(ObjectKey::default(), SWEEP_DELAY);
        }
        let Some(name) = pods::node_name(&pod) else {
            return self.unscheduled(&pod).await;
        };
        match self.nodes.get("", name) {
            None => self.orphaned(&pod, name).await,
            Some(node) => {
                self.missed.lock().remove(name);
                let stuck = deleting(pod.as_ref()) && is_out_of_service(&node);
                if stuck { self.remove(&pod, Why::OutOfService).await } else { Ok(Action::AwaitChange) }
            }
        }
    }
}

impl PodGc {
    /// One that goes and has no node is held by somebody's finalizer, who sees it for a while as it was deleted.
    async fn unscheduled(&self, pod: &Pod) -> Result<Action, ReconcileError> {
        let Some(deleted) = &pod.metadata.deletion_timestamp else { return Ok(Action::AwaitChange) };
        if pods::is_terminal(pod) && pod.metadata.deletion_grace_period_seconds == Some(0) {
            return Ok(Action::AwaitChange);
        }
        let since = Duration::try_from(Timestamp::now().duration_since(deleted.0)).unwrap_or_default();
        let left = UNSCHEDULED_DELAY.saturating_sub(since);
        if !left.is_zero() {
            return Ok(Action::RequeueAfter(left));
        }
        self.remove(pod, Why::Unscheduled).await
    }

    async fn orphaned(&self, pod: &Pod, node: &str) -> Result<Action, ReconcileError> {
        let since = *self.missed.lock().entry(node.to_owned()).or_insert_with(Instant::now);
        let left = QUARANTINE_PERIOD.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Ok(Action::RequeueAfter(left));
        }
        if Api::<Node>::all(self.client.clone()).get_opt(node).await?.is_some() {
            self.missed.lock().remove(node);
            return Ok(Action::AwaitChange);
        }
        self.remove(pod, Why::Orphaned).await
    }

    /// By force: there is no kubelet that would confirm. Failed first, so that who counts the pod's end can.
    async fn remove(&self, pod: &Pod, why: Why) -> Result<Action, ReconcileError> {
        let namespace = pod.namespace().unwrap_or_default();
        let labels = [namespace.as_str(), why.label()];
        let gone = async {
            disruption::fail(&self.client, pod, why.disruption()).await?;
            disruption::delete(&self.client, pod, true).await
        };
        let gone = gone.await;
        self.metrics.add(Metric::PodGcDeletions, &labels, 1);
        if gone.is_err() {
            self.metrics.add(Metric::PodGcErrors, &labels, 1);
        }
        gone?;
        Ok(Action::AwaitChange)
    }

    /// The oldest go, and before them those that were evicted: no controller made them end.
    async fn sweep(&self) -> Result<Action, ReconcileError> {
        let mut terminated: Vec<Arc<Pod>> = self.pods.iter().filter(|pod| pods::is_terminal(pod)).collect();
        let excess = terminated.len().saturating_sub(THRESHOLD);
        terminated.sort_by_cached_key(|pod| {
            let reason = pod.status.as_ref().and_then(|s| s.reason.as_deref());
            let evicted = pods::phase(pod) == "Failed" && reason == Some("Evicted");
            (!evicted, pod.metadata.creation_timestamp.as_ref().map(|t| t.0), pod.name_any())
        });
        for pod in terminated.iter().take(excess) {
            self.remove(pod, Why::Terminated).await?;
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_out_of_service_only_while_it_is_not_ready() {
        let node = |key: &str, ready: &str| -> Node {
            let taint = json!({ "key": key, "effect": "NoExecute" });
            serde_json::from_value(json!({ "spec": { "taints": [taint] },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] } }))
            .unwrap()
        };
        assert!(is_out_of_service(&node(OUT_OF_SERVICE, "Unknown")));
        assert!(is_out_of_service(&node(OUT_OF_SERVICE, "False")));
        assert!(!is_out_of_service(&node(OUT_OF_SERVICE, "True")));
        assert!(!is_out_of_service(&node("other", "Unknown")));
    }
}

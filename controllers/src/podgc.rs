//! Removes pods that nobody else will: of nodes that are gone, being deleted before they were scheduled, and the
//! oldest of very many terminated ones.
//!
//! <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>

use crate::Clients;
use crate::common::{code_of, pods};
use coracle_client::informer::{api_for, deleting};
use coracle_client::{Controller, Informer, Next, ObjectKey, ReconcileError, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "pod-garbage-collector";
/// Terminated pods kept; upstream's --terminated-pod-gc-threshold.
const THRESHOLD: usize = 12_500;
/// A node that is not there may be about to come; upstream's quarantine.
const QUARANTINE: Duration = Duration::from_secs(40);
/// How long terminations are gathered before they are counted; upstream's period.
const SWEEP_DELAY: Duration = Duration::from_secs(20);

struct PodGc {
    client: kube::Client,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    queue: WorkQueue<ObjectKey>,
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
    };
    let gone = GoneNodes { pods: pods.clone(), nodes: nodes.clone(), queue: queue.clone() };
    let by_pod = Controller::with_queue(reconciler, queue).objects(&pods).reads(&nodes);
    let by_node = Controller::new(gone).objects(&nodes).reads(&pods);
    tokio::join!(by_pod.run(stop.clone()), by_node.run(stop));
}

/// Wakes the pods of a node that went.
struct GoneNodes {
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    queue: WorkQueue<ObjectKey>,
}

impl Reconciler for GoneNodes {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        if self.nodes.get_key(key).is_none() {
            let all = self.pods.list();
            let on_it = all.iter().filter(|p| pods::node_name(p) == Some(&key.name));
            on_it.for_each(|pod| self.queue.add_after(ObjectKey::of(pod.as_ref()), QUARANTINE));
        }
        Ok(Next::Done)
    }
}

impl Reconciler for PodGc {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        // The empty key stands for the sweep over terminated pods.
        if key.name.is_empty() {
            return self.sweep().await;
        }
        let Some(pod) = self.pods.get_key(key) else { return Ok(Next::Done) };
        if pods::is_terminal(&pod) {
            self.queue.add_after(ObjectKey::default(), SWEEP_DELAY);
        }
        match pods::node_name(&pod) {
            None if deleting(pod.as_ref()) => self.delete(&pod).await,
            Some(node) if self.nodes.get("", node).is_none() => self.orphaned(&pod, node).await,
            _ => Ok(Next::Done),
        }
    }
}

impl PodGc {
    async fn orphaned(&self, pod: &Pod, node: &str) -> Result<Next, ReconcileError> {
        let age = pods::condition(pod, "PodScheduled")
            .and_then(|c| c.last_transition_time.as_ref())
            .or(pod.metadata.creation_timestamp.as_ref())
            .map_or(0, |t| jiff::Timestamp::now().as_second() - t.0.as_second());
        let left = QUARANTINE.saturating_sub(Duration::from_secs(u64::try_from(age).unwrap_or(0)));
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        if Api::<Node>::all(self.client.clone()).get_opt(node).await?.is_some() {
            return Ok(Next::Done);
        }
        if !pods::is_terminal(pod) {
            let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": jiff::Timestamp::now() });
            let status = json!({ "status": { "phase": "Failed", "conditions": [condition] } });
            let api: Api<Pod> = api_for(&self.client, &ObjectKey::of(pod));
            let patch = Patch::Strategic(status);
            match api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
                Err(error) if code_of(&error) != 404 => return Err(error.into()),
                _ => {}
            }
        }
        self.delete(pod).await
    }

    /// By force: there is no kubelet that would confirm.
    async fn delete(&self, pod: &Pod) -> Result<Next, ReconcileError> {
        let uid = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(uid);
        let api: Api<Pod> = api_for(&self.client, &ObjectKey::of(pod));
        match api.delete(&pod.name_any(), &params).await {
            Err(error) if code_of(&error) != 404 => Err(error.into()),
            _ => Ok(Next::Done),
        }
    }

    async fn sweep(&self) -> Result<Next, ReconcileError> {
        let mut terminated: Vec<Arc<Pod>> = self.pods.list();
        terminated.retain(|pod| pods::is_terminal(pod));
        let excess = terminated.len().saturating_sub(THRESHOLD);
        terminated.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|t| t.0));
        for pod in terminated.iter().take(excess) {
            self.delete(pod).await?;
        }
        Ok(Next::Done)
    }
}

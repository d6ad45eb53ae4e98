//! Deletes pods that do not tolerate their node's NoExecute taints, or not any longer.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>

use super::{ACCOUNT, plan};
use crate::clients::Clients;
use crate::common::{disruption, pods};
use crate::metrics::{Metric, Metrics};
use coracle_client::informer::{deleting, uid_of};
use coracle_client::{
    Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder, WorkQueue,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

struct Eviction {
    client: kube::Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    recorder: Recorder,
    scheduled: Scheduled,
    /// Pods that were deleted, by their UIDs, until the informer shows it.
    told: Mutex<HashMap<ObjectKey, String>>,
    metrics: Arc<Metrics>,
}

/// Pods that are to go when their time is over, by their UIDs, and since when: people do not say when they added a taint.
type Scheduled = Arc<Mutex<HashMap<ObjectKey, (String, Timestamp)>>>;

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(ACCOUNT);
    let (nodes, pods) = (clients.informers.of::<Node>(), clients.informers.of::<Pod>());
    let scheduled = Scheduled::default();
    let reconciler = Eviction {
        recorder: Recorder::new(client.clone(), "taint-eviction-controller", ""),
        client,
        nodes: nodes.clone(),
        pods: pods.clone(),
        scheduled: scheduled.clone(),
        told: Mutex::default(),
        metrics: clients.metrics.clone(),
    };
    let queue = WorkQueue::new();
    let tainted =
        Tainted { pods: pods.clone(), client_queue: queue.clone(), nodes: nodes.clone(), scheduled };
    let pods_first = Controller::with_queue(reconciler, queue).objects(&pods).reads(&nodes).workers(2);
    let by_node = Controller::new(tainted).objects(&nodes).reads(&pods);
    tokio::join!(pods_first.run(stop.clone()), by_node.run(stop));
}

/// Wakes the pods of nodes with NoExecute taints, and those that wait for their end on a node without. Apart, because a
/// node's handler may not ask the informer of pods, whose handlers ask the one of nodes.
struct Tainted {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    client_queue: WorkQueue<ObjectKey>,
    scheduled: Scheduled,
}

impl Reconciler for Tainted {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if self.nodes.get_key(key).is_some_and(|node| !no_execute(&node).is_empty()) {
            let on_it = self.pods.iter().filter(|p| pods::node_name(p) == Some(&key.name));
            on_it.for_each(|pod| self.client_queue.add(ObjectKey::of(pod.as_ref())));
            return Ok(Action::AwaitChange);
        }
        let waiting: Vec<ObjectKey> = self.scheduled.lock().keys().cloned().collect();
        let there = |pod: &ObjectKey| {
            self.pods.get_key(pod).is_some_and(|pod| pods::node_name(&pod) == Some(&key.name))
        };
        waiting.into_iter().filter(there).for_each(|pod| self.client_queue.add(pod));
        Ok(Action::AwaitChange)
    }
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    taints.into_iter().filter(|t| t.effect == plan::NO_EXECUTE).collect()
}

impl Reconciler for Eviction {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.get_key(key).filter(|p| !deleting(p.as_ref())) else {
            self.scheduled.lock().remove(key);
            self.told.lock().remove(key);
            return Ok(Action::AwaitChange);
        };
        if self.told.lock().get(key).is_some_and(|uid| *uid == uid_of(pod.as_ref())) {
            return Ok(Action::AwaitChange);
        }
        let node = pods::node_name(&pod).and_then(|name| self.nodes.get("", name));
        let Some(node) = node else { return Ok(Action::AwaitChange) };
        let now = Timestamp::now();
        let since =
            self.scheduled.lock().get(key).filter(|(uid, _)| *uid == uid_of(pod.as_ref())).map(|s| s.1);
        match plan::end(&pod, &no_execute(&node), since.unwrap_or(now)) {
            None => {
                if self.scheduled.lock().remove(key).is_some() {
                    let message = format!("Cancelling deletion of Pod {key}");
                    self.recorder.normal(pod.as_ref(), "TaintManagerEviction", message);
                }
                Ok(Action::AwaitChange)
            }
            Some(end) if end > now => {
                let since = (uid_of(pod.as_ref()), since.unwrap_or(now));
                self.scheduled.lock().insert(key.clone(), since);
                Ok(Action::RequeueAfter(Duration::try_from(end.duration_since(now)).unwrap_or_default()))
            }
            Some(end) => self.evict(key, &pod, end).await,
        }
    }
}

impl Eviction {
    /// Deletes a pod that had to go at `end`.
    async fn evict(&self, key: &ObjectKey, pod: &Pod, end: Timestamp) -> Result<Action, ReconcileError> {
        self.scheduled.lock().remove(key);
        self.recorder.normal(pod, "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
        let why = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        if disruption::mark(&self.client, pod, why.0, why.1).await? {
            disruption::delete(&self.client, pod, false).await?;
            self.told.lock().insert(key.clone(), uid_of(pod));
            self.metrics.add(Metric::TaintEvictions, &[], 1);
            let late = Duration::try_from(Timestamp::now().duration_since(end)).unwrap_or_default();
            self.metrics.observe(Metric::TaintEvictionDelay, &[], late);
        }
        Ok(Action::AwaitChange)
    }
}

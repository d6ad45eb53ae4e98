//! Marks a node whose kubelet is silent, and taints nodes by their conditions.

use super::{ACCOUNT, plan};
use crate::Clients;
use crate::common::{code_of, pods};
use coracle_client::{Controller, Delta, Informer, Next, ObjectKey, ReconcileError, Reconciler, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Silence after which a node counts as gone; upstream's --node-monitor-grace-period, five missed Leases.
const GRACE: Duration = Duration::from_secs(50);
const LEASES: &str = "kube-node-lease";

/// A sign of life, and when it was first seen by our own clock: clocks of other machines are not trusted.
struct Sign {
    what: (Option<Timestamp>, Option<Timestamp>),
    at: Instant,
}

struct Health {
    client: kube::Client,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    recorder: Recorder,
    signs: Mutex<HashMap<String, Sign>>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.client(ACCOUNT);
    let nodes = clients.informers.of::<Node>();
    let pods = clients.informers.of::<Pod>();
    let only = &format!("metadata.namespace={LEASES}");
    let leases = clients.informers.selected::<Lease>(only, stop.clone());
    let reconciler = Health {
        recorder: Recorder::new(client.clone(), ACCOUNT, ""),
        client,
        nodes: nodes.clone(),
        leases: leases.clone(),
        pods: pods.clone(),
        signs: Mutex::default(),
    };
    Controller::new(reconciler).objects(&nodes).watch(&leases, node_of).reads(&pods).run(stop).await;
}

fn node_of(delta: &Delta<Lease>) -> Option<ObjectKey> {
    let lease = delta.new.as_ref().filter(|l| l.namespace().as_deref() == Some(LEASES))?;
    Some(ObjectKey::new("", lease.name_any()))
}

impl Reconciler for Health {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "node-lifecycle-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(node) = self.nodes.get_key(key) else {
            self.signs.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
            return Ok(Next::Done);
        };
        let silence = self.silence(&node);
        let left = GRACE.saturating_sub(silence);
        let mut node = Node::clone(&node);
        if left.is_zero() {
            node = self.mark_silent(node).await?;
        }
        self.taint(&node).await?;
        if plan::condition(&node, "Ready").is_some_and(|c| c.status == "Unknown") {
            self.mark_pods(&key.name).await?;
        }
        Ok(if left.is_zero() { Next::Done } else { Next::After(left) })
    }
}

impl Health {
    fn silence(&self, node: &Node) -> Duration {
        let name = node.name_any();
        let lease = self.leases.get(LEASES, &name);
        let renewed = lease.and_then(|l| l.spec.as_ref()?.renew_time.as_ref().map(|t| t.0));
        let posted = plan::condition(node, "Ready").and_then(|c| c.last_heartbeat_time.as_ref());
        let what = (renewed, posted.map(|t| t.0));
        let mut signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        let sign = signs.entry(name).or_insert_with(|| Sign { what, at: Instant::now() });
        if sign.what != what {
            *sign = Sign { what, at: Instant::now() };
        }
        sign.at.elapsed()
    }

    async fn mark_silent(&self, mut node: Node) -> Result<Node, ReconcileError> {
        let conditions = plan::silent(&node, Timestamp::now());
        let status = node.status.get_or_insert_default();
        if status.conditions.as_ref() == Some(&conditions) {
            return Ok(node);
        }
        status.conditions = Some(conditions);
        let api: Api<Node> = Api::all(self.client.clone());
        let node = api.replace_status(&node.name_any(), &PostParams::default(), &node).await?;
        let message = format!("Node {} status is now: NodeNotReady", node.name_any());
        self.recorder.normal(&node, "NodeNotReady", message);
        Ok(node)
    }

    async fn taint(&self, node: &Node) -> Result<(), ReconcileError> {
        let taints = plan::taints(node, Timestamp::now());
        let present = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
        if taints == present {
            return Ok(());
        }
        let mut changed = node.clone();
        changed.spec.get_or_insert_default().taints = (!taints.is_empty()).then_some(taints);
        let api: Api<Node> = Api::all(self.client.clone());
        api.replace(&node.name_any(), &PostParams::default(), &changed).await?;
        Ok(())
    }

    /// Nobody knows whether the pods of a silent node still serve, so their Services stop counting on them.
    async fn mark_pods(&self, node: &str) -> Result<(), ReconcileError> {
        let all = self.pods.list();
        for pod in all.iter().filter(|p| pods::node_name(p) == Some(node) && pods::is_ready(p)) {
            let mut changed = Pod::clone(pod);
            let conditions = changed.status.get_or_insert_default().conditions.get_or_insert_default();
            for ready in conditions.iter_mut().filter(|c| c.type_ == "Ready") {
                ready.status = "False".to_owned();
                ready.last_transition_time = Some(Time(Timestamp::now()));
            }
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
            match api.replace_status(&pod.name_any(), &PostParams::default(), &changed).await {
                Ok(_) => self.recorder.warning(pod.as_ref(), "NodeNotReady", "Node is not ready"),
                Err(error) if code_of(&error) == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

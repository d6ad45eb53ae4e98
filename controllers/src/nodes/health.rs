//! Marks a node whose kubelet is silent, and taints nodes by their conditions.

use super::counted::ByZone;
use super::lifecycle::{Lifecycle, pause};
use super::zones::{Leave, Zones, zone};
use super::{ACCOUNT, plan};
use crate::clients::Clients;
use crate::common::{code_of, disruption, pods};
use crate::metrics::{Metric, Metrics};
use coracle_client::informer::uid_of;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often a node is looked at that is down, at the least and at the most: whether its pods may go depends on the others.
const LOOK_INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
const LEASES: &str = "kube-node-lease";

/// A sign of life, and when it was first seen by our own clock: clocks of other machines are not trusted.
struct Sign {
    uid: String,
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
    lifecycle: Lifecycle,
    zones: Zones,
    metrics: Arc<Metrics>,
    by_zone: ByZone,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, lifecycle: Lifecycle, stop: CancellationToken) {
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
        lifecycle,
        zones: Zones::new(lifecycle),
        metrics: clients.metrics.clone(),
        by_zone: ByZone::new(clients.metrics.clone()),
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

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(node) = self.nodes.get_key(key) else {
            self.by_zone.look_at(&key.name, None);
            let gone = self.signs.lock().remove(&key.name);
            if let Some(sign) = gone {
                self.tell(
                    &key.name,
                    sign.uid,
                    "RemovingNode",
                    format!("Removing Node {} from Controller", key.name),
                );
            }
            return Ok(Action::AwaitChange);
        };
        let began = Instant::now();
        let grace = match plan::condition(&node, "Ready") {
            Some(_) => self.lifecycle.monitor_grace_period,
            None => self.lifecycle.startup_grace_period,
        };
        let mut left = grace.saturating_sub(self.silence(&node));
        // While none is up every news counts: the first that is up again ends it for all.
        let resumed = (left.is_zero() || self.zones.is_blind())
            .then(|| self.zones.resumed(Instant::now(), || self.nodes.list()))
            .flatten();
        if left.is_zero()
            && let Some(resumed) = resumed
        {
            left = grace.saturating_sub(resumed.elapsed());
        }
        let mut node = Node::clone(&node);
        if left.is_zero() {
            node = self.mark_silent(node).await?;
        }
        self.by_zone.look_at(&key.name, Some(&node));
        self.metrics.observe(Metric::NodeHealthUpdate, &[], began.elapsed());
        self.taint(&node).await?;
        if plan::condition(&node, "Ready").is_some_and(|c| c.status == "Unknown") {
            self.mark_pods(&key.name).await?;
        }
        Ok(match plan::down(&node) {
            // Its pods have been told to go.
            Some(_) if plan::is_told(&node) => Action::RequeueAfter(LOOK_INTERVALS.1),
            Some(_) => Action::RequeueAfter(self.look_interval()),
            None => Action::RequeueAfter(left),
        })
    }
}

impl Health {
    fn look_interval(&self) -> Duration {
        let (least, most) = LOOK_INTERVALS;
        let rate = self.lifecycle.eviction_rate.max(self.lifecycle.secondary_eviction_rate);
        pause(rate).unwrap_or(most).clamp(least, most)
    }

    fn silence(&self, node: &Node) -> Duration {
        let name = node.name_any();
        let lease = self.leases.get(LEASES, &name);
        let renewed = lease.and_then(|l| l.spec.as_ref()?.renew_time.as_ref().map(|t| t.0));
        let posted = plan::condition(node, "Ready").and_then(|c| c.last_heartbeat_time.as_ref());
        let what = (renewed, posted.map(|t| t.0));
        let mut signs = self.signs.lock();
        match signs.get_mut(&name) {
            Some(sign) => {
                if sign.what != what {
                    (sign.what, sign.at) = (what, Instant::now());
                }
                sign.at.elapsed()
            }
            None => {
                let message = format!("Registered Node {name} in Controller");
                self.tell(&name, uid_of(node), "RegisteredNode", message);
                // Every zone is shown from the start.
                self.metrics.add(Metric::NodeEvictions, &[&zone(node)], 0);
                signs.insert(name, Sign { uid: uid_of(node), what, at: Instant::now() });
                Duration::ZERO
            }
        }
    }

    fn tell(&self, name: &str, uid: String, reason: &str, message: String) {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid),
            ..ObjectReference::default()
        };
        self.recorder.event(regarding, "Normal", reason, format!("Node {name} event: {message}"));
    }

    async fn mark_silent(&self, node: Node) -> Result<Node, ReconcileError> {
        let conditions = plan::silent(&node, Timestamp::now());
        if node.status.as_ref().and_then(|s| s.conditions.as_ref()) == Some(&conditions) {
            return Ok(node);
        }
        let was_ready = plan::condition(&node, "Ready").is_some_and(|c| c.status == "True");
        // A kubelet that speaks at this very moment is right.
        let seen = json!({ "uid": node.uid(), "resourceVersion": node.resource_version() });
        let body = Patch::Strategic(json!({ "metadata": seen, "status": { "conditions": conditions } }));
        let api: Api<Node> = Api::all(self.client.clone());
        let node = api.patch_status(&node.name_any(), &PatchParams::default(), &body).await?;
        if was_ready {
            let message = format!("Node {} status is now: NodeNotReady", node.name_any());
            self.recorder.normal(&node, "NodeNotReady", message);
        }
        Ok(node)
    }

    async fn taint(&self, node: &Node) -> Result<(), ReconcileError> {
        let down = plan::down(node).is_some();
        let leave = down && self.may_leave(node);
        let taints = plan::taints(node, leave, Timestamp::now());
        let present = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
        if taints == present {
            return Ok(());
        }
        // The list is written whole, so nobody may have written it since.
        let seen = json!({ "uid": node.uid(), "resourceVersion": node.resource_version() });
        let taints = if taints.is_empty() { json!(null) } else { json!(taints) };
        let body = Patch::Merge(json!({ "metadata": seen, "spec": { "taints": taints } }));
        let api: Api<Node> = Api::all(self.client.clone());
        match api.patch(&node.name_any(), &PatchParams::default(), &body).await {
            Err(error) if code_of(&error) == 404 => Ok(()),
            outcome => {
                outcome?;
                let told = leave && !plan::is_told(node);
                self.metrics.add(Metric::NodeEvictions, &[&zone(node)], told.into());
                Ok(())
            }
        }
    }

    fn may_leave(&self, node: &Node) -> bool {
        self.zones.ask(node, plan::is_told(node), Instant::now(), || self.nodes.list()) == Leave::Granted
    }

    /// Nobody knows whether the pods of a silent node still serve, so their Services stop counting on them.
    async fn mark_pods(&self, node: &str) -> Result<(), ReconcileError> {
        let ready_there = |pod: &Arc<Pod>| pods::node_name(pod) == Some(node) && pods::is_ready(pod);
        for pod in self.pods.iter().filter(ready_there) {
            let unready =
                json!({ "type": "Ready", "status": "False", "lastTransitionTime": Timestamp::now() });
            let status = json!({ "conditions": [unready] });
            if disruption::patch_status(&self.client, &pod, status).await? {
                self.recorder.warning(pod.as_ref(), "NodeNotReady", "Node is not ready");
            }
        }
        Ok(())
    }
}

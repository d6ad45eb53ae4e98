//! Tells kubelets how long Secrets and ConfigMaps that they have read are good for: the longer, the more nodes ask.
//! The annotation `node.alpha.kubernetes.io/ttl`, in seconds, on every node.

use crate::clients::Clients;
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "ttl-controller";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Fewest and most nodes of a step, and its seconds; upstream's. Steps overlap, so that one node more or less does not
/// change all the others back and forth.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

/// Which step holds after the cluster has come to `nodes`.
fn step(mut now: usize, nodes: usize) -> usize {
    while now + 1 < STEPS.len() && nodes > STEPS[now].1 {
        now += 1;
    }
    while now > 0 && nodes < STEPS[now].0 {
        now -= 1;
    }
    now
}

/// How long the number of nodes must stand: a cluster that comes up would write to its first nodes again and again.
const SETTLE_DEBOUNCE: Duration = Duration::from_secs(3);

struct Size {
    names: HashSet<String>,
    step: usize,
    /// When a node last came or went.
    changed: Instant,
}

impl Default for Size {
    fn default() -> Self {
        Self { names: HashSet::new(), step: 0, changed: Instant::now() }
    }
}

impl Size {
    /// Counts a node that came or went. True if the cluster is of another size class now, so that all nodes get another TTL.
    fn note(&mut self, delta: &Delta<Node>) -> bool {
        match (&delta.old, &delta.new) {
            (None, Some(node)) => drop(self.names.insert(node.name_any())),
            (Some(node), None) => drop(self.names.remove(&node.name_any())),
            _ => return false,
        }
        self.changed = Instant::now();
        let now = step(self.step, self.names.len());
        std::mem::replace(&mut self.step, now) != now
    }
}

struct Ttl {
    client: kube::Client,
    nodes: Informer<Node>,
    size: Arc<Mutex<Size>>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let nodes = clients.informers.of::<Node>();
    let (size, queue) = (Arc::<Mutex<Size>>::default(), WorkQueue::new());
    let reconciler = Ttl { client: clients.client(CONTROLLER), nodes: nodes.clone(), size: size.clone() };
    let woken = move |delta: &Delta<Node>| -> Vec<ObjectKey> {
        let mut size = size.lock();
        if size.note(delta) {
            return size.names.iter().map(|name| ObjectKey::new("", name)).collect();
        }
        let text =
            |node: &Option<Arc<Node>>| node.as_ref().and_then(|n| n.annotations().get(ANNOTATION).cloned());
        let changed = delta.old.is_none() || text(&delta.old) != text(&delta.new);
        let node = delta.new.as_ref().filter(|_| changed);
        node.map(|node| ObjectKey::of(node.as_ref())).into_iter().collect()
    };
    Controller::with_queue(reconciler, queue).watch(&nodes, woken).run(stop).await;
}

impl Reconciler for Ttl {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let (step, changed) = {
            let size = self.size.lock();
            (size.step, size.changed)
        };
        let left = SETTLE_DEBOUNCE.saturating_sub(changed.elapsed());
        if !left.is_zero() {
            return Ok(Action::RequeueAfter(left));
        }
        let seconds = STEPS[step].2.to_string();
        let Some(node) = self.nodes.get_key(key) else { return Ok(Action::AwaitChange) };
        if node.annotations().get(ANNOTATION) != Some(&seconds) {
            let patch = json!({ "metadata": { "annotations": { ANNOTATION: seconds } } });
            let api: Api<Node> = Api::all(self.client.clone());
            api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(Action::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        for (before, nodes, after) in [
            (0, 100, 0),
            (0, 101, 1),
            (1, 95, 1),
            (1, 89, 0),
            (1, 501, 2),
            (0, 5000, 4),
            (4, 1800, 4),
            (4, 10, 0),
        ] {
            assert_eq!(step(before, nodes), after, "{before}, {nodes}");
        }
    }
}

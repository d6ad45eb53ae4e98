//! Which pods of which node use which claims: kept by changes of pods, so that nobody looks through all of them.

use coracle_client::{Delta, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// The claims of each pod, by node.
#[derive(Default)]
pub struct Users(Mutex<HashMap<String, BTreeMap<ObjectKey, Vec<String>>>>);

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone().filter(|node| !node.is_empty())
}

/// Of one that has ended for good nothing runs any more.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

impl Users {
    /// Takes over a change; returns the nodes that it concerns.
    pub fn note(&self, delta: &Delta<Pod>) -> Vec<String> {
        let mut known = self.0.lock();
        let mut nodes = Vec::new();
        if let Some(old) = &delta.old
            && let Some(node) = node_of(old)
            && let Some(pods) = known.get_mut(&node)
            && pods.remove(&ObjectKey::of(old.as_ref())).is_some()
        {
            if pods.is_empty() {
                known.remove(&node);
            }
            nodes.push(node);
        }
        if let Some(pod) = delta.new.as_ref().filter(|pod| !has_ended(pod))
            && let Some(node) = node_of(pod)
        {
            let claims: Vec<String> = crate::protection::claims_of(pod).map(|(claim, _)| claim).collect();
            if !claims.is_empty() {
                known.entry(node.clone()).or_default().insert(ObjectKey::of(pod.as_ref()), claims);
                nodes.push(node);
            }
        }
        nodes.dedup();
        nodes
    }

    /// The claims that pods of the node use, and by which pods.
    pub fn on_node(&self, node: &str) -> BTreeMap<ObjectKey, Vec<ObjectKey>> {
        let mut claims: BTreeMap<ObjectKey, Vec<ObjectKey>> = BTreeMap::new();
        for (pod, used) in self.0.lock().get(node).into_iter().flatten() {
            for claim in used {
                let claim = ObjectKey::new(pod.namespace.clone(), claim.clone());
                claims.entry(claim).or_default().push(pod.clone());
            }
        }
        claims
    }

    /// The nodes whose pods use the claim, with the pods' names.
    pub fn of_claim(&self, claim: &ObjectKey) -> Vec<(String, Vec<String>)> {
        let known = self.0.lock();
        let uses = |(pod, claims): (&ObjectKey, &Vec<String>)| {
            (pod.namespace == claim.namespace && claims.contains(&claim.name)).then(|| pod.name.clone())
        };
        let of_node = |(node, pods): (&String, &BTreeMap<ObjectKey, Vec<String>>)| {
            let users: Vec<String> = pods.iter().filter_map(uses).collect();
            (!users.is_empty()).then(|| (node.clone(), users))
        };
        known.iter().filter_map(of_node).collect()
    }

    pub fn has(&self, node: &str) -> bool {
        self.0.lock().contains_key(node)
    }

    pub fn nodes(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }
}

//! Gives every node a range of pod addresses of its own: `spec.podCIDR`.

use super::ACCOUNT;
use crate::Clients;
use coracle_client::{Controller, Informer, Next, ObjectKey, ReconcileError, Reconciler, Recorder};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Prefix length of a node's range: 254 pods; upstream's --node-cidr-mask-size.
const NODE_PREFIX: u32 = 24;

/// The addresses of all pods: an IPv4 network of at most 24 bits of prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterCidr {
    base: u32,
    prefix: u32,
}

impl std::str::FromStr for ClusterCidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is no IPv4 network with a prefix of 8 to {NODE_PREFIX} bits");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let prefix: u32 =
            prefix.parse().ok().filter(|p| (8..=NODE_PREFIX).contains(p)).ok_or_else(invalid)?;
        Ok(Self { base: u32::from(address) & (u32::MAX << (32 - prefix)), prefix })
    }
}

impl ClusterCidr {
    /// The lowest range that is not taken.
    fn free(self, taken: &HashSet<String>) -> Option<String> {
        let ranges = 0..1u32 << (NODE_PREFIX - self.prefix);
        let names = ranges.map(|i| {
            let address = Ipv4Addr::from(self.base + (i << (32 - NODE_PREFIX)));
            format!("{address}/{NODE_PREFIX}")
        });
        names.into_iter().find(|name| !taken.contains(name))
    }
}

struct Ipam {
    client: kube::Client,
    nodes: Informer<Node>,
    recorder: Recorder,
    cidr: ClusterCidr,
    /// Given out and perhaps not yet shown by the informer, by node.
    given: Mutex<Vec<(String, String)>>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, cidr: ClusterCidr, stop: CancellationToken) {
    let client = clients.client(ACCOUNT);
    let nodes = clients.informers.of::<Node>();
    let reconciler = Ipam {
        recorder: Recorder::new(client.clone(), "cidrAllocator", ""),
        client,
        nodes: nodes.clone(),
        cidr,
        given: Mutex::default(),
    };
    // One worker: two could give the same range away.
    Controller::new(reconciler).objects(&nodes).run(stop).await;
}

fn range(node: &Node) -> Option<String> {
    node.spec.as_ref()?.pod_cidr.clone().filter(|c| !c.is_empty())
}

impl Reconciler for Ipam {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "node-ipam-controller"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ReconcileError> {
        let Some(node) = self.nodes.get_key(key).filter(|n| range(n).is_none()) else {
            self.given.lock().unwrap_or_else(PoisonError::into_inner).retain(|(name, _)| *name != key.name);
            return Ok(Next::Done);
        };
        let Some(free) = self.reserve(&key.name) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder.normal(node.as_ref(), "CIDRNotAvailable", message);
            return Err(ReconcileError::Other("the cluster CIDR has no free range".to_owned()));
        };
        let patch = json!({ "spec": { "podCIDR": free, "podCIDRs": [free] } });
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Next::Done)
    }
}

impl Ipam {
    fn reserve(&self, node: &str) -> Option<String> {
        let mut taken: HashSet<String> = self.nodes.list().iter().filter_map(|n| range(n)).collect();
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, mine)) = given.iter().find(|(name, _)| name == node) {
            return Some(mine.clone());
        }
        taken.extend(given.iter().map(|(_, cidr)| cidr.clone()));
        let free = self.cidr.free(&taken)?;
        given.push((node.to_owned(), free.clone()));
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_given_from_the_lowest_until_none_is_left() {
        let cidr: ClusterCidr = "10.42.1.0/16".parse().unwrap();
        let mut taken = HashSet::new();
        assert_eq!(cidr.free(&taken).as_deref(), Some("10.42.0.0/24"));
        taken.insert("10.42.0.0/24".to_owned());
        assert_eq!(cidr.free(&taken).as_deref(), Some("10.42.1.0/24"));
        let one: ClusterCidr = "10.42.0.0/24".parse().unwrap();
        assert_eq!(one.free(&taken), None);
        for bad in ["", "10.42.0.0", "10.42.0.0/25", "::/64", "10.42.0.0/x"] {
            assert!(bad.parse::<ClusterCidr>().is_err(), "{bad}");
        }
    }
}

//! Which ranges of pod addresses lead where.

use coracle_client::Delta;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Gateways by ranges such as `10.42.1.0/24`.
pub type Routes = BTreeMap<String, Ipv4Addr>;

/// The range of pod addresses that a node has been given, and is what it says: what goes to the kernel and into files is
/// written anew from numbers.
fn range(node: &Node) -> Option<String> {
    let text = node.spec.as_ref()?.pod_cidr.as_deref()?;
    let (address, prefix) = text.split_once('/')?;
    let address: Ipv4Addr = address.parse().ok()?;
    let prefix: u8 = prefix.parse().ok().filter(|bits| (8..=32).contains(bits))?;
    Some(format!("{address}/{prefix}"))
}

fn address(node: &Node) -> Option<Ipv4Addr> {
    let addresses = node.status.as_ref()?.addresses.as_deref()?;
    addresses.iter().filter(|a| a.type_ == "InternalIP").find_map(|a| a.address.parse().ok())
}

/// Simulated nodes have no kubelet, and nothing answers at their addresses.
fn is_real(node: &Node) -> bool {
    let endpoint = node.status.as_ref().and_then(|s| s.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref());
    endpoint.is_some_and(|e| e.port != 0)
}

fn facts(node: &Node) -> (Option<String>, Option<Ipv4Addr>, bool) {
    (range(node), address(node), is_real(node))
}

/// Heartbeats do not.
pub fn matters(delta: &Delta<Node>) -> bool {
    delta.old.as_deref().map(facts) != delta.new.as_deref().map(facts)
}

pub fn range_of(nodes: &[Arc<Node>], name: &str) -> Option<String> {
    nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name)).and_then(|node| range(node))
}

/// The routes of the node `own` to all others' pods. A range or an address that the node has itself leads nowhere else.
pub fn routes(nodes: &[Arc<Node>], own: &str) -> Routes {
    let is_own = |node: &&Arc<Node>| node.metadata.name.as_deref() == Some(own);
    let here = nodes.iter().find(is_own);
    let (own_range, own_address) = (here.and_then(|n| range(n)), here.and_then(|n| address(n)));
    let others = nodes.iter().filter(|node| !is_own(node) && is_real(node));
    others
        .filter_map(|node| Some((range(node)?, address(node)?)))
        .filter(|(range, gateway)| Some(range) != own_range.as_ref() && Some(gateway) != own_address.as_ref())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, range: &str, address: &str, port: u16) -> Arc<Node> {
        let node = json!({ "metadata": { "name": name }, "spec": { "podCIDR": range }, "status": {
            "addresses": [{ "type": "Hostname", "address": name }, { "type": "InternalIP", "address": address }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": port } } } });
        Arc::new(serde_json::from_value(node).expect("a node"))
    }

    #[test]
    fn every_other_real_node_is_led_to() {
        let nodes = [
            node("a", "10.42.0.0/24", "192.0.2.1", 10_250),
            node("b", "10.42.1.0/24", "192.0.2.2", 10_250),
            node("sim", "10.42.2.0/24", "240.0.0.1", 0),
            node("odd", "10.42.3.0/24 dev lo", "192.0.2.4", 10_250),
            node("twin", "10.42.4.0/24", "192.0.2.1", 10_250),
            node("new", "", "192.0.2.5", 10_250),
        ];
        let found = routes(&nodes, "a");
        assert_eq!(found, Routes::from([("10.42.1.0/24".to_owned(), [192, 0, 2, 2].into())]));
        assert_eq!(routes(&nodes, "b").len(), 2, "to a and its twin");
        assert_eq!(range_of(&nodes, "b").as_deref(), Some("10.42.1.0/24"));
        assert_eq!(range_of(&nodes, "new"), None);
    }

    #[test]
    fn a_heartbeat_is_no_news() {
        let (old, new) =
            (node("a", "10.42.0.0/24", "192.0.2.1", 1), node("a", "10.42.0.0/24", "192.0.2.1", 1));
        assert!(!matters(&Delta { old: Some(old.clone()), new: Some(new) }));
        assert!(matters(&Delta { old: Some(old.clone()), new: None }));
        let moved = node("a", "10.42.0.0/24", "192.0.2.7", 1);
        assert!(matters(&Delta { old: Some(old), new: Some(moved) }));
    }
}

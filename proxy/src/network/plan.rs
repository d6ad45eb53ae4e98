//! Which ranges of pod addresses lead where.
//!
//! A route takes traffic away from wherever it went before, so nothing is believed of a Node that would lead it astray:
//! a range must be a part of the cluster's own, overlap no other node's, and hold no address that this machine itself
//! relies on; the way there must be an address that a machine can have.

use coracle_client::Delta;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Gateways by ranges such as `10.42.1.0/24`.
pub type Routes = BTreeMap<String, Ipv4Addr>;

/// What this machine knows by itself.
#[derive(Clone, Debug)]
pub struct Site {
    pub node_name: String,
    /// The addresses of all pods.
    pub pods: Ipv4Net,
    /// The addresses of all Services, where they are known.
    pub services: Option<Ipv4Net>,
    /// This machine's own addresses, its resolvers, and its API server: no route may lead away from them.
    pub kept: Vec<Ipv4Addr>,
}

/// Why another node's pods are not led to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unroutable {
    #[error("{0} is no part of the cluster's range {1}")]
    Outside(Ipv4Net, Ipv4Net),
    #[error("{0} overlaps {1} of node {2}")]
    Overlaps(Ipv4Net, Ipv4Net, String),
    #[error("{0} holds {1}, which this machine relies on")]
    Covers(Ipv4Net, Ipv4Addr),
    #[error("{0} is not the address of another machine")]
    Gateway(Ipv4Addr),
}

/// Where the pods of other nodes are, and of which nodes that is not believed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub routes: Routes,
    pub refused: BTreeMap<String, Unroutable>,
}

/// The range of pod addresses that a node has been given, if it is one: what goes to the kernel and into files is
/// written anew from numbers.
fn range(node: &Node) -> Option<Ipv4Net> {
    let net: Ipv4Net = node.spec.as_ref()?.pod_cidr.as_deref()?.parse().ok()?;
    Some(net.trunc())
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

fn facts(node: &Node) -> (Option<Ipv4Net>, Option<Ipv4Addr>, bool) {
    (range(node), address(node), is_real(node))
}

/// Heartbeats do not.
pub fn matters(delta: &Delta<Node>) -> bool {
    delta.old.as_deref().map(facts) != delta.new.as_deref().map(facts)
}

/// The range of the named node, if it is a part of the cluster's.
pub fn range_of(nodes: &[Arc<Node>], site: &Site) -> Option<String> {
    let own = nodes.iter().find(|node| name(node) == site.node_name)?;
    range(own).filter(|range| site.pods.contains(range)).map(|range| range.to_string())
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The routes to all other nodes' pods. Of two ranges that overlap the older node's counts, and this node's own always.
pub fn plan(nodes: &[Arc<Node>], site: &Site) -> Plan {
    let mut nodes: Vec<&Arc<Node>> = nodes.iter().collect();
    let age = |node: &Node| node.metadata.creation_timestamp.as_ref().map(|at| at.0);
    nodes.sort_by_key(|node| (name(node) != site.node_name, age(node), name(node)));
    let own_address = nodes.first().filter(|n| name(n) == site.node_name).and_then(|n| address(n));
    let mut plan = Plan::default();
    let mut taken: Vec<(Ipv4Net, &str)> = Vec::new();
    for node in nodes {
        let Some(range) = range(node) else { continue };
        let judged = judge(range, &taken, site);
        if judged.is_ok() {
            taken.push((range, name(node)));
        }
        let (false, true, Some(gateway)) = (name(node) == site.node_name, is_real(node), address(node))
        else {
            continue;
        };
        match judged.and_then(|()| judge_gateway(gateway, own_address, site)) {
            Ok(()) => drop(plan.routes.insert(range.to_string(), gateway)),
            Err(why) => drop(plan.refused.insert(name(node).to_owned(), why)),
        }
    }
    plan
}

fn judge(range: Ipv4Net, taken: &[(Ipv4Net, &str)], site: &Site) -> Result<(), Unroutable> {
    if !site.pods.contains(&range) {
        return Err(Unroutable::Outside(range, site.pods));
    }
    let overlaps = |other: &Ipv4Net| other.contains(&range) || range.contains(other);
    if let Some((other, of)) = taken.iter().find(|(other, _)| overlaps(other)) {
        return Err(Unroutable::Overlaps(range, *other, (*of).to_owned()));
    }
    match site.kept.iter().find(|address| range.contains(*address)) {
        Some(address) => Err(Unroutable::Covers(range, *address)),
        None => Ok(()),
    }
}

/// A pod's or a Service's address is no machine's, so that a range never holds the way to another.
fn judge_gateway(gateway: Ipv4Addr, own: Option<Ipv4Addr>, site: &Site) -> Result<(), Unroutable> {
    let special = gateway.is_loopback()
        || gateway.is_unspecified()
        || gateway.is_link_local()
        || gateway.is_broadcast()
        || gateway.is_multicast();
    let inside = site.pods.contains(&gateway) || site.services.is_some_and(|range| range.contains(&gateway));
    if special || inside || own == Some(gateway) {
        return Err(Unroutable::Gateway(gateway));
    }
    Ok(())
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

    fn site(own: &str) -> Site {
        Site {
            node_name: own.to_owned(),
            pods: "10.42.0.0/16".parse().expect("a range"),
            services: Some("10.43.0.0/16".parse().expect("a range")),
            kept: vec![[10, 42, 200, 53].into()],
        }
    }

    #[test]
    fn every_other_real_node_is_led_to() {
        let nodes = [
            node("a", "10.42.0.0/24", "192.0.2.1", 10_250),
            node("b", "10.42.1.7/24", "192.0.2.2", 10_250),
            node("sim", "10.42.2.0/24", "240.0.0.1", 0),
            node("odd", "10.42.3.0/24 dev lo", "192.0.2.4", 10_250),
            node("twin", "10.42.4.0/24", "192.0.2.1", 10_250),
            node("new", "", "192.0.2.5", 10_250),
        ];
        let found = plan(&nodes, &site("a"));
        assert_eq!(found.routes, Routes::from([("10.42.1.0/24".to_owned(), [192, 0, 2, 2].into())]));
        let twin = Unroutable::Gateway([192, 0, 2, 1].into());
        assert_eq!(found.refused, BTreeMap::from([("twin".to_owned(), twin)]));
        assert_eq!(plan(&nodes, &site("b")).routes.len(), 2, "to a and its twin");
        assert_eq!(range_of(&nodes, &site("b")).as_deref(), Some("10.42.1.0/24"));
        assert_eq!(range_of(&nodes, &site("new")), None);
    }

    /// What a node, or whoever writes its Node, could lead to itself.
    #[test]
    fn no_node_takes_the_traffic_of_others() {
        for (range, address, why) in [
            ("0.0.0.0/1", "192.0.2.9", "0.0.0.0/1 is no part of the cluster's range 10.42.0.0/16"),
            ("192.0.2.1/32", "192.0.2.9", "192.0.2.1/32 is no part of the cluster's range 10.42.0.0/16"),
            ("1.1.1.1/32", "192.0.2.9", "1.1.1.1/32 is no part of the cluster's range 10.42.0.0/16"),
            ("10.43.0.1/32", "192.0.2.9", "10.43.0.1/32 is no part of the cluster's range 10.42.0.0/16"),
            ("10.0.0.0/8", "192.0.2.9", "10.0.0.0/8 is no part of the cluster's range 10.42.0.0/16"),
            ("10.42.0.0/16", "192.0.2.9", "10.42.0.0/16 overlaps 10.42.0.0/24 of node own"),
            ("10.42.0.8/29", "192.0.2.9", "10.42.0.8/29 overlaps 10.42.0.0/24 of node own"),
            ("10.42.1.128/25", "192.0.2.9", "10.42.1.128/25 overlaps 10.42.1.0/24 of node other"),
            (
                "10.42.200.0/24",
                "192.0.2.9",
                "10.42.200.0/24 holds 10.42.200.53, which this machine relies on",
            ),
            ("10.42.9.0/24", "127.0.0.1", "127.0.0.1 is not the address of another machine"),
            ("10.42.9.0/24", "0.0.0.0", "0.0.0.0 is not the address of another machine"),
            ("10.42.9.0/24", "169.254.1.1", "169.254.1.1 is not the address of another machine"),
            ("10.42.9.0/24", "10.42.1.7", "10.42.1.7 is not the address of another machine"),
            ("10.42.9.0/24", "10.43.0.10", "10.43.0.10 is not the address of another machine"),
            ("10.42.9.0/24", "192.0.2.1", "192.0.2.1 is not the address of another machine"),
        ] {
            let nodes = [
                node("thief", range, address, 10_250),
                node("own", "10.42.0.0/24", "192.0.2.1", 10_250),
                node("other", "10.42.1.0/24", "192.0.2.2", 10_250),
            ];
            let mut nodes = nodes.map(Arc::unwrap_or_clone);
            for (node, minute) in nodes.iter_mut().zip([30, 10, 20]) {
                let at = format!("2026-01-01T00:{minute}:00Z").parse().expect("a time");
                node.metadata.creation_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
            }
            let found = plan(&nodes.map(Arc::new), &site("own"));
            let other = Routes::from([("10.42.1.0/24".to_owned(), [192, 0, 2, 2].into())]);
            assert_eq!(found.routes, other, "{range} by way of {address}");
            assert_eq!(found.refused["thief"].to_string(), why);
        }
    }

    #[test]
    fn a_range_of_elsewhere_is_not_configured_here() {
        let nodes = [node("own", "192.168.0.0/24", "192.0.2.1", 10_250)];
        assert_eq!(range_of(&nodes, &site("own")), None);
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

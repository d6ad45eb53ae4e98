//! Which ranges of pod addresses lead where.
//!
//! A route takes traffic away from wherever it went before, so nothing is believed of a Node that would lead it astray:
//! a range must be a part of the cluster's own, overlap no other node's, and hold no address that this machine itself
//! relies on; the way there must be an address that a machine can have.

use crate::family::Family;
use coracle_client::Delta;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Gateways by ranges such as `10.42.1.0/24`.
pub type Routes = BTreeMap<String, IpAddr>;

/// What this machine knows by itself.
#[derive(Clone, Debug)]
pub struct Site {
    pub node_name: String,
    /// The addresses of all pods, a range of each family at most.
    pub pods: Vec<IpNet>,
    /// The addresses of all Services, where they are known.
    pub services: Vec<IpNet>,
    /// This machine's own addresses, its resolvers, and its API server: no route may lead away from them.
    pub kept: Vec<IpAddr>,
}

/// Why another node's pods are not led to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unroutable {
    #[error("{0} is no part of the cluster's range {1}")]
    Outside(IpNet, IpNet),
    #[error("{0} is of a family that no pod of the cluster has")]
    Family(IpNet),
    #[error("{0} overlaps {1} of node {2}")]
    Overlaps(IpNet, IpNet, String),
    #[error("{0} holds {1}, which this machine relies on")]
    Covers(IpNet, IpAddr),
    #[error("{0} is not the address of another machine")]
    Gateway(IpAddr),
}

/// Where the pods of other nodes are, and of which nodes that is not believed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub routes: Routes,
    pub refused: BTreeMap<String, Unroutable>,
}

/// The ranges of pod addresses that a node has been given, as far as they are some, the first of each family: what goes to
/// the kernel and into files is written anew from numbers.
fn ranges(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidr.iter().chain(spec.pod_cidrs.iter().flatten());
    let mut found: Vec<IpNet> = Vec::new();
    for range in all.filter_map(|range| range.parse::<IpNet>().ok()) {
        if !found.iter().any(|known| known.addr().is_ipv4() == range.addr().is_ipv4()) {
            found.push(range.trunc());
        }
    }
    found
}

fn range(node: &Node, family: Family) -> Option<IpNet> {
    ranges(node).into_iter().find(|range| Family::of(range.addr()) == family)
}

fn addresses(node: &Node) -> Vec<IpAddr> {
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    all.filter(|a| a.type_ == "InternalIP").filter_map(|a| a.address.parse().ok()).collect()
}

fn address(node: &Node, family: Family) -> Option<IpAddr> {
    addresses(node).into_iter().find(|ip| Family::of(*ip) == family)
}

/// Simulated nodes have no kubelet, and nothing answers at their addresses.
fn is_real(node: &Node) -> bool {
    let endpoint = node.status.as_ref().and_then(|s| s.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref());
    endpoint.is_some_and(|e| e.port != 0)
}

fn facts(node: &Node) -> (Vec<IpNet>, Vec<IpAddr>, bool) {
    (ranges(node), addresses(node), is_real(node))
}

/// Heartbeats do not.
pub fn matters(delta: &Delta<Node>) -> bool {
    delta.old.as_deref().map(facts) != delta.new.as_deref().map(facts)
}

/// The ranges of this machine's node that are parts of the cluster's.
pub fn ranges_of(nodes: &[Arc<Node>], site: &Site) -> Vec<String> {
    let own = nodes.iter().find(|node| name(node) == site.node_name);
    let all = own.map(|node| ranges(node)).unwrap_or_default();
    all.iter()
        .filter(|range| site.pods.iter().any(|pods| pods.contains(*range)))
        .map(ToString::to_string)
        .collect()
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The routes to all other nodes' pods. Of two ranges that overlap the older node's counts, and this node's own always.
pub fn plan(nodes: &[Arc<Node>], site: &Site) -> Plan {
    let mut nodes: Vec<&Arc<Node>> = nodes.iter().collect();
    let age = |node: &Node| node.metadata.creation_timestamp.as_ref().map(|at| at.0);
    nodes.sort_by_key(|node| (name(node) != site.node_name, age(node), name(node)));
    let mut plan = Plan::default();
    for family in Family::ALL {
        of_family(family, &nodes, site, &mut plan);
    }
    plan
}

/// `nodes`: this machine's own first, then by age.
fn of_family(family: Family, nodes: &[&Arc<Node>], site: &Site, plan: &mut Plan) {
    let own = nodes.first().filter(|node| name(node) == site.node_name);
    let own_address = own.and_then(|node| address(node, family));
    let mut taken: Vec<(IpNet, &str)> = Vec::new();
    for node in nodes {
        let Some(range) = range(node, family) else { continue };
        let judged = judge(range, &taken, site);
        if judged.is_ok() {
            taken.push((range, name(node)));
        }
        let (false, true, Some(gateway)) =
            (name(node) == site.node_name, is_real(node), address(node, family))
        else {
            continue;
        };
        match judged.and_then(|()| judge_gateway(gateway, own_address, site)) {
            Ok(()) => drop(plan.routes.insert(range.to_string(), gateway)),
            Err(why) => drop(plan.refused.insert(name(node).to_owned(), why)),
        }
    }
}

fn judge(range: IpNet, taken: &[(IpNet, &str)], site: &Site) -> Result<(), Unroutable> {
    let of_family = |pods: &&IpNet| pods.addr().is_ipv4() == range.addr().is_ipv4();
    let Some(pods) = site.pods.iter().find(of_family) else { return Err(Unroutable::Family(range)) };
    if !pods.contains(&range) {
        return Err(Unroutable::Outside(range, *pods));
    }
    let overlaps = |other: &IpNet| other.contains(&range) || range.contains(other);
    if let Some((other, of)) = taken.iter().find(|(other, _)| overlaps(other)) {
        return Err(Unroutable::Overlaps(range, *other, (*of).to_owned()));
    }
    match site.kept.iter().find(|address| range.contains(*address)) {
        Some(address) => Err(Unroutable::Covers(range, *address)),
        None => Ok(()),
    }
}

/// A pod's or a Service's address is no machine's, so that a range never holds the way to another.
fn judge_gateway(gateway: IpAddr, own: Option<IpAddr>, site: &Site) -> Result<(), Unroutable> {
    let special = match gateway {
        IpAddr::V4(gateway) => gateway.is_link_local() || gateway.is_broadcast(),
        IpAddr::V6(gateway) => gateway.is_unicast_link_local() || gateway.to_ipv4_mapped().is_some(),
    };
    let nobody = gateway.is_loopback() || gateway.is_unspecified() || gateway.is_multicast();
    let inside = site.pods.iter().chain(&site.services).any(|range| range.contains(&gateway));
    if special || nobody || inside || own == Some(gateway) {
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
            pods: vec!["10.42.0.0/16".parse().expect("a range")],
            services: vec!["10.43.0.0/16".parse().expect("a range")],
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
        assert_eq!(ranges_of(&nodes, &site("b")), ["10.42.1.0/24"]);
        assert!(ranges_of(&nodes, &site("new")).is_empty());
    }

    /// What a node, or whoever writes its Node, could lead to itself.
    #[test]
    fn no_node_takes_the_traffic_of_others() {
        for (range, address, why) in [
            ("fd42::/64", "2001:db8::9", "fd42::/64 is of a family that no pod of the cluster has"),
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
    fn each_family_has_its_routes() {
        let both = |name: &str, ranges: &[&str], addresses: &[&str]| {
            let addresses: Vec<_> =
                addresses.iter().map(|ip| json!({ "type": "InternalIP", "address": ip })).collect();
            let node = json!({ "metadata": { "name": name }, "spec": { "podCIDR": ranges[0], "podCIDRs": ranges },
                "status": { "addresses": addresses, "daemonEndpoints": { "kubeletEndpoint": { "Port": 1 } } } });
            Arc::new(serde_json::from_value::<Node>(node).expect("a node"))
        };
        let nodes = [
            both("a", &["10.42.0.0/24", "fd42::/64"], &["192.0.2.1", "2001:db8::1"]),
            both("b", &["fd42:0:0:1::/64", "10.42.1.0/24"], &["192.0.2.2", "2001:db8::2"]),
            both("only", &["10.42.2.0/24", "fd42:0:0:2::/64"], &["192.0.2.3"]),
            both("local", &["fd42:0:0:3::/64"], &["fe80::3"]),
        ];
        let pods = ["10.42.0.0/16", "fd42::/56"].map(|range| range.parse().expect("a range")).to_vec();
        let site = Site { pods, ..site("a") };
        let found = plan(&nodes, &site);
        let wanted = [
            ("10.42.1.0/24", "192.0.2.2"),
            ("10.42.2.0/24", "192.0.2.3"),
            ("fd42:0:0:1::/64", "2001:db8::2"),
        ];
        let wanted = wanted.map(|(range, via)| (range.to_owned(), via.parse().expect("an address")));
        assert_eq!(found.routes, Routes::from(wanted));
        assert_eq!(found.refused.keys().collect::<Vec<_>>(), ["local"]);
        assert_eq!(ranges_of(&nodes, &site), ["10.42.0.0/24", "fd42::/64"]);
    }

    #[test]
    fn a_range_of_elsewhere_is_not_configured_here() {
        let nodes = [node("own", "192.168.0.0/24", "192.0.2.1", 10_250)];
        assert!(ranges_of(&nodes, &site("own")).is_empty());
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

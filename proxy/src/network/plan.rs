//! Which ranges of pod addresses lead where.
//!
//! A route takes traffic away from wherever it went before, so nothing is believed of a Node that would lead it astray:
//! a range must be a part of the cluster's own, overlap no other node's, and hold no address that this machine itself
//! relies on; the way there must be an address that a machine can have.

use crate::family::Family;
use coracle_client::Delta;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Ways by ranges such as `10.42.1.0/24`.
pub type Routes = BTreeMap<String, Way>;

/// How a node's pods are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By way of a machine on a network of this one.
    Direct(IpAddr),
    /// In packets to a machine anywhere, to its end of the tunnel.
    Wrapped(IpAddr, Mac),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(gateway) => write!(f, "via {gateway}"),
            Self::Wrapped(machine, _) => write!(f, "wrapped to {machine}"),
        }
    }
}

/// A hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Of a node's end, which everybody can tell from its name.
    fn of_node(name: &str) -> Self {
        let digest = Sha256::digest(format!("vxlan/{name}").as_bytes());
        // Administered locally, of one machine (IEEE 802).
        Self([(digest[0] & 0xfc) | 2, digest[1], digest[2], digest[3], digest[4], digest[5]])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes: Vec<u8> = text.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        bytes.try_into().map(Self).map_err(|_| D::Error::custom("no hardware address"))
    }
}

/// The annotation of a Node by which the way between it and others is chosen: `routes` (also without it), `vxlan`, or
/// `auto`, which wraps only what goes to a node on another network. What one of two nodes says counts for both; `vxlan`
/// before `auto`.
pub const ANNOTATION: &str = "coracle.io/pod-network";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Routes,
    Auto,
    Vxlan,
}

fn annotation(node: &Node) -> Option<&str> {
    node.metadata.annotations.as_ref()?.get(ANNOTATION).map(String::as_str)
}

fn mode(node: &Node) -> Result<Mode, Unroutable> {
    match annotation(node) {
        None | Some("routes") => Ok(Mode::Routes),
        Some("auto") => Ok(Mode::Auto),
        Some("vxlan") => Ok(Mode::Vxlan),
        Some(other) => Err(Unroutable::Mode(other.to_owned())),
    }
}

/// Whether any node asks for more than routes.
pub fn may_wrap(nodes: &[Arc<Node>]) -> bool {
    nodes.iter().any(|node| mode(node).is_ok_and(|mode| mode != Mode::Routes))
}

/// This machine's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The node's own address, which the others know.
    pub local: IpAddr,
    pub mac: Mac,
    /// By which this node speaks to pods elsewhere: the first of each of its ranges, which no pod has.
    pub addresses: Vec<IpAddr>,
}

/// What this machine knows by itself.
#[derive(Clone, Debug)]
pub struct Site {
    pub node_name: String,
    /// The addresses of all pods, a range of each family at most.
    pub pods: Vec<IpNet>,
    /// The addresses of all Services, where they are known.
    pub services: Vec<IpNet>,
    /// The networks that this machine is on, where that matters.
    pub networks: Vec<IpNet>,
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
    #[error(
        "a pod network by {0:?} is not supported: the annotation coracle.io/pod-network is routes, vxlan or auto"
    )]
    Mode(String),
    #[error("it has no {} address to wrap packets to", .0.name())]
    NoEnd(Family),
}

/// Where the pods of other nodes are, and of which nodes that is not believed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub routes: Routes,
    /// Where anything is wrapped.
    pub tunnel: Option<Tunnel>,
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

fn addresses_of(node: &Node) -> Vec<IpAddr> {
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    all.filter(|a| a.type_ == "InternalIP").filter_map(|a| a.address.parse().ok()).collect()
}

fn address(node: &Node, family: Family) -> Option<IpAddr> {
    addresses_of(node).into_iter().find(|ip| Family::of(*ip) == family)
}

/// Simulated nodes have no kubelet, and nothing answers at their addresses.
fn is_real(node: &Node) -> bool {
    let endpoint = node.status.as_ref().and_then(|s| s.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref());
    endpoint.is_some_and(|e| e.port != 0)
}

fn facts(node: &Node) -> (Vec<IpNet>, Vec<IpAddr>, bool, Option<&str>) {
    (ranges(node), addresses_of(node), is_real(node), annotation(node))
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
    let own = nodes.first().filter(|node| name(node) == site.node_name);
    if let Some(own) = own.filter(|_| plan.routes.values().any(|way| matches!(way, Way::Wrapped(..)))) {
        plan.tunnel = tunnel(own, site);
    }
    plan
}

fn tunnel(own: &Node, site: &Site) -> Option<Tunnel> {
    let is_ours = |range: &IpNet| site.pods.iter().any(|pods| pods.contains(range));
    let addresses = ranges(own).into_iter().filter(is_ours).map(|range| range.network()).collect();
    Some(Tunnel { local: *addresses_of(own).first()?, mac: Mac::of_node(name(own)), addresses })
}

/// The way to a node's range of a family, from this machine's own node; a machine need not be one.
fn way(own: Option<&Node>, node: &Node, family: Family, site: &Site) -> Option<Result<Way, Unroutable>> {
    let ours = own.map(addresses_of).unwrap_or_default();
    let to = address(node, family);
    let checked = |to: IpAddr| {
        let own = ours.iter().find(|ip| Family::of(**ip) == Family::of(to)).copied();
        judge_gateway(to, own, site).map(|()| to)
    };
    let own = own.map_or(Ok(Mode::Routes), mode);
    let mode = match own.and_then(|own| Ok(own.max(mode(node)?))) {
        Ok(mode) => mode,
        Err(why) => return Some(Err(why)),
    };
    // Ends are of one family, that of nodes' first addresses.
    let outer = ours.first().map_or(family, |ip| Family::of(*ip));
    let end = address(node, outer);
    let is_near = |ip: &IpAddr| site.networks.iter().any(|network| network.contains(ip));
    let wraps = match mode {
        Mode::Routes => false,
        Mode::Vxlan => true,
        Mode::Auto => !to.or(end).is_some_and(|ip| is_near(&ip)),
    };
    match end {
        _ if !wraps => to.map(|to| checked(to).map(Way::Direct)),
        Some(end) => Some(checked(end).map(|end| Way::Wrapped(end, Mac::of_node(name(node))))),
        None => Some(Err(Unroutable::NoEnd(outer))),
    }
}

/// `nodes`: this machine's own first, then by age.
fn of_family(family: Family, nodes: &[&Arc<Node>], site: &Site, plan: &mut Plan) {
    let own = nodes.first().filter(|node| name(node) == site.node_name);
    let mut taken: Vec<(IpNet, &str)> = Vec::new();
    for node in nodes {
        let Some(range) = range(node, family) else { continue };
        let judged = judge(range, &taken, site);
        if judged.is_ok() {
            taken.push((range, name(node)));
        }
        if name(node) == site.node_name || !is_real(node) {
            continue;
        }
        let Some(way) = way(own.map(|own| own.as_ref()), node, family, site) else { continue };
        match judged.and(way) {
            Ok(way) => drop(plan.routes.insert(range.to_string(), way)),
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
            networks: vec!["192.0.2.0/24".parse().expect("a range")],
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
        assert_eq!(
            found.routes,
            Routes::from([("10.42.1.0/24".to_owned(), Way::Direct([192, 0, 2, 2].into()))])
        );
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
            let other = Routes::from([("10.42.1.0/24".to_owned(), Way::Direct([192, 0, 2, 2].into()))]);
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
        let wanted =
            wanted.map(|(range, via)| (range.to_owned(), Way::Direct(via.parse().expect("an address"))));
        assert_eq!(found.routes, Routes::from(wanted));
        assert_eq!(found.refused.keys().collect::<Vec<_>>(), ["local"]);
        assert_eq!(ranges_of(&nodes, &site), ["10.42.0.0/24", "fd42::/64"]);
    }

    /// Who asks for it is reached by a tunnel, and so is everybody from there.
    #[test]
    fn an_annotation_wraps_what_goes_to_a_node() {
        let of = |name: &str, octet: u8, address: &str, mode: &str| {
            let mut node = Arc::unwrap_or_clone(node(name, &format!("10.42.{octet}.0/24"), address, 1));
            let mode = (!mode.is_empty()).then(|| (ANNOTATION.to_owned(), mode.to_owned()));
            node.metadata.annotations = Some(mode.into_iter().collect());
            Arc::new(node)
        };
        let shown = |own: &str, near: &str, far: &str| {
            let nodes = [
                of("own", 0, "192.0.2.1", own),
                of("near", 1, "192.0.2.2", near),
                of("far", 2, "198.51.100.2", far),
            ];
            let found = plan(&nodes, &site("own"));
            let ways: Vec<String> = found.routes.values().map(ToString::to_string).collect();
            (ways.join(", "), found)
        };
        let direct = ("via 192.0.2.2", "via 198.51.100.2");
        let wrapped = ("wrapped to 192.0.2.2", "wrapped to 198.51.100.2");
        for (modes, near, far) in [
            (["", "", ""], direct.0, direct.1),
            (["routes", "routes", "routes"], direct.0, direct.1),
            (["vxlan", "", ""], wrapped.0, wrapped.1),
            (["", "vxlan", ""], wrapped.0, direct.1),
            (["auto", "", ""], direct.0, wrapped.1),
            (["", "auto", "auto"], direct.0, wrapped.1),
            (["auto", "vxlan", "routes"], wrapped.0, wrapped.1),
        ] {
            let (ways, found) = shown(modes[0], modes[1], modes[2]);
            assert_eq!(ways, format!("{near}, {far}"), "{modes:?}");
            assert_eq!(found.tunnel.is_some(), ways.contains("wrapped"), "{modes:?}");
            assert!(found.refused.is_empty(), "{:?}", found.refused);
        }
        let (_, found) = shown("vxlan", "", "");
        let tunnel = found.tunnel.expect("an end");
        assert_eq!((tunnel.local, tunnel.addresses), ([192, 0, 2, 1].into(), vec![[10, 42, 0, 0].into()]));
        let own = [of("near", 1, "192.0.2.2", ""), of("own", 0, "192.0.2.1", "vxlan")];
        let back = plan(&own, &site("near")).routes;
        assert_eq!(
            back["10.42.0.0/24"],
            Way::Wrapped([192, 0, 2, 1].into(), tunnel.mac),
            "both know its end"
        );
        let (ways, found) = shown("", "wireguard", "");
        assert_eq!(ways, direct.1, "nothing goes unwrapped that was to be");
        assert!(found.refused["near"].to_string().contains("\"wireguard\" is not supported"));
        assert_eq!(shown("wireguard", "", "").1.refused.len(), 2);
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
        let mut chosen = Arc::unwrap_or_clone(old.clone());
        chosen.metadata.annotations = Some(BTreeMap::from([(ANNOTATION.to_owned(), "vxlan".to_owned())]));
        assert!(matters(&Delta { old: Some(old.clone()), new: Some(Arc::new(chosen)) }));
        let moved = node("a", "10.42.0.0/24", "192.0.2.7", 1);
        assert!(matters(&Delta { old: Some(old), new: Some(moved) }));
    }
}

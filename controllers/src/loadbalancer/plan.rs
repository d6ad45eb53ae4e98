//! Which addresses each Service of type LoadBalancer gets. Nothing here does I/O.

use crate::common::services::{self, Family};
use coracle_api::node_addresses::{CHECKED_ADDRESSES, checked};
use coracle_api::validation::is_machine_address;
use coracle_api::well_known;
use coracle_client::ObjectKey;
use coracle_client::informer::{deleting, uid_of};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Nodes with this label, whatever its value, take no traffic from outside.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const SERVICE_NAME: &str = well_known::SERVICE_NAME;

/// An address, a protocol and a port: what one Service can have and no second.
type Socket = (IpAddr, String, i32);

/// A node as far as traffic from outside is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    pub name: String,
    pub ready: bool,
    /// The external ones of a family, or where there are none the internal ones at which the API server met the node:
    /// a node can claim any.
    pub addresses: Vec<IpAddr>,
    /// Internal ones where it was not met, or not yet.
    pub claimed: Vec<IpAddr>,
    /// The kubelet's port.
    pub kubelet: i32,
}

/// Everything that addresses depend on.
pub struct World {
    pub services: Vec<Arc<Service>>,
    pub nodes: Vec<Arc<Node>>,
    pub slices: Vec<Arc<EndpointSlice>>,
}

/// What a Service gets; in words, why it gets nothing.
pub type Share = Result<Vec<LoadBalancerIngress>, String>;

/// A node that takes traffic from outside; `None` for others.
pub fn gate(node: &Node) -> Option<Gate> {
    if node.labels().contains_key(EXCLUDED) || deleting(node) {
        return None;
    }
    let status = node.status.as_ref()?;
    let all = status.addresses.as_deref().unwrap_or_default();
    let of = |type_: &str, v6: bool| -> Vec<IpAddr> {
        let typed = all.iter().filter(|a| a.type_ == type_).filter_map(|a| a.address.parse().ok());
        // Every machine would lead what it sends to its own loopback to the Services.
        typed.filter(|ip: &IpAddr| ip.is_ipv6() == v6 && is_machine_address(*ip)).collect()
    };
    let met = checked(node.annotations().get(CHECKED_ADDRESSES).map(String::as_str));
    let (mut addresses, mut claimed) = (Vec::new(), Vec::new());
    for v6 in [false, true] {
        let outside = of("ExternalIP", v6);
        if !outside.is_empty() {
            addresses.extend(outside);
            continue;
        }
        let (known, unknown): (Vec<IpAddr>, _) =
            of("InternalIP", v6).into_iter().partition(|ip| met.contains(&ip.to_canonical()));
        addresses.extend(known);
        claimed.extend::<Vec<IpAddr>>(unknown);
    }
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let endpoints = status.daemon_endpoints.as_ref().and_then(|d| d.kubelet_endpoint.as_ref());
    Some(Gate { name: node.name_any(), ready, addresses, claimed, kubelet: endpoints.map_or(0, |e| e.port) })
}

/// Whether this implementation answers for the Service; one with a class is somebody else's.
pub fn is_wanted(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    !deleting(service)
        && spec.is_some_and(|s| s.type_.as_deref() == Some("LoadBalancer") && s.load_balancer_class.is_none())
}

/// Whether it has answered for the Service.
pub fn is_held(service: &Service) -> bool {
    service.finalizers().iter().any(|f| f == FINALIZER)
}

pub fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let balancer = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
    balancer.and_then(|b| b.ingress.as_deref()).unwrap_or_default()
}

fn is_local(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.external_traffic_policy.as_deref()) == Some("Local")
}

/// The shares of all Services that are wanted. Who has an address keeps it; of the others the oldest is served first.
pub fn shares(world: &World) -> BTreeMap<ObjectKey, Share> {
    let gates: Vec<Gate> = world.nodes.iter().filter_map(|n| gate(n)).collect();
    let mut taken = reserved(world, &gates);
    let mut wanted: Vec<&Arc<Service>> = world.services.iter().filter(|s| is_wanted(s)).collect();
    wanted.sort_by_cached_key(|s| {
        let has = is_held(s) && !ingress(s).is_empty();
        (!has, s.metadata.creation_timestamp.as_ref().map(|t| t.0), ObjectKey::of(s.as_ref()))
    });
    let mut shares = BTreeMap::new();
    for service in wanted {
        let share = share(service, world, &gates, &taken);
        for address in share.iter().flatten().filter_map(|i| i.ip.as_ref()?.parse().ok()) {
            let who = format!("Service {}", ObjectKey::of(service.as_ref()));
            taken.extend(sockets(service, address).map(|socket| (socket, who.clone())));
        }
        shares.insert(ObjectKey::of(service.as_ref()), share);
    }
    shares
}

fn sockets(service: &Service, address: IpAddr) -> impl Iterator<Item = Socket> {
    let ports = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    ports.iter().map(move |p| (address, p.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), p.port))
}

/// What the nodes themselves listen on: a Service there would cut the cluster off from its own owner.
fn reserved(world: &World, gates: &[Gate]) -> BTreeMap<Socket, String> {
    let mut taken = BTreeMap::new();
    for gate in gates.iter().filter(|g| g.kubelet != 0) {
        let sockets = gate.addresses.iter().map(|ip| (*ip, "TCP".to_owned(), gate.kubelet));
        taken.extend(sockets.map(|socket| (socket, format!("the kubelet of node {}", gate.name))));
    }
    let api = world.slices.iter().filter(|s| {
        s.namespace().as_deref() == Some("default")
            && s.labels().get(SERVICE_NAME).is_some_and(|n| n == "kubernetes")
    });
    for slice in api {
        let ports: Vec<i32> = slice.ports.iter().flatten().filter_map(|p| p.port).collect();
        let addresses = slice.endpoints.iter().flatten().flat_map(|e| &e.addresses);
        for ip in addresses.filter_map(|a| a.parse::<IpAddr>().ok()) {
            let sockets = ports.iter().map(|port| (ip, "TCP".to_owned(), *port));
            taken.extend(sockets.map(|socket| (socket, "the API server".to_owned())));
        }
    }
    taken
}

fn share(service: &Service, world: &World, gates: &[Gate], taken: &BTreeMap<Socket, String>) -> Share {
    let asked = service.spec.as_ref().and_then(|s| s.load_balancer_ip.as_deref()).filter(|ip| !ip.is_empty());
    let asked = match asked.map(|text| (text, text.parse::<IpAddr>())) {
        Some((_, Ok(ip))) => Some(ip),
        Some((text, Err(_))) => return Err(format!("loadBalancerIP {text:?} is no IP address")),
        None => None,
    };
    let mut open: Vec<&Gate> = gates.iter().filter(|g| g.ready).collect();
    if open.is_empty() {
        // No node is better than another then, and no address would be worse than one.
        open = gates.iter().collect();
    }
    if open.is_empty() {
        return Err("there are no available nodes".to_owned());
    }
    if is_local(service) {
        let serving = serving(service, &world.slices);
        open.retain(|gate| serving.contains(&gate.name));
        if open.is_empty() {
            return Err("no node has a ready endpoint, and externalTrafficPolicy is Local".to_owned());
        }
    }
    let (mut free, mut conflict) = (Vec::new(), None);
    for address in addresses(service, &open).into_iter().filter(|ip| asked.is_none_or(|a| a == *ip)) {
        match sockets(service, address).find_map(|socket| Some((taken.get(&socket)?, socket))) {
            None => free.push(address),
            Some((who, (ip, protocol, port))) => {
                conflict.get_or_insert(format!("port {port}/{protocol} of {ip} is taken by {who}"));
            }
        }
    }
    if !free.is_empty() {
        return Ok(free.into_iter().map(entry).collect());
    }
    Err(conflict.unwrap_or_else(|| match asked {
        Some(ip) => format!("no node that takes traffic has the address {ip}{}", unmet(&open)),
        None => format!("no node has an address of the Service's IP families{}", unmet(&open)),
    }))
}

/// What is said of nodes that claim addresses where the API server did not meet them.
fn unmet(gates: &[&Gate]) -> String {
    let unmet =
        gates.iter().flat_map(|gate| gate.claimed.iter().map(move |ip| format!("{} at {ip}", gate.name)));
    let unmet: Vec<String> = unmet.collect();
    if unmet.is_empty() {
        String::new()
    } else {
        format!("; not met by the API server: {}", unmet.join(", "))
    }
}

fn entry(ip: IpAddr) -> LoadBalancerIngress {
    let (ip, ip_mode) = (Some(ip.to_string()), Some("VIP".to_owned()));
    LoadBalancerIngress { ip, ip_mode, ..LoadBalancerIngress::default() }
}

/// Of the Service's families, the primary one's first; within one, in order.
fn addresses(service: &Service, gates: &[&Gate]) -> Vec<IpAddr> {
    let families = services::families(service).into_iter();
    let of = |family: Family| -> BTreeSet<IpAddr> {
        let all = gates.iter().flat_map(|g| &g.addresses).copied();
        all.filter(|ip| ip.is_ipv6() == (family == Family::V6)).collect()
    };
    families.flat_map(of).collect()
}

/// The nodes on which the Service has a ready endpoint.
fn serving(service: &Service, slices: &[Arc<EndpointSlice>]) -> BTreeSet<String> {
    let key = ObjectKey::of(service);
    let own = slices.iter().filter(|s| service_of(s).as_ref() == Some(&key));
    let endpoints = own.flat_map(|s| s.endpoints.iter().flatten());
    let ready = endpoints.filter(|e| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true));
    ready.filter_map(|e| e.node_name.clone()).collect()
}

/// The Service that a slice belongs to.
pub fn service_of(slice: &EndpointSlice) -> Option<ObjectKey> {
    let name = slice.labels().get(SERVICE_NAME)?;
    Some(ObjectKey::new(slice.namespace().unwrap_or_default(), name))
}

/// Identifies a Service over its life, for what is remembered of it.
pub fn identity(service: &Service) -> String {
    uid_of(service)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! How the other end of a packet, and its port, are known.

use super::targets::{Target, labelled, selector};
use super::{Direction, PolicyPlanner, hashed};
use crate::family::Family;
use crate::policy::model::{Peer, Peers, PortMatch};
use coracle_api::selector::LabelSelector;
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

impl PolicyPlanner<'_> {
    /// One line for each way in which a packet can be what a rule is about.
    pub(super) fn rule(
        &mut self,
        peers: &Peers,
        ports: &[PortMatch],
        direction: Direction,
        verdict: &str,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        if direction == Direction::Egress {
            lines.extend(self.dns(peers, ports, verdict));
        }
        let peers: Vec<String> = match peers {
            Peers::Everybody => vec![String::new()],
            Peers::These(peers) => peers.iter().filter_map(|peer| self.peer(peer, direction)).collect(),
        };
        let ports = self.ports(ports);
        for peer in &peers {
            lines.extend(ports.iter().map(|port| format!("{peer}{port}{verdict}")));
        }
        lines
    }

    /// How a peer's packets are known; `None`: it has none of this family.
    pub(super) fn peer(&mut self, peer: &Peer, direction: Direction) -> Option<String> {
        let field = format!("{} {}", self.word(), direction.peer());
        let key = match peer {
            Peer::Networks { nets, except } => return self.networks(&field, nets, except),
            Peer::Nodes(chosen) => serde_json::json!(["nodes", chosen]),
            Peer::Pods { scope, namespaces, pods } => serde_json::json!([scope, namespaces, pods]),
        };
        let name = format!("peers-{}", hashed(&key.to_string()));
        if !self.plan.peers.contains_key(&name) {
            let found = self.addresses_of(peer);
            self.plan.peers.insert(name.clone(), found);
        }
        Some(format!("{field} @{name} "))
    }

    fn networks(&self, field: &str, nets: &[IpNet], except: &[IpNet]) -> Option<String> {
        let of_family = |nets: &[IpNet]| -> Vec<String> {
            let nets: Vec<IpNet> =
                nets.iter().filter(|net| Family::of(net.addr()) == self.family).copied().collect();
            IpNet::aggregate(&nets).iter().map(IpNet::to_string).collect()
        };
        let these = match of_family(nets).as_slice() {
            [] => return None,
            [one] => one.clone(),
            nets => format!("{{ {} }}", nets.join(", ")),
        };
        let but = match of_family(except).as_slice() {
            [] => String::new(),
            nets => format!("{field} != {{ {} }} ", nets.join(", ")),
        };
        Some(format!("{field} {these} {but}"))
    }

    fn addresses_of(&self, peer: &Peer) -> BTreeSet<IpAddr> {
        match peer {
            Peer::Pods { scope, namespaces, pods } => {
                self.found(scope.as_deref(), namespaces.as_ref(), pods.as_ref())
            }
            Peer::Nodes(chosen) => self.nodes_found(chosen),
            Peer::Networks { .. } => BTreeSet::new(),
        }
    }

    fn nodes_found(&self, chosen: &meta::LabelSelector) -> BTreeSet<IpAddr> {
        let chosen = selector(chosen);
        let nodes = self.world.nodes.iter().filter(|n| labelled(&chosen, n.metadata.labels.as_ref()));
        let addresses = nodes.flat_map(|node| node.status.iter().flat_map(|s| s.addresses.iter().flatten()));
        let ips = addresses.filter_map(|address| address.address.parse::<IpAddr>().ok());
        ips.filter(|ip| Family::of(*ip) == self.family).collect()
    }

    fn found(
        &self,
        scope: Option<&str>,
        namespaces: Option<&meta::LabelSelector>,
        pods: Option<&meta::LabelSelector>,
    ) -> BTreeSet<IpAddr> {
        let pods = pods.map_or_else(LabelSelector::everything, selector);
        let wanted = match scope {
            Some(own) => BTreeSet::from([own]),
            None => self.named(&namespaces.map_or_else(LabelSelector::nothing, selector)),
        };
        let of = |target: &&Target<'_>| {
            wanted.contains(target.namespace) && labelled(&pods, target.pod.metadata.labels.as_ref())
        };
        self.targets.iter().filter(of).flat_map(|target| target.ips.iter().copied()).collect()
    }

    /// The names of namespaces.
    pub(super) fn named(&self, chosen: &LabelSelector) -> BTreeSet<&str> {
        let chosen = self.world.namespaces.iter().filter(|n| labelled(chosen, n.metadata.labels.as_ref()));
        chosen.filter_map(|n| n.metadata.name.as_deref()).collect()
    }

    /// How a rule's ports are known: one alternative for each protocol's numbers, and for each name.
    fn ports(&mut self, ports: &[PortMatch]) -> Vec<String> {
        if ports.is_empty() {
            return vec![String::new()];
        }
        let mut numbers: BTreeMap<&str, Vec<(u16, u16)>> = BTreeMap::new();
        let mut found = Vec::new();
        for port in ports {
            match port {
                PortMatch::Protocol(protocol) => found.push(format!("meta l4proto {protocol} ")),
                PortMatch::Range(protocol, first, last) => {
                    numbers.entry(protocol).or_default().push((*first, *last));
                }
                PortMatch::Named(name, Some(protocol)) => found.push(self.named_port(name, protocol)),
                PortMatch::Named(name, None) => {
                    found.extend(["tcp", "udp", "sctp"].map(|protocol| self.named_port(name, protocol)));
                }
            }
        }
        for (protocol, ranges) in numbers {
            let text: Vec<String> = merged(ranges).into_iter().map(range).collect();
            found.push(format!("{protocol} dport {{ {} }} ", text.join(", ")));
        }
        found
    }

    /// A name means each destination pod's own port of that name and protocol.
    fn named_port(&mut self, name: &str, protocol: &str) -> String {
        let set = format!("port-{}", hashed(&format!("{name}/{protocol}")));
        let mut found = BTreeSet::new();
        for target in self.targets {
            let containers = target
                .pod
                .spec
                .iter()
                .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
            let ports = containers.flat_map(|container| container.ports.iter().flatten()).filter(|port| {
                let of = port.protocol.as_deref().unwrap_or("TCP");
                port.name.as_deref() == Some(name) && of.eq_ignore_ascii_case(protocol)
            });
            for port in ports.filter_map(|port| u16::try_from(port.container_port).ok()) {
                found.extend(target.ips.iter().map(|ip| (*ip, port)));
            }
        }
        self.plan.ports.insert(set.clone(), found);
        format!("{} daddr . {protocol} dport @{set} ", self.word())
    }
}

/// An interval set has no place for ranges that touch each other.
fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn range((first, last): (u16, u16)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

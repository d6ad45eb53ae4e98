//! From Pods, Namespaces and NetworkPolicies to the chains and sets of one node and one family.
//!
//! Policies are additive: a chain is everything that the policies of a pod and a direction let through, then a drop. Pods
//! on the node's own network are neither isolated nor selected as peers, as upstream leaves open; their traffic is the
//! node's.

use crate::family::Family;
use coracle_api::selector::LabelSelector;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Where the cluster's DNS is at home.
pub const DNS_NAMESPACE: &str = "kube-system";

/// What the API says.
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub node: &'a str,
    pub pods: &'a [Arc<Pod>],
    pub namespaces: &'a [Arc<Namespace>],
    pub policies: &'a [Arc<NetworkPolicy>],
    /// Where the cluster's DNS answers without being a Pod.
    pub resolvers: &'a [Resolver],
    /// The addresses that pods of this node are given, in the order of [`Family::ALL`]: one of them that no known pod has is
    /// let nowhere.
    pub ranges: [Option<IpNet>; 2],
}

/// A socket of the cluster's DNS. To policies it is port 53 of a pod `k8s-app: kube-dns` in kube-system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resolver {
    pub ip: IpAddr,
    pub port: u16,
    pub protocol: DnsProtocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsProtocol {
    Tcp,
    Udp,
}

impl DnsProtocol {
    const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    /// Of what upstream's Service calls its ports; no others are DNS.
    pub fn of_port(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.port_name() == name)
    }

    const fn port_name(self) -> &'static str {
        match self {
            Self::Tcp => "dns-tcp",
            Self::Udp => "dns",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    fn is_meant_by(self, port: &NetworkPolicyPort) -> bool {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let number = match &port.port {
            None => true,
            Some(IntOrString::Int(first)) => (*first..=port.end_port.unwrap_or(*first)).contains(&53),
            Some(IntOrString::String(name)) => name == self.port_name(),
        };
        number && protocol.eq_ignore_ascii_case(self.word())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The map's name, and the beginning of its chains'.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    const fn is_of(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }

    /// Where the pod itself stands in a packet.
    const fn own(self) -> &'static str {
        match self {
            Self::Ingress => "daddr",
            Self::Egress => "saddr",
        }
    }

    /// Where a packet's peer stands.
    const fn peer(self) -> &'static str {
        match self {
            Self::Ingress => "saddr",
            Self::Egress => "daddr",
        }
    }
}

/// Everything that is in force over one family. Equal plans mean equal tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Addresses by set.
    pub peers: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Addresses and ports by set: where a named port is found.
    pub ports: BTreeMap<String, BTreeSet<(IpAddr, u16)>>,
    /// Rules by chain.
    pub chains: BTreeMap<String, Vec<String>>,
    /// The chain that judges what goes to (ingress) or comes from (egress) an isolated pod of this node.
    pub isolated: BTreeMap<(Direction, IpAddr), String>,
    /// Rules for what no policy has judged yet.
    pub gate: Vec<String>,
    /// The pods of this node that all policies are in force for.
    pub judged: BTreeSet<IpAddr>,
}

/// A pod as policies see it.
struct Target<'a> {
    pod: &'a Pod,
    namespace: &'a str,
    ips: Vec<IpAddr>,
    local: bool,
}

/// The plan of one family.
pub fn plan(world: World<'_>, family: Family) -> Plan {
    let targets = targets(world, family);
    let mut planner = Planner { world, family, targets: &targets, plan: Plan::default() };
    for direction in Direction::ALL {
        planner.isolate(direction);
        planner.close(direction);
    }
    planner.plan
}

/// An address belongs to the pod that was made last: an earlier one that has it has ended, and says so later.
fn targets<'a>(world: World<'a>, family: Family) -> Vec<Target<'a>> {
    let mut newest: BTreeMap<IpAddr, &Pod> = BTreeMap::new();
    let mut pods: Vec<&Pod> = world.pods.iter().map(Arc::as_ref).filter(|pod| has_own_network(pod)).collect();
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|at| at.0));
    for pod in &pods {
        newest.extend(addresses(pod, family).into_iter().map(|ip| (ip, *pod)));
    }
    let target = |pod: &'a Pod| Target {
        pod,
        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
        ips: addresses(pod, family)
            .into_iter()
            .filter(|ip| newest.get(ip).is_some_and(|owner| std::ptr::eq(*owner, pod)))
            .collect(),
        local: pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(world.node),
    };
    pods.into_iter().map(target).filter(|target| !target.ips.is_empty()).collect()
}

fn has_own_network(pod: &Pod) -> bool {
    let on_node = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !on_node && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn addresses(pod: &Pod, family: Family) -> Vec<IpAddr> {
    let ips = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    let ips = ips.filter_map(|ip| ip.ip.parse::<IpAddr>().ok());
    ips.filter(|ip| Family::of(*ip) == family).collect()
}

fn labelled(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    selector.matches_with(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
}

/// The API server has judged selectors; one that cannot be read all the same selects nothing.
fn selector(of: &meta::LabelSelector) -> LabelSelector {
    let object = serde_json::to_value(of).unwrap_or_default();
    LabelSelector::from_object(&object).unwrap_or_else(|_| LabelSelector::nothing())
}

/// `policyTypes`, or what upstream takes for it: always Ingress, and Egress where there are rules for it.
fn is_about(policy: &NetworkPolicy, direction: Direction) -> bool {
    let Some(spec) = &policy.spec else { return direction == Direction::Ingress };
    match spec.policy_types.as_deref() {
        Some(types) if !types.is_empty() => types.iter().any(|name| name == direction.is_of()),
        _ => direction == Direction::Ingress || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
    }
}

/// A rule of either direction: peers and ports.
type Rule<'a> = (&'a [NetworkPolicyPeer], &'a [NetworkPolicyPort]);

fn rules(policy: &NetworkPolicy, direction: Direction) -> Vec<Rule<'_>> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    fn of<T>(list: Option<&Vec<T>>) -> &[T] {
        list.map(Vec::as_slice).unwrap_or_default()
    }
    match direction {
        Direction::Ingress => of(spec.ingress.as_ref())
            .iter()
            .map(|rule| (of(rule.from.as_ref()), of(rule.ports.as_ref())))
            .collect(),
        Direction::Egress => of(spec.egress.as_ref())
            .iter()
            .map(|rule| (of(rule.to.as_ref()), of(rule.ports.as_ref())))
            .collect(),
    }
}

struct Planner<'a> {
    world: World<'a>,
    family: Family,
    targets: &'a [Target<'a>],
    plan: Plan,
}

impl Planner<'_> {
    fn isolate(&mut self, direction: Direction) {
        let mut by_pod: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for policy in self.world.policies.iter().filter(|policy| is_about(policy, direction)) {
            let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
            let chosen = policy.spec.as_ref().and_then(|spec| spec.pod_selector.as_ref());
            let chosen = chosen.map_or_else(LabelSelector::everything, selector);
            let is_chosen = |target: &Target<'_>| {
                target.local
                    && target.namespace == namespace
                    && labelled(&chosen, target.pod.metadata.labels.as_ref())
            };
            let pods: Vec<usize> =
                (0..self.targets.len()).filter(|at| is_chosen(&self.targets[*at])).collect();
            if pods.is_empty() {
                continue;
            }
            let lines = self.lines(policy, namespace, direction);
            for at in pods {
                by_pod.entry(at).or_default().extend(lines.iter().cloned());
            }
        }
        for (at, mut lines) in by_pod {
            lines.sort();
            lines.dedup();
            lines.push("drop".to_owned());
            let name = format!("{}-{}", direction.name(), hashed(&lines.join("\n")));
            for ip in &self.targets[at].ips {
                self.plan.isolated.insert((direction, *ip), name.clone());
            }
            self.plan.chains.entry(name).or_insert(lines);
        }
    }

    /// A pod's first packet may be sent before it is known whose it is: it waits until that is known, as far as there
    /// are policies of the direction at all.
    fn close(&mut self, direction: Direction) {
        let local = self.targets.iter().filter(|target| target.local);
        self.plan.judged = local.flat_map(|target| target.ips.iter().copied()).collect();
        let range =
            self.world.ranges.into_iter().flatten().find(|range| Family::of(range.addr()) == self.family);
        if let Some(range) = range
            && self.world.policies.iter().any(|policy| is_about(policy, direction))
        {
            let field = format!("{} {}", self.word(), direction.own());
            self.plan.gate.push(format!("{field} {range} {field} != @judged drop"));
        }
    }

    /// What one policy lets through.
    fn lines(&mut self, policy: &NetworkPolicy, namespace: &str, direction: Direction) -> Vec<String> {
        let mut lines = Vec::new();
        for (peers, ports) in rules(policy, direction) {
            if direction == Direction::Egress {
                lines.extend(self.dns(peers, ports, namespace));
            }
            let peers: Vec<String> = match peers {
                [] => vec![String::new()],
                peers => peers.iter().filter_map(|peer| self.peer(peer, namespace, direction)).collect(),
            };
            let ports = self.ports(ports);
            for peer in &peers {
                lines.extend(ports.iter().map(|port| format!("{peer}{port}return")));
            }
        }
        lines
    }

    fn word(&self) -> &'static str {
        crate::nftables::family_word(self.family)
    }

    /// What a rule lets through to the cluster's DNS, and to nothing else of the machine that it answers on.
    fn dns(
        &mut self,
        peers: &[NetworkPolicyPeer],
        ports: &[NetworkPolicyPort],
        namespace: &str,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for protocol in DnsProtocol::ALL {
            let of_protocol = self.world.resolvers.iter().filter(|r| r.protocol == protocol);
            let sockets: BTreeSet<(IpAddr, u16)> =
                of_protocol.filter(|r| Family::of(r.ip) == self.family).map(|r| (r.ip, r.port)).collect();
            let is_meant = ports.is_empty() || ports.iter().any(|port| protocol.is_meant_by(port));
            if sockets.is_empty() || !is_meant {
                continue;
            }
            // No name of a port has a slash.
            let set = format!("port-{}", hashed(&format!("53//{}", protocol.word())));
            let to = format!("{} daddr . {} dport @{set} return", self.word(), protocol.word());
            self.plan.ports.insert(set, sockets);
            match peers {
                [] => lines.push(to),
                peers => lines.extend(
                    peers
                        .iter()
                        .filter_map(|peer| self.resolver(peer, namespace))
                        .map(|who| format!("{who}{to}")),
                ),
            }
        }
        lines
    }

    /// How packets to the cluster's DNS are known by a peer; `None`: the peer is another.
    fn resolver(&mut self, peer: &NetworkPolicyPeer, namespace: &str) -> Option<String> {
        if peer.ip_block.is_some() {
            return self.peer(peer, namespace, Direction::Egress);
        }
        let of_namespace = match &peer.namespace_selector {
            None => namespace == DNS_NAMESPACE,
            Some(chosen) => {
                let mut all = self.world.namespaces.iter();
                let own = all.find(|n| n.metadata.name.as_deref() == Some(DNS_NAMESPACE));
                own.is_some_and(|own| labelled(&selector(chosen), own.metadata.labels.as_ref()))
            }
        };
        let labels = BTreeMap::from([("k8s-app".to_owned(), "kube-dns".to_owned())]);
        let of_pod =
            peer.pod_selector.as_ref().is_none_or(|chosen| labelled(&selector(chosen), Some(&labels)));
        (of_namespace && of_pod).then(String::new)
    }

    /// How a peer's packets are known; `None`: it has none of this family.
    fn peer(&mut self, peer: &NetworkPolicyPeer, namespace: &str, direction: Direction) -> Option<String> {
        let field = format!("{} {}", self.word(), direction.peer());
        if let Some(block) = &peer.ip_block {
            let of_family = |text: &str| {
                let net = text.parse::<IpNet>().ok()?.trunc();
                (Family::of(net.addr()) == self.family).then_some(net)
            };
            let cidr = of_family(&block.cidr)?;
            let except: Vec<IpNet> =
                block.except.iter().flatten().filter_map(|text| of_family(text)).collect();
            let except: Vec<String> = IpNet::aggregate(&except).iter().map(IpNet::to_string).collect();
            let but = match except.as_slice() {
                [] => String::new(),
                nets => format!("{field} != {{ {} }} ", nets.join(", ")),
            };
            return Some(format!("{field} {cidr} {but}"));
        }
        let (pods, namespaces) = (peer.pod_selector.as_ref(), peer.namespace_selector.as_ref());
        let scope = namespaces.is_none().then_some(namespace);
        let key = serde_json::json!([scope, namespaces, pods]).to_string();
        let name = format!("peers-{}", hashed(&key));
        if !self.plan.peers.contains_key(&name) {
            let found = self.found(scope, namespaces, pods);
            self.plan.peers.insert(name.clone(), found);
        }
        Some(format!("{field} @{name} "))
    }

    fn found(
        &self,
        scope: Option<&str>,
        namespaces: Option<&meta::LabelSelector>,
        pods: Option<&meta::LabelSelector>,
    ) -> BTreeSet<IpAddr> {
        let pods = pods.map_or_else(LabelSelector::everything, selector);
        let wanted: BTreeSet<&str> = match (scope, namespaces.map(selector)) {
            (Some(own), _) => BTreeSet::from([own]),
            (None, chosen) => {
                let chosen = chosen.unwrap_or_else(LabelSelector::nothing);
                let named =
                    self.world.namespaces.iter().filter(|n| labelled(&chosen, n.metadata.labels.as_ref()));
                named.filter_map(|n| n.metadata.name.as_deref()).collect()
            }
        };
        let of = |target: &&Target<'_>| {
            wanted.contains(target.namespace) && labelled(&pods, target.pod.metadata.labels.as_ref())
        };
        self.targets.iter().filter(of).flat_map(|target| target.ips.iter().copied()).collect()
    }

    /// How a rule's ports are known: one alternative for each protocol's numbers, and for each name.
    fn ports(&mut self, ports: &[NetworkPolicyPort]) -> Vec<String> {
        if ports.is_empty() {
            return vec![String::new()];
        }
        let mut numbers: BTreeMap<String, Vec<(u16, u16)>> = BTreeMap::new();
        let mut found = Vec::new();
        for port in ports {
            let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
            match &port.port {
                None => found.push(format!("meta l4proto {protocol} ")),
                Some(IntOrString::Int(first)) => {
                    let last = port.end_port.unwrap_or(*first);
                    if let (Ok(first), Ok(last)) = (u16::try_from(*first), u16::try_from(last)) {
                        numbers.entry(protocol).or_default().push((first, last));
                    }
                }
                Some(IntOrString::String(name)) => found.push(self.named_port(name, &protocol)),
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

/// Twelve bytes are enough that no two of a cluster's are the same by chance.
fn hashed(text: &str) -> String {
    coracle_api::hex::text(&Sha256::digest(text.as_bytes())[..12])
}

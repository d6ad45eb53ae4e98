//! What NetworkPolicies say.

use super::targets::{labelled, selector};
use super::{Direction, PASSES, PolicyPlanner};
use crate::policy::model::{Peer, Peers, PortMatch};
use coracle_api::selector::LabelSelector;
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// `policyTypes`, or what upstream takes for it: always Ingress, and Egress where there are rules for it.
pub(super) fn is_about(policy: &NetworkPolicy, direction: Direction) -> bool {
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

/// `None`: no port has such a number; the API server lets none through.
fn port_of(port: &NetworkPolicyPort) -> Option<PortMatch> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
    Some(match &port.port {
        None => PortMatch::Protocol(protocol),
        Some(IntOrString::String(name)) => PortMatch::Named(name.clone(), Some(protocol)),
        Some(IntOrString::Int(first)) => {
            let last = port.end_port.unwrap_or(*first);
            PortMatch::Range(protocol, u16::try_from(*first).ok()?, u16::try_from(last).ok()?)
        }
    })
}

/// `None`: the block is no network.
fn peer_of(peer: &NetworkPolicyPeer, namespace: &str) -> Option<Peer> {
    let net = |text: &String| Some(text.parse::<IpNet>().ok()?.trunc());
    if let Some(block) = &peer.ip_block {
        let except = block.except.iter().flatten().filter_map(net).collect();
        return Some(Peer::Networks { nets: vec![net(&block.cidr)?], except });
    }
    let (pods, namespaces) = (peer.pod_selector.clone(), peer.namespace_selector.clone());
    Some(Peer::Pods { scope: namespaces.is_none().then(|| namespace.to_owned()), namespaces, pods })
}

impl PolicyPlanner<'_> {
    /// What NetworkPolicies let through, by the pods of this node that they isolate (their places among the targets).
    pub(super) fn isolating(&mut self, direction: Direction) -> BTreeMap<usize, Vec<String>> {
        let mut by_pod: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for policy in self.world.policies.iter().filter(|policy| is_about(policy, direction)) {
            let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
            let chosen = policy.spec.as_ref().and_then(|spec| spec.pod_selector.as_ref());
            let chosen = chosen.map_or_else(LabelSelector::everything, selector);
            let pods = self.local(|target| {
                target.namespace == namespace && labelled(&chosen, target.pod.metadata.labels.as_ref())
            });
            if pods.is_empty() {
                continue;
            }
            let lines = self.lines(policy, namespace, direction);
            for at in pods {
                by_pod.entry(at).or_default().extend(lines.iter().cloned());
            }
        }
        by_pod
    }

    /// What one policy lets through.
    fn lines(&mut self, policy: &NetworkPolicy, namespace: &str, direction: Direction) -> Vec<String> {
        let mut lines = Vec::new();
        for (peers, ports) in rules(policy, direction) {
            let known: Vec<PortMatch> = ports.iter().filter_map(port_of).collect();
            if known.is_empty() && !ports.is_empty() {
                continue;
            }
            let peers = match peers {
                [] => Peers::Everybody,
                peers => Peers::These(peers.iter().filter_map(|peer| peer_of(peer, namespace)).collect()),
            };
            lines.extend(self.rule(&peers, &known, direction, PASSES));
        }
        lines
    }
}

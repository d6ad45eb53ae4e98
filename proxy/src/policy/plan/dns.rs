//! The cluster's DNS where it is no pod, and is one to policies all the same.

use super::targets::{labelled, selector};
use super::{PolicyPlanner, hashed};
use crate::family::Family;
use crate::policy::model::{Peer, Peers, PortMatch};
use crate::policy::plan::Direction;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Where the cluster's DNS is at home.
pub const DNS_NAMESPACE: &str = "kube-system";

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

    fn is_meant_by(self, port: &PortMatch) -> bool {
        match port {
            PortMatch::Protocol(protocol) => protocol == self.word(),
            PortMatch::Range(protocol, first, last) => {
                protocol == self.word() && (*first..=*last).contains(&53)
            }
            PortMatch::Named(name, protocol) => {
                name == self.port_name() && protocol.as_ref().is_none_or(|of| of == self.word())
            }
        }
    }
}

impl PolicyPlanner<'_> {
    /// What a rule says of the cluster's DNS, and of nothing else of the machine that it answers on.
    pub(super) fn dns(&mut self, peers: &Peers, ports: &[PortMatch], verdict: &str) -> Vec<String> {
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
            let to = format!("{} daddr . {} dport @{set} {verdict}", self.word(), protocol.word());
            self.plan.ports.insert(set, sockets);
            match peers {
                Peers::Everybody => lines.push(to),
                Peers::These(peers) => lines.extend(
                    peers.iter().filter_map(|peer| self.resolver(peer)).map(|who| format!("{who}{to}")),
                ),
            }
        }
        lines
    }

    /// How packets to the cluster's DNS are known by a peer; `None`: the peer is another.
    fn resolver(&mut self, peer: &Peer) -> Option<String> {
        let Peer::Pods { scope, namespaces, pods } = peer else {
            return self.peer(peer, Direction::Egress);
        };
        let of_namespace = match (scope, namespaces) {
            (Some(scope), _) => scope == DNS_NAMESPACE,
            (None, None) => false,
            (None, Some(chosen)) => {
                let mut all = self.world.namespaces.iter();
                let own = all.find(|n| n.metadata.name.as_deref() == Some(DNS_NAMESPACE));
                own.is_some_and(|own| labelled(&selector(chosen), own.metadata.labels.as_ref()))
            }
        };
        let labels = BTreeMap::from([("k8s-app".to_owned(), "kube-dns".to_owned())]);
        let of_pod = pods.as_ref().is_none_or(|chosen| labelled(&selector(chosen), Some(&labels)));
        (of_namespace && of_pod).then(String::new)
    }
}

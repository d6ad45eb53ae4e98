//! What a plan comes to in this mode: virtual servers, addresses, and the elements of the table's sets.

use super::servers::{Choice, FALLBACK, Key, PERSISTENT, Real, Server, Servers, WITH_PORT, protocol};
use crate::model::{Endpoint, ServicePort};
use crate::plan::{Plan, Settings};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Entrances by kind, under kube-proxy's names: whose traffic is masqueraded for coming from no pod, always, or for coming
/// from this machine. All of these are virtual servers.
pub const CLUSTER_IP: &str = "KUBE-CLUSTER-IP";
pub const EXTERNAL: [&str; 3] = ["KUBE-EXTERNAL-IP", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT"];
pub const EXTERNAL_LOCAL: [&str; 3] =
    ["KUBE-EXTERNAL-IP-LOCAL", "KUBE-LOAD-BALANCER-LOCAL", "KUBE-NODE-PORT-LOCAL"];
/// Entrances that only source ranges may use, and the ranges.
pub const GUARDED: &str = "KUBE-LOAD-BALANCER-FW";
pub const SOURCES: &str = "KUBE-LOAD-BALANCER-SOURCE-CIDR";
/// Endpoints that reach themselves.
pub const LOOP_BACK: &str = "KUBE-LOOP-BACK";
/// The addresses on the interface.
pub const IPS: &str = "KUBE-IPVS-IPS";
/// Entrances whose traffic must stay here, where no endpoint is: nobody's, and nobody's from outside.
pub const NO_LOCAL: &str = "KUBE-NO-LOCAL";
pub const EXTERNAL_NO_LOCAL: &str = "KUBE-EXTERNAL-NO-LOCAL";

/// Elements by set.
pub type Sets = BTreeMap<&'static str, BTreeSet<String>>;

#[derive(Debug, Default, PartialEq)]
pub struct Wanted {
    pub servers: Servers,
    pub addresses: BTreeSet<IpAddr>,
    pub sets: Sets,
}

/// An entrance as sets have it.
pub fn element(key: &Key) -> String {
    let protocol = match key.protocol {
        super::servers::UDP => "udp",
        super::servers::SCTP => "sctp",
        _ => "tcp",
    };
    format!("{} . {protocol} . {}", key.ip, key.port)
}

/// The entrances that a listing of sets names. Programs without a list of protocols print their numbers.
pub fn keys_in(listing: &str) -> BTreeSet<Key> {
    let elements = listing.split(['{', '}', ',', '\n']).map(str::trim);
    let read = |element: &str| {
        let words: Vec<&str> = element.split(" . ").collect();
        let [ip, name, port] = words.as_slice() else { return None };
        let protocol = name.parse().unwrap_or_else(|_| protocol(name));
        Some(Key { protocol, ip: ip.parse().ok()?, port: port.parse().ok()? })
    };
    elements.filter_map(read).collect()
}

impl Wanted {
    /// `nodes`: the addresses of this machine that node ports answer on. Of two Services that want the same entrance the
    /// first one by name has it.
    pub fn new(plan: &Plan, nodes: &BTreeSet<IpAddr>) -> Self {
        let mut wanted = Self::default();
        // A Service's own address wins over whatever else claims it.
        for port in plan.ports() {
            wanted.internal(port, &plan.settings);
        }
        for port in plan.ports() {
            wanted.external(port, nodes, &plan.settings);
        }
        wanted
    }

    fn put(&mut self, set: &'static str, element: String) {
        self.sets.entry(set).or_default().insert(element);
    }

    fn internal(&mut self, port: &ServicePort, settings: &Settings) {
        let key = Key { protocol: protocol(&port.name.protocol), ip: port.cluster_ip, port: port.port };
        let (cluster, local) = (port.cluster_endpoints(), port.local_endpoints());
        let endpoints = if port.internal_local { &local } else { &cluster };
        self.address(key.ip);
        if !self.serve(key, CLUSTER_IP, port, endpoints, settings) {
            return;
        }
        if endpoints.is_empty() && !cluster.is_empty() {
            self.put(NO_LOCAL, element(&key));
        }
    }

    fn external(&mut self, port: &ServicePort, nodes: &BTreeSet<IpAddr>, settings: &Settings) {
        let (cluster, local) = (port.cluster_endpoints(), port.local_endpoints());
        let only_elsewhere = port.external_local && local.is_empty() && !cluster.is_empty();
        // Endpoints on other nodes only: pods and this machine may still use them, others meet silence.
        let endpoints = if port.external_local && !only_elsewhere { &local } else { &cluster };
        let names = if port.external_local { EXTERNAL_LOCAL } else { EXTERNAL };
        let own = |ip: &IpAddr| (*ip, port.port);
        let node_ports: Vec<_> =
            nodes.iter().filter(|_| port.node_port != 0).map(|ip| (*ip, port.node_port)).collect();
        let kinds = [
            port.external_ips.iter().map(own).collect(),
            port.guarded_ips.iter().map(own).collect(),
            node_ports,
        ];
        for (at, entrances) in kinds.into_iter().enumerate() {
            for (ip, number) in entrances {
                let key = Key { protocol: protocol(&port.name.protocol), ip, port: number };
                if !self.serve(key, names[at], port, endpoints, settings) {
                    continue;
                }
                if !nodes.contains(&ip) {
                    self.address(ip);
                }
                if only_elsewhere {
                    self.put(EXTERNAL_NO_LOCAL, element(&key));
                }
                if port.guarded_ips.contains(&ip) {
                    self.restrict_sources(&key, &port.sources);
                }
            }
        }
    }

    fn address(&mut self, ip: IpAddr) {
        self.addresses.insert(ip);
        self.put(IPS, ip.to_string());
    }

    /// Whether the entrance was free.
    fn serve(
        &mut self,
        key: Key,
        set: &'static str,
        port: &ServicePort,
        endpoints: &[&Endpoint],
        settings: &Settings,
    ) -> bool {
        if self.servers.contains_key(&key) {
            return false;
        }
        let reals = endpoints.iter().map(|e| (SocketAddr::new(e.ip, e.port), Real::WANTED)).collect();
        self.servers.insert(key, Server { choice: choice(port, settings), reals });
        self.put(set, element(&key));
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.local) {
            let at = element(&Key { ip: endpoint.ip, port: endpoint.port, ..key });
            self.put(LOOP_BACK, format!("{at} . {}", endpoint.ip));
        }
        true
    }

    /// Ranges within others are left out: the kernel's sets refuse them.
    fn restrict_sources(&mut self, key: &Key, sources: &[String]) {
        self.put(GUARDED, element(key));
        let ranges = sources.iter().filter_map(|range| range.parse::<IpNet>().ok()).collect();
        for range in IpNet::aggregate(&ranges) {
            self.put(SOURCES, format!("{} . {range}", element(key)));
        }
    }
}

fn choice(port: &ServicePort, settings: &Settings) -> Choice {
    let scheduler = settings.ipvs.scheduler.clone();
    let persistent = if port.affinity_seconds > 0 { PERSISTENT } else { 0 };
    let flags = match scheduler.as_str() {
        "sh" => FALLBACK,
        "mh" => FALLBACK | WITH_PORT,
        _ => 0,
    };
    Choice { scheduler, flags: flags | persistent, timeout: port.affinity_seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::iptables::rules::tests::port;
    use coracle_client::ObjectKey;
    use std::sync::Arc;

    fn wanted(change: impl FnOnce(&mut ServicePort)) -> (ServicePort, Wanted) {
        let mut web = port(&[("10.42.0.2", true), ("10.42.1.3", false)]);
        change(&mut web);
        let mut plan = Plan::empty(Family::V4);
        plan.services.insert(ObjectKey::new("d", "web"), Arc::new(vec![web.clone()]));
        let nodes = BTreeSet::from([IpAddr::from([192, 0, 2, 1])]);
        (web, Wanted::new(&plan, &nodes))
    }

    #[test]
    fn every_entrance_is_a_virtual_server() {
        let (web, wanted) = wanted(|web| {
            web.node_port = 30080;
            web.external_ips = vec![[198, 51, 100, 7].into()];
        });
        let at: Vec<_> = wanted.servers.keys().map(|key| (key.ip, key.port)).collect();
        let mut expected =
            vec![(web.cluster_ip, web.port), (web.external_ips[0], web.port), ([192, 0, 2, 1].into(), 30080)];
        expected.sort();
        assert_eq!(at, expected);
        assert!(wanted.servers.values().all(|server| server.reals.len() == 2));
        assert_eq!(wanted.addresses, BTreeSet::from([web.cluster_ip, web.external_ips[0]]));
        // The sets are the record of what is ours.
        let listing: String = [CLUSTER_IP]
            .iter()
            .chain(&EXTERNAL)
            .map(|set| {
                let elements: Vec<_> = wanted.sets[set_or(set, &wanted.sets)].iter().cloned().collect();
                format!("elements = {{ {} }}\n", elements.join(",\n"))
            })
            .collect();
        assert!(wanted.servers.keys().all(|key| keys_in(&listing).contains(key)), "{listing}");
    }

    fn set_or<'a>(set: &'a str, sets: &Sets) -> &'a str {
        if sets.contains_key(set) { set } else { CLUSTER_IP }
    }

    #[test]
    fn traffic_that_must_stay_here_has_local_endpoints_only() {
        let (_, with_local) = wanted(|web| {
            (web.node_port, web.external_local, web.internal_local) = (30080, true, true);
        });
        assert!(with_local.servers.values().all(|server| server.reals.len() == 1));
        assert!(!with_local.sets.contains_key(NO_LOCAL));
        let (web, none) = wanted(|web| {
            (web.node_port, web.external_local, web.internal_local) = (30080, true, true);
            web.endpoints.retain(|endpoint| !endpoint.local);
        });
        assert!(none.sets[NO_LOCAL].contains(&format!("{} . tcp . {}", web.cluster_ip, web.port)));
        assert!(none.sets[EXTERNAL_NO_LOCAL].contains("192.0.2.1 . tcp . 30080"));
    }

    #[test]
    fn numbers_of_protocols_are_read_too() {
        let key = Key { protocol: 17, ip: [10, 43, 0, 10].into(), port: 53 };
        assert_eq!(keys_in("elements = { 10.43.0.10 . 17 . 53 }"), BTreeSet::from([key]));
        assert!(
            keys_in("elements = { 10.42.0.2 . tcp . 80 . 10.42.0.2 }\n type ipv4_addr . inet_proto")
                .is_empty()
        );
    }
}

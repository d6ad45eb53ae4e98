//! What a Service is in the table: entries of its maps and sets, and chains.
//!
//! Entries of several Services may be the same (an address with two ports, an endpoint of two Services): they are counted.
//! Chains are named by what is in them, so one name never means two things.

use super::base::family_word;
use crate::family::Family;
use crate::model::{Endpoint, ServicePort};
use crate::plan::{LocalDetector, Settings};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Of a set or a map; those of endpoints are by protocol.
pub type Name = std::borrow::Cow<'static, str>;

/// An entry of a set (no value) or a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub map: Name,
    pub key: String,
    pub value: String,
}

/// A chain or a set of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// Its declaration, behind its name.
    Set(String),
    /// Its rules.
    Chain(Vec<String>),
}

/// All that some Services need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// With how often each is needed.
    pub entries: BTreeMap<Entry, usize>,
    /// By name, with how often each is needed.
    pub things: BTreeMap<String, (Thing, usize)>,
}

impl Entries {
    fn entry(&mut self, map: impl Into<Name>, key: String, value: String) {
        *self.entries.entry(Entry { map: map.into(), key, value }).or_default() += 1;
    }

    /// The entry of a key that is in force: two Services may claim the same address and port, and a map has one value.
    pub fn first(&self, map: &Name, key: &str) -> Option<&Entry> {
        let from = Entry { map: map.clone(), key: key.to_owned(), value: String::new() };
        let (entry, _) = self.entries.range(from..).next()?;
        (entry.map == *map && entry.key == key).then_some(entry)
    }

    /// All entries that are in force.
    pub fn in_force(&self) -> impl Iterator<Item = &Entry> {
        let mut last: Option<&Entry> = None;
        self.entries.keys().filter(move |entry| {
            let claimed = last.is_some_and(|last| last.map == entry.map && last.key == entry.key);
            last = Some(entry);
            !claimed
        })
    }

    fn thing(&mut self, name: String, thing: Thing) {
        self.things.entry(name).or_insert((thing, 0)).1 += 1;
    }
}

/// The maps that an entrance's traffic is looked up in.
#[derive(Clone, Copy)]
struct Door {
    verdicts: &'static str,
    refusals: &'static str,
    endpoints: &'static str,
    local_endpoints: &'static str,
}

const ADDRESS: Door = Door {
    verdicts: "service-ips",
    refusals: "no-endpoint-services",
    endpoints: "endpoints",
    local_endpoints: "local-endpoints",
};
const NODE_PORT: Door = Door {
    verdicts: "service-nodeports",
    refusals: "no-endpoint-nodeports",
    endpoints: "nodeport-endpoints",
    local_endpoints: "local-nodeport-endpoints",
};

/// The entries of one Service over one family.
pub fn of_service(ports: &[ServicePort], family: Family, settings: &Settings) -> Entries {
    let mut entries = Entries::default();
    for port in ports {
        Writer { out: &mut entries, port, family, settings }.write();
    }
    entries
}

struct Writer<'a> {
    out: &'a mut Entries,
    port: &'a ServicePort,
    family: Family,
    settings: &'a Settings,
}

impl Writer<'_> {
    fn write(&mut self) {
        let port = self.port;
        self.out.entry("cluster-ips", port.cluster_ip.to_string(), String::new());
        for endpoint in port.endpoints.iter().filter(|e| e.local) {
            self.out.entry("hairpin", format!("{0} . {0}", endpoint.ip), String::new());
        }
        self.internal();
        let protocol = &port.name.protocol;
        for ip in port.external_ips.iter().chain(&port.guarded_ips) {
            self.external(ADDRESS, Some(*ip), port.port);
        }
        if port.node_port != 0 {
            self.external(NODE_PORT, None, port.node_port);
        }
        for ip in &port.guarded_ips {
            let key = format!("{ip} . {protocol} . {}", port.port);
            // An interval set has no place for networks within networks.
            let sources = port.sources.iter().filter_map(|s| s.parse::<ipnet::IpNet>().ok());
            for source in ipnet::IpNet::aggregate(&sources.map(|net| net.trunc()).collect()) {
                self.out.entry("allowed-sources", format!("{key} . {source}"), String::new());
            }
            self.out.entry("guarded-ips", key, String::new());
        }
    }

    fn internal(&mut self) {
        let port = self.port;
        let (ip, number) = (Some(port.cluster_ip), port.port);
        let key = self.key(ip, number);
        let endpoints = if port.internal_local { port.local_endpoints() } else { port.cluster_endpoints() };
        if endpoints.is_empty() {
            return self.refuse(ADDRESS, key);
        }
        let map = if port.internal_local { ADDRESS.local_endpoints } else { ADDRESS.endpoints };
        let to = self.pick(map, ip, number, &endpoints);
        self.out.entry(ADDRESS.verdicts, key, format!("goto {to}"));
    }

    /// Nothing is behind the Service: the client is told. Nothing here but elsewhere is silence, as upstream.
    fn refuse(&mut self, door: Door, key: String) {
        let none = self.port.cluster_endpoints().is_empty();
        let verdict = if none { "goto reject-chain" } else { "drop" };
        self.out.entry(door.refusals, key, verdict.to_owned());
    }

    fn external(&mut self, door: Door, ip: Option<IpAddr>, number: u16) {
        let (port, key) = (self.port, self.key(ip, number));
        let (cluster, local) = (port.cluster_endpoints(), port.local_endpoints());
        let near = if port.external_local { &local } else { &cluster };
        if near.is_empty() {
            self.refuse(door, key.clone());
        }
        if cluster.is_empty() && near.is_empty() {
            return;
        }
        let to_cluster = (!cluster.is_empty()).then(|| self.pick(door.endpoints, ip, number, &cluster));
        let mut rules = Vec::new();
        match (&to_cluster, port.external_local) {
            (Some(to), false) => rules.extend(["jump mark-for-masquerade".to_owned(), format!("goto {to}")]),
            // Pods and the node itself may use any endpoint; traffic from outside keeps its source and stays here.
            (Some(to), true) => {
                rules.extend(self.pods().map(|pods| format!("{pods} goto {to}")));
                rules.push("fib saddr type local jump mark-for-masquerade".to_owned());
                rules.push(format!("fib saddr type local goto {to}"));
            }
            (None, _) => {}
        }
        if port.external_local && !local.is_empty() {
            let to = self.pick(door.local_endpoints, ip, number, &local);
            rules.push(format!("goto {to}"));
        }
        let name = self.named("external", &rules);
        self.out.thing(name.clone(), Thing::Chain(rules));
        self.out.entry(door.verdicts, key, format!("goto {name}"));
    }

    fn pods(&self) -> Option<String> {
        match &self.settings.local {
            LocalDetector::None => None,
            LocalDetector::Cidr(cidr) => Some(format!("{} saddr {cidr}", family_word(self.family))),
            LocalDetector::BridgeInterface(name) => Some(format!("iifname \"{name}\"")),
            LocalDetector::InterfaceNamePrefix(prefix) => Some(format!("iifname \"{prefix}*\"")),
        }
    }

    /// The chain that sends on to one of the endpoints.
    fn pick(&mut self, map: &str, ip: Option<IpAddr>, number: u16, endpoints: &[&Endpoint]) -> String {
        if self.port.affinity_seconds > 0 {
            return self.sticky(endpoints);
        }
        let (family, count, protocol) = (family_word(self.family), endpoints.len(), &self.port.name.protocol);
        let map = format!("{map}-{protocol}");
        let address = ip.map_or(String::new(), |ip| format!("{ip} . "));
        for (at, endpoint) in endpoints.iter().enumerate() {
            self.out.entry(map.clone(), format!("{address}{number} . {at}"), target(endpoint));
        }
        let address = if ip.is_some() { format!("{family} daddr . ") } else { String::new() };
        let name = format!("{map}-{count}");
        let rule =
            format!("dnat {family} to {address}{protocol} dport . numgen random mod {count} map @{map}");
        self.out.thing(name.clone(), Thing::Chain(vec![rule]));
        name
    }

    /// How an entrance is looked up: node ports have no address.
    fn key(&self, ip: Option<IpAddr>, number: u16) -> String {
        let address = ip.map_or(String::new(), |ip| format!("{ip} . "));
        format!("{address}{} . {number}", self.port.name.protocol)
    }

    /// The same for clients that keep their endpoint: a set for each endpoint holds whom it served last.
    fn sticky(&mut self, endpoints: &[&Endpoint]) -> String {
        let (ip, port) = (family_word(self.family), self.port);
        let mut rules = Vec::new();
        let mut spread = Vec::new();
        for (at, endpoint) in endpoints.iter().enumerate() {
            let whose = format!("{}/{}", port.name.label(), port.name.protocol);
            let seconds = port.affinity_seconds;
            let id = hashed(&format!("{whose} {} {seconds}", target(endpoint)));
            let (set, chain) = (format!("affinity-{id}"), format!("endpoint-{id}"));
            let address = if self.family == Family::V4 { "ipv4_addr" } else { "ipv6_addr" };
            let declaration =
                format!("{{ type {address}; flags dynamic,timeout; timeout {seconds}s; size 65535; }}");
            self.out.thing(set.clone(), Thing::Set(declaration));
            let protocol = &port.name.protocol;
            let socket = crate::family::socket(endpoint.ip, endpoint.port);
            let to = vec![
                format!("update @{set} {{ {ip} saddr }}"),
                format!("meta l4proto {protocol} dnat to {socket}"),
            ];
            self.out.thing(chain.clone(), Thing::Chain(to));
            rules.push(format!("{ip} saddr @{set} goto {chain}"));
            spread.push(format!("{at} : goto {chain}"));
        }
        rules.push(format!("numgen random mod {} vmap {{ {} }}", endpoints.len(), spread.join(", ")));
        let name = self.named("affinity-service", &rules);
        self.out.thing(name.clone(), Thing::Chain(rules));
        name
    }

    fn named(&self, kind: &str, rules: &[String]) -> String {
        format!("{kind}-{}", hashed(&rules.join("\n")))
    }
}

fn target(endpoint: &Endpoint) -> String {
    format!("{} . {}", endpoint.ip, endpoint.port)
}

/// Twelve bytes are enough that no two of a cluster's are the same by chance.
fn hashed(text: &str) -> String {
    coracle_api::hex::text(&Sha256::digest(text.as_bytes())[..12])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::rules::tests::{networks, port};

    fn text(port: ServicePort) -> Vec<String> {
        let entries = of_service(&[port], Family::V4, &networks());
        let entries = entries.entries.into_keys();
        entries.map(|e| format!("{} {} : {}", e.map, e.key, e.value)).collect()
    }

    #[test]
    fn a_service_is_entries_of_maps() {
        assert_eq!(
            text(port(&[("10.42.0.2", true), ("10.42.1.3", false)])),
            [
                "cluster-ips 10.43.0.9 : ",
                "endpoints-tcp 10.43.0.9 . 80 . 0 : 10.42.0.2 . 8080",
                "endpoints-tcp 10.43.0.9 . 80 . 1 : 10.42.1.3 . 8080",
                "hairpin 10.42.0.2 . 10.42.0.2 : ",
                "service-ips 10.43.0.9 . tcp . 80 : goto endpoints-tcp-2",
            ]
        );
        assert_eq!(
            text(port(&[])),
            ["cluster-ips 10.43.0.9 : ", "no-endpoint-services 10.43.0.9 . tcp . 80 : goto reject-chain"]
        );
    }

    #[test]
    fn services_with_as_many_endpoints_share_a_chain() {
        let entries = of_service(
            &[port(&[("10.42.0.2", true)]), port(&[("10.42.0.3", true)])],
            Family::V4,
            &networks(),
        );
        assert_eq!(entries.things.keys().collect::<Vec<_>>(), ["endpoints-tcp-1"]);
        assert_eq!(entries.things["endpoints-tcp-1"].1, 2);
    }

    #[test]
    fn of_two_claims_to_an_address_one_is_in_force() {
        let mut all = Entries::default();
        for value in ["goto b", "goto a"] {
            all.entry("service-ips", "192.0.2.1 . tcp . 80".to_owned(), value.to_owned());
        }
        assert_eq!(all.in_force().map(|entry| entry.value.as_str()).collect::<Vec<_>>(), ["goto a"]);
        assert_eq!(all.first(&"service-ips".into(), "192.0.2.1 . tcp . 80").expect("one").value, "goto a");
        assert!(all.first(&"service-ips".into(), "192.0.2.1 . tcp . 8").is_none());
    }

    #[test]
    fn local_policy_without_local_endpoints_is_silent_outside_and_open_inside() {
        let mut far = port(&[("10.42.1.2", false)]);
        far.node_port = 30080;
        far.external_local = true;
        let entries = of_service(&[far.clone()], Family::V4, &networks());
        let chain = entries.things.iter().find(|(name, _)| name.starts_with("external-")).expect("a chain");
        let Thing::Chain(rules) = &chain.1.0 else { panic!("{chain:?}") };
        assert!(rules[0].starts_with("ip saddr 10.42.0.0/16 goto") && rules.len() == 3, "{rules:?}");
        assert!(text(far).contains(&"no-endpoint-nodeports tcp . 30080 : drop".to_owned()));
    }
}

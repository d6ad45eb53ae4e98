//! What is to be done about the addresses that a node claims. Nothing here does I/O.

use crate::connect::{Guard, items, text};
use coracle_api::node_addresses::checked_of;
use coracle_api::validation::is_machine_address;
use coracle_api::{Object, meta};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Ports of `type: NodePort`: behind one of them may be anybody's pod, whoever's the address is.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// What a Node says of itself, and what was found of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub uid: String,
    /// The kubelet's; `None` for nodes without one, as simulated ones.
    pub port: Option<u16>,
    /// InternalIPs.
    pub addresses: BTreeSet<IpAddr>,
    pub ready: bool,
    /// What the annotation says.
    pub checked: BTreeSet<IpAddr>,
}

impl Claim {
    pub fn of(node: &Object) -> Self {
        let internal = items(node, "/status/addresses").iter().filter(|a| text(a, "/type") == "InternalIP");
        let addresses = internal.filter_map(|a| text(a, "/address").parse::<IpAddr>().ok());
        let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Object::as_u64);
        let ready = |c: &Object| c["type"] == "Ready" && c["status"] == "True";
        Self {
            name: meta::name(node).to_owned(),
            uid: text(node, "/metadata/uid").to_owned(),
            port: port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
            addresses: addresses.map(|ip| ip.to_canonical()).collect(),
            ready: items(node, "/status/conditions").iter().any(ready),
            checked: checked_of(node),
        }
    }

    /// Whether both say the same of where the node is.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.uid, self.port, &self.addresses) == (&other.uid, other.port, &other.addresses)
    }
}

/// What is known of an address without asking anybody there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server assigned it: its own.
    Assigned,
    /// The node's kubelet must be met there.
    Ask(u16),
    Refused(Reason),
}

/// Why nobody is asked at an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("no machine is reached there")]
    NoMachines,
    #[error("it belongs to the API server or to Services")]
    Ours,
    #[error("node {0} was met there")]
    Other(String),
    #[error("Service {0} has it among its externalIPs")]
    Service(String),
    #[error("the node has no kubelet")]
    NoKubelet,
    #[error("port {0} is one of Services of type NodePort")]
    NodePort(u16),
}

/// Judges one of the node's addresses. `others` are the claims of all nodes, `services` all Services.
pub fn judge<'a>(
    claim: &Claim,
    ip: IpAddr,
    others: impl Iterator<Item = &'a Claim>,
    services: &[impl AsRef<Object>],
    guard: &Guard,
) -> Verdict {
    if guard.is_own(&claim.name, ip) {
        return Verdict::Assigned;
    }
    if !is_machine_address(ip) {
        return Verdict::Refused(Reason::NoMachines);
    }
    if !guard.kubelet(&claim.name).allows(ip) {
        return Verdict::Refused(Reason::Ours);
    }
    let mut others = others.filter(|other| other.name != claim.name);
    // One that is gone leaves its address to whoever is met there.
    if let Some(other) = others.find(|o| o.ready && o.checked.contains(&ip) && o.addresses.contains(&ip)) {
        return Verdict::Refused(Reason::Other(other.name.clone()));
    }
    // The way to such an address leads to the Service's pods, which may be the node's.
    if let Some(service) = services.iter().map(AsRef::as_ref).find(|service| has_external(service, ip)) {
        let name = format!("{}/{}", text(service, "/metadata/namespace"), meta::name(service));
        return Verdict::Refused(Reason::Service(name));
    }
    match claim.port {
        None => Verdict::Refused(Reason::NoKubelet),
        Some(port) if NODE_PORTS.contains(&port) => Verdict::Refused(Reason::NodePort(port)),
        Some(port) => Verdict::Ask(port),
    }
}

fn has_external(service: &Object, ip: IpAddr) -> bool {
    let external = items(service, "/spec/externalIPs").iter().filter_map(Object::as_str);
    external.filter_map(|ip| ip.parse::<IpAddr>().ok()).any(|external| external.to_canonical() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_api::node_addresses::CHECKED_ADDRESSES;
    use serde_json::json;
    use std::sync::Arc;

    fn claim(name: &str, address: &str, port: u16, checked: &str, ready: &str) -> Claim {
        Claim::of(&json!({
            "metadata": { "name": name, "uid": name, "annotations": { CHECKED_ADDRESSES: checked } },
            "status": {
                "addresses": [{ "type": "Hostname", "address": "192.0.2.99" }, { "type": "InternalIP", "address": address }],
                "conditions": [{ "type": "Ready", "status": ready }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
            },
        }))
    }

    #[test]
    fn an_address_is_asked_at_unless_it_is_somebodys() {
        let guard = Guard {
            own_node: "box".to_owned(),
            service_networks: vec!["10.43.0.0/16".parse().unwrap()],
            own_names: Some(Arc::new(|| ["192.0.2.1", "box"].map(str::to_owned).into())),
        };
        let known = [
            claim("box", "192.0.2.1", 10_250, "192.0.2.1", "True"),
            claim("live", "192.0.2.3", 10_250, "192.0.2.3", "True"),
            claim("dead", "192.0.2.4", 10_250, "192.0.2.4", "Unknown"),
            claim("liar", "192.0.2.5", 10_250, "", "True"),
        ];
        let service = json!({ "metadata": { "name": "s", "namespace": "d" }, "spec": { "externalIPs": ["198.51.100.1"] } });
        let services = [Arc::new(service)];
        let of = |name: &str, address: &str, port: u16| {
            let claim = claim(name, address, port, "", "True");
            let ip = *claim.addresses.first().unwrap();
            judge(&claim, ip, known.iter(), &services, &guard)
        };
        use Reason::{NoKubelet, NoMachines, NodePort, Other, Ours, Service};
        assert_eq!(of("box", "192.0.2.1", 0), Verdict::Assigned);
        assert_eq!(of("two", "192.0.2.2", 10_250), Verdict::Ask(10_250));
        assert_eq!(of("two", "::ffff:192.0.2.2", 10_250), Verdict::Ask(10_250));
        // Who was not met there, or is away, keeps nobody from it.
        assert_eq!(of("two", "192.0.2.4", 10_250), Verdict::Ask(10_250));
        assert_eq!(of("two", "192.0.2.5", 10_250), Verdict::Ask(10_250));
        for (address, port, why) in [
            ("192.0.2.1", 10_250, Ours),
            ("10.43.0.10", 10_250, Ours),
            ("192.0.2.3", 10_250, Other("live".to_owned())),
            ("198.51.100.1", 10_250, Service("d/s".to_owned())),
            ("127.0.0.1", 10_250, NoMachines),
            ("169.254.169.254", 80, NoMachines),
            ("0.0.0.0", 10_250, NoMachines),
            ("198.51.100.7", 0, NoKubelet),
            ("198.51.100.7", 30_123, NodePort(30_123)),
        ] {
            assert_eq!(of("two", address, port), Verdict::Refused(why), "{address}:{port}");
        }
        assert_eq!(
            claim("two", "192.0.2.2", 1, "", "True").addresses.len(),
            1,
            "a host's name is no address"
        );
    }
}

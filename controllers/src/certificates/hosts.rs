//! Which names a kubelet's port may have a certificate for.

use super::request::Wanted;
use coracle_api::certificate::Name;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The API server's own names and addresses, as its certificate has them now.
pub type OwnNames = Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>;

/// What no node may have a certificate for. A node writes its own `status.addresses`, so what stands there proves nothing.
#[derive(Clone, Default)]
pub struct Reserved {
    /// The addresses of Services and of pods.
    pub networks: Vec<IpNet>,
    /// Absent: there is no API server to protect, as in tests.
    pub api_server: Option<OwnNames>,
}

impl Reserved {
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.api_server.as_ref().map(|names| names()).unwrap_or_default()
    }
}

/// Whether the API server itself is called so, or its node: that one's certificates are made without requests.
pub(super) fn is_api_server(name: &str, reserved: &Reserved) -> bool {
    reserved.names().iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether the names are the node's: its own name, and at most one of its internal addresses of each family, which nobody else has and
/// which are no addresses of pods, Services, this host or the API server. The error says what is wrong.
pub(super) fn check(
    wanted: &Wanted,
    node: &Node,
    all: &[Arc<Node>],
    reserved: &Reserved,
) -> Result<(), String> {
    let own = node.metadata.name.as_deref().unwrap_or_default();
    let mut addresses = Vec::new();
    for name in &wanted.names {
        match name {
            Name::Dns(name) if name == own => {}
            Name::Dns(name) => return Err(format!("{name} is not the node's name")),
            Name::Ip(ip) if addresses.contains(&ip.to_canonical()) => {}
            Name::Ip(ip) => addresses.push(ip.to_canonical()),
            _ => return Err("names other than DNS names and addresses are nobody's".to_owned()),
        }
    }
    for six in [false, true] {
        let of_family = addresses.iter().filter(|ip| ip.is_ipv6() == six).count();
        if of_family > 1 {
            return Err(format!("{of_family} addresses are asked for, one is allowed"));
        }
    }
    addresses.into_iter().try_for_each(|ip| address(ip, node, all, reserved))
}

fn address(ip: IpAddr, node: &Node, all: &[Arc<Node>], reserved: &Reserved) -> Result<(), String> {
    if !addresses_of(node, |kind| kind == "InternalIP").contains(&ip) {
        return Err(format!("{ip} is no InternalIP of the node"));
    }
    if is_special(ip) {
        return Err(format!("{ip} is an address that no two machines reach each other by"));
    }
    if let Some(network) = reserved.networks.iter().find(|network| network.contains(&ip)) {
        return Err(format!("{ip} belongs to {network}, which is the cluster's own"));
    }
    if reserved.names().iter().any(|own| own.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == ip)) {
        return Err(format!("{ip} is the API server's"));
    }
    let others = all.iter().filter(|other| other.metadata.name != node.metadata.name);
    match others.into_iter().find(|other| addresses_of(other, |_| true).contains(&ip)) {
        Some(other) => Err(format!(
            "{ip} is also an address of node {}",
            other.metadata.name.as_deref().unwrap_or_default()
        )),
        None => Ok(()),
    }
}

fn addresses_of(node: &Node, kind: impl Fn(&str) -> bool) -> Vec<IpAddr> {
    let addresses = node.status.as_ref().and_then(|s| s.addresses.as_deref()).unwrap_or_default();
    let wanted = addresses.iter().filter(|a| kind(&a.type_));
    wanted.filter_map(|a| a.address.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical()).collect()
}

fn is_special(ip: IpAddr) -> bool {
    let link = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    link || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, addresses: &[(&str, &str)]) -> Arc<Node> {
        let addresses: Vec<_> =
            addresses.iter().map(|(kind, address)| json!({ "type": kind, "address": address })).collect();
        let node = json!({ "metadata": { "name": name }, "status": { "addresses": addresses } });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn reserved() -> Reserved {
        let names = ["kubernetes.default", "box", "192.0.2.10", "10.43.0.1", "::1"];
        Reserved {
            networks: vec!["10.42.0.0/16".parse().unwrap(), "10.43.0.0/16".parse().unwrap()],
            api_server: Some(Arc::new(move || names.iter().map(|n| (*n).to_owned()).collect())),
        }
    }

    /// What the approver says to these names of node `n1`, which claims the addresses for itself.
    fn told(hosts: &[&str], others: &[Arc<Node>]) -> String {
        let mut names = Vec::new();
        let mut claimed =
            vec![("Hostname", "n1"), ("InternalDNS", "kubernetes.default"), ("ExternalIP", "192.0.2.50")];
        for host in hosts {
            match host.parse() {
                Ok(ip) => {
                    names.push(Name::Ip(ip));
                    claimed.push(("InternalIP", host));
                }
                Err(_) => names.push(Name::Dns((*host).to_owned())),
            }
        }
        claimed.retain(|(_, address)| *address != "192.0.2.50" || !hosts.contains(&"192.0.2.50"));
        let mut all = vec![node("n1", &claimed)];
        all.extend(others.iter().cloned());
        let wanted = Wanted { names, ..Wanted::default() };
        check(&wanted, &all[0], &all, &reserved()).err().unwrap_or_default()
    }

    #[test]
    fn a_node_gets_its_name_and_one_address() {
        assert_eq!(told(&["n1", "192.0.2.1"], &[]), "");
        assert_eq!(told(&["n1"], &[]), "");
        assert_eq!(told(&["2001:db8::1"], &[]), "");
        assert_eq!(told(&["n1", "192.0.2.1", "2001:db8::1"], &[]), "", "one of each family");
    }

    #[test]
    fn what_a_node_claims_of_others_it_does_not_get() {
        let n2 = [node("n2", &[("ExternalIP", "192.0.2.2")])];
        let claims: [(&[&str], &str); 15] = [
            (&["n2"], "n2 is not the node's name"),
            (&["kubernetes.default"], "kubernetes.default is not the node's name"),
            (&["N1"], "N1 is not the node's name"),
            (&["*.n1"], "*.n1 is not the node's name"),
            (&["192.0.2.1", "192.0.2.3"], "2 addresses are asked for, one is allowed"),
            (&["2001:db8::1", "10.42.7.7"], "10.42.7.7 belongs to 10.42.0.0/16, which is the cluster's own"),
            (&["192.0.2.2"], "192.0.2.2 is also an address of node n2"),
            (&["::ffff:192.0.2.2"], "192.0.2.2 is also an address of node n2"),
            (&["192.0.2.10"], "192.0.2.10 is the API server's"),
            (&["10.43.0.1"], "10.43.0.1 belongs to 10.43.0.0/16, which is the cluster's own"),
            (&["10.42.7.7"], "10.42.7.7 belongs to 10.42.0.0/16, which is the cluster's own"),
            (&["127.0.0.1"], "127.0.0.1 is an address that no two machines reach each other by"),
            (&["::ffff:127.0.0.1"], "127.0.0.1 is an address that no two machines reach each other by"),
            (&["169.254.169.254"], "169.254.169.254 is an address that no two machines reach each other by"),
            (&["0.0.0.0"], "0.0.0.0 is an address that no two machines reach each other by"),
        ];
        for (hosts, why) in claims {
            assert_eq!(told(hosts, &n2), why);
        }
        let unclaimed = Wanted { names: vec![Name::Ip([192, 0, 2, 50].into())], ..Wanted::default() };
        let n1 = node("n1", &[("ExternalIP", "192.0.2.50")]);
        assert!(check(&unclaimed, &n1, std::slice::from_ref(&n1), &reserved()).is_err(), "no InternalIP");
        assert!(is_api_server("Box", &reserved()) && !is_api_server("n1", &reserved()));
    }
}

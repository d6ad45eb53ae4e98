//! Which addresses the API server lets itself be led to.
//!
//! Addresses of nodes and pods are what their node says: a node that claims the API server's own would turn `proxy` into
//! a way to whatever trusts this host. So every address is judged, after names have been resolved and in its plain form
//! (`::ffff:127.0.0.1` is 127.0.0.1).

use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The names and addresses of the API server, as they are now.
pub type OwnNames = Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>;

/// What this server knows of itself.
#[derive(Clone, Default)]
pub struct Guard {
    /// `metadata.name` of the node that runs in this process: it alone may be at this host's addresses.
    pub own_node: String,
    /// The addresses of Services, where nobody runs.
    pub service_networks: Vec<IpNet>,
    /// Absent: this server does not know its addresses, as in tests.
    pub own_names: Option<OwnNames>,
}

/// A way to a target: which addresses it may have.
#[derive(Clone)]
pub(super) struct Reach {
    guard: Guard,
    loopback: bool,
    own: bool,
}

impl Guard {
    /// Whether this is an address of the node that runs in this process.
    pub(super) fn is_own(&self, node: &str, ip: IpAddr) -> bool {
        node == self.own_node && self.has(ip)
    }

    /// Whether this server is called so.
    fn has(&self, ip: IpAddr) -> bool {
        let names = self.own_names.as_ref().map(|names| names()).unwrap_or_default();
        names.iter().any(|name| name.parse::<IpAddr>().is_ok_and(|own| own.to_canonical() == ip))
    }

    /// To the kubelet of this node. This process' own may listen on loopback.
    pub(super) fn kubelet(&self, node: &str) -> Reach {
        let own = node == self.own_node;
        Reach { guard: self.clone(), loopback: own, own }
    }

    /// To another port of this node, or to a pod on it.
    pub(super) fn on_node(&self, node: &str) -> Reach {
        Reach { guard: self.clone(), loopback: false, own: node == self.own_node }
    }
}

impl Reach {
    pub(super) fn allows(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if is_nobodys(ip) || self.guard.service_networks.iter().any(|network| network.contains(&ip)) {
            return false;
        }
        if is_this_host(ip) {
            return self.loopback;
        }
        self.own || !self.guard.has(ip)
    }
}

/// Addresses that are no single machine's, or mean another one on every machine. Link-local ones are those of cloud
/// providers' metadata, too.
fn is_nobodys(ip: IpAddr) -> bool {
    let (link_local, everybody) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), false),
    };
    ip.is_multicast() || link_local || everybody
}

fn is_this_host(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        let names = ["localhost", "kubernetes", "127.0.0.1", "192.0.2.1", "10.43.0.1"];
        Guard {
            own_node: "box".to_owned(),
            service_networks: vec!["10.43.0.0/16".parse().unwrap()],
            own_names: Some(Arc::new(move || names.iter().map(|n| (*n).to_owned()).collect())),
        }
    }

    #[test]
    fn nobody_but_the_own_node_is_at_this_hosts_addresses() {
        let guard = guard();
        let allows = |reach: &Reach, ip: &str| reach.allows(ip.parse().unwrap());
        let (own, other) = (guard.kubelet("box"), guard.kubelet("n2"));
        for ip in [
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "::",
        ] {
            assert!(allows(&own, ip) && !allows(&other, ip), "{ip}");
        }
        for ip in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "255.255.255.255",
            "10.43.0.9",
        ] {
            assert!(!allows(&own, ip) && !allows(&other, ip), "{ip}");
        }
        assert!(allows(&other, "192.0.2.2") && allows(&other, "2001:db8::1"));
        let (pod_here, pod_there) = (guard.on_node("box"), guard.on_node("n2"));
        assert!(allows(&pod_here, "192.0.2.1"), "a pod in the host's network");
        assert!(!allows(&pod_here, "127.0.0.1") && !allows(&pod_there, "192.0.2.1"));
        assert!(allows(&pod_there, "10.42.1.7"));
    }
}

//! What a backend shall bring into force, and how it is made from what the API says.
//!
//! A plan shares what has not changed with the one before it: backends find the few Services that changed by comparing
//! pointers, however many there are.

use crate::checks::{self, Check};
use crate::family::Family;
use crate::model::{self, NodeTopology, ServicePort};
use coracle_client::ObjectKey;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ports of one Service.
pub type Ports = Arc<Vec<ServicePort>>;

/// How to know traffic that comes from pods of this node's cluster (`detectLocalMode`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LocalDetector {
    /// There is no telling: no source is masqueraded for not being a pod.
    #[default]
    None,
    /// By its source: `ClusterCIDR` and `NodeCIDR`.
    Cidr(String),
    /// By the interface that it comes in by.
    BridgeInterface(String),
    /// By how that interface's name begins.
    InterfaceNamePrefix(String),
}

/// What holds for all Services of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub local: LocalDetector,
    /// The addresses of all pods, where what they send to anybody else leaves under the node's address: for pod networks
    /// that leave it to the proxy.
    pub masquerade_pods: Option<String>,
    /// The ranges that Services' addresses come from.
    pub service_cidrs: Vec<String>,
    /// Whether everything to a cluster IP is masqueraded.
    pub masquerade_all: bool,
    /// The one bit of the packet mark that asks for masquerading.
    pub mark: u32,
    /// Whether node ports answer on loopback; IPv4 only, by iptables.
    pub localhost_node_ports: bool,
    /// The networks whose addresses node ports answer on; empty: all of this machine.
    pub node_port_networks: Vec<String>,
    /// Whether packets are dropped that fit no connection.
    pub drop_invalid: bool,
    /// What only the mode ipvs has.
    pub ipvs: crate::balancing::Settings,
}

/// Upstream's mark (bit 14).
pub const DEFAULT_MARK: u32 = 1 << 14;

/// Everything that shall be reachable over one family.
#[derive(Clone, Debug)]
pub struct Plan {
    pub family: Family,
    pub services: BTreeMap<ObjectKey, Ports>,
    pub settings: Arc<Settings>,
}

impl Plan {
    pub fn empty(family: Family) -> Self {
        let settings = Settings { mark: DEFAULT_MARK, drop_invalid: true, ..Settings::default() };
        Self { family, services: BTreeMap::new(), settings: Arc::new(settings) }
    }

    pub fn ports(&self) -> impl Iterator<Item = &ServicePort> {
        self.services.values().flat_map(|ports| ports.iter())
    }

    /// Whether the cluster uses this family at all.
    pub fn is_used(&self) -> bool {
        !self.services.is_empty() || !self.settings.service_cidrs.is_empty()
    }
}

/// The Services that differ between two states, with what they were and what they are.
pub fn changed<'a>(
    old: &'a BTreeMap<ObjectKey, Ports>,
    new: &'a BTreeMap<ObjectKey, Ports>,
) -> impl Iterator<Item = (&'a ObjectKey, Option<&'a Ports>, Option<&'a Ports>)> {
    let gone = old.iter().filter(|(key, _)| !new.contains_key(*key)).map(|(key, was)| (key, Some(was), None));
    let other = new.iter().filter_map(|(key, is)| match old.get(key) {
        Some(was) if Arc::ptr_eq(was, is) || was == is => None,
        was => Some((key, was, Some(is))),
    });
    gone.chain(other)
}

/// What one Service came to.
struct Known {
    /// In the order of [`Family::ALL`]
    ports: [Ports; 2],
    check: Option<(u16, Check)>,
}

/// Remembers what each Service came to: only what changed is read and computed.
#[derive(Default)]
pub struct ServicePlanner {
    known: BTreeMap<ObjectKey, Known>,
    node: String,
    zone: String,
}

impl ServicePlanner {
    /// Whether everything was computed for this place; if not, everything is forgotten, and the caller shows all Services.
    pub fn is_for(&mut self, here: NodeTopology<'_>) -> bool {
        let same = self.node == here.node && self.zone == here.zone;
        if !same {
            self.known.clear();
            (self.node, self.zone) = (here.node.to_owned(), here.zone.to_owned());
        }
        same
    }

    /// Takes in a Service as it is now, with its slices; `None`: it is gone.
    pub fn take(&mut self, key: ObjectKey, service: Option<&Service>, slices: &[Arc<EndpointSlice>]) {
        let Some(service) = service else {
            self.known.remove(&key);
            return;
        };
        let (here, slices) = (NodeTopology { node: &self.node, zone: &self.zone }, model::counted(slices));
        let ports = Family::ALL.map(|family| Arc::new(model::ports_of(service, &slices, here, family)));
        let check = checks::wanted(service, &slices, here.node);
        self.known.insert(key, Known { ports, check });
    }

    /// The Services with ports, in the order of [`Family::ALL`].
    pub fn plans(&self) -> [BTreeMap<ObjectKey, Ports>; 2] {
        [0, 1].map(|family| {
            let of_family = self.known.iter().map(|(key, known)| (key, &known.ports[family]));
            let used = of_family.filter(|(_, ports)| !ports.is_empty());
            used.map(|(key, ports)| (key.clone(), ports.clone())).collect()
        })
    }

    /// The checks that this node shall answer, by port.
    pub fn checks(&self) -> BTreeMap<u16, Check> {
        self.known.values().filter_map(|known| known.check.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_has_not_changed_is_shared() {
        let service = |name: &str, ip: &str| -> Arc<Service> {
            Arc::new(
                serde_json::from_value(json!({"metadata": {"name": name, "namespace": "d"},
                "spec": {"clusterIP": ip, "ports": [{"port": 80}]}}))
                .expect("a Service"),
            )
        };
        let (a, b) = (service("a", "10.43.0.1"), service("b", "fd00::1"));
        let key = |name: &str| ObjectKey::new("d", name);
        let (mut planner, here) = (ServicePlanner::default(), NodeTopology { node: "n", zone: "" });
        assert!(!planner.is_for(here) && planner.is_for(here));
        planner.take(key("a"), Some(&a), &[]);
        planner.take(key("b"), Some(&b), &[]);
        let [v4, v6] = planner.plans();
        assert_eq!((v4.len(), v6.len()), (1, 1));
        let [again, _] = planner.plans();
        assert!(Arc::ptr_eq(&v4[&key("a")], &again[&key("a")]) && changed(&v4, &again).next().is_none());
        planner.take(key("a"), Some(&service("a", "10.43.0.2")), &[]);
        let [other, _] = planner.plans();
        assert_eq!(changed(&v4, &other).map(|(key, ..)| key.name.as_str()).collect::<Vec<_>>(), ["a"]);
        planner.take(key("a"), None, &[]);
        let [none, _] = planner.plans();
        let gone: Vec<_> = changed(&v4, &none).map(|(_, was, is)| (was.is_some(), is.is_some())).collect();
        assert_eq!(gone, [(true, false)]);
        assert!(!planner.is_for(NodeTopology { zone: "z", ..here }) && planner.plans()[1].is_empty());
    }
}

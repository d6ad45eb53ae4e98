//! What the API says that policies depend on, without all that they do not.

use super::model::AdminPolicy;
use super::plan::{DNS_NAMESPACE, DnsProtocol, Resolver, World};
use crate::family::Family;
use coracle_client::{Context, Informer, Kind, ObjectKey};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Container, Namespace, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The objects of a kind, reduced to what matters. They are followed as long as it lives.
pub struct Kept<K>(Arc<Mutex<BTreeMap<ObjectKey, Arc<K>>>>);

impl<K: Kind + PartialEq> Kept<K> {
    /// `reduce` says what of an object matters, `None` where nothing does. What changes that wakes.
    pub fn of(informer: &Informer<K>, changed: &Arc<Notify>, reduce: fn(&K) -> Option<K>) -> Self {
        let kept = Arc::<Mutex<BTreeMap<ObjectKey, Arc<K>>>>::default();
        let (weak, wake) = (Arc::downgrade(&kept), changed.clone());
        informer.on_change_while(move |delta| {
            let Some(kept) = weak.upgrade() else { return false };
            let Some(object) = delta.object() else { return true };
            let (key, mut kept) = (ObjectKey::of(object.as_ref()), kept.lock());
            let new = delta.new.as_deref().and_then(reduce).map(Arc::new);
            if kept.get(&key) != new.as_ref() {
                match new {
                    Some(new) => drop(kept.insert(key, new)),
                    None => drop(kept.remove(&key)),
                }
                wake.notify_one();
            }
            true
        });
        Self(kept)
    }

    pub fn list(&self) -> Vec<Arc<K>> {
        self.0.lock().values().cloned().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// What is followed only while there are policies.
pub struct Followed {
    pods: Kept<Pod>,
    namespaces: Kept<Namespace>,
    nodes: Kept<Node>,
    slices: Kept<EndpointSlice>,
}

/// One moment of it.
pub struct Snapshot {
    pub pods: Vec<Arc<Pod>>,
    namespaces: Vec<Arc<Namespace>>,
    nodes: Vec<Arc<Node>>,
    pub policies: Vec<Arc<NetworkPolicy>>,
    pub admin: Vec<Arc<AdminPolicy>>,
    resolvers: Vec<Resolver>,
    ranges: [Option<IpNet>; 2],
}

impl Followed {
    /// Returns when everything is there.
    pub async fn begin(context: &Context, changed: &Arc<Notify>) -> Self {
        let (pods, namespaces) = (context.informers.of::<Pod>(), context.informers.of::<Namespace>());
        let (nodes, slices) = (context.informers.of::<Node>(), context.informers.of::<EndpointSlice>());
        tokio::join!(pods.synced(), namespaces.synced(), nodes.synced(), slices.synced());
        Self {
            pods: Kept::of(&pods, changed, pod),
            namespaces: Kept::of(&namespaces, changed, namespace),
            nodes: Kept::of(&nodes, changed, node),
            slices: Kept::of(&slices, changed, slice),
        }
    }

    /// `within` are the ranges of all pods: a Node that claims others is not believed.
    pub fn snapshot(
        &self,
        policies: &Kept<NetworkPolicy>,
        admin: Vec<Arc<AdminPolicy>>,
        node: &str,
        within: &[IpNet],
    ) -> Snapshot {
        let nodes = self.nodes.list();
        let own = nodes.iter().find(|n| n.metadata.name.as_deref() == Some(node));
        let own: Vec<IpNet> = own.map(|node| ranges(node)).unwrap_or_default();
        let own = own.iter().filter(|range| within.iter().any(|pods| pods.contains(*range)));
        let of = |family: Family| own.clone().find(|range| Family::of(range.addr()) == family).copied();
        Snapshot {
            pods: self.pods.list(),
            namespaces: self.namespaces.list(),
            policies: policies.list(),
            admin,
            resolvers: self.slices.list().iter().flat_map(|slice| resolvers(slice)).collect(),
            ranges: Family::ALL.map(of),
            nodes,
        }
    }
}

impl Snapshot {
    pub fn world<'a>(&'a self, node: &'a str) -> World<'a> {
        World {
            node,
            pods: &self.pods,
            namespaces: &self.namespaces,
            nodes: &self.nodes,
            policies: &self.policies,
            admin: &self.admin,
            resolvers: &self.resolvers,
            ranges: self.ranges,
        }
    }
}

fn ranges(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidr.iter().chain(spec.pod_cidrs.iter().flatten());
    all.filter_map(|range| range.parse::<IpNet>().ok()).map(|range| range.trunc()).collect()
}

fn named(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        labels: meta.labels.clone(),
        creation_timestamp: meta.creation_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one of several reductions")]
fn pod(pod: &Pod) -> Option<Pod> {
    let ports = |container: &Container| Container { ports: container.ports.clone(), ..Container::default() };
    let spec = pod.spec.as_ref().map(|spec| PodSpec {
        node_name: spec.node_name.clone(),
        host_network: spec.host_network,
        containers: spec.containers.iter().map(ports).collect(),
        init_containers: spec.init_containers.as_ref().map(|all| all.iter().map(ports).collect()),
        ..PodSpec::default()
    });
    let status = pod.status.as_ref().map(|status| PodStatus {
        phase: status.phase.clone(),
        pod_ips: status.pod_ips.clone(),
        ..PodStatus::default()
    });
    Some(Pod { metadata: named(&pod.metadata), spec, status })
}

#[expect(clippy::unnecessary_wraps, reason = "one of several reductions")]
fn namespace(namespace: &Namespace) -> Option<Namespace> {
    Some(Namespace { metadata: named(&namespace.metadata), ..Namespace::default() })
}

#[expect(clippy::unnecessary_wraps, reason = "one of several reductions")]
fn node(node: &Node) -> Option<Node> {
    let given = node.spec.as_ref();
    let spec = NodeSpec {
        pod_cidr: given.and_then(|spec| spec.pod_cidr.clone()),
        pod_cidrs: given.and_then(|spec| spec.pod_cidrs.clone()),
        ..NodeSpec::default()
    };
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone());
    let status = NodeStatus { addresses, ..NodeStatus::default() };
    Some(Node { metadata: named(&node.metadata), spec: Some(spec), status: Some(status) })
}

fn slice(slice: &EndpointSlice) -> Option<EndpointSlice> {
    let labels = slice.metadata.labels.as_ref()?;
    let is_dns = slice.metadata.namespace.as_deref() == Some(DNS_NAMESPACE)
        && labels.get("kubernetes.io/service-name").is_some_and(|service| service == "kube-dns");
    is_dns.then(|| slice.clone())
}

/// Endpoints that are Pods are known as such.
fn resolvers(slice: &EndpointSlice) -> Vec<Resolver> {
    let ports = slice.ports.iter().flatten().filter_map(|port| {
        let protocol = DnsProtocol::of_port(port.name.as_deref()?)?;
        Some((protocol, u16::try_from(port.port?).ok()?))
    });
    let ports: Vec<_> = ports.collect();
    let endpoints = slice.endpoints.iter().flatten().filter(|endpoint| endpoint.target_ref.is_none());
    let ips = endpoints.flat_map(|endpoint| &endpoint.addresses).filter_map(|ip| ip.parse().ok());
    ips.flat_map(|ip| {
        ports.iter().map(move |(protocol, port)| Resolver { ip, port: *port, protocol: *protocol })
    })
    .collect()
}

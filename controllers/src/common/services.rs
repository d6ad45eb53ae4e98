//! Which pods stand behind a Service, and at which addresses and ports.

use super::pods;
use coracle_api::pod::restarts_as_sidecar;
use coracle_api::well_known;
use coracle_client::{Delta, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub const HEADLESS: &str = well_known::HEADLESS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The address type of EndpointSlices.
    pub fn address_type(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    pub fn of(address: &str) -> Option<Self> {
        Some(if address.parse::<IpAddr>().ok()?.is_ipv4() { Self::V4 } else { Self::V6 })
    }
}

/// The Service's families, the primary one first; IPv4 for a Service that names none.
pub fn families(service: &Service) -> Vec<Family> {
    let named = service.spec.as_ref().and_then(|s| s.ip_families.as_ref());
    let families: Vec<Family> =
        named.into_iter().flatten().map(|f| if f == "IPv6" { Family::V6 } else { Family::V4 }).collect();
    if families.is_empty() { vec![Family::V4] } else { families }
}

/// The Service's selector; `None` for one whose endpoints somebody else keeps.
pub fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref().filter(|s| s.type_.as_deref() != Some("ExternalName"))?;
    spec.selector.as_ref().filter(|s| !s.is_empty())
}

pub fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(k, v)| labels.get(k) == Some(v))
}

pub fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None")
}

pub fn publishes_unready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses).unwrap_or(false)
}

/// The pod's address of a family. It is what its node says: one that the API refuses in endpoints would keep all other
/// pods' endpoints from being written.
pub fn address(pod: &Pod, family: Family) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).chain(status.pod_ip.as_deref());
    let mut usable = all.filter(|ip| ip.parse().is_ok_and(coracle_api::validation::is_machine_address));
    usable.find(|ip| Family::of(ip) == Some(family))
}

/// Whether a pod belongs to its Services' endpoints at all; `dying` ones too if the caller wants them.
pub fn counts(pod: &Pod, dying: bool) -> bool {
    !pods::is_terminal(pod) && (dying || pod.metadata.deletion_timestamp.is_none())
}

/// The number of a Service's port on this pod; a name is looked up among its containers' ports.
pub fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let spec = pod.spec.as_ref()?;
            let sidecars = spec.init_containers.iter().flatten();
            let sidecars = sidecars.filter(|c| restarts_as_sidecar(c.restart_policy.as_deref()));
            let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
            ports
                .filter(|p| p.name.as_ref() == Some(name))
                .find(|p| p.protocol.as_deref().unwrap_or("TCP") == protocol)
                .map(|p| p.container_port)
        }
    }
}

/// The pod's host name under this Service, which DNS serves.
pub fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let under = spec.subdomain.as_ref() == service.metadata.name.as_ref();
    spec.hostname.clone().filter(|h| under && !h.is_empty())
}

pub fn target_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// What selects pods, of all Services: a pod's change is held against it without one Service being decoded.
#[derive(Clone, Default)]
pub struct ServiceSelectors(Arc<Mutex<BTreeMap<ObjectKey, BTreeMap<String, String>>>>);

impl ServiceSelectors {
    /// Follows the Services for as long as there are any clones of what is returned.
    pub fn follow(services: &Informer<Service>) -> Self {
        let selectors = Self::default();
        let kept = Arc::downgrade(&selectors.0);
        services.on_change_while(move |delta| {
            let Some(kept) = kept.upgrade() else { return false };
            let Some(object) = delta.object() else { return true };
            let key = ObjectKey::of(object.as_ref());
            match delta.new.as_deref().and_then(selector) {
                Some(selector) => kept.lock().insert(key, selector.clone()),
                None => kept.lock().remove(&key),
            };
            true
        });
        selectors
    }

    /// The Services of a namespace that select any of these pods.
    fn selecting(&self, namespace: &str, pods: &[&Arc<Pod>]) -> Vec<ObjectKey> {
        let all = self.0.lock();
        let within =
            all.range(ObjectKey::new(namespace, "")..).take_while(|(key, _)| key.namespace == namespace);
        let selecting = within.filter(|(_, selector)| pods.iter().any(|pod| selects(selector, pod.labels())));
        selecting.map(|(key, _)| key.clone()).collect()
    }
}

/// The Services that a pod's change concerns; none when nothing that endpoints show has changed.
pub fn keys_of(delta: &Delta<Pod>, selectors: &ServiceSelectors) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&delta.old, &delta.new)
        && looks_same(old, new)
    {
        return Vec::new();
    }
    let Some(namespace) = delta.object().and_then(|p| p.metadata.namespace.clone()) else {
        return Vec::new();
    };
    let pods: Vec<&Arc<Pod>> = [&delta.old, &delta.new].into_iter().flatten().collect();
    selectors.selecting(&namespace, &pods)
}

fn looks_same(old: &Pod, new: &Pod) -> bool {
    let ips = |pod: &Pod| pod.status.as_ref().map(|s| (s.pod_ip.clone(), s.pod_ips.clone()));
    old.metadata.uid == new.metadata.uid
        && old.metadata.labels == new.metadata.labels
        && old.metadata.deletion_timestamp.is_some() == new.metadata.deletion_timestamp.is_some()
        && pods::is_ready(old) == pods::is_ready(new)
        && pods::is_terminal(old) == pods::is_terminal(new)
        && pods::node_name(old) == pods::node_name(new)
        && ips(old) == ips(new)
}

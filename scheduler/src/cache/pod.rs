//! A pod as the scheduler sees it: what it needs is computed once.

use super::resources::{self, Resources};
use coracle_client::ObjectKey;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use std::sync::Arc;
use tokio::time::Instant;

/// A port that a pod takes on its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub protocol: String,
    /// `0.0.0.0` is every address.
    pub ip: String,
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be taken on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == any || other.ip == any)
    }
}

#[derive(Debug)]
pub struct PodInfo {
    pub pod: Arc<Pod>,
    pub key: ObjectKey,
    pub uid: String,
    pub priority: i32,
    pub requests: Resources,
    pub counted: Resources,
    pub host_ports: Vec<HostPort>,
    /// When it first came into the queue.
    pub queued_at: Instant,
}

impl PodInfo {
    pub fn new(pod: Arc<Pod>, queued_at: Instant) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        Self {
            key: ObjectKey::of(pod.as_ref()),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests: resources::requested_by(spec),
            counted: resources::counted_for(spec),
            host_ports: host_ports(spec),
            queued_at,
            pod,
        }
    }

    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    /// The node it is bound to.
    pub fn node_name(&self) -> Option<&str> {
        self.spec()?.node_name.as_deref().filter(|n| !n.is_empty())
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            let ip = p.host_ip.clone().filter(|ip| !ip.is_empty() && ip != "::");
            Some(HostPort {
                protocol: p.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                ip: ip.unwrap_or_else(|| "0.0.0.0".to_owned()),
                port,
            })
        })
        .collect()
}

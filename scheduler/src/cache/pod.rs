//! A pod as the scheduler sees it: what it needs is computed once.

use super::affinity::{PodAffinities, Spread};
use super::{class, resources, resources::Resources};
use coracle_client::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

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
    /// Terms of pod affinity and anti-affinity.
    pub affinities: Option<Box<PodAffinities>>,
    class: OnceLock<Arc<[u8]>>,
}

impl PodInfo {
    pub fn new(pod: Arc<Pod>) -> Self {
        let status = pod.clone();
        Self::of(pod, status.status.as_ref())
    }

    /// Of a pod that is on a node. Of its status only that is kept which decides who gives way: the rest is half of a
    /// pod's memory, and nobody here reads it once it is counted.
    pub fn bound(pod: &Pod) -> Self {
        let kept = Pod {
            metadata: pod.metadata.clone(),
            spec: pod.spec.clone(),
            status: pod.status.as_ref().map(read_of),
        };
        Self::of(Arc::new(kept), pod.status.as_ref())
    }

    /// `status` says what a resize has granted.
    fn of(pod: Arc<Pod>, status: Option<&PodStatus>) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let key = ObjectKey::of(pod.as_ref());
        let requests = resources::requested_by(spec, status);
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            counted: resources::counted_for(spec, status, &requests),
            requests,
            host_ports: host_ports(spec),
            affinities: PodAffinities::of(&key.namespace, pod.metadata.labels.as_ref(), spec),
            class: OnceLock::new(),
            key,
            pod,
        }
    }

    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.pod.metadata.labels.as_ref()
    }

    /// The node it is bound to.
    pub fn node_name(&self) -> Option<&str> {
        self.spec()?.node_name.as_deref().filter(|n| !n.is_empty())
    }

    /// The node that preemption made room on for it.
    pub fn nominated_node(&self) -> Option<&str> {
        self.pod.status.as_ref()?.nominated_node_name.as_deref().filter(|n| !n.is_empty())
    }

    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    pub fn controller(&self) -> Option<&OwnerReference> {
        self.pod.metadata.owner_references.as_deref()?.iter().find(|o| o.controller == Some(true))
    }

    /// When it began to run; a pod that has not counts as the latest of all.
    pub fn started(&self) -> Timestamp {
        let started = self.pod.status.as_ref().and_then(|s| s.start_time.as_ref());
        started.map_or(Timestamp::MAX, |time| time.0)
    }

    /// Pods of one class get the same answer from every in-tree plugin. Computed at first use.
    pub fn class(&self) -> &Arc<[u8]> {
        self.class.get_or_init(|| class::key(self))
    }

    pub fn spread(&self) -> Vec<Spread> {
        self.spec().map(|spec| Spread::of(self.labels(), spec)).unwrap_or_default()
    }

    /// Images of all its containers and volumes, as often as they are used, sorted.
    pub fn images(&self) -> Vec<&str> {
        let Some(spec) = self.spec() else { return Vec::new() };
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_deref());
        let mut images: Vec<&str> = containers.filter_map(|c| c.image.as_deref()).chain(volumes).collect();
        images.sort_unstable();
        images
    }

    /// Volumes that decide where it can run.
    pub fn placing_volumes(&self) -> impl Iterator<Item = &k8s_openapi::api::core::v1::Volume> {
        let volumes = self.spec().and_then(|s| s.volumes.as_ref());
        volumes.into_iter().flatten().filter(|v| class::matters(v))
    }

    /// Names of its claims; those of ephemeral volumes derive from the pod's name.
    pub fn claim_names(&self) -> impl Iterator<Item = String> {
        self.placing_volumes().filter_map(|v| match (&v.persistent_volume_claim, &v.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(coracle_api::storage::ephemeral_claim(&self.key.name, &v.name)),
            (None, None) => None,
        })
    }
}

/// What is read of the status of a pod on a node.
fn read_of(status: &PodStatus) -> PodStatus {
    let disrupted = status.conditions.iter().flatten().filter(|c| c.type_ == "DisruptionTarget");
    PodStatus {
        phase: status.phase.clone(),
        start_time: status.start_time.clone(),
        nominated_node_name: status.nominated_node_name.clone(),
        conditions: Some(disrupted.cloned().collect()),
        ..PodStatus::default()
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    spec.containers.iter().chain(sidecars).flat_map(ports_of).collect()
}

fn ports_of(container: &Container) -> impl Iterator<Item = HostPort> {
    container.ports.iter().flatten().filter_map(|p| {
        let port = p.host_port.filter(|port| *port > 0)?;
        let ip = p.host_ip.clone().filter(|ip| !ip.is_empty() && ip != "::");
        Some(HostPort {
            protocol: p.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            ip: ip.unwrap_or_else(|| "0.0.0.0".to_owned()),
            port,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bound_pod_keeps_of_its_status_what_is_read() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "a", "uid": "u" },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
            "status": {
                "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DisruptionTarget", "status": "True" }],
                "containerStatuses": [{ "name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                    "allocatedResources": { "cpu": "2" }, "resources": { "requests": { "cpu": "2" } } }],
            },
        }))
        .unwrap();
        let (whole, bound) = (PodInfo::new(Arc::new(pod.clone())), PodInfo::bound(&pod));
        assert_eq!(bound.requests, whole.requests, "what a resize has granted counts");
        assert_eq!((bound.started(), bound.node_name()), (whole.started(), Some("n")));
        let status = bound.pod.status.as_ref().unwrap();
        let kinds: Vec<&str> = status.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
        assert_eq!((kinds, &status.container_statuses), (vec!["DisruptionTarget"], &None));
    }
}

//! A pod as the scheduler sees it: what it needs is computed once.

use super::affinity::{PodAffinities, Spread};
use super::labels::SharedLabels;
use super::{class, resources, resources::Resources};
use coracle_api::pod::restarts_as_sidecar;
use coracle_client::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, PodSpec, PodStatus, Volume};
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

/// A decoded pod takes some eight kilobytes, and a scheduler knows all pods of its cluster: of those on nodes only that is
/// kept which is read of them.
#[derive(Debug)]
pub struct PodInfo {
    pub key: ObjectKey,
    pub uid: String,
    pub priority: i32,
    pub requests: Resources,
    pub counted: Resources,
    pub host_ports: Vec<HostPort>,
    /// Terms of pod affinity and anti-affinity.
    pub affinities: Option<Box<PodAffinities>>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    source: Source,
    class: OnceLock<Arc<[u8]>>,
}

#[derive(Debug)]
enum Source {
    /// Not seen on a node yet: whole.
    Waiting(Arc<Pod>),
    Bound(Box<Bound>),
}

/// What is read of a pod on a node beside what is computed.
#[derive(Debug)]
struct Bound {
    node: String,
    labels: Option<Arc<BTreeMap<String, String>>>,
    resource_version: Option<String>,
    terminating: bool,
    preempted: bool,
    started: Timestamp,
    /// Those that decide where it can run.
    volumes: Vec<Volume>,
}

impl PodInfo {
    pub fn new(pod: Arc<Pod>) -> Self {
        Self::of(&pod, Source::Waiting(pod.clone()))
    }

    /// Of a pod that is on a node.
    pub fn bound(pod: &Pod, labels: &mut SharedLabels) -> Self {
        let spec = pod.spec.as_ref();
        let volumes = spec.and_then(|s| s.volumes.as_ref()).into_iter().flatten();
        let kept = Bound {
            node: spec.and_then(|s| s.node_name.clone()).unwrap_or_default(),
            labels: pod.metadata.labels.as_ref().map(|all| labels.share(all)),
            resource_version: pod.metadata.resource_version.clone(),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            preempted: is_preempted(pod),
            started: started(pod),
            volumes: volumes.filter(|v| class::matters(v)).cloned().collect(),
        };
        Self::of(pod, Source::Bound(Box::new(kept)))
    }

    fn of(pod: &Pod, source: Source) -> Self {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let key = ObjectKey::of(pod);
        let requests = resources::requests_in_force(pod);
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            counted: resources::non_zero_requests(pod, &requests),
            requests,
            host_ports: host_ports(spec),
            affinities: PodAffinities::of(&key.namespace, pod.metadata.labels.as_ref(), spec),
            generation: pod.metadata.generation,
            class: OnceLock::new(),
            key,
            source,
        }
    }

    /// The pod as the API shows it; `None` of one that was seen on a node.
    pub fn waiting(&self) -> Option<&Arc<Pod>> {
        match &self.source {
            Source::Waiting(pod) => Some(pod),
            Source::Bound(_) => None,
        }
    }

    /// `None` of one that was seen on a node, as all that reads a spec decides about pods that wait.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.waiting()?.spec.as_ref()
    }

    /// As [`spec`](Self::spec).
    pub fn status(&self) -> Option<&PodStatus> {
        self.waiting()?.status.as_ref()
    }

    /// What names the pod, for events about it.
    pub fn reference(&self) -> ObjectReference {
        let resource_version = match &self.source {
            Source::Waiting(pod) => pod.metadata.resource_version.clone(),
            Source::Bound(bound) => bound.resource_version.clone(),
        };
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.key.namespace.clone()),
            name: Some(self.key.name.clone()),
            uid: Some(self.uid.clone()),
            resource_version,
            ..ObjectReference::default()
        }
    }

    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match &self.source {
            Source::Waiting(pod) => pod.metadata.labels.as_ref(),
            Source::Bound(bound) => bound.labels.as_deref(),
        }
    }

    /// The node it is bound to.
    pub fn node_name(&self) -> Option<&str> {
        let name = match &self.source {
            Source::Waiting(pod) => pod.spec.as_ref()?.node_name.as_deref()?,
            Source::Bound(bound) => &bound.node,
        };
        Some(name).filter(|n| !n.is_empty())
    }

    /// The node that preemption made room on for it, while it waits.
    pub fn nominated_node(&self) -> Option<&str> {
        self.status()?.nominated_node_name.as_deref().filter(|n| !n.is_empty())
    }

    pub fn is_terminating(&self) -> bool {
        match &self.source {
            Source::Waiting(pod) => pod.metadata.deletion_timestamp.is_some(),
            Source::Bound(bound) => bound.terminating,
        }
    }

    /// Whether it was told to make room for another.
    pub fn is_preempted(&self) -> bool {
        match &self.source {
            Source::Waiting(pod) => is_preempted(pod),
            Source::Bound(bound) => bound.preempted,
        }
    }

    /// The controller of a pod that waits.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.waiting()?.metadata.owner_references.as_deref()?.iter().find(|o| o.controller == Some(true))
    }

    /// When it began to run; a pod that has not counts as the latest of all.
    pub fn started(&self) -> Timestamp {
        match &self.source {
            Source::Waiting(pod) => started(pod),
            Source::Bound(bound) => bound.started,
        }
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
    pub fn placing_volumes(&self) -> impl Iterator<Item = &Volume> {
        let volumes = match &self.source {
            Source::Waiting(pod) => pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default(),
            Source::Bound(bound) => &bound.volumes,
        };
        volumes.iter().filter(|v| class::matters(v))
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

fn started(pod: &Pod) -> Timestamp {
    let started = pod.status.as_ref().and_then(|s| s.start_time.as_ref());
    started.map_or(Timestamp::MAX, |time| time.0)
}

fn is_preempted(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| {
        c.type_ == "DisruptionTarget"
            && c.status == "True"
            && c.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| restarts_as_sidecar(c.restart_policy.as_deref()));
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
    fn a_bound_pod_keeps_what_is_read() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "a", "uid": "u", "labels": { "app": "web" }, "generation": 3,
                "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:01:00Z" },
            "spec": { "nodeName": "n", "priority": 5, "containers": [{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }],
                "resources": { "requests": { "cpu": "1" } } }],
                "volumes": [{ "name": "t", "emptyDir": {} }, { "name": "d", "persistentVolumeClaim": { "claimName": "data" } }] },
            "status": {
                "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler" }],
                "containerStatuses": [{ "name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                    "allocatedResources": { "cpu": "2" }, "resources": { "requests": { "cpu": "2" } } }],
            },
        }))
        .unwrap();
        let (whole, bound) =
            (PodInfo::new(Arc::new(pod.clone())), PodInfo::bound(&pod, &mut SharedLabels::default()));
        assert_eq!(bound.requests, whole.requests, "what a resize has granted counts");
        let read = |pod: &PodInfo| {
            let names: Vec<String> = pod.claim_names().collect();
            assert_eq!((pod.placing_volumes().count(), names.join(",")), (1, "data".to_owned()));
            let place = (pod.node_name().map(str::to_owned), pod.started(), pod.priority, pod.generation);
            let standing = (pod.is_terminating(), pod.is_preempted(), pod.labels().cloned());
            (place, standing, pod.host_ports.clone(), pod.reference())
        };
        assert_eq!(read(&bound), read(&whole));
        assert!(bound.is_terminating() && bound.is_preempted() && bound.started() < Timestamp::MAX);
        assert!(bound.waiting().is_none() && whole.waiting().is_some());
    }

    #[test]
    fn a_bound_pod_takes_little_memory() {
        let own = size_of::<PodInfo>() + size_of::<Bound>();
        assert!(own <= 512, "{own} bytes: whatever is added here is added for every pod of the cluster");
    }
}

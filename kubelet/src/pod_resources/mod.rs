//! Who has which devices, CPUs and memory, for monitors on this machine: the pod-resources API at
//! `<root>/pod-resources/kubelet.sock`.

pub mod messages;

use crate::grpc::{self, Service, decode, unknown};
use crate::kubelet::Kubelet;
use crate::metrics::Metric;
use crate::placement::CpuSet;
use crate::placement::memory::Block;
use crate::pod::termination::is_over;
use crate::pods_api::PodsApi;
use async_trait::async_trait;
use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use messages as api;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The label of the API's version on its metrics.
const VERSION: &str = "v1";

/// Answers until `stop`.
pub async fn run(kubelet: Arc<Kubelet>, stop: CancellationToken) {
    let socket = kubelet.root().join("pod-resources/kubelet.sock");
    let work = async {
        match grpc::listen(&socket) {
            Ok(listener) => grpc::serve(listener, Arc::new(PodResources(kubelet))).await,
            Err(error) => {
                tracing::error!(socket = %socket.display(), %error, "nobody can ask for pods' resources");
                std::future::pending().await
            }
        }
    };
    stop.run_until_cancelled(work).await;
}

struct PodResources(Arc<Kubelet>);

#[async_trait]
impl Service for PodResources {
    async fn call(&self, path: &str, request: Bytes) -> Result<Vec<u8>, Status> {
        let (what, failed) = match path {
            api::LIST => (Metric::PodResourcesList, Metric::PodResourcesListErrors),
            api::GET => (Metric::PodResourcesGet, Metric::PodResourcesGetErrors),
            api::GET_ALLOCATABLE => (Metric::PodResourcesAllocatable, Metric::PodResourcesAllocatableErrors),
            path => return Err(unknown(path)),
        };
        self.0.metrics.add(Metric::PodResourcesRequests, &[VERSION]);
        self.0.metrics.add(what, &[VERSION]);
        let answer = match path {
            api::LIST => Ok(self.list().encode_to_vec()),
            api::GET => {
                decode(request).and_then(|request| self.get(request)).map(|answer| answer.encode_to_vec())
            }
            _ => Ok(self.allocatable().encode_to_vec()),
        };
        if answer.is_err() {
            self.0.metrics.add(failed, &[VERSION]);
        }
        answer
    }
}

fn names(pod: &Pod) -> (String, String) {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    (name(&pod.metadata.namespace), name(&pod.metadata.name))
}

impl PodResources {
    /// Those that have ended have nothing any more.
    fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.0.pods();
        pods.retain(|pod| !is_over(pod));
        pods.sort_by_key(|pod| names(pod));
        pods
    }

    fn list(&self) -> api::ListPodResourcesResponse {
        api::ListPodResourcesResponse {
            pod_resources: self.pods().iter().map(|pod| self.of_pod(pod)).collect(),
        }
    }

    fn get(&self, request: api::GetPodResourcesRequest) -> Result<api::GetPodResourcesResponse, Status> {
        let api::GetPodResourcesRequest { pod_name, pod_namespace } = request;
        let wanted = (pod_namespace, pod_name);
        let pods = self.pods();
        let found = pods.iter().find(|pod| names(pod) == wanted).ok_or_else(|| {
            Status::not_found(format!("pod {} in namespace {} not found", wanted.1, wanted.0))
        })?;
        Ok(api::GetPodResourcesResponse { pod_resources: Some(self.of_pod(found)) })
    }

    fn of_pod(&self, pod: &Pod) -> api::PodResources {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let (namespace, name) = names(pod);
        let containers = pod.spec.iter().flat_map(|spec| {
            // Of init containers those that stay.
            let init =
                spec.init_containers.iter().flatten().filter(|c| crate::pod_facts::containers::is_sidecar(c));
            init.chain(&spec.containers)
        });
        let containers = containers.map(|container| {
            let allocation = &self.0.allocation;
            let (cpus, memory) = allocation.own(uid, &container.name);
            let devices = allocation.devices.of_container(uid, &container.name);
            let devices = devices.into_iter().flat_map(|(name, own)| {
                let nodes =
                    own.devices.iter().map(|id| (id.clone(), own.nodes.get(id).cloned().unwrap_or_default()));
                by_topology(&name, nodes.collect())
            });
            api::ContainerResources {
                name: container.name.clone(),
                devices: devices.collect(),
                cpu_ids: ids(&cpus),
                memory: memory.iter().map(block).collect(),
                dynamic_resources: Vec::new(),
            }
        });
        api::PodResources { name, namespace, containers: containers.collect() }
    }

    fn allocatable(&self) -> api::AllocatableResourcesResponse {
        let (cpus, memory) = self.0.allocation.allocatable();
        let devices = self.0.allocation.devices.all();
        api::AllocatableResourcesResponse {
            devices: devices.into_iter().flat_map(|(name, devices)| by_topology(&name, devices)).collect(),
            cpu_ids: ids(&cpus),
            memory: memory.iter().map(block).collect(),
        }
    }
}

fn ids(cpus: &CpuSet) -> Vec<i64> {
    cpus.iter().map(i64::from).collect()
}

fn topology(nodes: impl IntoIterator<Item = u32>) -> Option<api::TopologyInfo> {
    let nodes: Vec<_> = nodes.into_iter().map(|id| api::NumaNode { id: i64::from(id) }).collect();
    (!nodes.is_empty()).then_some(api::TopologyInfo { nodes })
}

fn block(block: &Block) -> api::ContainerMemory {
    let topology = topology(block.nodes.iter().copied());
    api::ContainerMemory { memory_type: block.kind.clone(), size: block.size, topology }
}

/// Devices that are near to the same nodes stand together.
fn by_topology(name: &str, devices: BTreeMap<String, BTreeSet<u32>>) -> Vec<api::ContainerDevices> {
    let mut all: BTreeMap<BTreeSet<u32>, Vec<String>> = BTreeMap::new();
    for (id, nodes) in devices {
        all.entry(nodes).or_default().push(id);
    }
    let entry = |(nodes, device_ids)| api::ContainerDevices {
        resource_name: name.to_owned(),
        device_ids,
        topology: topology(nodes),
    };
    all.into_iter().map(entry).collect()
}

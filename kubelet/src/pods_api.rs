//! What the kubelet's server needs to know about the node's pods.

use crate::cgroup_names::Names;
use crate::cri::{self, Runtime, api};
use crate::volume_stats::VolumeStats;
use async_trait::async_trait;
use coracle_storage::volumes::Count;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// One container of a pod as the runtime last showed it: the newest attempt, and how to find older logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerHandle {
    pub name: String,
    /// The runtime's id, without `containerd://`.
    pub id: String,
    /// How often it was started before; the file name of its log is `<attempt>.log`.
    pub attempt: u32,
    pub running: bool,
    /// The CRI log of this attempt. It may not exist yet.
    pub log_path: PathBuf,
    /// The CRI log of the attempt before, if it is still there (`kubectl logs --previous`).
    pub previous_log_path: Option<PathBuf>,
    pub stdin: bool,
    pub tty: bool,
}

/// A pod of this node.
#[derive(Clone, Debug)]
pub struct PodHandle {
    pub pod: Arc<Pod>,
    pub uid: String,
    /// The ready sandbox.
    pub sandbox_id: Option<String>,
    pub host_network: bool,
    /// The IPs of the sandbox, or of the node with hostNetwork.
    pub ips: Vec<String>,
    /// Init, app and ephemeral containers that exist in the runtime.
    pub containers: Vec<ContainerHandle>,
}

impl PodHandle {
    /// The container of this name, or with `None` the one named by `kubectl.kubernetes.io/default-container`, else
    /// the first of the spec.
    pub fn container(&self, name: Option<&str>) -> Option<&ContainerHandle> {
        let spec = self.pod.spec.as_ref()?;
        let annotation = || {
            let annotations = self.pod.metadata.annotations.as_ref()?;
            annotations.get("kubectl.kubernetes.io/default-container").map(String::as_str)
        };
        let name = name.or_else(annotation).or_else(|| spec.containers.first().map(|c| c.name.as_str()))?;
        self.containers.iter().find(|c| c.name == name)
    }
}

/// The pods of this node and the runtime's streaming calls. Look-ups read memory only.
#[async_trait]
pub trait PodsApi: Send + Sync + 'static {
    /// All pods that this kubelet runs, static ones included, with their newest status.
    fn pods(&self) -> Vec<Arc<Pod>>;

    /// `None` when no such pod runs here, or its UID is another one.
    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<PodHandle>;

    /// The runtime itself, for exec, attach, port-forward and stats.
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// How the cgroups of pods are called.
    fn cgroup_names(&self) -> Names {
        Names::default()
    }

    /// The UIDs of pods that are gone from their source and have not ended yet.
    fn orphans(&self) -> HashSet<String> {
        HashSet::new()
    }

    /// The image that sandboxes are made of.
    fn sandbox_image(&self) -> String {
        String::new()
    }

    /// How many volumes pods want and have, by plugin.
    fn volumes(&self) -> BTreeMap<String, Count> {
        BTreeMap::new()
    }

    /// Claims that are, or may be, prepared, by driver; `<any>` stands for all.
    fn claims_in_use(&self) -> BTreeMap<String, usize> {
        BTreeMap::new()
    }

    /// What is known of their volumes' use.
    fn volume_stats(&self) -> Arc<VolumeStats>;

    /// A streaming URL for a command in a running container.
    async fn exec(&self, request: api::ExecRequest) -> cri::Result<String> {
        self.runtime().exec(request).await
    }

    async fn attach(&self, request: api::AttachRequest) -> cri::Result<String> {
        self.runtime().attach(request).await
    }

    async fn port_forward(&self, request: api::PortForwardRequest) -> cri::Result<String> {
        self.runtime().port_forward(request).await
    }

    async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> cri::Result<api::ExecSyncResponse> {
        self.runtime().exec_sync(container_id, command, timeout).await
    }

    /// For `/checkpoint`.
    async fn checkpoint(&self, id: &str, location: &Path, limit: Option<Duration>) -> cri::Result<()> {
        self.runtime().checkpoint_container(id, location, limit).await
    }

    /// For `/stats/summary` and `/metrics/resource`.
    async fn container_stats(&self) -> cri::Result<Vec<api::ContainerStats>> {
        self.runtime().list_container_stats().await
    }

    async fn pod_sandbox_stats(&self) -> cri::Result<Vec<api::PodSandboxStats>> {
        self.runtime().list_pod_sandbox_stats().await
    }
}

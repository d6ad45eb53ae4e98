//! The container runtime as the kubelet sees it: a port with CRI v1's own messages.

mod calls;
mod client;
pub mod shims;

pub use calls::Calls;
pub use client::CriClient;
pub use k8s_cri::v1 as api;

use async_trait::async_trait;
use futures::stream::BoxStream;
use std::path::Path;
use std::time::Duration;

/// Who makes cgroups, and how they are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Directories: `/kubepods/burstable/podUID`.
    Cgroupfs,
    /// Slices of systemd: `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice`.
    Systemd,
}

/// A call to the runtime that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// Nothing answers at the socket; every call fails so until the runtime is back.
    #[error("container runtime is not reachable at {endpoint}: {message}")]
    Unreachable { endpoint: String, message: String },
    /// The runtime answered with an error; `message` is its own text.
    #[error("rpc error: code = {code:?} desc = {message}")]
    Failed { method: &'static str, code: tonic::Code, message: String },
    #[error("{method} did not answer within {limit:?}")]
    Timeout { method: &'static str, limit: Duration },
}

impl RuntimeError {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed { code: tonic::Code::NotFound, .. })
    }

    pub fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Failed { code: tonic::Code::Unimplemented, .. })
    }

    /// The runtime, or what it was asked to run, did not come to an end in time.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Failed { code: tonic::Code::DeadlineExceeded, .. })
    }

    /// The runtime's own text, without the wrapping of the call.
    pub fn detail(&self) -> String {
        match self {
            Self::Failed { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }
}

pub type Result<T> = std::result::Result<T, RuntimeError>;

/// CRI v1's RuntimeService and ImageService. Calls are cancelled by dropping them, which for those that change something
/// is what [`Calls`] is there to prevent; all are idempotent where CRI says so (stop, remove). Not-found on stop and
/// remove is success.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    async fn version(&self) -> Result<api::VersionResponse>;
    async fn status(&self) -> Result<api::StatusResponse>;
    /// Who makes cgroups for it. Unimplemented before containerd 2 and CRI-O 1.28.
    async fn cgroup_driver(&self) -> Result<Option<CgroupDriver>>;

    async fn run_pod_sandbox(&self, config: api::PodSandboxConfig, handler: &str) -> Result<String>;
    async fn stop_pod_sandbox(&self, id: &str) -> Result<()>;
    async fn remove_pod_sandbox(&self, id: &str) -> Result<()>;
    async fn pod_sandbox_status(&self, id: &str) -> Result<api::PodSandboxStatus>;
    async fn list_pod_sandboxes(&self, filter: Option<api::PodSandboxFilter>)
    -> Result<Vec<api::PodSandbox>>;

    async fn create_container(
        &self,
        sandbox: &str,
        config: api::ContainerConfig,
        sandbox_config: api::PodSandboxConfig,
    ) -> Result<String>;
    async fn start_container(&self, id: &str) -> Result<()>;
    /// Changes the CPU and memory of a container that runs; zero leaves a value as it is.
    async fn update_container_resources(&self, id: &str, linux: api::LinuxContainerResources) -> Result<()>;
    /// Sends the stop signal, waits `grace`, then kills.
    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()>;
    async fn remove_container(&self, id: &str) -> Result<()>;
    async fn list_containers(&self, filter: Option<api::ContainerFilter>) -> Result<Vec<api::Container>>;
    async fn container_status(&self, id: &str) -> Result<api::ContainerStatus>;
    async fn reopen_container_log(&self, id: &str) -> Result<()>;
    /// Writes what the container is at this moment to an archive. Unimplemented before containerd 2.
    async fn checkpoint_container(&self, id: &str, location: &Path, limit: Option<Duration>) -> Result<()>;
    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<api::ExecSyncResponse>;

    /// The URL of the runtime's streaming server for one session.
    async fn exec(&self, request: api::ExecRequest) -> Result<String>;
    async fn attach(&self, request: api::AttachRequest) -> Result<String>;
    async fn port_forward(&self, request: api::PortForwardRequest) -> Result<String>;

    async fn list_container_stats(&self) -> Result<Vec<api::ContainerStats>>;
    async fn list_pod_sandbox_stats(&self) -> Result<Vec<api::PodSandboxStats>>;
    /// Unimplemented before containerd 1.7.
    async fn container_events(&self) -> Result<BoxStream<'static, Result<api::ContainerEventResponse>>>;

    async fn image_status(&self, image: &str) -> Result<Option<api::Image>>;
    /// The image's reference in the runtime. A pull that makes no progress is the runtime's to end.
    async fn pull_image(
        &self,
        image: &str,
        auth: Option<api::AuthConfig>,
        sandbox: api::PodSandboxConfig,
    ) -> Result<String>;
    async fn list_images(&self) -> Result<Vec<api::Image>>;
    /// Not-found is success.
    async fn remove_image(&self, image: &str) -> Result<()>;
    async fn image_fs_info(&self) -> Result<Vec<api::FilesystemUsage>>;
}

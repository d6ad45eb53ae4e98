//! CRI v1 over a unix socket. The channel connects lazily and reconnects by itself.

use super::{Result, Runtime, RuntimeError, api};
use crate::cri::CgroupDriver;
use crate::metrics::{Metric, Metrics};
use api::image_service_client::ImageServiceClient;
use api::runtime_service_client::RuntimeServiceClient;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// For calls that only read or start something, where nobody chooses; upstream's.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Connecting to a local socket either works at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest answer taken, in bytes; upstream's limit for a list of everything.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Cloning shares the connection.
#[derive(Clone)]
pub struct CriClient {
    endpoint: String,
    /// For calls that only read or start something. A sandbox waits for CNI: it has twice the time, as upstream's.
    limit: Duration,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    metrics: Metrics,
}

impl CriClient {
    /// For somebody who is no kubelet, and counts nothing. `endpoint` is `unix:///path` or a path. Nothing is connected yet; must be called inside the tokio runtime.
    pub fn new(endpoint: &str) -> Self {
        Self::with(endpoint, channel(endpoint), None, (CALL_TIMEOUT, Metrics::default()))
    }

    /// As the settings have it.
    pub fn of(config: &crate::Config) -> Self {
        let images = config.image_endpoint.as_deref().map(channel);
        let endpoint = &config.runtime_endpoint;
        Self::with(
            endpoint,
            channel(endpoint),
            images,
            (config.runtime_request_timeout, config.metrics.clone()),
        )
    }

    fn with(endpoint: &str, runtime: Channel, images: Option<Channel>, calls: (Duration, Metrics)) -> Self {
        let (limit, metrics) = calls;
        let images = images.unwrap_or_else(|| runtime.clone());
        Self {
            endpoint: endpoint.to_owned(),
            limit,
            runtime: RuntimeServiceClient::new(runtime).max_decoding_message_size(MAX_MESSAGE),
            images: ImageServiceClient::new(images).max_decoding_message_size(MAX_MESSAGE),
            metrics,
        }
    }

    fn failed(&self, method: &'static str, status: &tonic::Status) -> RuntimeError {
        if status.code() == tonic::Code::Unavailable {
            let mut message = status.message().to_owned();
            let mut source = std::error::Error::source(status);
            while let Some(error) = source {
                message = error.to_string();
                source = error.source();
            }
            return RuntimeError::Unreachable { endpoint: self.endpoint.clone(), message };
        }
        RuntimeError::Failed { method, code: status.code(), message: status.message().to_owned() }
    }

    async fn within<T>(
        &self,
        method: &'static str,
        limit: Duration,
        call: impl Future<Output = std::result::Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T> {
        let began = std::time::Instant::now();
        let answer = match tokio::time::timeout(limit, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.failed(method, &status)),
            Err(_) => Err(RuntimeError::Timeout { method, limit }),
        };
        let operation = operation(method);
        self.metrics.add(Metric::RuntimeCalls, &[operation]);
        self.metrics.took(Metric::RuntimeDuration, &[operation], began.elapsed());
        if answer.is_err() {
            self.metrics.add(Metric::RuntimeErrors, &[operation]);
        }
        answer
    }
}

/// What upstream's metrics call a method.
fn operation(method: &'static str) -> &'static str {
    const NAMES: [(&str, &str); 29] = [
        ("Version", "version"),
        ("Status", "status"),
        ("RuntimeConfig", "runtime_config"),
        ("RunPodSandbox", "run_podsandbox"),
        ("StopPodSandbox", "stop_podsandbox"),
        ("RemovePodSandbox", "remove_podsandbox"),
        ("PodSandboxStatus", "podsandbox_status"),
        ("ListPodSandbox", "list_podsandbox"),
        ("CreateContainer", "create_container"),
        ("StartContainer", "start_container"),
        ("StopContainer", "stop_container"),
        ("RemoveContainer", "remove_container"),
        ("UpdateContainerResources", "update_container"),
        ("ListContainers", "list_containers"),
        ("ContainerStatus", "container_status"),
        ("ReopenContainerLog", "reopen_container_log"),
        ("ExecSync", "exec_sync"),
        ("Exec", "exec"),
        ("Attach", "attach"),
        ("PortForward", "port_forward"),
        ("ContainerStats", "container_stats"),
        ("ListContainerStats", "list_container_stats"),
        ("ListPodSandboxStats", "list_podsandbox_stats"),
        ("GetContainerEvents", "get_container_events"),
        ("ImageStatus", "image_status"),
        ("PullImage", "pull_image"),
        ("ListImages", "list_images"),
        ("RemoveImage", "remove_image"),
        ("ImageFsInfo", "image_fs_info"),
    ];
    NAMES.iter().find(|(known, _)| *known == method).map_or(method, |(_, name)| name)
}

/// `endpoint` is `unix:///path` or a path.
fn channel(endpoint: &str) -> Channel {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint).to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://runtime.invalid")
        .connect_timeout(CONNECT_TIMEOUT)
        .connect_with_connector_lazy(connector)
}

/// Stop and remove of something that is gone have done their work.
fn gone_is_fine<T>(result: Result<T>) -> Result<()> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn missing(method: &'static str) -> RuntimeError {
    RuntimeError::Failed {
        method,
        code: tonic::Code::Internal,
        message: "answer without a status".to_owned(),
    }
}

#[async_trait]
impl Runtime for CriClient {
    async fn version(&self) -> Result<api::VersionResponse> {
        let request = api::VersionRequest { version: "v1".to_owned() };
        self.within("Version", self.limit, self.runtime.clone().version(request)).await
    }

    async fn status(&self) -> Result<api::StatusResponse> {
        let request = api::StatusRequest { verbose: false };
        self.within("Status", self.limit, self.runtime.clone().status(request)).await
    }

    async fn cgroup_driver(&self) -> Result<Option<CgroupDriver>> {
        let request = api::RuntimeConfigRequest {};
        let answer =
            self.within("RuntimeConfig", self.limit, self.runtime.clone().runtime_config(request)).await?;
        Ok(answer.linux.map(|linux| match linux.cgroup_driver() {
            api::CgroupDriver::Systemd => CgroupDriver::Systemd,
            api::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        }))
    }

    async fn run_pod_sandbox(&self, config: api::PodSandboxConfig, handler: &str) -> Result<String> {
        let request = api::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        let mut client = self.runtime.clone();
        let call = self.within("RunPodSandbox", self.limit * 2, client.run_pod_sandbox(request));
        Ok(call.await?.pod_sandbox_id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = api::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(
            self.within("StopPodSandbox", self.limit * 2, self.runtime.clone().stop_pod_sandbox(request))
                .await,
        )
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = api::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(
            self.within("RemovePodSandbox", self.limit, self.runtime.clone().remove_pod_sandbox(request))
                .await,
        )
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<api::PodSandboxStatus> {
        let request = api::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let mut client = self.runtime.clone();
        let call = self.within("PodSandboxStatus", self.limit, client.pod_sandbox_status(request));
        call.await?.status.ok_or_else(|| missing("PodSandboxStatus"))
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<api::PodSandboxFilter>,
    ) -> Result<Vec<api::PodSandbox>> {
        let request = api::ListPodSandboxRequest { filter };
        Ok(self
            .within("ListPodSandbox", self.limit, self.runtime.clone().list_pod_sandbox(request))
            .await?
            .items)
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: api::ContainerConfig,
        sandbox_config: api::PodSandboxConfig,
    ) -> Result<String> {
        let request = api::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.runtime.clone();
        let call = self.within("CreateContainer", self.limit, client.create_container(request));
        // Two whole configurations inside make this future a large one.
        Ok(Box::pin(call).await?.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let request = api::StartContainerRequest { container_id: id.to_owned() };
        self.within("StartContainer", self.limit, self.runtime.clone().start_container(request))
            .await
            .map(|_| ())
    }

    async fn update_container_resources(&self, id: &str, linux: api::LinuxContainerResources) -> Result<()> {
        let request = api::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(linux),
            ..api::UpdateContainerResourcesRequest::default()
        };
        let mut client = self.runtime.clone();
        let call = client.update_container_resources(request);
        self.within("UpdateContainerResources", self.limit, call).await.map(|_| ())
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = api::StopContainerRequest { container_id: id.to_owned(), timeout };
        let mut client = self.runtime.clone();
        let call = client.stop_container(request);
        gone_is_fine(self.within("StopContainer", grace.saturating_add(self.limit), call).await)
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = api::RemoveContainerRequest { container_id: id.to_owned() };
        gone_is_fine(
            self.within("RemoveContainer", self.limit, self.runtime.clone().remove_container(request)).await,
        )
    }

    async fn list_containers(&self, filter: Option<api::ContainerFilter>) -> Result<Vec<api::Container>> {
        let request = api::ListContainersRequest { filter };
        let mut client = self.runtime.clone();
        let call = self.within("ListContainers", self.limit, client.list_containers(request));
        Ok(call.await?.containers)
    }

    async fn container_status(&self, id: &str) -> Result<api::ContainerStatus> {
        let request = api::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let mut client = self.runtime.clone();
        let call = self.within("ContainerStatus", self.limit, client.container_status(request));
        call.await?.status.ok_or_else(|| missing("ContainerStatus"))
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let request = api::ReopenContainerLogRequest { container_id: id.to_owned() };
        let mut client = self.runtime.clone();
        let call = client.reopen_container_log(request);
        self.within("ReopenContainerLog", self.limit, call).await.map(|_| ())
    }

    async fn checkpoint_container(&self, id: &str, location: &Path, limit: Option<Duration>) -> Result<()> {
        // The usual limit is the least, as upstream has it: an archive that is cut off is none.
        let limit = limit.unwrap_or_default().max(self.limit);
        let timeout = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        let location = location.display().to_string();
        let request = api::CheckpointContainerRequest { container_id: id.to_owned(), location, timeout };
        let mut client = self.runtime.clone();
        let call = client.checkpoint_container(request);
        self.within("CheckpointContainer", limit, call).await.map(|_| ())
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<api::ExecSyncResponse> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request = api::ExecSyncRequest { container_id: id.to_owned(), cmd: command, timeout: seconds };
        // The runtime enforces `timeout`; ours only guards against a runtime that hangs.
        let limit = if timeout.is_zero() { self.limit } else { timeout.saturating_add(self.limit) };
        self.within("ExecSync", limit, self.runtime.clone().exec_sync(request)).await
    }

    async fn exec(&self, request: api::ExecRequest) -> Result<String> {
        Ok(self.within("Exec", self.limit, self.runtime.clone().exec(request)).await?.url)
    }

    async fn attach(&self, request: api::AttachRequest) -> Result<String> {
        Ok(self.within("Attach", self.limit, self.runtime.clone().attach(request)).await?.url)
    }

    async fn port_forward(&self, request: api::PortForwardRequest) -> Result<String> {
        Ok(self.within("PortForward", self.limit, self.runtime.clone().port_forward(request)).await?.url)
    }

    async fn list_container_stats(&self) -> Result<Vec<api::ContainerStats>> {
        let request = api::ListContainerStatsRequest { filter: None };
        let mut client = self.runtime.clone();
        let call = client.list_container_stats(request);
        Ok(self.within("ListContainerStats", self.limit, call).await?.stats)
    }

    async fn list_pod_sandbox_stats(&self) -> Result<Vec<api::PodSandboxStats>> {
        let request = api::ListPodSandboxStatsRequest { filter: None };
        let mut client = self.runtime.clone();
        let call = client.list_pod_sandbox_stats(request);
        Ok(self.within("ListPodSandboxStats", self.limit, call).await?.stats)
    }

    async fn container_events(&self) -> Result<BoxStream<'static, Result<api::ContainerEventResponse>>> {
        let mut client = self.runtime.clone();
        let call = client.get_container_events(api::GetEventsRequest {});
        let stream = self.within("GetContainerEvents", self.limit, call).await?;
        let this = self.clone();
        Ok(stream.map(move |item| item.map_err(|s| this.failed("GetContainerEvents", &s))).boxed())
    }

    async fn image_status(&self, image: &str) -> Result<Option<api::Image>> {
        let request = api::ImageStatusRequest { image: Some(image_spec(image)), verbose: false };
        Ok(self.within("ImageStatus", self.limit, self.images.clone().image_status(request)).await?.image)
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<api::AuthConfig>,
        sandbox: api::PodSandboxConfig,
    ) -> Result<String> {
        let request =
            api::PullImageRequest { image: Some(image_spec(image)), auth, sandbox_config: Some(sandbox) };
        let call = self.images.clone().pull_image(request).await;
        call.map(|r| r.into_inner().image_ref).map_err(|status| self.failed("PullImage", &status))
    }

    async fn list_images(&self) -> Result<Vec<api::Image>> {
        let request = api::ListImagesRequest { filter: None };
        Ok(self.within("ListImages", self.limit, self.images.clone().list_images(request)).await?.images)
    }

    async fn remove_image(&self, image: &str) -> Result<()> {
        let image = api::ImageSpec { image: image.to_owned(), ..api::ImageSpec::default() };
        let request = api::RemoveImageRequest { image: Some(image) };
        gone_is_fine(self.within("RemoveImage", self.limit, self.images.clone().remove_image(request)).await)
    }

    async fn image_fs_info(&self) -> Result<Vec<api::FilesystemUsage>> {
        let mut client = self.images.clone();
        let call = client.image_fs_info(api::ImageFsInfoRequest {});
        Ok(self.within("ImageFsInfo", self.limit, call).await?.image_filesystems)
    }
}

fn image_spec(image: &str) -> api::ImageSpec {
    api::ImageSpec { image: image.to_owned(), ..api::ImageSpec::default() }
}

//! CRI v1 over a unix socket. The channel connects lazily and reconnects by itself.

use super::{Result, Runtime, RuntimeError, api};
use api::image_service_client::ImageServiceClient;
use api::runtime_service_client::RuntimeServiceClient;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// For calls that only read or start something; upstream's runtimeRequestTimeout.
const CALL: Duration = Duration::from_secs(120);
/// A sandbox waits for CNI; upstream allows twice the request timeout.
const SANDBOX: Duration = Duration::from_secs(240);
/// Connecting to a local socket either works at once or not at all.
const CONNECT: Duration = Duration::from_secs(3);
/// The largest answer taken, in bytes; upstream's limit for a list of everything.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Cloning shares the connection.
#[derive(Clone)]
pub struct CriClient {
    endpoint: String,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl CriClient {
    /// `endpoint` is `unix:///path` or a path. Nothing is connected yet; must be called inside the tokio runtime.
    pub fn new(endpoint: &str) -> Self {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint).to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://runtime.invalid")
            .connect_timeout(CONNECT)
            .connect_with_connector_lazy(connector);
        Self {
            endpoint: endpoint.to_owned(),
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
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
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.failed(method, &status)),
            Err(_) => Err(RuntimeError::Timeout { method, limit }),
        }
    }
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
        self.within("Version", CALL, self.runtime.clone().version(request)).await
    }

    async fn status(&self) -> Result<api::StatusResponse> {
        let request = api::StatusRequest { verbose: false };
        self.within("Status", CALL, self.runtime.clone().status(request)).await
    }

    async fn run_pod_sandbox(&self, config: api::PodSandboxConfig, handler: &str) -> Result<String> {
        let request = api::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        let mut client = self.runtime.clone();
        let call = self.within("RunPodSandbox", SANDBOX, client.run_pod_sandbox(request));
        Ok(call.await?.pod_sandbox_id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = api::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(
            self.within("StopPodSandbox", SANDBOX, self.runtime.clone().stop_pod_sandbox(request)).await,
        )
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let request = api::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(
            self.within("RemovePodSandbox", CALL, self.runtime.clone().remove_pod_sandbox(request)).await,
        )
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<api::PodSandboxStatus> {
        let request = api::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let mut client = self.runtime.clone();
        let call = self.within("PodSandboxStatus", CALL, client.pod_sandbox_status(request));
        call.await?.status.ok_or_else(|| missing("PodSandboxStatus"))
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<api::PodSandboxFilter>,
    ) -> Result<Vec<api::PodSandbox>> {
        let request = api::ListPodSandboxRequest { filter };
        Ok(self.within("ListPodSandbox", CALL, self.runtime.clone().list_pod_sandbox(request)).await?.items)
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
        let call = self.within("CreateContainer", CALL, client.create_container(request));
        // Two whole configurations inside make this future a large one.
        Ok(Box::pin(call).await?.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let request = api::StartContainerRequest { container_id: id.to_owned() };
        self.within("StartContainer", CALL, self.runtime.clone().start_container(request)).await.map(|_| ())
    }

    async fn update_container_resources(&self, id: &str, linux: api::LinuxContainerResources) -> Result<()> {
        let request = api::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(linux),
            ..api::UpdateContainerResourcesRequest::default()
        };
        let mut client = self.runtime.clone();
        let call = client.update_container_resources(request);
        self.within("UpdateContainerResources", CALL, call).await.map(|_| ())
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = api::StopContainerRequest { container_id: id.to_owned(), timeout };
        let mut client = self.runtime.clone();
        let call = client.stop_container(request);
        gone_is_fine(self.within("StopContainer", grace.saturating_add(CALL), call).await)
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = api::RemoveContainerRequest { container_id: id.to_owned() };
        gone_is_fine(
            self.within("RemoveContainer", CALL, self.runtime.clone().remove_container(request)).await,
        )
    }

    async fn list_containers(&self, filter: Option<api::ContainerFilter>) -> Result<Vec<api::Container>> {
        let request = api::ListContainersRequest { filter };
        let mut client = self.runtime.clone();
        let call = self.within("ListContainers", CALL, client.list_containers(request));
        Ok(call.await?.containers)
    }

    async fn container_status(&self, id: &str) -> Result<api::ContainerStatus> {
        let request = api::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let mut client = self.runtime.clone();
        let call = self.within("ContainerStatus", CALL, client.container_status(request));
        call.await?.status.ok_or_else(|| missing("ContainerStatus"))
    }

    async fn reopen_container_log(&self, id: &str) -> Result<()> {
        let request = api::ReopenContainerLogRequest { container_id: id.to_owned() };
        let mut client = self.runtime.clone();
        let call = client.reopen_container_log(request);
        self.within("ReopenContainerLog", CALL, call).await.map(|_| ())
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
        let limit = if timeout.is_zero() { CALL } else { timeout.saturating_add(CALL) };
        self.within("ExecSync", limit, self.runtime.clone().exec_sync(request)).await
    }

    async fn exec(&self, request: api::ExecRequest) -> Result<String> {
        Ok(self.within("Exec", CALL, self.runtime.clone().exec(request)).await?.url)
    }

    async fn attach(&self, request: api::AttachRequest) -> Result<String> {
        Ok(self.within("Attach", CALL, self.runtime.clone().attach(request)).await?.url)
    }

    async fn port_forward(&self, request: api::PortForwardRequest) -> Result<String> {
        Ok(self.within("PortForward", CALL, self.runtime.clone().port_forward(request)).await?.url)
    }

    async fn list_container_stats(&self) -> Result<Vec<api::ContainerStats>> {
        let request = api::ListContainerStatsRequest { filter: None };
        let mut client = self.runtime.clone();
        let call = client.list_container_stats(request);
        Ok(self.within("ListContainerStats", CALL, call).await?.stats)
    }

    async fn list_pod_sandbox_stats(&self) -> Result<Vec<api::PodSandboxStats>> {
        let request = api::ListPodSandboxStatsRequest { filter: None };
        let mut client = self.runtime.clone();
        let call = client.list_pod_sandbox_stats(request);
        Ok(self.within("ListPodSandboxStats", CALL, call).await?.stats)
    }

    async fn container_events(&self) -> Result<BoxStream<'static, Result<api::ContainerEventResponse>>> {
        let mut client = self.runtime.clone();
        let call = client.get_container_events(api::GetEventsRequest {});
        let stream = self.within("GetContainerEvents", CALL, call).await?;
        let this = self.clone();
        Ok(stream.map(move |item| item.map_err(|s| this.failed("GetContainerEvents", &s))).boxed())
    }

    async fn image_status(&self, image: &str) -> Result<Option<api::Image>> {
        let request = api::ImageStatusRequest { image: Some(image_spec(image)), verbose: false };
        Ok(self.within("ImageStatus", CALL, self.images.clone().image_status(request)).await?.image)
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
        Ok(self.within("ListImages", CALL, self.images.clone().list_images(request)).await?.images)
    }

    async fn remove_image(&self, image: &str) -> Result<()> {
        let image = api::ImageSpec { image: image.to_owned(), ..api::ImageSpec::default() };
        let request = api::RemoveImageRequest { image: Some(image) };
        gone_is_fine(self.within("RemoveImage", CALL, self.images.clone().remove_image(request)).await)
    }

    async fn image_fs_info(&self) -> Result<Vec<api::FilesystemUsage>> {
        let mut client = self.images.clone();
        let call = client.image_fs_info(api::ImageFsInfoRequest {});
        Ok(self.within("ImageFsInfo", CALL, call).await?.image_filesystems)
    }
}

fn image_spec(image: &str) -> api::ImageSpec {
    api::ImageSpec { image: image.to_owned(), ..api::ImageSpec::default() }
}

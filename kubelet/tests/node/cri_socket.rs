//! CRI over a unix socket, in front of a runtime that remembers everything. It can be told to hold calls before, in the
//! middle of and after their work, and to fail them. A call whose caller goes away in the middle of the work stays a half
//! that nobody can delete, as real ones do.

use crate::fake_runtime::FakeRuntime;
use coracle_kubelet::cri::{Result, Runtime, RuntimeError, api};
use futures::StreamExt;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

type Answer<T> = std::result::Result<Response<T>, Status>;

/// Where in its life a call is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    During,
    After,
}

/// How the call that was held ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Nothing was done.
    Refused,
    /// It was done all the same.
    DoneButFailed,
}

#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub method: &'static str,
    pub moment: Moment,
    pub outcome: Outcome,
}

#[derive(Default)]
struct State {
    /// The next call that is held.
    hold: Option<Hold>,
    /// A call is being held.
    held: bool,
    /// Looks at pods.
    looks: usize,
    /// Methods that lost their caller in the middle of their work.
    torn: Vec<&'static str>,
}

/// The socket; it goes with the value.
pub struct CriSocket {
    runtime: Arc<FakeRuntime>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    dir: tempfile::TempDir,
}

/// A call in the middle of its work.
struct Half<'a> {
    socket: &'a CriSocket,
    method: &'static str,
    whole: bool,
}

impl Drop for Half<'_> {
    fn drop(&mut self) {
        if !self.whole {
            self.socket.change(|state| state.torn.push(self.method));
        }
    }
}

impl CriSocket {
    /// Serves until the tokio runtime ends.
    pub fn serve(runtime: Arc<FakeRuntime>) -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let this = Arc::new(Self { runtime, state: Mutex::default(), changed: watch::Sender::new(()), dir });
        let listener = tokio::net::UnixListener::bind(this.path()).unwrap();
        let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
        let server = tonic::transport::Server::builder()
            .add_service(api::runtime_service_server::RuntimeServiceServer::from_arc(this.clone()))
            .add_service(api::image_service_server::ImageServiceServer::from_arc(this.clone()));
        tokio::spawn(server.serve_with_incoming(incoming));
        this
    }

    pub fn path(&self) -> PathBuf {
        Path::join(self.dir.path(), "cri.sock")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.send_replace(());
    }

    async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !wanted(&self.state.lock()) {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Holds the next call of the method.
    pub fn hold(&self, hold: Hold) {
        self.change(|state| state.hold = Some(hold));
    }

    /// Returns when a call is being held.
    pub async fn held(&self) {
        self.until("a call that is held", |state| state.held).await;
    }

    pub fn release(&self) {
        self.change(|state| state.held = false);
    }

    pub fn looks(&self) -> usize {
        self.state.lock().looks
    }

    /// Returns when pods have been looked at more often than that.
    pub async fn looked(&self, before: usize) {
        self.until("another look", |state| state.looks > before).await;
    }

    pub fn torn(&self) -> Vec<&'static str> {
        self.state.lock().torn.clone()
    }

    /// Takes the hold if it is meant for this call.
    fn taken(&self, method: &'static str) -> Option<Hold> {
        let mut state = self.state.lock();
        state.hold.take_if(|hold| hold.method == method)
    }

    async fn pause(&self, hold: Option<Hold>, moment: Moment) {
        if hold.is_some_and(|hold| hold.moment == moment) {
            self.change(|state| state.held = true);
            self.until("the release of a held call", |state| !state.held).await;
        }
    }

    /// A call that changes something.
    async fn change_by<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> std::result::Result<T, Status> {
        let hold = self.taken(method);
        self.pause(hold, Moment::Before).await;
        let outcome = hold.map_or(Outcome::Done, |hold| hold.outcome);
        if outcome == Outcome::Refused {
            // What it is held for lies behind it.
            self.pause(hold, Moment::During).await;
            self.pause(hold, Moment::After).await;
            return Err(Status::unknown("refused, as told"));
        }
        let mut half = Half { socket: self, method, whole: false };
        self.pause(hold, Moment::During).await;
        let done = work.await.map_err(status);
        half.whole = true;
        self.pause(hold, Moment::After).await;
        if outcome == Outcome::DoneButFailed { Err(Status::unknown("failed, as told")) } else { done }
    }

    /// A call that only looks.
    async fn look_by<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T>>,
    ) -> std::result::Result<T, Status> {
        let hold = self.taken(method);
        self.pause(hold, Moment::Before).await;
        let seen = work.await.map_err(status);
        self.pause(hold, Moment::During).await;
        self.pause(hold, Moment::After).await;
        if hold.is_some_and(|hold| hold.outcome != Outcome::Done) {
            return Err(Status::unknown("failed, as told"));
        }
        seen
    }
}

fn status(error: RuntimeError) -> Status {
    match error {
        RuntimeError::Failed { code, message, .. } => Status::new(code, message),
        other => Status::unavailable(other.to_string()),
    }
}

fn not_served<T>() -> Answer<T> {
    Err(Status::unimplemented("not here"))
}

#[async_trait::async_trait]
impl api::runtime_service_server::RuntimeService for CriSocket {
    async fn version(&self, _: Request<api::VersionRequest>) -> Answer<api::VersionResponse> {
        self.runtime.version().await.map(Response::new).map_err(status)
    }

    async fn status(&self, _: Request<api::StatusRequest>) -> Answer<api::StatusResponse> {
        Runtime::status(self.runtime.as_ref()).await.map(Response::new).map_err(status)
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<api::RunPodSandboxRequest>,
    ) -> Answer<api::RunPodSandboxResponse> {
        let request = request.into_inner();
        let work = self.runtime.run_pod_sandbox(request.config.unwrap_or_default(), &request.runtime_handler);
        let pod_sandbox_id = self.change_by("RunPodSandbox", work).await?;
        Ok(Response::new(api::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<api::StopPodSandboxRequest>,
    ) -> Answer<api::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.change_by("StopPodSandbox", self.runtime.stop_pod_sandbox(&id)).await?;
        Ok(Response::new(api::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<api::RemovePodSandboxRequest>,
    ) -> Answer<api::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.change_by("RemovePodSandbox", self.runtime.remove_pod_sandbox(&id)).await?;
        Ok(Response::new(api::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<api::PodSandboxStatusRequest>,
    ) -> Answer<api::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let seen = self.look_by("PodSandboxStatus", self.runtime.pod_sandbox_status(&id)).await?;
        let status = Some(seen);
        Ok(Response::new(api::PodSandboxStatusResponse { status, ..Default::default() }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<api::ListPodSandboxRequest>,
    ) -> Answer<api::ListPodSandboxResponse> {
        let filter = request.into_inner().filter;
        if filter.as_ref().is_some_and(|filter| !filter.label_selector.is_empty()) {
            self.change(|state| state.looks += 1);
        }
        let items = self.look_by("ListPodSandbox", self.runtime.list_pod_sandboxes(filter)).await?;
        Ok(Response::new(api::ListPodSandboxResponse { items }))
    }

    async fn create_container(
        &self,
        request: Request<api::CreateContainerRequest>,
    ) -> Answer<api::CreateContainerResponse> {
        let request = request.into_inner();
        let work = self.runtime.create_container(
            &request.pod_sandbox_id,
            request.config.unwrap_or_default(),
            request.sandbox_config.unwrap_or_default(),
        );
        let container_id = self.change_by("CreateContainer", work).await?;
        Ok(Response::new(api::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<api::StartContainerRequest>,
    ) -> Answer<api::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.change_by("StartContainer", self.runtime.start_container(&id)).await?;
        Ok(Response::new(api::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<api::StopContainerRequest>,
    ) -> Answer<api::StopContainerResponse> {
        let request = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        self.change_by("StopContainer", self.runtime.stop_container(&request.container_id, grace)).await?;
        Ok(Response::new(api::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<api::RemoveContainerRequest>,
    ) -> Answer<api::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.change_by("RemoveContainer", self.runtime.remove_container(&id)).await?;
        Ok(Response::new(api::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<api::ListContainersRequest>,
    ) -> Answer<api::ListContainersResponse> {
        let filter = request.into_inner().filter;
        let containers = self.look_by("ListContainers", self.runtime.list_containers(filter)).await?;
        Ok(Response::new(api::ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<api::ContainerStatusRequest>,
    ) -> Answer<api::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let status = Some(self.look_by("ContainerStatus", self.runtime.container_status(&id)).await?);
        Ok(Response::new(api::ContainerStatusResponse { status, ..Default::default() }))
    }

    async fn update_container_resources(
        &self,
        _: Request<api::UpdateContainerResourcesRequest>,
    ) -> Answer<api::UpdateContainerResourcesResponse> {
        not_served()
    }

    async fn reopen_container_log(
        &self,
        _: Request<api::ReopenContainerLogRequest>,
    ) -> Answer<api::ReopenContainerLogResponse> {
        not_served()
    }

    async fn exec_sync(&self, _: Request<api::ExecSyncRequest>) -> Answer<api::ExecSyncResponse> {
        not_served()
    }

    async fn exec(&self, _: Request<api::ExecRequest>) -> Answer<api::ExecResponse> {
        not_served()
    }

    async fn attach(&self, _: Request<api::AttachRequest>) -> Answer<api::AttachResponse> {
        not_served()
    }

    async fn port_forward(&self, _: Request<api::PortForwardRequest>) -> Answer<api::PortForwardResponse> {
        not_served()
    }

    async fn container_stats(
        &self,
        _: Request<api::ContainerStatsRequest>,
    ) -> Answer<api::ContainerStatsResponse> {
        not_served()
    }

    async fn list_container_stats(
        &self,
        _: Request<api::ListContainerStatsRequest>,
    ) -> Answer<api::ListContainerStatsResponse> {
        let stats = self.runtime.list_container_stats().await.map_err(status)?;
        Ok(Response::new(api::ListContainerStatsResponse { stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        _: Request<api::PodSandboxStatsRequest>,
    ) -> Answer<api::PodSandboxStatsResponse> {
        not_served()
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: Request<api::ListPodSandboxStatsRequest>,
    ) -> Answer<api::ListPodSandboxStatsResponse> {
        not_served()
    }

    async fn update_runtime_config(
        &self,
        _: Request<api::UpdateRuntimeConfigRequest>,
    ) -> Answer<api::UpdateRuntimeConfigResponse> {
        not_served()
    }

    async fn checkpoint_container(
        &self,
        request: Request<api::CheckpointContainerRequest>,
    ) -> Answer<api::CheckpointContainerResponse> {
        let api::CheckpointContainerRequest { container_id, location, timeout } = request.into_inner();
        let limit = u64::try_from(timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let work = self.runtime.checkpoint_container(&container_id, Path::new(&location), limit);
        self.change_by("CheckpointContainer", work).await?;
        Ok(Response::new(api::CheckpointContainerResponse {}))
    }

    type GetContainerEventsStream =
        futures::stream::BoxStream<'static, std::result::Result<api::ContainerEventResponse, Status>>;

    async fn get_container_events(
        &self,
        _: Request<api::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let events = self.runtime.container_events().await.map_err(status)?;
        Ok(Response::new(events.map(|event| event.map_err(status)).boxed()))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<api::ListMetricDescriptorsRequest>,
    ) -> Answer<api::ListMetricDescriptorsResponse> {
        not_served()
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<api::ListPodSandboxMetricsRequest>,
    ) -> Answer<api::ListPodSandboxMetricsResponse> {
        not_served()
    }

    async fn runtime_config(
        &self,
        _: Request<api::RuntimeConfigRequest>,
    ) -> Answer<api::RuntimeConfigResponse> {
        not_served()
    }
}

#[async_trait::async_trait]
impl api::image_service_server::ImageService for CriSocket {
    async fn list_images(&self, _: Request<api::ListImagesRequest>) -> Answer<api::ListImagesResponse> {
        let images = self.runtime.list_images().await.map_err(status)?;
        Ok(Response::new(api::ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<api::ImageStatusRequest>,
    ) -> Answer<api::ImageStatusResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let image = self.look_by("ImageStatus", self.runtime.image_status(&name)).await?;
        Ok(Response::new(api::ImageStatusResponse { image, ..Default::default() }))
    }

    async fn pull_image(&self, request: Request<api::PullImageRequest>) -> Answer<api::PullImageResponse> {
        let request = request.into_inner();
        let name = request.image.unwrap_or_default().image;
        let work = self.runtime.pull_image(&name, request.auth, request.sandbox_config.unwrap_or_default());
        let image_ref = self.change_by("PullImage", work).await?;
        Ok(Response::new(api::PullImageResponse { image_ref }))
    }

    async fn remove_image(&self, _: Request<api::RemoveImageRequest>) -> Answer<api::RemoveImageResponse> {
        not_served()
    }

    async fn image_fs_info(&self, _: Request<api::ImageFsInfoRequest>) -> Answer<api::ImageFsInfoResponse> {
        let image_filesystems = self.runtime.image_fs_info().await.map_err(status)?;
        Ok(Response::new(api::ImageFsInfoResponse { image_filesystems, ..Default::default() }))
    }
}

//! A runtime that runs nothing but remembers everything, and can be told to fail.

use async_trait::async_trait;
use coracle_kubelet::config::CgroupDriver;
use coracle_kubelet::cri::shims::{Shim, Shims};
use coracle_kubelet::cri::{Result, Runtime, RuntimeError, api};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{broadcast, watch};

struct FakeContainer {
    config: api::ContainerConfig,
    sandbox: String,
    status: api::ContainerStatus,
}

#[derive(Default)]
struct State {
    down: bool,
    ids: u32,
    sandboxes: Vec<api::PodSandbox>,
    containers: Vec<FakeContainer>,
    missing_images: Vec<String>,
    user_namespaces: bool,
    /// Image and user: nobody else may pull it.
    private_images: Vec<(String, String)>,
    pulls: Vec<(String, Option<String>)>,
    stops: Vec<(String, Duration)>,
    /// Nothing can be removed before the shim is killed.
    stuck: bool,
    killed: Vec<Shim>,
    /// Of the command `moody`.
    bad_mood: bool,
    commands: Vec<Vec<String>>,
    checkpoints: Vec<String>,
}

pub struct FakeRuntime {
    state: Mutex<State>,
    /// The command `linger` ends when this holds.
    hurry: watch::Sender<bool>,
    events: broadcast::Sender<String>,
}

impl Default for FakeRuntime {
    fn default() -> Self {
        Self { state: Mutex::default(), hurry: watch::Sender::new(false), events: broadcast::channel(1000).0 }
    }
}

fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap()
}

fn not_found(method: &'static str) -> RuntimeError {
    RuntimeError::Failed { method, code: tonic::Code::NotFound, message: "not found".to_owned() }
}

fn unimplemented<T>(method: &'static str) -> Result<T> {
    Err(RuntimeError::Failed { method, code: tonic::Code::Unimplemented, message: "fake".to_owned() })
}

impl FakeRuntime {
    pub fn set_down(&self, down: bool) {
        self.state.lock().down = down;
    }

    /// It can give pods users of their own.
    pub fn know_user_namespaces(&self) {
        self.state.lock().user_namespaces = true;
    }

    /// The registry gives the image to this user alone.
    pub fn make_private(&self, image: &str, user: &str) {
        self.state.lock().private_images.push((image.to_owned(), user.to_owned()));
    }

    /// The image can be pulled no more.
    pub fn lose_image(&self, image: &str) {
        self.state.lock().missing_images.push(image.to_owned());
    }

    /// The running container of this name exits.
    pub fn exit(&self, name: &str, code: i32) {
        let mut state = self.state.lock();
        let running = |c: &&mut FakeContainer| c.status.state == 1;
        let mut all = state.containers.iter_mut().filter(running);
        let found =
            all.find(|c| c.status.metadata.as_ref().unwrap().name == name).expect("a running container");
        end(found, code);
        let uid = found.config.labels["io.kubernetes.pod.uid"].clone();
        drop(state);
        let _ = self.events.send(uid);
    }

    /// The machine was started anew: nothing runs any more.
    pub fn reboot(&self) {
        let mut state = self.state.lock();
        state.containers.iter_mut().filter(|c| c.status.state == 1).for_each(|c| end(c, 255));
        state.sandboxes.iter_mut().for_each(|sandbox| sandbox.state = 1);
    }

    /// Ids of the running containers of this name.
    pub fn running(&self, name: &str) -> Vec<String> {
        let state = self.state.lock();
        let of = |c: &&FakeContainer| c.status.state == 1 && c.status.metadata.as_ref().unwrap().name == name;
        state.containers.iter().filter(of).map(|c| c.status.id.clone()).collect()
    }

    pub fn stops(&self) -> Vec<(String, Duration)> {
        self.state.lock().stops.clone()
    }

    pub fn forget_stops(&self) {
        self.state.lock().stops.clear();
    }

    /// Whether the command `moody` fails from now on.
    pub fn be_moody(&self, moody: bool) {
        self.state.lock().bad_mood = moody;
    }

    /// Ends all commands `linger`, also those to come.
    pub fn hurry(&self) {
        self.hurry.send_replace(true);
    }

    /// How often this command was run.
    pub fn ran(&self, command: &str) -> usize {
        let state = self.state.lock();
        state.commands.iter().filter(|words| words.first().is_some_and(|word| word == command)).count()
    }

    /// Pulls with this user's credentials.
    pub fn pulls_of(&self, user: &str) -> usize {
        self.state.lock().pulls.iter().filter(|(_, by)| by.as_deref() == Some(user)).count()
    }

    pub fn pulls(&self) -> usize {
        self.state.lock().pulls.len()
    }

    /// The configuration with which the newest container of this name was made.
    pub fn config(&self, name: &str) -> api::ContainerConfig {
        let state = self.state.lock();
        let mut all = state.containers.iter().rev();
        all.find(|c| c.config.metadata.as_ref().unwrap().name == name).expect("a container").config.clone()
    }

    pub fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.sandboxes.len(), state.containers.len())
    }

    /// From now on it cannot delete what it runs.
    pub fn stick(&self) {
        self.state.lock().stuck = true;
    }

    /// Archives of containers: the id, where and the limit in seconds.
    pub fn checkpoints(&self) -> Vec<String> {
        self.state.lock().checkpoints.clone()
    }

    /// Shims that were killed.
    pub fn killed(&self) -> Vec<Shim> {
        self.state.lock().killed.clone()
    }

    fn unstuck(&self, method: &'static str) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.up()?;
        if state.stuck {
            let message = "cannot delete running task".to_owned();
            return Err(RuntimeError::Failed { method, code: tonic::Code::FailedPrecondition, message });
        }
        Ok(state)
    }

    fn up(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.down {
            let endpoint = "fake".to_owned();
            return Err(RuntimeError::Unreachable { endpoint, message: "down".to_owned() });
        }
        Ok(state)
    }
}

impl Shims for FakeRuntime {
    fn of(&self, ids: &BTreeSet<String>) -> Vec<Shim> {
        let state = self.state.lock();
        let held = state.sandboxes.iter().filter(|s| ids.contains(&s.id));
        held.map(|s| Shim { pid: 4_194_304, id: s.id.clone() }).collect()
    }

    fn idle(&self) -> Vec<Shim> {
        Vec::new()
    }

    fn kill(&self, shim: &Shim) -> bool {
        let mut state = self.state.lock();
        state.killed.push(shim.clone());
        std::mem::take(&mut state.stuck)
    }
}

fn end(container: &mut FakeContainer, code: i32) {
    container.status.state = 2;
    container.status.exit_code = code;
    container.status.finished_at = now();
}

fn fits(
    labels: &std::collections::HashMap<String, String>,
    wanted: &std::collections::HashMap<String, String>,
) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[async_trait]
impl Runtime for FakeRuntime {
    async fn version(&self) -> Result<api::VersionResponse> {
        drop(self.up()?);
        Ok(api::VersionResponse {
            runtime_name: "fake".to_owned(),
            runtime_version: "1".to_owned(),
            ..api::VersionResponse::default()
        })
    }

    async fn cgroup_driver(&self) -> Result<Option<CgroupDriver>> {
        Ok(None)
    }

    async fn status(&self) -> Result<api::StatusResponse> {
        let user_namespaces = self.up()?.user_namespaces;
        let features = api::RuntimeHandlerFeatures { user_namespaces, ..Default::default() };
        let handler = api::RuntimeHandler { features: Some(features), ..Default::default() };
        let condition = |kind: &str| api::RuntimeCondition {
            r#type: kind.to_owned(),
            status: true,
            ..Default::default()
        };
        let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
        Ok(api::StatusResponse {
            status: Some(api::RuntimeStatus { conditions }),
            runtime_handlers: vec![handler],
            ..Default::default()
        })
    }

    async fn run_pod_sandbox(&self, config: api::PodSandboxConfig, _: &str) -> Result<String> {
        let mut state = self.up()?;
        state.ids += 1;
        let id = format!("s{}", state.ids);
        state.sandboxes.push(api::PodSandbox {
            id: id.clone(),
            metadata: config.metadata,
            created_at: now(),
            labels: config.labels,
            annotations: config.annotations,
            ..api::PodSandbox::default()
        });
        Ok(id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let mut state = self.up()?;
        state.sandboxes.iter_mut().filter(|s| s.id == id).for_each(|s| s.state = 1);
        state
            .containers
            .iter_mut()
            .filter(|c| c.sandbox == id && c.status.state == 1)
            .for_each(|c| end(c, 137));
        Ok(())
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        let mut state = self.unstuck("RemovePodSandbox")?;
        state.sandboxes.retain(|s| s.id != id);
        state.containers.retain(|c| c.sandbox != id);
        Ok(())
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<api::PodSandboxStatus> {
        let state = self.up()?;
        let sandbox =
            state.sandboxes.iter().find(|s| s.id == id).ok_or_else(|| not_found("PodSandboxStatus"))?;
        let network = api::PodSandboxNetworkStatus { ip: "10.42.0.9".to_owned(), ..Default::default() };
        Ok(api::PodSandboxStatus {
            id: sandbox.id.clone(),
            state: sandbox.state,
            network: Some(network),
            ..api::PodSandboxStatus::default()
        })
    }

    async fn list_pod_sandboxes(
        &self,
        filter: Option<api::PodSandboxFilter>,
    ) -> Result<Vec<api::PodSandbox>> {
        let wanted = filter.unwrap_or_default().label_selector;
        Ok(self.up()?.sandboxes.iter().filter(|s| fits(&s.labels, &wanted)).cloned().collect())
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: api::ContainerConfig,
        _: api::PodSandboxConfig,
    ) -> Result<String> {
        let mut state = self.up()?;
        state.ids += 1;
        let id = format!("c{}", state.ids);
        let status = api::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            created_at: now(),
            image: config.image.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.clone(),
            ..api::ContainerStatus::default()
        };
        state.containers.push(FakeContainer { config, sandbox: sandbox.to_owned(), status });
        Ok(id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let mut state = self.up()?;
        let container = state.containers.iter_mut().find(|c| c.status.id == id);
        let container = container.ok_or_else(|| not_found("StartContainer"))?;
        container.status.state = 1;
        container.status.started_at = now();
        Ok(())
    }

    async fn update_container_resources(&self, id: &str, linux: api::LinuxContainerResources) -> Result<()> {
        let mut state = self.up()?;
        let container = state.containers.iter_mut().find(|c| c.status.id == id && c.status.state == 1);
        let container = container.ok_or_else(|| not_found("UpdateContainerResources"))?;
        container.config.linux.get_or_insert_default().resources = Some(linux);
        Ok(())
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<()> {
        let mut state = self.up()?;
        if let Some(container) =
            state.containers.iter_mut().find(|c| c.status.id == id && c.status.state == 1)
        {
            end(container, 143);
            let name = container.status.metadata.as_ref().unwrap().name.clone();
            state.stops.push((name, grace));
        }
        Ok(())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        self.unstuck("RemoveContainer")?.containers.retain(|c| c.status.id != id);
        Ok(())
    }

    async fn list_containers(&self, filter: Option<api::ContainerFilter>) -> Result<Vec<api::Container>> {
        let wanted = filter.unwrap_or_default().label_selector;
        let state = self.up()?;
        let found = state.containers.iter().filter(|c| fits(&c.config.labels, &wanted));
        Ok(found
            .map(|c| api::Container {
                id: c.status.id.clone(),
                pod_sandbox_id: c.sandbox.clone(),
                metadata: c.status.metadata.clone(),
                state: c.status.state,
                labels: c.config.labels.clone(),
                ..api::Container::default()
            })
            .collect())
    }

    async fn container_status(&self, id: &str) -> Result<api::ContainerStatus> {
        let state = self.up()?;
        let found = state.containers.iter().find(|c| c.status.id == id);
        found.map(|c| c.status.clone()).ok_or_else(|| not_found("ContainerStatus"))
    }

    async fn reopen_container_log(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn checkpoint_container(&self, id: &str, location: &Path, limit: Option<Duration>) -> Result<()> {
        let seconds = limit.map_or(0, |limit| limit.as_secs());
        self.state.lock().checkpoints.push(format!("{id} {} {seconds}", location.display()));
        Ok(())
    }

    async fn exec_sync(&self, _: &str, command: Vec<String>, _: Duration) -> Result<api::ExecSyncResponse> {
        let moody = {
            let mut state = self.up()?;
            state.commands.push(command.clone());
            state.bad_mood
        };
        let exit_code = match command.first().map(String::as_str) {
            Some("false") => 1,
            Some("nowhere") => return unimplemented("ExecSync"),
            Some("moody") => i32::from(moody),
            Some("linger") => {
                self.hurry.subscribe().wait_for(|hurry| *hurry).await.expect("its sender is here");
                0
            }
            _ => 0,
        };
        Ok(api::ExecSyncResponse { exit_code, ..api::ExecSyncResponse::default() })
    }

    async fn exec(&self, _: api::ExecRequest) -> Result<String> {
        unimplemented("Exec")
    }

    async fn attach(&self, _: api::AttachRequest) -> Result<String> {
        unimplemented("Attach")
    }

    async fn port_forward(&self, _: api::PortForwardRequest) -> Result<String> {
        unimplemented("PortForward")
    }

    async fn list_container_stats(&self) -> Result<Vec<api::ContainerStats>> {
        // It runs nothing that could use anything.
        self.up().map(|_| Vec::new())
    }

    async fn list_pod_sandbox_stats(&self) -> Result<Vec<api::PodSandboxStats>> {
        unimplemented("ListPodSandboxStats")
    }

    async fn container_events(&self) -> Result<BoxStream<'static, Result<api::ContainerEventResponse>>> {
        drop(self.up()?);
        let events = futures::stream::unfold(self.events.subscribe(), |mut receiver| async move {
            let uid = receiver.recv().await.ok()?;
            let metadata = api::PodSandboxMetadata { uid, ..Default::default() };
            let status = api::PodSandboxStatus { metadata: Some(metadata), ..Default::default() };
            let event = api::ContainerEventResponse {
                pod_sandbox_status: Some(status),
                created_at: now(),
                ..Default::default()
            };
            Some((Ok(event), receiver))
        });
        Ok(events.boxed())
    }

    async fn image_status(&self, image: &str) -> Result<Option<api::Image>> {
        let state = self.up()?;
        let there = !state.missing_images.iter().any(|i| i == image);
        Ok(there.then(|| api::Image { id: image.to_owned(), ..api::Image::default() }))
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<api::AuthConfig>,
        _: api::PodSandboxConfig,
    ) -> Result<String> {
        let mut state = self.up()?;
        let user = auth.map(|a| a.username);
        let private = state.private_images.iter().find(|(name, _)| name == image);
        let refused = private.is_some_and(|(_, owner)| user.as_ref() != Some(owner));
        state.pulls.push((image.to_owned(), user));
        if refused {
            return Err(not_found("PullImage"));
        }
        if state.missing_images.iter().any(|i| i == image) {
            return Err(not_found("PullImage"));
        }
        Ok(image.to_owned())
    }

    /// Those that were pulled.
    async fn list_images(&self) -> Result<Vec<api::Image>> {
        let state = self.up()?;
        let ids: std::collections::BTreeSet<&String> = state.pulls.iter().map(|(image, _)| image).collect();
        Ok(ids.into_iter().map(|id| api::Image { id: id.clone(), ..api::Image::default() }).collect())
    }

    async fn remove_image(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<Vec<api::FilesystemUsage>> {
        Ok(Vec::new())
    }
}

//! What the runtime has of one pod.

use super::labels;
use crate::cri::{self, Calls, Runtime, api};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerUser, LinuxContainerUser, ResourceRequirements};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    pub ready: bool,
    pub ips: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Created,
    Running,
    Exited,
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    pub id: String,
    pub sandbox: String,
    pub name: String,
    pub attempt: u32,
    pub state: State,
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub image: String,
    /// The image's digest reference, or its id.
    pub image_id: String,
    /// Whom its first process ran as, where the runtime says so.
    pub user: Option<ContainerUser>,
    pub hash: String,
    /// What it was started with; `None` for one of an earlier version.
    pub resources: Option<ResourceRequirements>,
    pub log_path: PathBuf,
    /// The file on the node in which the container leaves its last words.
    pub termination_log: Option<PathBuf>,
}

/// Everything of one pod, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The runtime's name, with which the ids of its containers are written; empty before it was asked.
    pub runtime: Arc<str>,
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
    /// A call that changes something was on its way when this was seen: there may be more soon.
    pub underway: bool,
}

impl Observed {
    /// A container's id as statuses have it.
    pub fn full_id(&self, container: &Container) -> String {
        format!("{}://{}", self.runtime, container.id)
    }

    /// The newest sandbox if it is ready.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|s| s.ready)
    }

    /// The newest attempt of a container.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The attempt before the newest.
    pub fn previous(&self, name: &str) -> Option<&Container> {
        self.containers.iter().filter(|c| c.name == name).nth(1)
    }

    pub fn running(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|c| matches!(c.state, State::Running | State::Unknown))
    }

    /// Whether nothing runs, and nothing is about to.
    pub fn is_stopped(&self) -> bool {
        !self.underway && self.running().next().is_none()
    }

    fn sort(&mut self) {
        self.sandboxes.sort_by_key(|s| std::cmp::Reverse(s.attempt));
        self.containers.sort_by_key(|c| std::cmp::Reverse((c.attempt, c.created_at)));
    }
}

fn selector(uid: &str) -> HashMap<String, String> {
    HashMap::from([(labels::POD_UID.to_owned(), uid.to_owned())])
}

/// Asks the runtime for everything that carries the pod's UID, by `calls` or before them. Exited containers never change,
/// so those in `old` are not asked for again.
pub async fn observe(
    runtime: &dyn Runtime,
    uid: &str,
    calls: &Calls,
    old: &Observed,
) -> cri::Result<Observed> {
    // Before the lists: what a call that ends meanwhile has made is in them, or it counts as under way.
    let underway = calls.underway();
    let sandboxes =
        api::PodSandboxFilter { label_selector: selector(uid), ..api::PodSandboxFilter::default() };
    let containers =
        api::ContainerFilter { label_selector: selector(uid), ..api::ContainerFilter::default() };
    let (sandboxes, containers) = futures::future::try_join(
        runtime.list_pod_sandboxes(Some(sandboxes)),
        runtime.list_containers(Some(containers)),
    )
    .await?;
    let sandboxes = try_join_all(sandboxes.into_iter().map(|item| sandbox(runtime, item, old)));
    let containers = try_join_all(containers.into_iter().map(|item| container(runtime, item, old)));
    let (sandboxes, containers) = futures::future::try_join(sandboxes, containers).await?;
    let mut observed = Observed {
        runtime: old.runtime.clone(),
        sandboxes: sandboxes.into_iter().flatten().collect(),
        containers: containers.into_iter().flatten().collect(),
        underway,
    };
    observed.sort();
    Ok(observed)
}

/// `None` for what vanished between the list and the look.
fn vanished<T>(result: cri::Result<T>) -> cri::Result<Option<T>> {
    match result {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

async fn sandbox(
    runtime: &dyn Runtime,
    item: api::PodSandbox,
    old: &Observed,
) -> cri::Result<Option<Sandbox>> {
    let ready = item.state == api::PodSandboxState::SandboxReady as i32;
    let attempt = item.metadata.as_ref().map_or(0, |m| m.attempt);
    let known = old.sandboxes.iter().find(|s| s.id == item.id);
    let ips = match known.filter(|s| !s.ips.is_empty() || !ready) {
        Some(known) => known.ips.clone(),
        None => match vanished(runtime.pod_sandbox_status(&item.id).await)? {
            Some(status) => addresses(status),
            None => return Ok(None),
        },
    };
    Ok(Some(Sandbox { id: item.id, attempt, ready, ips }))
}

fn addresses(status: api::PodSandboxStatus) -> Vec<String> {
    let Some(network) = status.network else { return Vec::new() };
    let more = network.additional_ips.into_iter().map(|ip| ip.ip);
    std::iter::once(network.ip).chain(more).filter(|ip| !ip.is_empty()).collect()
}

async fn container(
    runtime: &dyn Runtime,
    item: api::Container,
    old: &Observed,
) -> cri::Result<Option<Container>> {
    let state = state_of(item.state);
    let known = old.containers.iter().find(|c| c.id == item.id && c.state == state);
    if let Some(known) = known.filter(|_| matches!(state, State::Exited | State::Running)) {
        return Ok(Some(known.clone()));
    }
    let status = vanished(runtime.container_status(&item.id).await)?;
    Ok(status.map(|status| from_status(item.pod_sandbox_id, status)))
}

fn state_of(state: i32) -> State {
    match api::ContainerState::try_from(state) {
        Ok(api::ContainerState::ContainerCreated) => State::Created,
        Ok(api::ContainerState::ContainerRunning) => State::Running,
        Ok(api::ContainerState::ContainerExited) => State::Exited,
        _ => State::Unknown,
    }
}

/// CRI's times are nanoseconds since 1970; 0 means not yet.
fn time(nanos: i64) -> Option<Timestamp> {
    if nanos <= 0 { None } else { Timestamp::from_nanosecond(i128::from(nanos)).ok() }
}

fn user(user: api::ContainerUser) -> Option<ContainerUser> {
    let linux = user.linux?;
    let groups = linux.supplemental_groups;
    let linux = LinuxContainerUser {
        uid: linux.uid,
        gid: linux.gid,
        supplemental_groups: (!groups.is_empty()).then_some(groups),
    };
    Some(ContainerUser { linux: Some(linux) })
}

fn from_status(sandbox: String, status: api::ContainerStatus) -> Container {
    let metadata = status.metadata.unwrap_or_default();
    let annotation = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
    let attempt = annotation(labels::RESTART_COUNT).parse().unwrap_or(metadata.attempt);
    let path = annotation("io.kubernetes.container.terminationMessagePath");
    let termination_log = status.mounts.iter().find(|m| !path.is_empty() && m.container_path == path);
    let image = status.image.unwrap_or_default();
    Container {
        id: status.id,
        sandbox,
        name: metadata.name,
        attempt,
        state: state_of(status.state),
        created_at: time(status.created_at),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image },
        image_id: if status.image_ref.is_empty() { status.image_id } else { status.image_ref },
        user: status.user.and_then(user),
        hash: status.annotations.get(labels::HASH).cloned().unwrap_or_default(),
        resources: status.annotations.get(labels::RESOURCES).and_then(|text| serde_json::from_str(text).ok()),
        log_path: PathBuf::from(status.log_path),
        termination_log: termination_log.map(|m| PathBuf::from(&m.host_path)),
    }
}

//! The status of a pod: a pure function of its spec, of what the runtime has, and of what was reported before.

mod conditions;

use super::containers::is_sidecar;
use super::observed::{self, Observed, State};
use super::plan::{Health, Memory, Waiting};
use super::qos;
use super::termination::Termination;
use super::unlocated::{ended_well, never_seen_again, unlocated};
use crate::container::mounts::is_recursive;
use conditions::conditions;
use coracle_api::pod::Counted;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodIP, PodSpec, PodStatus, ResourceStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::{BTreeMap, HashMap};

pub struct Input<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    pub memory: &'a Memory,
    pub ending: Option<&'a Termination>,
    /// What it had is not given back yet: it has not ended.
    pub holds: bool,
    /// What is known of its containers' devices, by the containers' names.
    pub resources: &'a BTreeMap<String, Vec<ResourceStatus>>,
    /// The node's addresses, the primary one first.
    pub host_ips: &'a [String],
    /// Last words of exited containers, by container id.
    pub messages: &'a HashMap<String, String>,
    /// Whether read-only mounts can be read-only all the way down.
    pub recursive_mounts: bool,
    /// When this kubelet first saw the pod.
    pub seen_at: Timestamp,
    pub now: Timestamp,
}

/// The whole status, foreign conditions included.
pub fn status(input: &Input<'_>) -> PodStatus {
    let old = input.pod.status.clone().unwrap_or_default();
    let Some(spec) = &input.pod.spec else { return old };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let initializing = !initialized(init, input);
    let container = |c: &Container, waiting: &str, old: Option<&Vec<ContainerStatus>>| {
        let old = old.and_then(|all| all.iter().find(|s| s.name == c.name));
        container_status(input, c, waiting, old)
    };
    let default_waiting = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let apps: Vec<_> = spec
        .containers
        .iter()
        .map(|c| container(c, default_waiting, old.container_statuses.as_ref()))
        .collect();
    let inits: Vec<_> =
        init.iter().map(|c| container(c, "PodInitializing", old.init_container_statuses.as_ref())).collect();
    let ephemeral: Vec<_> = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .map(super::containers::as_container)
        .map(|c| container(&c, "ContainerCreating", old.ephemeral_container_statuses.as_ref()))
        .collect();
    let phase = phase(spec, &inits, &apps, &old, input, initializing);
    let (inits, apps) = if is_deleted(input) && is_over(&phase) {
        never_seen_again(inits, apps, initializing)
    } else {
        (inits, apps)
    };
    let ips = pod_ips(spec, input, &old);
    let forced = input.ending.and_then(Termination::words);
    PodStatus {
        conditions: Some(conditions(input, spec, &phase, &inits, &apps, initializing, &ips)),
        phase: Some(phase),
        reason: forced.map(|(reason, _)| reason.to_owned()).or(old.reason),
        message: forced.map(|(_, message)| message.to_owned()).or(old.message),
        host_ip: input.host_ips.first().cloned(),
        host_ips: Some(input.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: old.start_time.or(Some(Time(input.seen_at))),
        qos_class: Some(old.qos_class.unwrap_or_else(|| qos::class(input.pod).as_str().to_owned())),
        observed_generation: input.pod.metadata.generation,
        container_statuses: Some(apps),
        init_container_statuses: (!inits.is_empty()).then_some(inits),
        ephemeral_container_statuses: (!ephemeral.is_empty()).then_some(ephemeral),
        resources: input.memory.resizes.shown_of_pod(input.pod),
        allocated_resources: allocated(input.pod),
        ..PodStatus {
            nominated_node_name: old.nominated_node_name,
            resize: old.resize,
            resource_claim_statuses: old.resource_claim_statuses,
            extended_resource_claim_status: old.extended_resource_claim_status,
            ..PodStatus::default()
        }
    }
}

/// What the node has granted the pod in all, without its overhead; `None` where it asks for nothing.
fn allocated(pod: &Pod) -> Option<BTreeMap<String, Quantity>> {
    let all = coracle_api::pod::requests(pod, Counted::default()).to_map();
    let all: BTreeMap<_, _> =
        all.into_iter().map(|(name, amount)| (name, Quantity(amount.to_string()))).collect();
    (!all.is_empty()).then_some(all)
}

/// Without a ready sandbox the last addresses stay, as long as the pod is not over. The first is of the node's primary
/// family, whatever the pod network says first.
fn pod_ips(spec: &PodSpec, input: &Input<'_>, old: &PodStatus) -> Vec<String> {
    if spec.host_network == Some(true) {
        return input.host_ips.to_vec();
    }
    match input.observed.sandboxes.first() {
        Some(sandbox) if !sandbox.ips.is_empty() => {
            let is_six = |ip: &String| ip.contains(':');
            let mut ips = sandbox.ips.clone();
            ips.sort_by_key(|ip| Some(is_six(ip)) != input.host_ips.first().map(is_six));
            ips
        }
        _ => old.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect(),
    }
}

fn initialized(init: &[Container], input: &Input<'_>) -> bool {
    let spec = input.pod.spec.as_ref();
    let app_seen =
        spec.is_some_and(|s| s.containers.iter().any(|c| input.observed.latest(&c.name).is_some()));
    app_seen
        || init.iter().all(|c| match input.observed.latest(&c.name) {
            Some(last) if is_sidecar(c) => health(input, last).is_some_and(|h| h.started),
            Some(last) => last.state == State::Exited && last.exit_code == 0,
            None => false,
        })
}

fn health<'a>(input: &'a Input<'_>, container: &observed::Container) -> Option<&'a Health> {
    input.memory.health.get(&container.id).filter(|_| container.state == State::Running)
}

/// Why a container ended, in one word.
pub fn end_reason(c: &observed::Container) -> &str {
    match c.reason.as_str() {
        "" if c.exit_code == 0 => "Completed",
        "" => "Error",
        given => given,
    }
}

fn terminated(input: &Input<'_>, c: &observed::Container) -> ContainerState {
    let reason = end_reason(c);
    let message = input.messages.get(&c.id).cloned().filter(|m| !m.is_empty());
    let message = message.or_else(|| (!c.message.is_empty()).then(|| c.message.clone()));
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(input.observed.full_id(c)),
            exit_code: c.exit_code,
            reason: Some(reason.to_owned()),
            message,
            started_at: c.started_at.map(seconds),
            finished_at: c.finished_at.map(seconds),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// API times have whole seconds; comparing with what the server returns needs the same.
fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn waiting(waiting: &Waiting) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(waiting.reason.clone()),
            message: (!waiting.message.is_empty()).then(|| waiting.message.clone()),
        }),
        ..ContainerState::default()
    }
}

fn container_status(
    input: &Input<'_>,
    spec: &Container,
    default_waiting: &str,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        started: Some(false),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    };
    let running = input.observed.latest(&spec.name).filter(|last| last.state == State::Running);
    let resources = input.memory.resizes.shown(spec, running);
    status.allocated_resources = spec.resources.as_ref().and_then(|r| r.requests.clone());
    status.resources = Some(resources);
    status.volume_mounts = volume_mounts(spec, input.recursive_mounts);
    status.allocated_resources_status = input.resources.get(&spec.name).cloned();
    let Some(last) = input.observed.latest(&spec.name) else {
        return unseen(input, spec, default_waiting, old, status);
    };
    status.image.clone_from(&last.image);
    status.image_id.clone_from(&last.image_id);
    status.container_id = Some(input.observed.full_id(last));
    status.user.clone_from(&last.user);
    status.restart_count = i32::try_from(last.attempt).unwrap_or(i32::MAX);
    let before = input.observed.previous(&spec.name).filter(|c| c.state == State::Exited);
    let before = before.map(|c| terminated(input, c));
    let before = before.or_else(|| old.and_then(|o| o.last_state.clone()).filter(|_| last.attempt > 0));
    status.last_state = Some(before.unwrap_or_default());
    match last.state {
        State::Running => {
            status.state = Some(ContainerState {
                running: Some(ContainerStateRunning { started_at: last.started_at.map(seconds) }),
                ..ContainerState::default()
            });
            let health = health(input, last).filter(|_| !is_plain_init(input.pod, spec));
            status.started = Some(health.is_some_and(|h| h.started));
            status.ready = health.is_some_and(|h| h.ready);
        }
        State::Exited => exited(input, spec, last, default_waiting, &mut status),
        State::Created | State::Unknown => {
            let reason = default_waiting.to_owned();
            status.state = Some(waiting(&Waiting { reason, message: String::new() }));
        }
    }
    status
}

/// What became of the container's mounts.
fn volume_mounts(spec: &Container, recursive_mounts: bool) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.iter().flatten();
    let all: Vec<_> = mounts
        .map(|mount| {
            let read_only = mount.read_only == Some(true);
            let recursive = is_recursive(mount, recursive_mounts).unwrap_or(false);
            let word = if recursive { "Enabled" } else { "Disabled" };
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: read_only.then_some(true),
                recursive_read_only: read_only.then(|| word.to_owned()),
                ..VolumeMountStatus::default()
            }
        })
        .collect();
    (!all.is_empty()).then_some(all)
}

/// Init containers that are to end, not to stay: ready is the one that ended well.
fn is_plain_init(pod: &Pod, container: &Container) -> bool {
    let init = pod.spec.as_ref().and_then(|s| s.init_containers.as_ref());
    init.is_some_and(|all| all.iter().any(|c| c.name == container.name)) && !is_sidecar(container)
}

/// An exited container is terminated, or waits for its next attempt with the exit as its last state.
fn exited(
    input: &Input<'_>,
    spec: &Container,
    last: &observed::Container,
    default_waiting: &str,
    status: &mut ContainerStatus,
) {
    let done = terminated(input, last);
    let init = is_plain_init(input.pod, spec);
    let again = input.memory.again.contains(&last.id);
    let begins = || Waiting { reason: default_waiting.to_owned(), message: String::new() };
    let why = input.memory.waiting.get(&spec.name).cloned().or(again.then(begins));
    match why.filter(|_| input.ending.is_none()) {
        Some(why) => {
            status.last_state = Some(done);
            status.state = Some(waiting(&why));
        }
        None => status.state = Some(done),
    }
    status.ready = init && last.exit_code == 0 && !again;
}

/// The runtime has no container of this name.
fn unseen(
    input: &Input<'_>,
    spec: &Container,
    default_waiting: &str,
    old: Option<&ContainerStatus>,
    mut status: ContainerStatus,
) -> ContainerStatus {
    let old_terminated = old.and_then(|o| o.state.as_ref()).is_some_and(|s| s.terminated.is_some());
    if let Some(old) = old.filter(|_| old_terminated) {
        // It ended, was reported, and its remains have been removed.
        return old.clone();
    }
    if let Some(old) = old {
        status.restart_count = old.restart_count;
        status.last_state.clone_from(&old.last_state);
    }
    let ran = old.and_then(|o| o.state.as_ref()).is_some_and(|s| s.running.is_some());
    if ran && input.ending.is_some() {
        status.container_id = old.and_then(|o| o.container_id.clone());
        status.state = Some(unlocated());
        return status;
    }
    let why = input.memory.waiting.get(&spec.name).cloned();
    let why = why.unwrap_or_else(|| Waiting { reason: default_waiting.to_owned(), message: String::new() });
    status.state = Some(waiting(&why));
    status
}

fn is_deleted(input: &Input<'_>) -> bool {
    matches!(input.ending, Some(Termination::Deleted { .. }))
}

fn is_over(phase: &str) -> bool {
    coracle_api::pod::is_terminal_phase(phase)
}

/// What a container counts as for the pod's phase.
#[derive(PartialEq, Eq)]
enum Count {
    Waiting,
    Running,
    Succeeded,
    Failed,
}

fn count(status: &ContainerStatus) -> Count {
    let state = status.state.as_ref();
    let code = |s: &ContainerState| s.terminated.as_ref().map(|t| t.exit_code);
    if state.is_some_and(|s| s.running.is_some()) {
        return Count::Running;
    }
    let ended = state.and_then(code).or_else(|| status.last_state.as_ref().and_then(code));
    match ended {
        Some(0) => Count::Succeeded,
        Some(_) => Count::Failed,
        None => Count::Waiting,
    }
}

fn phase(
    spec: &PodSpec,
    inits: &[ContainerStatus],
    apps: &[ContainerStatus],
    old: &PodStatus,
    input: &Input<'_>,
    initializing: bool,
) -> String {
    if let Some(phase @ ("Succeeded" | "Failed")) = old.phase.as_deref() {
        return phase.to_owned();
    }
    let computed = compute_phase(input, inits, apps, initializing, spec);
    let forced = input.ending.and_then(Termination::words).is_some();
    let deleted = is_deleted(input);
    if !forced && !deleted && !is_over(computed) {
        return computed.to_owned();
    }
    // A terminal phase promises that nothing runs any more.
    let phase = match input.observed.is_stopped() && !input.holds {
        // One whose init containers failed never ran.
        false if initializing && (forced || is_over(computed)) => old.phase.as_deref().unwrap_or("Pending"),
        false if forced || is_over(computed) => "Running",
        false => computed,
        true if forced => "Failed",
        // It will not be started again, whatever its policy, and what did not run has not succeeded.
        true if deleted && !ended_well(spec, inits, apps) => "Failed",
        true if deleted => "Succeeded",
        true => computed,
    };
    phase.to_owned()
}

fn compute_phase(
    input: &Input<'_>,
    inits: &[ContainerStatus],
    apps: &[ContainerStatus],
    initializing: bool,
    spec: &PodSpec,
) -> &'static str {
    let again =
        |(container, status): (&Container, &ContainerStatus)| match input.observed.latest(&container.name) {
            Some(last) if last.state == State::Exited => input.memory.restarts(spec, container, last),
            // The remains of one that ended for good are removed, of others they are kept.
            _ => count(status) != Count::Succeeded && spec.restart_policy.as_deref() != Some("Never"),
        };
    if initializing {
        let plain = spec.init_containers.iter().flatten().zip(inits).filter(|(c, _)| !is_sidecar(c));
        let failed = plain.filter(|(_, s)| count(s) == Count::Failed).any(|pair| !again(pair));
        return if failed { "Failed" } else { "Pending" };
    }
    let counts: Vec<Count> = apps.iter().map(count).collect();
    let any = |wanted: Count| counts.contains(&wanted);
    let always = matches!(spec.restart_policy.as_deref(), None | Some("Always"));
    let own = spec.containers.iter().any(|c| c.restart_policy.is_some());
    if any(Count::Waiting) {
        "Pending"
    } else if any(Count::Running) || (always && !own) || spec.containers.iter().zip(apps).any(again) {
        "Running"
    } else if any(Count::Failed) {
        "Failed"
    } else {
        "Succeeded"
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;

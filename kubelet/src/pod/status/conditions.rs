//! The conditions of a pod's status: the kubelet's own, and those of others as they were.

use super::{Input, is_sidecar};
use crate::pod::plan::may_restart_all;
use crate::pod::termination::{BY_KUBELET, DISRUPTION, RESTARTING, Termination};
use crate::publisher::OWNED;
use coracle_api::condition::with_transition_time;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

#[derive(Clone, Copy)]
struct Verdict<'a> {
    kind: &'a str,
    holds: bool,
    reason: &'a str,
    message: &'a str,
}

fn condition(input: &Input<'_>, verdict: Verdict<'_>) -> PodCondition {
    let Verdict { kind, holds, reason, message } = verdict;
    let word = if holds { "True" } else { "False" };
    let present = input.pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let new = PodCondition {
        type_: kind.to_owned(),
        status: word.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        message: (!message.is_empty()).then(|| message.to_owned()),
        last_transition_time: Some(Time(input.now)),
        observed_generation: input.pod.metadata.generation,
        ..PodCondition::default()
    };
    with_transition_time(present, new)
}

fn names(statuses: &[ContainerStatus], lacks: impl Fn(&ContainerStatus) -> bool) -> String {
    let names: Vec<&str> = statuses.iter().filter(|s| lacks(s)).map(|s| s.name.as_str()).collect();
    names.join(" ")
}

pub(super) fn conditions(
    input: &Input<'_>,
    spec: &PodSpec,
    phase: &str,
    inits: &[ContainerStatus],
    apps: &[ContainerStatus],
    initializing: bool,
    ips: &[String],
) -> Vec<PodCondition> {
    let sandbox = input.observed.sandbox().is_some() && !ips.is_empty();
    let over = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let incomplete = names(inits, |s| !s.ready && s.started != Some(true));
    let incomplete = format!("containers with incomplete status: [{incomplete}]");
    let initialized = match (initializing, phase) {
        (_, "Succeeded") => Verdict { kind: "Initialized", holds: true, reason: "PodCompleted", message: "" },
        (false, _) => Verdict { kind: "Initialized", holds: true, reason: "", message: "" },
        (true, _) => Verdict {
            kind: "Initialized",
            holds: false,
            reason: "ContainersNotInitialized",
            message: &incomplete,
        },
    };
    let sidecars = spec.init_containers.iter().flatten().zip(inits).filter(|(c, _)| is_sidecar(c));
    let all: Vec<ContainerStatus> = sidecars.map(|(_, s)| s.clone()).chain(apps.iter().cloned()).collect();
    let unready = names(&all, |s| !s.ready);
    let unready_text = format!("containers with unready status: [{unready}]");
    let ready = |kind| match over {
        Some(reason) => Verdict { kind, holds: false, reason, message: "" },
        None if unready.is_empty() => Verdict { kind, holds: true, reason: "", message: "" },
        None => Verdict { kind, holds: false, reason: "ContainersNotReady", message: &unready_text },
    };
    let containers_ready = ready("ContainersReady");
    let gates = closed_gates(input.pod, spec);
    let pod_ready = if containers_ready.holds && !gates.is_empty() {
        Verdict { kind: "Ready", holds: false, reason: "ReadinessGatesNotReady", message: &gates }
    } else {
        ready("Ready")
    };
    let start = Verdict { kind: "PodReadyToStartContainers", holds: sandbox, reason: "", message: "" };
    let scheduled = Verdict { kind: "PodScheduled", holds: true, reason: "", message: "" };
    let ours = [start, initialized, pod_ready, containers_ready, scheduled];
    let ours = ours.into_iter().chain(restarting(input, spec, over));
    let ours = ours.chain(pending_resize(input)).chain(disrupted(input));
    let mut all: Vec<_> = ours.map(|verdict| condition(input, verdict)).collect();
    all.extend(resize_in_progress(input));
    let foreign = input.pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let set = |c: &PodCondition| all.iter().any(|ours| ours.type_ == c.type_);
    let foreign: Vec<_> =
        foreign.filter(|c| !OWNED.contains(&c.type_.as_str()) && !set(c)).cloned().collect();
    all.extend(foreign);
    all
}

/// Whether containers are on their way out to be started anew all together; of pods alone whose rules ask for that.
fn restarting<'a>(input: &Input<'_>, spec: &PodSpec, over: Option<&'a str>) -> Option<Verdict<'a>> {
    let kind = RESTARTING;
    let stands = Verdict { kind, holds: false, reason: over.unwrap_or_default(), message: "" };
    let goes = Verdict {
        holds: true,
        reason: "RestartAllContainersStarted",
        message: "container exited with restart policy rule",
        ..stands
    };
    let goes = Some(goes).filter(|_| over.is_none() && input.memory.is_restarting_all(input.observed));
    may_restart_all(spec).then(|| goes.unwrap_or(stands))
}

/// The kubelet itself takes the pod's place away.
fn disrupted<'a>(input: &'a Input<'_>) -> Option<Verdict<'a>> {
    let (kind, reason) = (DISRUPTION, BY_KUBELET);
    let eviction = input.ending.and_then(Termination::eviction).filter(|eviction| eviction.disrupts)?;
    Some(Verdict { kind, holds: true, reason, message: &eviction.message })
}

/// A resize that is wanted but not granted.
fn pending_resize<'a>(input: &'a Input<'_>) -> Option<Verdict<'a>> {
    let (reason, message) = input.memory.resizes.pending.as_ref()?.words();
    Some(Verdict { kind: "PodResizePending", holds: true, reason, message })
}

/// One that is granted but not done; what is wanted now may be another one.
fn resize_in_progress(input: &Input<'_>) -> Option<PodCondition> {
    let resizes = &input.memory.resizes;
    if !resizes.in_progress(input.pod, input.observed) {
        return None;
    }
    let message = resizes.error.as_deref().unwrap_or_default();
    let reason = if message.is_empty() { "" } else { "Error" };
    let verdict = Verdict { kind: "PodResizeInProgress", holds: true, reason, message };
    let observed_generation = resizes.generation().or(input.pod.metadata.generation);
    Some(PodCondition { observed_generation, ..condition(input, verdict) })
}

/// What upstream says about readiness gates that do not hold; empty when all do.
fn closed_gates(pod: &Pod, spec: &PodSpec) -> String {
    let set = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let mut messages = Vec::new();
    for gate in spec.readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        match set.iter().find(|c| c.type_ == *kind) {
            None => messages
                .push(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(c) if c.status != "True" => messages
                .push(format!("the status of pod readiness gate {kind:?} is not \"True\", but {}", c.status)),
            Some(_) => {}
        }
    }
    messages.join(", ")
}

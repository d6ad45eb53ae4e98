//! The next step of a pod: a pure function of what is wanted, what is there, and what is remembered.

use super::backoff::Backoff;
use super::containers::{Kind, is_sidecar};
use super::labels;
use super::observed::{self, Observed, State};
use super::resize::{Due, Resizes};
use super::termination::{RESTARTING, Termination};
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod, PodSpec};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// What probes have found out about one running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// No startup probe, or it succeeded.
    pub started: bool,
    pub ready: bool,
    /// The probe because of which the container must be restarted: `liveness` or `startup`.
    pub failed: Option<&'static str>,
}

/// Why a container does not run, in the words of `state.waiting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

/// The reason of a container whose configuration cannot be made of what there is: another object may mend that.
pub const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// What a worker remembers between steps; losing it in a restart costs patience, never correctness.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Restarts, by container name.
    pub restarts: Backoff,
    /// When an exit was first seen, by container id.
    pub exits: HashMap<String, Instant>,
    /// By container id.
    pub health: HashMap<String, Health>,
    /// Why the last attempt to start failed, by container name.
    pub waiting: HashMap<String, Waiting>,
    /// Not before this a container whose start failed is tried again.
    pub retry_at: HashMap<String, Instant>,
    /// The same for the sandbox and the volumes.
    pub pod_retry_at: Option<Instant>,
    /// The same for the pod's end, which failed.
    pub end_retry_at: Option<Instant>,
    /// Ids of containers that were stopped to be started anew, however they ended.
    pub replaced: HashSet<String>,
    /// Ids of containers that run again, in order and from the first init container on, because the exit of one of them
    /// asked for it by its rule (KEP-5532). What was marked before a restart of this process is found again by the pod's
    /// condition, or while that exit is the container's last one.
    pub again: HashSet<String>,
    pub resizes: Resizes,
    /// Not before this a resize that failed is tried again.
    pub resize_retry_at: Option<Instant>,
}

impl Memory {
    /// `longest` is the longest pause before a restart.
    pub fn new(resizes: Resizes, longest: Duration) -> Self {
        Self { resizes, restarts: Backoff::up_to(longest), ..Self::default() }
    }

    /// Marks every container that was there when one ended whose rule restarts them all.
    pub fn mark_all(&mut self, spec: &PodSpec, observed: &Observed) {
        let wanted = || spec.init_containers.iter().flatten().chain(&spec.containers);
        let asks = |wanted: &Container| {
            let last = observed.latest(&wanted.name).filter(|c| c.state == State::Exited)?;
            let rule = rule_of(wanted, last).filter(|_| !self.again.contains(&last.id))?;
            (rule.action == RESTART_ALL).then_some(last.finished_at)
        };
        let Some(ended) = wanted().filter_map(asks).max() else { return };
        let all = wanted().filter_map(|wanted| observed.latest(&wanted.name));
        let there =
            |c: &&observed::Container| c.created_at.is_none_or(|made| ended.is_none_or(|at| made <= at));
        self.again.extend(all.filter(there).map(|c| c.id.clone()));
    }

    /// Marks what a process before this one had marked and not yet stopped: its condition says since when. What was made
    /// later belongs to the new round.
    pub fn mark_condition(&mut self, pod: &Pod, observed: &Observed) {
        let set = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let holds = set.filter(|c| c.type_ == RESTARTING && c.status == "True");
        let since = holds.filter_map(|c| Some(c.last_transition_time.as_ref()?.0.as_second())).max();
        let Some(since) = since else { return };
        let before = |c: &&observed::Container| c.created_at.is_none_or(|made| made.as_second() <= since);
        self.again.extend(observed.containers.iter().filter(before).map(|c| c.id.clone()));
    }

    /// Whether something still runs that is to stop before all containers start anew.
    pub fn is_restarting_all(&self, observed: &Observed) -> bool {
        observed.running().any(|c| self.again.contains(&c.id))
    }

    /// Whether an exited container of the pod is not done: neither a plain init container that has succeeded, nor one that
    /// no policy and no rule restarts, nor an ephemeral one.
    pub fn runs_again(&self, pod: &Pod, exited: &observed::Container) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let is_it = |c: &&Container| c.name == exited.name;
        if let Some(init) = spec.init_containers.iter().flatten().find(is_it) {
            let succeeded = exited.exit_code == 0 && !is_sidecar(init) && !self.again.contains(&exited.id);
            return !succeeded && self.restarts(spec, init, exited);
        }
        spec.containers.iter().find(is_it).is_some_and(|app| self.restarts(spec, app, exited))
    }

    /// Whether an exited container is to run again: by the first of its rules that fits (KEP-5307), else by its own
    /// policy, else by the pod's.
    pub(super) fn restarts(&self, spec: &PodSpec, wanted: &Container, exited: &observed::Container) -> bool {
        if self.again.contains(&exited.id) {
            return true;
        }
        if let Some(rule) = rule_of(wanted, exited) {
            return matches!(rule.action.as_str(), "Restart" | RESTART_ALL);
        }
        match wanted.restart_policy.as_deref().unwrap_or_else(|| policy(spec)) {
            "Always" => true,
            "OnFailure" => exited.exit_code != 0 || self.replaced.contains(&exited.id),
            _ => false,
        }
    }
}

/// The action of a rule that restarts the whole pod in its place.
const RESTART_ALL: &str = "RestartAllContainers";

/// Whether an exit can restart all containers.
pub fn may_restart_all(spec: &PodSpec) -> bool {
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.any(|c| c.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL))
}

/// The first of a container's rules that fits how it ended.
fn rule_of<'a>(wanted: &'a Container, exited: &observed::Container) -> Option<&'a ContainerRestartRule> {
    wanted.restart_policy_rules.iter().flatten().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|code| *code == exited.exit_code);
            listed == (codes.operator == "In")
        })
    })
}

pub struct View<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    pub memory: &'a Memory,
    pub ending: Option<&'a Termination>,
    pub now: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before something changes or the time given runs out.
    Wait(Option<Duration>),
    /// Stop everything within the grace period, what is still being started as well.
    End {
        grace: Duration,
    },
    /// All is stopped: remove what is left and, when deleted, confirm it.
    CleanUp,
    /// Stop what belongs to older sandboxes and run a new one.
    NewSandbox {
        attempt: u32,
    },
    Start {
        kind: Kind,
        name: String,
        attempt: u32,
    },
    /// Created but never started, by a process that died between the two.
    Discard {
        id: String,
    },
    Kill {
        id: String,
        name: String,
        message: String,
    },
    /// Tell the runtime and the pod's own cgroup what was granted.
    Resize,
}

fn policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}

/// The next step.
pub fn plan(view: &View<'_>) -> Step {
    let Some(spec) = &view.pod.spec else { return Step::Wait(None) };
    if let Some(ending) = view.ending {
        return end(view, spec, ending);
    }
    if let Some(at) = view.memory.pod_retry_at.filter(|at| *at > view.now) {
        return Step::Wait(Some(at - view.now));
    }
    if finished(spec, view.observed, view.memory) {
        return end(view, spec, &Termination::Finished);
    }
    let Some(sandbox) = view.observed.sandbox() else {
        let attempt = view.observed.sandboxes.first().map_or(0, |s| s.attempt + 1);
        return Step::NewSandbox { attempt };
    };
    Scan { view, spec, sandbox: &sandbox.id, soonest: None }.run()
}

fn end(view: &View<'_>, spec: &PodSpec, ending: &Termination) -> Step {
    let stopped = view.observed.is_stopped() && view.observed.sandboxes.iter().all(|s| !s.ready);
    if let Some(at) = view.memory.end_retry_at.filter(|at| *at > view.now) {
        return Step::Wait(Some(at - view.now));
    }
    match ending {
        Termination::Deleted { .. } if stopped => Step::CleanUp,
        _ if stopped => Step::Wait(None),
        _ => Step::End { grace: ending.grace(Some(spec)) },
    }
}

/// Whether nothing will run again: all containers have ended and none is restarted, or an init container failed
/// for good.
pub fn finished(spec: &PodSpec, observed: &Observed, memory: &Memory) -> bool {
    let over = |wanted: &Container| {
        let last = observed.latest(&wanted.name).filter(|c| c.state == State::Exited);
        last.filter(|c| !memory.restarts(spec, wanted, c))
    };
    let init_failed = spec.init_containers.iter().flatten().filter(|c| !is_sidecar(c));
    if init_failed.clone().any(|c| over(c).is_some_and(|c| c.exit_code != 0)) {
        return true;
    }
    spec.containers.iter().all(|c| over(c).is_some())
}

/// Goes over the containers in their order until one needs something.
struct Scan<'a> {
    view: &'a View<'a>,
    spec: &'a PodSpec,
    sandbox: &'a str,
    /// When the earliest back-off ends.
    soonest: Option<Duration>,
}

impl Scan<'_> {
    fn run(mut self) -> Step {
        if let Some(step) = self.stop_marked().or_else(|| self.stop_resized()) {
            return step;
        }
        match self.init() {
            Err(step) => return step,
            Ok(false) => return Step::Wait(self.soonest),
            Ok(true) => {}
        }
        for container in &self.spec.containers {
            if let Some(step) = self.app(container) {
                return step;
            }
        }
        if let Some(step) = self.resize_pod() {
            return step;
        }
        for container in self.spec.ephemeral_containers.iter().flatten() {
            if self.view.observed.latest(&container.name).is_none()
                && let Some(step) = self.start(Kind::Ephemeral, &container.name, None)
            {
                return step;
            }
        }
        Step::Wait(self.soonest)
    }

    /// Before anything is started anew, everything that is to be has stopped.
    fn stop_marked(&self) -> Option<Step> {
        let (observed, memory) = (self.view.observed, self.view.memory);
        let marked = observed.running().find(|c| memory.again.contains(&c.id))?;
        let message = format!("Container {} will be restarted with all others of its pod", marked.name);
        Some(Step::Kill { id: marked.id.clone(), name: marked.name.clone(), message })
    }

    /// A container that takes what was granted only when it starts. What it gives up must be free before others get it.
    fn stop_resized(&self) -> Option<Step> {
        let (observed, memory) = (self.view.observed, self.view.memory);
        let resized = memory.resizes.restarts(self.view.pod, observed).into_iter().next()?;
        let message = format!("Container {} resize requires restart", resized.name);
        Some(Step::Kill { id: resized.id.clone(), name: resized.name.clone(), message })
    }

    /// Whether the container stays as it is.
    fn is_unmarked(&self, container: &observed::Container) -> bool {
        !self.view.memory.again.contains(&container.id)
    }

    fn here(&self, name: &str) -> Option<&observed::Container> {
        self.view.observed.latest(name).filter(|c| c.sandbox == self.sandbox)
    }

    /// `Err` is a step to take, `Ok` whether the app containers may run.
    fn init(&mut self) -> Result<bool, Step> {
        let spec = self.spec;
        let up = |c: &Container| self.here(&c.name).is_some_and(|c| self.is_unmarked(c));
        let initialized = spec.containers.iter().any(up);
        for container in spec.init_containers.iter().flatten() {
            let name = &container.name;
            let last = self.here(name).cloned();
            if is_sidecar(container) {
                if let Some(step) = self.sidecar(container, last.as_ref()) {
                    return Err(step);
                }
                let up = last.as_ref().is_some_and(|c| self.started(c));
                if !up && !initialized {
                    return Ok(false);
                }
                continue;
            }
            if initialized {
                continue;
            }
            match last.as_ref().map(|c| (c, c.state)) {
                Some((c, State::Exited)) if c.exit_code == 0 && self.is_unmarked(c) => {}
                Some((c, State::Running | State::Unknown)) => {
                    return match self.mend(container, c) {
                        Some(step) => Err(step),
                        None => Ok(false),
                    };
                }
                Some((c, State::Created)) => return Err(Step::Discard { id: c.id.clone() }),
                Some((c, State::Exited)) if !self.view.memory.restarts(spec, container, c) => {
                    return Ok(false);
                }
                other => {
                    let exited = other.map(|(c, _)| c);
                    return self.start(Kind::Init, name, exited).map_or(Ok(false), Err);
                }
            }
        }
        Ok(true)
    }

    fn started(&self, container: &observed::Container) -> bool {
        let health = self.view.memory.health.get(&container.id);
        container.state == State::Running && health.is_some_and(|h| h.started)
    }

    fn sidecar(&mut self, container: &Container, last: Option<&observed::Container>) -> Option<Step> {
        match last.map(|c| (c, c.state)) {
            Some((c, State::Running | State::Unknown)) => self.mend(container, c),
            Some((c, State::Created)) => Some(Step::Discard { id: c.id.clone() }),
            other => self.start(Kind::Init, &container.name, other.map(|(c, _)| c)),
        }
    }

    fn app(&mut self, container: &Container) -> Option<Step> {
        // A container that ended in an older sandbox has ended all the same.
        let last = self.view.observed.latest(&container.name).cloned();
        match last.as_ref().map(|c| (c, c.state)) {
            Some((c, State::Running | State::Unknown)) => self.mend(container, c),
            Some((c, State::Created)) => Some(Step::Discard { id: c.id.clone() }),
            Some((c, State::Exited)) if !self.view.memory.restarts(self.spec, container, c) => None,
            other => self.start(Kind::App, &container.name, other.map(|(c, _)| c)),
        }
    }

    /// What a running container needs.
    fn mend(&mut self, wanted: &Container, running: &observed::Container) -> Option<Step> {
        self.kill(wanted, running).or_else(|| self.resize(wanted, running))
    }

    fn resize(&mut self, wanted: &Container, running: &observed::Container) -> Option<Step> {
        let due = self.view.memory.resizes.due(wanted, running)?;
        if due == Due::InPlace { self.resize_unless_too_soon() } else { None }
    }

    /// The pod's own cgroup, where that is all that is left to do, or has to be done before a container starts.
    fn resize_pod(&mut self) -> Option<Step> {
        if self.view.memory.resizes.is_pod_due() { self.resize_unless_too_soon() } else { None }
    }

    fn resize_unless_too_soon(&mut self) -> Option<Step> {
        let now = self.view.now;
        match self.view.memory.resize_retry_at.filter(|at| *at > now) {
            None => Some(Step::Resize),
            Some(at) => {
                self.wake_in(at - now);
                None
            }
        }
    }

    fn retry_in(&self, name: &str) -> Option<Duration> {
        let now = self.view.now;
        self.view.memory.retry_at.get(name).filter(|at| **at > now).map(|at| *at - now)
    }

    fn wake_in(&mut self, left: Duration) {
        self.soonest = Some(self.soonest.map_or(left, |s| s.min(left)));
    }

    /// A running container that must not go on running.
    fn kill(&self, wanted: &Container, running: &observed::Container) -> Option<Step> {
        let name = &wanted.name;
        let failed = self.view.memory.health.get(&running.id).and_then(|h| h.failed);
        let message = if let Some(probe) = failed {
            format!("Container {name} failed {probe} probe, will be restarted")
        } else if !running.hash.is_empty() && running.hash != labels::spec_hash(wanted) {
            format!("Container {name} definition changed, will be restarted")
        } else {
            return None;
        };
        Some(Step::Kill { id: running.id.clone(), name: name.clone(), message })
    }

    /// Starts the container unless a back-off runs.
    fn start(&mut self, kind: Kind, name: &str, exited: Option<&observed::Container>) -> Option<Step> {
        if let Some(step) = self.resize_pod() {
            return Some(step);
        }
        let (memory, now) = (self.view.memory, self.view.now);
        let crash = exited.and_then(|c| {
            let seen = memory.exits.get(&c.id).copied().unwrap_or(now);
            memory.restarts.waiting(name, seen, now).map(|(left, _)| left)
        });
        if let Some(left) = crash.into_iter().chain(self.retry_in(name)).max() {
            self.wake_in(left);
            return None;
        }
        let attempt = self.view.observed.latest(name).map_or(0, |c| c.attempt + 1);
        Some(Step::Start { kind, name: name.to_owned(), attempt })
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

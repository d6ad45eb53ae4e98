//! The row of a pod in `kubectl get pods`, computed as upstream's printer does.

use super::super::duration;
use super::super::table::{self, cell_or_none};
use super::super::value::*;
use super::super::{Column, Object};
use coracle_api::pod::{is_terminal, restarts_as_sidecar};
use jiff::Timestamp;
use serde_json::{Value, json};

pub const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Ready", "Containers that are ready, of all"),
    table::string("Status", "State of the pod and its containers in one word"),
    table::string("Restarts", "Restarts of all containers, and the time since the last"),
    table::AGE,
    table::wide("IP", "Address of the pod"),
    table::wide("Node", "Node that the pod is bound to"),
    table::wide("Nominated Node", "Node that preemption makes room on"),
    table::wide("Readiness Gates", "Readiness gates that are true, of all"),
];

pub fn row(pod: &Object, now: Timestamp) -> Vec<Value> {
    let state = state(pod);
    vec![
        name(pod).into(),
        format!("{}/{}", state.ready, state.total).into(),
        state.reason.clone().into(),
        state.restarts_text(now).into(),
        table::age(pod, now),
        cell_or_none(str_at(&pod["status"]["podIPs"][0], "ip")),
        cell_or_none(str_at(pod, "spec.nodeName")),
        cell_or_none(str_at(pod, "status.nominatedNodeName")),
        readiness_gates(pod).into(),
    ]
}

/// The conditions by which clients tell finished pods.
pub fn row_conditions(pod: &Object) -> Vec<Value> {
    let phase = str_at(pod, "status.phase");
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    vec![json!({ "type": "Completed", "status": "True", "reason": phase, "message": message })]
}

struct State {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl State {
    fn restarts_text(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(then) if self.restarts != 0 => {
                format!("{} ({} ago)", self.restarts, duration::duration(now.as_second() - then.as_second()))
            }
            _ => self.restarts.to_string(),
        }
    }

    fn count(&mut self, container: &Value) {
        self.restarts += i64_at(container, "restartCount").unwrap_or(0);
        self.last_restart = self.last_restart.max(last_termination(container));
    }
}

fn last_termination(container: &Value) -> Option<Timestamp> {
    duration::timestamp(at(container, "lastState.terminated.finishedAt"))
}

fn state(pod: &Object) -> State {
    let status = &pod["status"];
    let sidecars = list_at(pod, "spec.initContainers").iter().filter(|c| is_sidecar(c)).count();
    let mut state = State {
        ready: 0,
        total: list_at(pod, "spec.containers").len() + sidecars,
        reason: first_of(str_at(status, "reason"), str_at(status, "phase")).to_owned(),
        restarts: 0,
        last_restart: None,
    };
    if list_at(status, "conditions")
        .iter()
        .any(|c| str_at(c, "type") == "PodScheduled" && str_at(c, "reason") == "SchedulingGated")
    {
        "SchedulingGated".clone_into(&mut state.reason);
    }
    let initializing = initialization(pod, &mut state);
    if !initializing || condition_true(status, "Initialized") {
        containers(pod, &mut state);
    }
    deletion(pod, &mut state);
    state
}

fn first_of<'a>(one: &'a str, other: &'a str) -> &'a str {
    if one.is_empty() { other } else { one }
}

fn is_sidecar(container: &Value) -> bool {
    restarts_as_sidecar(container["restartPolicy"].as_str())
}

fn spec_of<'a>(pod: &'a Object, container: &Value) -> Option<&'a Value> {
    let name = str_at(container, "name");
    list_at(pod, "spec.initContainers").iter().find(|c| str_at(c, "name") == name)
}

/// Goes through the init containers up to the first that is not done; true if there is one.
fn initialization(pod: &Object, state: &mut State) -> bool {
    for (i, container) in list_at(pod, "status.initContainerStatuses").iter().enumerate() {
        state.count(container);
        let terminated = at(container, "state.terminated");
        let waiting = str_at(container, "state.waiting.reason");
        if terminated.is_object() && i64_at(terminated, "exitCode").unwrap_or(0) == 0 {
            continue;
        }
        if spec_of(pod, container).is_some_and(is_sidecar) && bool_at(container, "started") {
            state.ready += usize::from(bool_at(container, "ready"));
            continue;
        }
        state.reason = if terminated.is_object() {
            format!("Init:{}", terminated_reason(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", list_at(pod, "spec.initContainers").len())
        };
        return true;
    }
    false
}

fn terminated_reason(terminated: &Value) -> String {
    let signal = i64_at(terminated, "signal").unwrap_or(0);
    match str_at(terminated, "reason") {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", i64_at(terminated, "exitCode").unwrap_or(0)),
        reason => reason.to_owned(),
    }
}

/// The restarts of plain init containers no longer count once the pod is initialized.
fn containers(pod: &Object, state: &mut State) {
    (state.restarts, state.last_restart) = (0, None);
    for container in list_at(pod, "status.initContainerStatuses") {
        if spec_of(pod, container).is_some_and(is_sidecar) {
            state.count(container);
        }
    }
    let mut running = false;
    for container in list_at(pod, "status.containerStatuses").iter().rev() {
        state.count(container);
        let waiting = str_at(container, "state.waiting.reason");
        let terminated = at(container, "state.terminated");
        if !waiting.is_empty() {
            waiting.clone_into(&mut state.reason);
        } else if terminated.is_object() {
            state.reason = terminated_reason(terminated);
        } else if bool_at(container, "ready") && has(container, "state.running") {
            running = true;
            state.ready += 1;
        }
    }
    if state.reason == "Completed" && running {
        let ready = condition_true(&pod["status"], "Ready");
        if ready { "Running" } else { "NotReady" }.clone_into(&mut state.reason);
    }
}

fn deletion(pod: &Object, state: &mut State) {
    if !has(pod, "metadata.deletionTimestamp") {
        return;
    }
    if str_at(pod, "status.reason") == "NodeLost" {
        "Unknown".clone_into(&mut state.reason);
    } else if !is_terminal(pod) {
        "Terminating".clone_into(&mut state.reason);
    }
}

fn condition_true(status: &Value, kind: &str) -> bool {
    list_at(status, "conditions").iter().any(|c| str_at(c, "type") == kind && str_at(c, "status") == "True")
}

fn readiness_gates(pod: &Object) -> String {
    let gates = list_at(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|g| condition_true(&pod["status"], str_at(g, "conditionType"))).count();
    format!("{open}/{}", gates.len())
}

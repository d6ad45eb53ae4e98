//! The status that a healthy kubelet would report, computed from the spec alone.

use super::Family;
use crate::pod_facts::containers::as_container;
use coracle_api::condition::with_transition_time;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, HostIP, Pod,
    PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The cluster CIDR, 10.42.0.0/16, from which simulated pods get addresses.
const POD_NETWORK: u32 = 0x0A2A_0000;
/// And of IPv6: fd42::/112.
const POD_NETWORK_V6: u128 = 0xFD42 << 112;
/// 240.0.0.0/4 is reserved (RFC 1112, section 4): nobody has these addresses, so nobody answers in a node's place.
const NODE_NETWORK: u32 = 0xF000_0000;

/// The architecture in Go's words, as in `kubernetes.io/arch`.
pub fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub fn node_ip(index: usize) -> String {
    let host = u32::try_from(index % 4_000_000).unwrap_or(0) + 1;
    Ipv4Addr::from(NODE_NETWORK | host).to_string()
}

fn pod_ip(host: u32) -> Ipv4Addr {
    // 0 and 65535 are the network and its broadcast address.
    Ipv4Addr::from(POD_NETWORK | (host % 65_534 + 1))
}

/// The addresses of a pod; the same number in each family.
pub fn pod_ips(host: u32, families: &[Family]) -> Vec<String> {
    let of = |family: &Family| match family {
        Family::V4 => pod_ip(host).to_string(),
        Family::V6 => {
            Ipv6Addr::from(POD_NETWORK_V6 | u128::from(u32::from(pod_ip(host)) & 0xFFFF)).to_string()
        }
    };
    families.iter().map(of).collect()
}

/// The host part of the highest address in use, so that a restart hands out no address twice.
pub fn highest_address(pods: impl Iterator<Item = Arc<Pod>>) -> u32 {
    let addresses = pods.filter_map(|p| p.status.as_ref()?.pod_ip.as_ref()?.parse::<IpAddr>().ok());
    let host = |address: IpAddr| match address {
        IpAddr::V4(a) => (u32::from(a) & 0xFFFF_0000 == POD_NETWORK).then(|| u32::from(a) & 0xFFFF),
        IpAddr::V6(a) => {
            u32::try_from(u128::from(a).checked_sub(POD_NETWORK_V6)?).ok().filter(|a| *a <= 0xFFFF)
        }
    };
    addresses.filter_map(host).max().unwrap_or(0)
}

fn condition(pod: &Pod, kind: &str, status: &str, reason: Option<&str>, now: Timestamp) -> PodCondition {
    let present = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let new = PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        last_transition_time: Some(Time(now)),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    };
    with_transition_time(present, new)
}

/// Ours first, then those that others set (readiness gates, disruption).
fn conditions(pod: &Pod, ready: bool, now: Timestamp) -> Vec<PodCondition> {
    let word = if ready { "True" } else { "False" };
    let reason = (!ready).then_some("PodCompleted");
    let gates_hold = pod.spec.as_ref().and_then(|s| s.readiness_gates.as_ref()).is_none_or(|gates| {
        gates.iter().all(|gate| {
            let set = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
            set.is_some_and(|c| c.iter().any(|c| c.type_ == gate.condition_type && c.status == "True"))
        })
    });
    let (pod_ready, pod_reason) =
        if ready && !gates_hold { ("False", Some("ReadinessGatesNotReady")) } else { (word, reason) };
    let mut all = vec![
        condition(pod, "PodReadyToStartContainers", word, None, now),
        condition(pod, "Initialized", "True", reason, now),
        condition(pod, "Ready", pod_ready, pod_reason, now),
        condition(pod, "ContainersReady", word, reason, now),
        condition(pod, "PodScheduled", "True", None, now),
    ];
    let others = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let others: Vec<_> = others.into_iter().filter(|o| all.iter().all(|c| c.type_ != o.type_)).collect();
    all.extend(others);
    all
}

fn container_id(pod: &Pod, container: &Container) -> String {
    let mut hash = Sha256::new();
    hash.update(pod.metadata.uid.as_deref().unwrap_or_default());
    hash.update(&container.name);
    let hex = coracle_api::hex::text(&hash.finalize());
    format!("simulated://{hex}")
}

fn container_status(
    pod: &Pod,
    container: &Container,
    started: &Time,
    ended: Option<&Time>,
) -> ContainerStatus {
    let id = container_id(pod, container);
    let state = match ended {
        None => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(started.clone()) }),
            ..ContainerState::default()
        },
        Some(ended) => ContainerState {
            terminated: Some(ContainerStateTerminated {
                container_id: Some(id.clone()),
                exit_code: 0,
                reason: Some("Completed".to_owned()),
                started_at: Some(started.clone()),
                finished_at: Some(ended.clone()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        },
    };
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        allocated_resources: container.resources.as_ref().and_then(|r| r.requests.clone()),
        // As kubelets do, which is how the API knows that a node resizes.
        resources: Some(container.resources.clone().unwrap_or_default()),
        image_id: image.clone(),
        image,
        container_id: Some(id),
        ready: ended.is_none(),
        started: Some(ended.is_none()),
        state: Some(state),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    }
}

fn statuses(pod: &Pod, status: &mut PodStatus, started: &Time, ended: Option<&Time>) {
    let Some(spec) = &pod.spec else { return };
    let old = status.container_statuses.take().unwrap_or_default();
    let apps = spec.containers.iter().map(|c| {
        let mut status = container_status(pod, c, started, ended);
        if let Some(before) = old.iter().find(|before| before.name == c.name) {
            status.restart_count = before.restart_count + i32::from(before.image != status.image);
        }
        status
    });
    status.container_statuses = Some(apps.collect());
    let init = spec.init_containers.iter().flatten().map(|c| {
        let sidecar = coracle_api::pod::restarts_as_sidecar(c.restart_policy.as_deref());
        let mut status = container_status(pod, c, started, if sidecar { ended } else { Some(started) });
        status.ready = if sidecar { ended.is_none() } else { true };
        status
    });
    let init: Vec<_> = init.collect();
    status.init_container_statuses = (!init.is_empty()).then_some(init);
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(as_container);
    let ephemeral: Vec<_> = ephemeral.map(|c| container_status(pod, &c, started, ended)).collect();
    status.ephemeral_container_statuses = (!ephemeral.is_empty()).then_some(ephemeral);
}

/// The changed spec is in force; containers with new images have been started anew.
pub fn refreshed(pod: &Pod, now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let started = status.start_time.clone().unwrap_or(Time(now));
    status.conditions = Some(conditions(pod, true, now));
    status.observed_generation = pod.metadata.generation;
    statuses(pod, &mut status, &started, None);
    status
}

/// All containers run, all probes succeed. `ips` are the pod's own addresses.
pub fn running(pod: &Pod, node: usize, ips: Vec<String>, now: Timestamp) -> PodStatus {
    let host_ip = node_ip(node);
    let host_network = pod.spec.as_ref().and_then(|s| s.host_network).unwrap_or(false);
    let ips = if host_network { vec![host_ip.clone()] } else { ips };
    let started = Time(now);
    let mut status = PodStatus {
        phase: Some("Running".to_owned()),
        conditions: Some(conditions(pod, true, now)),
        host_ips: Some(vec![HostIP { ip: host_ip.clone() }]),
        host_ip: Some(host_ip),
        pod_ip: ips.first().cloned(),
        pod_ips: Some(ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: Some(started.clone()),
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    };
    statuses(pod, &mut status, &started, None);
    status
}

/// The conditions of a running pod that its node can vouch for again, if others have taken it for not ready.
pub fn restored(pod: &Pod, now: Timestamp) -> Option<Vec<PodCondition>> {
    let status = pod.status.as_ref()?;
    let is = |all: &[PodCondition]| all.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let wanted = conditions(pod, true, now);
    let was = is(status.conditions.as_deref().unwrap_or_default());
    (status.phase.as_deref() == Some("Running") && is(&wanted) && !was).then_some(wanted)
}

/// All containers exited with 0.
pub fn finished(pod: &Pod, now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let started = status.start_time.clone().unwrap_or(Time(now));
    status.phase = Some("Succeeded".to_owned());
    status.conditions = Some(conditions(pod, false, now));
    status.observed_generation = pod.metadata.generation;
    statuses(pod, &mut status, &started, Some(&Time(now)));
    status
}

/// All containers were killed.
pub fn killed(pod: &Pod, now: Timestamp) -> PodStatus {
    let mut status = finished(pod, now);
    status.phase = Some("Failed".to_owned());
    for condition in status.conditions.iter_mut().flatten() {
        condition.reason =
            condition.reason.take().map(|r| if r == "PodCompleted" { "PodFailed".to_owned() } else { r });
    }
    for container in status.container_statuses.iter_mut().flatten() {
        if let Some(end) = container.state.as_mut().and_then(|state| state.terminated.as_mut()) {
            // What a shell says of a process that got SIGKILL.
            end.exit_code = 137;
            end.reason = Some("Error".to_owned());
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn v4(host: u32) -> Vec<String> {
        pod_ips(host, &[Family::V4])
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": { "uid": "u", "generation": 3 },
            "spec": { "containers": [{ "name": "a", "image": "i" }], "initContainers": [{ "name": "b", "image": "i" }],
                "readinessGates": [{ "conditionType": "example.com/gate" }] },
            "status": { "conditions": [{ "type": "example.com/gate", "status": "False" }] }
        }))
        .unwrap()
    }

    #[test]
    fn who_is_killed_has_failed() {
        let status = killed(&pod(), Timestamp::UNIX_EPOCH);
        let end = status.container_statuses.as_ref().unwrap()[0].state.as_ref().unwrap().terminated.as_ref();
        assert_eq!((status.phase.as_deref(), end.unwrap().exit_code), (Some("Failed"), 137));
        assert_eq!(word(&status, "Ready"), "False");
    }

    fn word(status: &PodStatus, kind: &str) -> String {
        status.conditions.iter().flatten().find(|c| c.type_ == kind).unwrap().status.clone()
    }

    #[test]
    fn a_running_pod_looks_like_one_and_keeps_foreign_conditions() {
        let pod = pod();
        let status = running(&pod, 0, v4(0), Timestamp::UNIX_EPOCH);
        assert_eq!(status.pod_ip.as_deref(), Some("10.42.0.1"));
        assert_eq!(word(&status, "ContainersReady"), "True");
        assert_eq!(word(&status, "Ready"), "False", "the gate is closed");
        assert_eq!(word(&status, "example.com/gate"), "False");
        assert!(status.container_statuses.unwrap()[0].ready);
        let init = &status.init_container_statuses.unwrap()[0];
        assert_eq!(init.state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 0);
    }

    #[test]
    fn nodes_have_addresses_that_nobody_has() {
        assert_eq!((node_ip(0).as_str(), node_ip(299).as_str()), ("240.0.0.1", "240.0.1.44"));
    }

    #[test]
    fn what_others_took_for_not_ready_is_restored_once() {
        let mut pod = pod();
        pod.spec.as_mut().unwrap().readiness_gates = None;
        pod.status = Some(running(&pod, 0, v4(0), Timestamp::UNIX_EPOCH));
        assert_eq!(restored(&pod, Timestamp::UNIX_EPOCH), None);
        let mut lost = pod.clone();
        let conditions = lost.status.as_mut().unwrap().conditions.as_mut().unwrap();
        conditions.iter_mut().filter(|c| c.type_ == "Ready").for_each(|c| c.status = "False".to_owned());
        assert_eq!(restored(&lost, Timestamp::UNIX_EPOCH), pod.status.unwrap().conditions);
    }

    #[test]
    fn changes_of_the_spec_are_taken_over() {
        let mut changed = pod();
        changed.status = Some(running(&changed, 0, v4(1), Timestamp::UNIX_EPOCH));
        let spec = changed.spec.as_mut().unwrap();
        spec.containers[0].image = Some("j".to_owned());
        let resources = json!({ "requests": { "cpu": "1" } });
        spec.containers[0].resources = serde_json::from_value(resources.clone()).unwrap();
        changed.metadata.generation = Some(4);
        let status = refreshed(&changed, Timestamp::UNIX_EPOCH);
        let first = &status.container_statuses.as_ref().unwrap()[0];
        assert_eq!((first.image.as_str(), first.restart_count), ("j", 1));
        assert_eq!(serde_json::to_value(&first.resources).unwrap(), resources);
        assert_eq!(status.observed_generation, Some(4));
        changed.status = Some(status);
        let again = refreshed(&changed, Timestamp::UNIX_EPOCH);
        assert_eq!(again.container_statuses.unwrap()[0].restart_count, 1);
    }

    #[test]
    fn addresses_go_on_after_the_highest() {
        let mut taken = pod();
        taken.status = Some(running(&taken, 0, v4(300), Timestamp::UNIX_EPOCH));
        let next = highest_address(std::iter::once(Arc::new(taken))) + 1;
        assert_ne!(pod_ip(next), pod_ip(300));
    }

    #[test]
    fn a_pod_has_an_address_of_each_family() {
        let both = pod_ips(258, &[Family::V6, Family::V4]);
        assert_eq!(both, ["fd42::103", "10.42.1.3"]);
        let mut taken = pod();
        taken.status = Some(running(&taken, 0, both, Timestamp::UNIX_EPOCH));
        assert_eq!(taken.status.as_ref().unwrap().pod_ip.as_deref(), Some("fd42::103"));
        assert_eq!(highest_address(std::iter::once(Arc::new(taken))), 0x103);
    }
}

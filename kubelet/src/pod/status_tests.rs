use super::*;
use crate::pod_facts::observed::Sandbox;
use k8s_openapi::api::core::v1::PodCondition;
use serde_json::{Value, json};

static HOST_IPS: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| vec!["192.0.2.1".to_owned()]);

fn seen(name: &str, attempt: u32, state: State, exit_code: i32) -> observed::Container {
    observed::Container {
        id: format!("{name}-{attempt}"),
        sandbox: "s".to_owned(),
        name: name.to_owned(),
        attempt,
        state,
        created_at: None,
        started_at: Some(Timestamp::UNIX_EPOCH),
        finished_at: None,
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: "docker.io/library/i:latest".to_owned(),
        image_id: "sha256:1".to_owned(),
        user: None,
        hash: String::new(),
        resources: None,
        log_path: "/x".into(),
        termination_log: None,
    }
}

fn compute(
    pod: &Value,
    containers: Vec<observed::Container>,
    memory: &Memory,
    ending: Option<&Termination>,
) -> PodStatus {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    let ips = vec!["10.42.0.2".to_owned()];
    let sandboxes = vec![Sandbox { id: "s".to_owned(), attempt: 0, ready: true, ips }];
    let observed = Observed { sandboxes, containers, ..Observed::default() };
    let now = Timestamp::from_second(100).unwrap();
    let messages = HashMap::from([("a-0".to_owned(), "last words".to_owned())]);
    status(&Input {
        pod: &pod,
        holds: false,
        resources: &BTreeMap::new(),
        observed: &observed,
        memory,
        ending,
        host_ips: &HOST_IPS,
        messages: &messages,
        recursive_mounts: false,
        seen_at: now,
        now,
    })
}

fn pod(policy: &str) -> Value {
    json!({ "metadata": { "generation": 2 }, "spec": { "restartPolicy": policy,
        "containers": [{ "name": "a", "image": "i" }, { "name": "b", "image": "i" }] } })
}

fn healthy(ids: &[&str]) -> Memory {
    let health = |id: &&str| ((*id).to_owned(), Health { started: true, ready: true, failed: None });
    Memory { health: ids.iter().map(health).collect(), ..Memory::default() }
}

fn word<'a>(status: &'a PodStatus, kind: &str) -> &'a PodCondition {
    status.conditions.iter().flatten().find(|c| c.type_ == kind).unwrap()
}

#[test]
fn phases() {
    use State::{Exited, Running};
    for (policy, a, b, expected) in [
        ("Always", None, Some((Running, 0)), "Pending"),
        ("Always", Some((Running, 0)), Some((Running, 0)), "Running"),
        ("Always", Some((Exited, 0)), Some((Exited, 0)), "Running"),
        ("Never", Some((Exited, 0)), Some((Running, 0)), "Running"),
        ("Never", Some((Exited, 0)), Some((Exited, 0)), "Succeeded"),
        ("Never", Some((Exited, 0)), Some((Exited, 1)), "Failed"),
        ("OnFailure", Some((Exited, 0)), Some((Exited, 1)), "Running"),
        ("OnFailure", Some((Exited, 0)), Some((Exited, 0)), "Succeeded"),
    ] {
        let make = |name, state: Option<(State, i32)>| state.map(|(state, code)| seen(name, 0, state, code));
        let containers = make("a", a).into_iter().chain(make("b", b)).collect();
        let status = compute(&pod(policy), containers, &Memory::default(), None);
        assert_eq!(status.phase.as_deref(), Some(expected), "{policy} {a:?} {b:?}");
    }
}

#[test]
fn a_running_pod_is_ready_when_its_containers_are() {
    let containers = vec![seen("a", 0, State::Running, 0), seen("b", 2, State::Running, 0)];
    let status = compute(&pod("Always"), containers.clone(), &healthy(&["a-0"]), None);
    assert_eq!(word(&status, "Ready").message.as_deref(), Some("containers with unready status: [b]"));
    let status = compute(&pod("Always"), containers, &healthy(&["a-0", "b-2"]), None);
    assert_eq!(word(&status, "Ready").status, "True");
    assert_eq!(word(&status, "ContainersReady").observed_generation, Some(2));
    assert_eq!(status.container_statuses.unwrap()[1].restart_count, 2);
    assert_eq!(status.pod_ip.as_deref(), Some("10.42.0.2"));
}

#[test]
fn a_crash_loop_shows_the_crash_as_last_state() {
    let mut memory = healthy(&["b-0"]);
    let reason = "CrashLoopBackOff".to_owned();
    memory.waiting.insert("a".to_owned(), Waiting { reason, message: "back-off 10s".to_owned() });
    let containers = vec![seen("a", 0, State::Exited, 3), seen("b", 0, State::Running, 0)];
    let status = compute(&pod("Always"), containers, &memory, None);
    let a = &status.container_statuses.as_ref().unwrap()[0];
    let state = a.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(state.reason.as_deref(), Some("CrashLoopBackOff"));
    let last = a.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    assert_eq!(last.message.as_deref(), Some("last words"));
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn the_deadline_fails_the_pod_once_nothing_runs() {
    let running = vec![seen("a", 0, State::Running, 0), seen("b", 0, State::Exited, 0)];
    let status = compute(&pod("Always"), running, &Memory::default(), Some(&Termination::DeadlineExceeded));
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let exited = vec![seen("a", 0, State::Exited, 143), seen("b", 0, State::Exited, 0)];
    let status = compute(&pod("Always"), exited, &Memory::default(), Some(&Termination::DeadlineExceeded));
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(word(&status, "Ready").reason.as_deref(), Some("PodFailed"));
}

#[test]
fn a_pod_whose_init_container_failed_never_runs() {
    let mut pod = pod("Never");
    pod["spec"]["initContainers"] =
        json!([{ "name": "s", "image": "i", "restartPolicy": "Always" }, { "name": "i", "image": "i" }]);
    let seen = vec![seen("s", 0, State::Running, 0), seen("i", 0, State::Exited, 1)];
    let status = compute(&pod, seen, &healthy(&["s-0"]), None);
    assert_eq!(status.phase.as_deref(), Some("Pending"), "while its sidecar runs");
}

#[test]
fn init_containers_hold_back_the_pod() {
    let mut pod = pod("Always");
    pod["spec"]["initContainers"] = json!([{ "name": "i", "image": "i" }]);
    let status = compute(&pod, vec![seen("i", 0, State::Running, 0)], &healthy(&["i-0"]), None);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let a = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(
        a.state.as_ref().unwrap().waiting.as_ref().unwrap().reason.as_deref(),
        Some("PodInitializing")
    );
    assert_eq!(word(&status, "Initialized").status, "False");
}

#[test]
fn what_was_reported_terminated_stays_so_when_its_remains_are_gone() {
    let mut pod = pod("Never");
    pod["status"] = json!({ "phase": "Succeeded", "containerStatuses": [
        { "name": "a", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
          "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }] });
    let status = compute(&pod, vec![], &Memory::default(), Some(&Termination::Finished));
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert_eq!(status.container_statuses.unwrap()[0].restart_count, 1);
}

#[test]
fn a_container_stopped_to_be_started_anew_ends_no_pod() {
    let memory = Memory { replaced: ["a-0".to_owned()].into(), ..Memory::default() };
    let ended = || vec![seen("a", 0, State::Exited, 0), seen("b", 0, State::Exited, 0)];
    assert_eq!(compute(&pod("OnFailure"), ended(), &memory, None).phase.as_deref(), Some("Running"));
    assert_eq!(compute(&pod("Never"), ended(), &memory, None).phase.as_deref(), Some("Succeeded"));
}

#[test]
fn resizes_are_conditions_and_resources() {
    use crate::kubelet::room::Pending;
    let resources = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    let mut wanted = pod("Always");
    wanted["spec"]["containers"][0]["resources"] = resources("2");
    let running = |told: &Value| {
        let a = observed::Container {
            resources: serde_json::from_value(told.clone()).unwrap(),
            ..seen("a", 0, State::Running, 0)
        };
        vec![a, seen("b", 0, State::Running, 0)]
    };
    let mut memory = healthy(&["a-0", "b-0"]);
    let status = compute(&wanted, running(&resources("1")), &memory, None);
    assert_eq!(word(&status, "PodResizeInProgress").status, "True");
    let first = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(serde_json::to_value(&first.resources).unwrap(), resources("1"));
    assert_eq!(serde_json::to_value(&first.allocated_resources).unwrap(), json!({ "cpu": "2" }));
    memory.resizes.error = Some("no".to_owned());
    let status = compute(&wanted, running(&resources("1")), &memory, None);
    let condition = word(&status, "PodResizeInProgress");
    assert_eq!((condition.reason.as_deref(), condition.message.as_deref()), (Some("Error"), Some("no")));
    memory.resizes.pending = Some(Pending::Deferred("full".to_owned()));
    // Another amount in other words is the same amount.
    let status = compute(&wanted, running(&resources("2000m")), &memory, None);
    assert!(status.conditions.iter().flatten().all(|c| c.type_ != "PodResizeInProgress"));
    let condition = word(&status, "PodResizePending");
    assert_eq!((condition.reason.as_deref(), condition.message.as_deref()), (Some("Deferred"), Some("full")));
    let first = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(serde_json::to_value(&first.resources).unwrap(), resources("2"));
    // Gone when they are over, also from what was reported before.
    wanted["status"] = serde_json::to_value(&status).unwrap();
    memory.resizes.pending = None;
    let status = compute(&wanted, running(&resources("2")), &memory, None);
    assert!(status.conditions.iter().flatten().all(|c| !c.type_.starts_with("PodResize")));
}

/// Somebody may wait for the last word: it comes when nothing runs, and nothing is on its way.
#[test]
fn a_deleted_pod_ends_whatever_its_policy() {
    use State::{Exited, Running};
    let ending = Termination::Deleted { grace: std::time::Duration::from_secs(1), evicted: None };
    let make =
        |name: &str, state: Option<(State, i32)>| state.map(|(state, code)| seen(name, 0, state, code));
    for policy in ["Always", "OnFailure", "Never"] {
        for (a, b, expected) in [
            (None, None, "Failed"),
            (Some((Exited, 0)), None, "Failed"),
            (Some((Exited, 0)), Some((Running, 0)), "Running"),
            (None, Some((Running, 0)), "Pending"),
            (Some((Exited, 0)), Some((Exited, 137)), "Failed"),
            (Some((Exited, 0)), Some((Exited, 0)), "Succeeded"),
        ] {
            let containers: Vec<_> = make("a", a).into_iter().chain(make("b", b)).collect();
            let status = compute(&pod(policy), containers, &Memory::default(), Some(&ending));
            assert_eq!(status.phase.as_deref(), Some(expected), "{policy} {a:?} {b:?}");
            let ended = status.container_statuses.iter().flatten();
            let ended = ended.filter(|s| s.state.as_ref().is_some_and(|s| s.terminated.is_some())).count();
            assert_eq!(ended == 2, expected == "Failed" || expected == "Succeeded", "{policy} {a:?} {b:?}");
        }
    }
}

#[test]
fn a_pod_with_a_call_on_its_way_has_not_ended() {
    let ending = Termination::Deleted { grace: std::time::Duration::from_secs(1), evicted: None };
    let now = Timestamp::from_second(100).unwrap();
    let phase = |underway: bool| {
        let observed = Observed { underway, ..Observed::default() };
        let pod: Pod = serde_json::from_value(pod("Never")).unwrap();
        let (messages, memory) = (HashMap::new(), Memory::default());
        let (host_ips, seen_at) = (&*HOST_IPS, now);
        let resources = BTreeMap::new();
        let input = Input {
            holds: false,
            resources: &resources,
            pod: &pod,
            observed: &observed,
            memory: &memory,
            ending: Some(&ending),
            host_ips,
            messages: &messages,
            recursive_mounts: false,
            seen_at,
            now,
        };
        status(&input).phase
    };
    assert_eq!(phase(true).as_deref(), Some("Pending"));
    assert_eq!(phase(false).as_deref(), Some("Failed"));
}

#[test]
fn what_restarts_all_together_says_so() {
    let exit = json!({ "operator": "In", "values": [42] });
    let rules = json!([{ "action": "RestartAllContainers", "exitCodes": exit }]);
    let mut ruled = pod("Never");
    ruled["spec"]["containers"][0]["restartPolicyRules"] = rules;
    let containers = |b: State| vec![seen("a", 0, State::Exited, 42), seen("b", 0, b, 0)];
    let again = Memory { again: ["a-0", "b-0"].map(str::to_owned).into(), ..Memory::default() };
    let told = compute(&ruled, containers(State::Running), &again, None);
    let found = word(&told, "AllContainersRestarting");
    assert_eq!(
        (found.status.as_str(), found.reason.as_deref()),
        ("True", Some("RestartAllContainersStarted"))
    );
    let told = compute(&ruled, containers(State::Exited), &again, None);
    assert_eq!(word(&told, "AllContainersRestarting").status, "False", "all have stopped");
    let told = compute(&pod("Never"), containers(State::Running), &again, None);
    assert!(told.conditions.iter().flatten().all(|c| c.type_ != "AllContainersRestarting"));
}

#[test]
fn addresses_of_both_families_begin_with_the_nodes_first() {
    let pod = |host_network: bool| -> Pod {
        let mut pod = pod("Always");
        pod["spec"]["hostNetwork"] = host_network.into();
        serde_json::from_value(pod).unwrap()
    };
    let words = |all: &[&str]| all.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
    let seen = |host_network: bool, host_ips: &[String]| {
        let ips = words(&["10.42.0.2", "fd42::2"]);
        let sandboxes = vec![Sandbox { id: "s".to_owned(), attempt: 0, ready: true, ips }];
        let observed = Observed { sandboxes, ..Observed::default() };
        let (now, pod) = (Timestamp::from_second(100).unwrap(), pod(host_network));
        let status = status(&Input {
            holds: false,
            resources: &BTreeMap::new(),
            pod: &pod,
            observed: &observed,
            memory: &Memory::default(),
            ending: None,
            host_ips,
            messages: &HashMap::new(),
            recursive_mounts: false,
            seen_at: now,
            now,
        });
        let hosts: Vec<String> = status.host_ips.into_iter().flatten().map(|ip| ip.ip).collect();
        assert_eq!((status.host_ip, hosts), (host_ips.first().cloned(), host_ips.to_vec()));
        let ips: Vec<String> = status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
        assert_eq!(status.pod_ip, ips.first().cloned());
        ips
    };
    let (four, six) = (words(&["192.0.2.1", "2001:db8::1"]), words(&["2001:db8::1", "192.0.2.1"]));
    assert_eq!(seen(false, &four), ["10.42.0.2", "fd42::2"]);
    assert_eq!(seen(false, &six), ["fd42::2", "10.42.0.2"]);
    assert_eq!(seen(true, &six), six);
}

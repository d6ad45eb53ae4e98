use super::*;
use crate::pod_facts::containers::as_container;
use crate::pod_facts::observed::{Container as Seen, Sandbox};
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
}

fn sandbox(attempt: u32, ready: bool) -> Sandbox {
    Sandbox { id: format!("s{attempt}"), attempt, ready, ips: vec!["10.42.0.2".to_owned()] }
}

fn seen(name: &str, attempt: u32, state: State, exit_code: i32) -> Seen {
    Seen {
        id: format!("{name}-{attempt}"),
        sandbox: "s0".to_owned(),
        name: name.to_owned(),
        attempt,
        state,
        created_at: None,
        started_at: None,
        finished_at: None,
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_id: String::new(),
        user: None,
        hash: String::new(),
        resources: None,
        log_path: "/x".into(),
        termination_log: None,
    }
}

struct Case {
    pod: Pod,
    observed: Observed,
    memory: Memory,
    ending: Option<Termination>,
}

impl Case {
    fn new(spec: Value, containers: Vec<Seen>) -> Self {
        let observed = Observed { sandboxes: vec![sandbox(0, true)], containers, ..Observed::default() };
        Self { pod: pod(spec), observed, memory: Memory::default(), ending: None }
    }

    fn plan(&self) -> Step {
        let (pod, observed, memory) = (&self.pod, &self.observed, &self.memory);
        plan(&View { pod, observed, memory, ending: self.ending.as_ref(), now: Instant::now() })
    }
}

fn start(kind: Kind, name: &str, attempt: u32) -> Step {
    Step::Start { kind, name: name.to_owned(), attempt }
}

fn two() -> Value {
    json!({ "containers": [{ "name": "a" }, { "name": "b" }] })
}

fn with_policy(mut spec: Value, policy: &str) -> Value {
    spec["restartPolicy"] = json!(policy);
    spec
}

#[test]
fn a_sandbox_comes_first_and_is_replaced_when_it_died() {
    let mut case = Case::new(two(), vec![]);
    case.observed.sandboxes.clear();
    assert_eq!(case.plan(), Step::NewSandbox { attempt: 0 });
    case.observed.sandboxes = vec![sandbox(3, false)];
    assert_eq!(case.plan(), Step::NewSandbox { attempt: 4 });
    case.pod = pod(with_policy(two(), "Never"));
    case.observed.containers = vec![seen("a", 0, State::Exited, 0), seen("b", 0, State::Exited, 1)];
    assert_eq!(case.plan(), Step::Wait(None), "nothing will run again");
}

#[test]
fn init_containers_run_one_after_another_then_all_others() {
    let spec = json!({ "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
        "containers": [{ "name": "a" }, { "name": "b" }] });
    let mut case = Case::new(spec, vec![]);
    assert_eq!(case.plan(), start(Kind::Init, "i", 0));
    case.observed.containers.push(seen("i", 0, State::Running, 0));
    assert_eq!(case.plan(), Step::Wait(None));
    case.observed.containers[0] = seen("i", 0, State::Exited, 1);
    assert_eq!(case.plan(), start(Kind::Init, "i", 1));
    case.observed.containers[0] = seen("i", 0, State::Exited, 0);
    assert_eq!(case.plan(), start(Kind::Init, "s", 0));
    case.observed.containers.push(seen("s", 0, State::Running, 0));
    assert_eq!(case.plan(), Step::Wait(None), "the sidecar's startup probe has not succeeded");
    case.memory.health.insert("s-0".to_owned(), Health { started: true, ready: true, failed: None });
    assert_eq!(case.plan(), start(Kind::App, "a", 0));
    case.observed.containers.push(seen("a", 0, State::Running, 0));
    assert_eq!(case.plan(), start(Kind::App, "b", 0));
    case.observed.containers[1] = seen("s", 0, State::Exited, 0);
    assert_eq!(case.plan(), start(Kind::Init, "s", 1), "sidecars always come back");
    case.observed.containers.retain(|c| c.name != "i");
    case.observed.containers.push(seen("s", 1, State::Running, 0));
    case.observed.containers.sort_by_key(|c| std::cmp::Reverse(c.attempt));
    assert_eq!(case.plan(), start(Kind::App, "b", 0), "a pruned init container does not run again");
}

#[test]
fn restart_policies() {
    for (policy, exit, expected) in [
        ("Always", 0, start(Kind::App, "a", 1)),
        ("Always", 1, start(Kind::App, "a", 1)),
        ("OnFailure", 0, Step::Wait(None)),
        ("OnFailure", 1, start(Kind::App, "a", 1)),
        ("Never", 1, Step::Wait(None)),
    ] {
        let seen = vec![seen("a", 0, State::Exited, exit), seen("b", 0, State::Running, 0)];
        let case = Case::new(with_policy(two(), policy), seen);
        assert_eq!(case.plan(), expected, "{policy} {exit}");
    }
}

#[tokio::test(start_paused = true)]
async fn crash_loops_wait_and_others_go_on() {
    let mut case = Case::new(two(), vec![seen("a", 0, State::Exited, 1)]);
    let now = Instant::now();
    case.memory.exits.insert("a-0".to_owned(), now);
    case.memory.restarts.next("a", now);
    assert_eq!(case.plan(), start(Kind::App, "b", 0));
    case.observed.containers.push(seen("b", 0, State::Running, 0));
    assert_eq!(case.plan(), Step::Wait(Some(Duration::from_secs(10))));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(case.plan(), start(Kind::App, "a", 1));
    case.memory.retry_at.insert("a".to_owned(), Instant::now() + Duration::from_secs(3));
    assert_eq!(case.plan(), Step::Wait(Some(Duration::from_secs(3))), "the image is in back-off");
}

#[test]
fn failed_probes_and_changed_images_kill() {
    let mut case = Case::new(two(), vec![seen("a", 0, State::Running, 0), seen("b", 0, State::Running, 0)]);
    case.observed.containers[1].hash = "other".to_owned();
    let Step::Kill { id, message, .. } = case.plan() else { panic!("{:?}", case.plan()) };
    assert_eq!((id.as_str(), message.as_str()), ("b-0", "Container b definition changed, will be restarted"));
    case.memory
        .health
        .insert("a-0".to_owned(), Health { started: true, ready: false, failed: Some("liveness") });
    let Step::Kill { message, .. } = case.plan() else { panic!("{:?}", case.plan()) };
    assert_eq!(message, "Container a failed liveness probe, will be restarted");
}

#[test]
fn a_deleted_pod_is_stopped_then_cleaned_up() {
    let mut case = Case::new(two(), vec![seen("a", 0, State::Running, 0)]);
    let grace = Duration::from_secs(5);
    case.ending = Some(Termination::Deleted { grace, evicted: None });
    assert_eq!(case.plan(), Step::End { grace });
    case.observed.containers[0].state = State::Exited;
    assert_eq!(case.plan(), Step::End { grace }, "the sandbox is still ready");
    case.observed.sandboxes[0].ready = false;
    assert_eq!(case.plan(), Step::CleanUp);
    case.ending = Some(Termination::DeadlineExceeded);
    assert_eq!(case.plan(), Step::Wait(None));
}

#[test]
fn a_container_that_was_never_started_is_discarded() {
    let case = Case::new(two(), vec![seen("a", 0, State::Created, 0)]);
    assert_eq!(case.plan(), Step::Discard { id: "a-0".to_owned() });
}

#[test]
fn a_failed_init_container_ends_a_pod_that_never_restarts() {
    let spec = json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 7,
        "initContainers": [{ "name": "i" }], "containers": [{ "name": "a" }] });
    let case = Case::new(spec, vec![seen("i", 0, State::Exited, 2)]);
    assert_eq!(case.plan(), Step::End { grace: Duration::from_secs(7) });
}

#[test]
fn ephemeral_containers_start_once() {
    let mut spec = two();
    spec["ephemeralContainers"] = json!([{ "name": "e", "targetContainerName": "a" }]);
    let mut case = Case::new(spec, vec![seen("a", 0, State::Running, 0), seen("b", 0, State::Running, 0)]);
    assert_eq!(case.plan(), start(Kind::Ephemeral, "e", 0));
    case.observed.containers.push(seen("e", 0, State::Exited, 1));
    assert_eq!(case.plan(), Step::Wait(None));
    let container = as_container(&case.pod.spec.unwrap().ephemeral_containers.unwrap()[0]);
    assert_eq!(container.name, "e");
}

#[test]
fn rules_of_a_container_come_before_its_policy_and_that_before_the_pods() {
    let spec = json!({ "restartPolicy": "Never", "containers": [
        { "name": "a", "restartPolicy": "Never", "restartPolicyRules":
            [{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }] },
        { "name": "b", "restartPolicy": "OnFailure" }] });
    let ended = |a: i32, b: i32| {
        let containers = vec![seen("a", 0, State::Exited, a), seen("b", 0, State::Exited, b)];
        Case::new(spec.clone(), containers).plan()
    };
    assert_eq!(ended(42, 0), start(Kind::App, "a", 1));
    assert_eq!(ended(1, 1), start(Kind::App, "b", 1));
    assert_eq!(ended(1, 0), Step::End { grace: Duration::from_secs(30) }, "all is over");
}

#[test]
fn one_exit_restarts_all_containers_in_their_order() {
    let rule =
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    let spec = json!({ "restartPolicy": "Never",
        "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
        "containers": [{ "name": "a", "restartPolicy": "Never", "restartPolicyRules": rule }, { "name": "b" }] });
    let at = |seconds| Some(jiff::Timestamp::from_second(seconds).unwrap());
    let made = |name: &str, attempt, state, code, time| Seen {
        created_at: at(time),
        finished_at: at(time + 5),
        ..seen(name, attempt, state, code)
    };
    let mut case = Case::new(
        spec,
        vec![
            made("i", 0, State::Exited, 0, 1),
            made("s", 0, State::Running, 0, 2),
            made("a", 0, State::Exited, 42, 3),
            made("b", 0, State::Running, 0, 4),
        ],
    );
    let mut next = |change: &dyn Fn(&mut Case)| {
        change(&mut case);
        let spec = case.pod.spec.clone().unwrap();
        case.memory.mark_all(&spec, &case.observed);
        assert!(!finished(&spec, &case.observed, &case.memory));
        case.plan()
    };
    let killed = |step: Step, wanted: &str| {
        assert!(matches!(&step, Step::Kill { id, .. } if id == wanted), "{step:?}")
    };
    killed(next(&|_| {}), "s-0");
    killed(next(&|case| case.observed.containers[1].state = State::Exited), "b-0");
    assert_eq!(next(&|case| case.observed.containers[3].state = State::Exited), start(Kind::Init, "i", 1));
    let up = |seen: Seen| move |case: &mut Case| case.observed.containers.insert(0, seen.clone());
    assert_eq!(next(&up(made("i", 1, State::Exited, 0, 10))), start(Kind::Init, "s", 1));
    let health = Health { started: true, ready: true, failed: None };
    let healthy = |case: &mut Case| {
        case.memory.health.insert("s-1".to_owned(), health.clone());
    };
    next(&up(made("s", 1, State::Running, 0, 11)));
    assert_eq!(next(&healthy), start(Kind::App, "a", 1));
    assert_eq!(next(&up(made("a", 1, State::Running, 0, 12))), start(Kind::App, "b", 1));
    assert_eq!(next(&up(made("b", 1, State::Running, 0, 13))), Step::Wait(None));
}

/// Who has restarted before and is done now waits for nothing: no back-off is told of it.
#[test]
fn what_is_done_does_not_run_again() {
    let rule =
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    let spec = json!({ "restartPolicy": "OnFailure",
        "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
        "containers": [{ "name": "a", "restartPolicy": "Never", "restartPolicyRules": rule }, { "name": "b" }],
        "ephemeralContainers": [{ "name": "e", "image": "x" }] });
    let mut case = Case::new(spec, Vec::new());
    let again = |case: &Case, name: &str, code: i32| {
        case.memory.runs_again(&case.pod, &seen(name, 1, State::Exited, code))
    };
    for (name, code, wanted) in [
        ("i", 0, false),
        ("i", 1, true),
        ("s", 0, true),
        ("a", 3, false),
        ("a", 42, true),
        ("b", 0, false),
        ("b", 1, true),
        ("e", 1, false),
        ("gone", 1, false),
    ] {
        assert_eq!(again(&case, name, code), wanted, "{name} that ended with {code}");
    }
    case.memory.again = ["i-1", "a-1"].map(str::to_owned).into();
    assert!(again(&case, "i", 0) && again(&case, "a", 3), "all start anew, those too");
}

#[test]
fn an_end_that_failed_is_tried_again_later() {
    let grace = Duration::from_secs(3);
    let mut case = Case::new(two(), vec![seen("a", 0, State::Running, 0)]);
    case.ending = Some(Termination::Deleted { grace, evicted: None });
    assert_eq!(case.plan(), Step::End { grace });
    case.memory.end_retry_at = Some(Instant::now() + Duration::from_secs(60));
    assert!(matches!(case.plan(), Step::Wait(Some(_))));
    case.memory.end_retry_at = Some(Instant::now() - Duration::from_millis(1));
    assert_eq!(case.plan(), Step::End { grace });
}

#[test]
fn nothing_is_cleaned_up_while_a_call_is_under_way() {
    let grace = Duration::from_secs(3);
    let mut case = Case::new(two(), vec![]);
    case.observed.sandboxes.clear();
    case.observed.underway = true;
    case.ending = Some(Termination::Deleted { grace, evicted: None });
    assert_eq!(case.plan(), Step::End { grace });
    case.observed.underway = false;
    assert_eq!(case.plan(), Step::CleanUp);
}

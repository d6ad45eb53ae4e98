use super::*;
use crate::pod_facts::observed::State;
use crate::pod_facts::resources::requests;
use coracle_api::Quantity;
use serde_json::{Value, json};

fn pod(spec: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap())
}

fn one(resources: &Value) -> Arc<Pod> {
    pod(json!({ "containers": [{ "name": "c", "resources": resources,
        "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }] }] }))
}

fn cpu(request: &str) -> Value {
    json!({ "requests": { "cpu": request } })
}

fn running(told: &Value) -> Observed {
    let seen = observed::Container {
        id: "id".to_owned(),
        sandbox: "s".to_owned(),
        name: "c".to_owned(),
        attempt: 0,
        state: State::Running,
        created_at: None,
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_id: String::new(),
        user: None,
        hash: String::new(),
        resources: serde_json::from_value(told.clone()).unwrap(),
        log_path: PathBuf::new(),
        termination_log: None,
    };
    Observed { containers: vec![seen], ..Observed::default() }
}

fn due(resizes: &Resizes, pod: &Pod, observed: &Observed) -> Option<Due> {
    resizes.due(&pod.spec.as_ref().unwrap().containers[0], &observed.containers[0])
}

#[test]
fn what_is_wanted_counts_when_it_is_granted() {
    let dir = tempfile::tempdir().unwrap();
    let mut resizes = Resizes::load(dir.path());
    let (wanted, observed) = (one(&cpu("2")), running(&cpu("1")));
    // As after a restart of the process: the container tells what it has.
    resizes.meet(&wanted, &observed);
    assert!(resizes.wants_more(&wanted));
    let applied = resizes.applied(&wanted);
    assert_eq!(requests(&applied, "cpu"), Quantity::from_milli(1000));
    assert_eq!(due(&resizes, &applied, &observed), None);
    resizes.grant(&wanted).unwrap();
    assert!(!resizes.wants_more(&wanted) && Arc::ptr_eq(&resizes.applied(&wanted), &wanted));
    assert_eq!(due(&resizes, &wanted, &observed), Some(Due::InPlace));
    assert!(resizes.in_progress(&wanted, &observed));
    let (spec, seen) = (&wanted.spec.as_ref().unwrap().containers[0], &observed.containers[0]);
    resizes.done(spec, seen, "cpu").unwrap();
    assert!(resizes.in_progress(&wanted, &observed), "the pod's own cgroup is left to do");
    resizes.placed().unwrap();
    assert!(!resizes.in_progress(&wanted, &observed));
    // The next process knows it too, and forgets it with the container.
    let mut next = Resizes::load(dir.path());
    next.meet(&wanted, &observed);
    assert!(!next.wants_more(&wanted) && due(&next, &wanted, &observed).is_none());
    next.retain(|_| false);
    assert_eq!(due(&next, &wanted, &observed), Some(Due::InPlace));
}

#[test]
fn what_is_asked_for_is_counted_once_a_generation() {
    let of = |generation: i64, resources: &Value| {
        let mut pod = Pod::clone(&one(resources));
        pod.metadata.generation = Some(generation);
        pod
    };
    let mut resizes = Resizes::default();
    let was = json!({ "requests": { "cpu": "1", "memory": "10" }, "limits": { "memory": "20" } });
    resizes.meet(&of(1, &was), &Observed::default());
    let wants = json!({ "requests": { "cpu": "2" }, "limits": { "memory": "15", "cpu": "3" } });
    let asked = [
        ["cpu", "requests", "increase"],
        ["cpu", "limits", "add"],
        ["memory", "requests", "remove"],
        ["memory", "limits", "decrease"],
    ];
    assert_eq!(resizes.newly_asked(&of(2, &wants)), asked);
    assert!(resizes.newly_asked(&of(2, &wants)).is_empty());
    assert!(resizes.newly_asked(&of(3, &was)).is_empty(), "as it is");
}

#[test]
fn policies_and_equal_amounts() {
    let resizes = Resizes::default();
    let memory = json!({ "limits": { "memory": "2Mi" } });
    assert_eq!(due(&resizes, &one(&memory), &running(&json!({}))), Some(Due::Restart));
    assert_eq!(due(&resizes, &one(&cpu("1000m")), &running(&cpu("1"))), None);
    // A container of an earlier version: nobody knows what it was told.
    let mut unknown = running(&json!({}));
    unknown.containers[0].resources = None;
    assert_eq!(due(&resizes, &one(&memory), &unknown), None);
}

#[test]
fn requests_are_counted_as_the_scheduler_does() {
    let with = |name: &str, request: &str, always: bool| {
        let mut container = json!({ "name": name, "resources": cpu(request) });
        if always {
            container["restartPolicy"] = "Always".into();
        }
        container
    };
    let init = json!([with("s", "1", true), with("i", "5", false), with("t", "1", true)]);
    let apps = json!([with("a", "2", false), with("b", "1", false)]);
    let mut spec = json!({ "initContainers": init, "containers": apps, "overhead": { "cpu": "100m" } });
    assert_eq!(requests(&pod(spec.clone()), "cpu"), Quantity::from_milli(6100));
    spec["initContainers"][1]["resources"] = cpu("1");
    assert_eq!(requests(&pod(spec.clone()), "cpu"), Quantity::from_milli(5100));
    spec["resources"] = cpu("7");
    assert_eq!(requests(&pod(spec), "cpu"), Quantity::from_milli(7100));
}

#[test]
fn what_an_earlier_version_noted_counts() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("resized.json"), json!({ "id": cpu("2") }).to_string()).unwrap();
    let (wanted, observed) = (one(&cpu("2")), running(&cpu("1")));
    let mut resizes = Resizes::load(dir.path());
    resizes.meet(&wanted, &observed);
    assert!(!resizes.wants_more(&wanted) && due(&resizes, &wanted, &observed).is_none());
}

#[test]
fn events_tell_resources_in_upstreams_order() {
    let sidecar = json!({ "name": "s", "restartPolicy": "Always", "resources": cpu("1") });
    let mut pod = Pod::clone(&pod(json!({ "initContainers": [sidecar], "containers": [{ "name": "c" }] })));
    pod.metadata.generation = Some(3);
    assert_eq!(
        description(&pod, Some("full")),
        r#"{"initContainers":[{"name":"s","resources":{"requests":{"cpu":"1"}}}],"containers":[{"name":"c","resources":{}}],"generation":3,"error":"full"}"#
    );
}

#[test]
fn a_container_that_runs_before_the_others_is_resized_too() {
    let dir = tempfile::tempdir().unwrap();
    let of = |amount: &str| {
        pod(
            json!({ "initContainers": [{ "name": "c", "resources": cpu(amount) }], "containers": [{ "name": "d" }] }),
        )
    };
    let (before, after, observed) = (of("1"), of("2"), running(&cpu("1")));
    let mut resizes = Resizes::load(dir.path());
    resizes.meet(&before, &observed);
    assert!(!resizes.wants_more(&before) && resizes.wants_more(&after));
    resizes.grant(&after).unwrap();
    let told: Vec<_> = resizes.unfinished(&after, &observed).into_iter().map(|one| one.name).collect();
    assert_eq!(told, ["c"]);
    // As noted by a version that did not resize it.
    resizes.noted.granted.as_mut().unwrap().containers.remove("c");
    assert!(!resizes.wants_more(&before));
}

//! What upstream's own tests of nodes look at beyond a pod that starts and ends.

use crate::support::{World, condition};
use coracle_kubelet::cri::{CriClient, Runtime};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

fn status<'a>(pod: &'a Value, list: &str, name: &str) -> &'a Value {
    let all = pod["status"][list].as_array();
    all.and_then(|all| all.iter().find(|status| status["name"] == name)).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_container_is_written_to_an_archive_within_the_time_that_is_asked_for() {
    let world = World::over_a_socket().await;
    let runtime = CriClient::new(&world.socket().path().display().to_string());
    let location = Path::new("/var/lib/kubelet/checkpoints/checkpoint-p_n-c.tar");
    runtime.checkpoint_container("c1", location, None).await.unwrap();
    runtime.checkpoint_container("c2", location, Some(Duration::from_secs(7))).await.unwrap();
    runtime.checkpoint_container("c3", location, Some(Duration::from_secs(700))).await.unwrap();
    let asked = |id: &str, seconds: u64| format!("{id} {} {seconds}", location.display());
    assert_eq!(world.runtime.checkpoints(), [asked("c1", 120), asked("c2", 120), asked("c3", 700)]);
}

#[tokio::test]
async fn ids_of_containers_begin_with_the_name_of_their_runtime() {
    let world = World::start().await;
    world.create("p", json!({ "containers": [{ "name": "c", "image": "i:1" }] })).await;
    let pod = world.pod_until("p", is_ready).await;
    let id = status(&pod, "containerStatuses", "c")["containerID"].as_str().unwrap_or_default().to_owned();
    assert!(id.starts_with("fake://") && id.len() > 7, "{id}");
}

/// As the node's controller does with the pods of a node that was silent.
#[tokio::test]
async fn a_pod_that_others_call_unready_is_called_ready_again() {
    let world = World::start().await;
    world.create("p", json!({ "containers": [{ "name": "c", "image": "i:1" }] })).await;
    world.pod_until("p", is_ready).await;
    let unready = json!({ "type": "Ready", "status": "False" });
    let gate = json!({ "type": "example.com/gate", "status": "True" });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [unready, gate] } }));
    let patched = world.pods().patch_status("p", &PatchParams::default(), &patch).await.unwrap();
    assert!(!is_ready(&json!(patched)));
    let pod = world.pod_until("p", is_ready).await;
    assert_eq!(condition(&pod, "example.com/gate"), "True", "what is not the kubelet's stays");
    assert_eq!(status(&pod, "containerStatuses", "c")["restartCount"], 0);
}

#[tokio::test]
async fn an_exit_restarts_all_containers_and_what_was_is_still_told() {
    let world = World::start().await;
    let exit = json!({ "operator": "In", "values": [42] });
    let rules = json!([{ "action": "RestartAllContainers", "exitCodes": exit }]);
    let hook = json!({ "preStop": { "exec": { "command": ["goodbye"] } } });
    let spec = json!({ "restartPolicy": "Never",
        "initContainers": [
            { "name": "init", "image": "i:1" },
            { "name": "sidecar", "image": "i:1", "restartPolicy": "Always", "lifecycle": hook }],
        "containers": [
            { "name": "source", "image": "i:1", "restartPolicy": "Never", "restartPolicyRules": rules },
            { "name": "regular", "image": "i:1", "lifecycle": hook }] });
    world.create("p", spec).await;
    world
        .pod_until("p", |pod| !status(pod, "initContainerStatuses", "init")["state"]["running"].is_null())
        .await;
    world.runtime.exit("init", 0);
    let pod = world.pod_until("p", is_ready).await;
    assert_eq!(condition(&pod, "AllContainersRestarting"), "False");
    world.runtime.exit("source", 42);
    let again = |pod: &Value| !status(pod, "initContainerStatuses", "init")["state"]["running"].is_null();
    world.pod_until("p", again).await;
    world.runtime.exit("init", 0);
    let pod = world.pod_until("p", is_ready).await;
    for (list, name) in [
        ("initContainerStatuses", "init"),
        ("initContainerStatuses", "sidecar"),
        ("containerStatuses", "source"),
        ("containerStatuses", "regular"),
    ] {
        let found = status(&pod, list, name);
        assert_eq!(found["restartCount"], 1, "{name}");
        assert!(found["lastState"]["terminated"].is_object(), "{found:#}");
    }
    assert_eq!(condition(&pod, "AllContainersRestarting"), "False");
    assert_eq!(world.runtime.ran("goodbye"), 0, "nobody is asked to end in an orderly way");
    assert!(world.runtime.stops().iter().all(|(_, grace)| grace.is_zero()), "{:?}", world.runtime.stops());
}

/// The process ends after it has said that all restart, and before it has stopped them.
#[tokio::test]
async fn a_restart_of_all_containers_is_gone_on_with() {
    let mut world = World::start().await;
    let exit = json!({ "operator": "In", "values": [42] });
    let rules = json!([{ "action": "RestartAllContainers", "exitCodes": exit }]);
    let spec = json!({ "restartPolicy": "Never", "containers": [
        { "name": "a", "image": "i:1", "restartPolicy": "Never", "restartPolicyRules": rules },
        { "name": "b", "image": "i:1" }] });
    world.create("p", spec).await;
    world.pod_until("p", is_ready).await;
    world.stop_kubelet().await;
    let now = jiff::Timestamp::now().to_string();
    let restarting =
        json!({ "type": "AllContainersRestarting", "status": "True", "lastTransitionTime": now });
    let status = json!({ "status": { "conditions": [restarting] } });
    world.pods().patch_status("p", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    world.start_kubelet();
    let twice = |pod: &Value| {
        let all = pod["status"]["containerStatuses"].as_array().unwrap();
        is_ready(pod) && all.iter().all(|status| status["restartCount"] == 1)
    };
    let pod = world.pod_until("p", twice).await;
    assert_eq!(condition(&pod, "AllContainersRestarting"), "False");
}

#[tokio::test]
async fn variables_come_from_files_that_an_init_container_wrote() {
    let world = World::start().await;
    let variable = |key: &str, optional: bool| {
        let source = json!({ "volumeName": "v", "path": "a.env", "key": key, "optional": optional });
        json!({ "name": key, "valueFrom": { "fileKeyRef": source } })
    };
    let spec = |env: Value| {
        json!({ "restartPolicy": "Never", "volumes": [{ "name": "v", "emptyDir": {} }],
            "initContainers": [{ "name": "i", "image": "i:1",
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }],
            "containers": [{ "name": "c", "image": "i:1", "env": env }] })
    };
    let started = |pod: &Value| !status(pod, "initContainerStatuses", "i")["state"]["running"].is_null();
    let write = async |name: &str| {
        let pod = world.pod_until(name, started).await;
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let volume = world.root().join(format!("pods/{uid}/volumes/kubernetes.io~empty-dir/v"));
        std::fs::write(volume.join("a.env"), "A='of a file' # here\n").unwrap();
        world.runtime.exit("i", 0);
    };
    world.create("reads", spec(json!([variable("A", false), variable("B", true)]))).await;
    write("reads").await;
    world.pod_until("reads", is_ready).await;
    let config = world.runtime.config("c");
    let value = |name: &str| config.envs.iter().find(|v| v.key == name).map(|v| v.value.clone());
    assert_eq!((value("A"), value("B")), (Some("of a file".to_owned()), None));
    world.create("lacks", spec(json!([variable("B", false)]))).await;
    write("lacks").await;
    let waits = |pod: &Value| {
        status(pod, "containerStatuses", "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let pod = world.pod_until("lacks", waits).await;
    let message = status(&pod, "containerStatuses", "c")["state"]["waiting"]["message"].clone();
    assert!(
        message.as_str().unwrap().starts_with("environment variable key \"B\" not found in file "),
        "{message}"
    );
}

#[tokio::test]
async fn readiness_is_asked_and_told_until_the_last_moment() {
    let world = World::start().await;
    let moody = json!({ "exec": { "command": ["moody"] }, "periodSeconds": 1, "failureThreshold": 1 });
    let alive = json!({ "exec": { "command": ["alive"] }, "periodSeconds": 1 });
    let linger = json!({ "preStop": { "exec": { "command": ["linger"] } } });
    let spec = json!({ "terminationGracePeriodSeconds": 60, "containers": [{ "name": "c", "image": "i:1",
        "readinessProbe": moody, "livenessProbe": alive, "lifecycle": linger }] });
    world.create("p", spec).await;
    world.pod_until("p", is_ready).await;
    world.pods().delete("p", &DeleteParams::default()).await.unwrap();
    world.event("Killing").await;
    let (asked, lived) = (world.runtime.ran("moody"), world.runtime.ran("alive"));
    world.runtime.be_moody(true);
    let pod = world.pod_until("p", |pod| condition(pod, "Ready") == "False").await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string() && world.runtime.stops().is_empty());
    assert_eq!(status(&pod, "containerStatuses", "c")["ready"], false);
    assert!(world.runtime.ran("moody") > asked);
    world.runtime.be_moody(false);
    world.pod_until("p", is_ready).await;
    assert!(world.runtime.ran("alive") <= lived + 1, "nobody restarts what is to end");
    world.runtime.hurry();
    world.pod_until("p", Value::is_null).await;
    let stops = world.runtime.stops();
    assert!(stops.len() == 1 && stops[0].1 > Duration::from_secs(10), "{stops:?}");
}

#[tokio::test]
async fn a_container_tells_of_its_mounts() {
    let world = World::start().await;
    let mounts = json!([{ "name": "v", "mountPath": "/a" },
        { "name": "v", "mountPath": "/b", "readOnly": true, "recursiveReadOnly": "IfPossible" }]);
    let spec = json!({ "volumes": [{ "name": "v", "emptyDir": {} }], "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": "i:1", "volumeMounts": mounts }] });
    world.create("p", spec.clone()).await;
    let pod = world.pod_until("p", is_ready).await;
    let told = &status(&pod, "containerStatuses", "c")["volumeMounts"];
    let known = json!([{ "name": "v", "mountPath": "/a" },
        { "name": "v", "mountPath": "/b", "readOnly": true, "recursiveReadOnly": "Disabled" }]);
    assert_eq!(*told, known);
    let mut must = spec;
    must["containers"][0]["volumeMounts"][1]["recursiveReadOnly"] = json!("Enabled");
    world.create("must", must).await;
    let waits = |pod: &Value| {
        status(pod, "containerStatuses", "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let pod = world.pod_until("must", waits).await;
    assert_eq!(
        status(&pod, "containerStatuses", "c")["state"]["waiting"]["message"],
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is not \
         supported by the runtime"
    );
}

/// What the runtime cannot run says nothing about the container.
#[tokio::test]
async fn a_question_that_comes_to_nothing_restarts_nobody() {
    let world = World::start().await;
    let probe = json!({ "exec": { "command": ["nowhere"] }, "periodSeconds": 1, "failureThreshold": 1 });
    let probed = json!({ "name": "c", "image": "i:1", "livenessProbe": probe });
    world.create("p", json!({ "containers": [probed] })).await;
    world.pod_until("p", is_ready).await;
    let text = world.event("Unhealthy").await;
    assert_eq!(text, "Liveness probe errored and resulted in unknown state: fake");
    // It is put three times in a row, and comes again in the next period.
    let pod = world.pod_until("p", |_| world.runtime.ran("nowhere") > 6).await;
    assert!(is_ready(&pod) && world.runtime.stops().is_empty());
    assert_eq!(status(&pod, "containerStatuses", "c")["restartCount"], 0);
}

#[tokio::test]
async fn another_image_is_not_kept_waiting() {
    let world = World::start().await;
    world.create("p", json!({ "containers": [{ "name": "c", "image": "i:1" }] })).await;
    for _ in 0..2 {
        world.pod_until("p", is_ready).await;
        world.runtime.exit("c", 1);
    }
    let waits = |pod: &Value| {
        status(pod, "containerStatuses", "c")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    world.pod_until("p", waits).await;
    let began = std::time::Instant::now();
    let image = json!({ "spec": { "containers": [{ "name": "c", "image": "i:2" }] } });
    world.pods().patch("p", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let pod = world.pod_until("p", is_ready).await;
    assert_eq!(status(&pod, "containerStatuses", "c")["image"], "i:2");
    assert!(began.elapsed() < Duration::from_secs(5), "the back-off is 10 s");
}

//! Pods that are deleted at every moment of their lives, on a runtime that is slow, fails, and answers after its caller has
//! gone. Nothing of them may remain.

use crate::cri_socket::{Hold, Moment, Outcome};
use crate::support::{World, condition, until};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const MOMENTS: [Moment; 3] = [Moment::Before, Moment::During, Moment::After];
const OUTCOMES: [Outcome; 3] = [Outcome::Done, Outcome::Refused, Outcome::DoneButFailed];

fn spec() -> Value {
    let container = |name: &str| json!({ "name": name, "image": "i:1", "imagePullPolicy": "Always" });
    json!({ "terminationGracePeriodSeconds": 30, "containers": [container("a"), container("b")] })
}

async fn delete(world: &World, name: &str, grace: u32) {
    world.pods().delete(name, &DeleteParams::default().grace_period(grace)).await.unwrap();
}

/// What the pod is doing when the call is cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is deleted while it starts.
    Starting,
    /// It ends, and is to end sooner.
    Termination,
    /// All is stopped: who deletes it once more has the object go at once.
    Ended,
}

/// Cancels the method's call at every moment, whatever its end.
async fn cancel(method: &'static str, stage: Stage) {
    let world = World::over_a_socket().await;
    let socket = world.socket();
    for moment in MOMENTS {
        for outcome in OUTCOMES {
            let name = &format!("{method}-{moment:?}-{outcome:?}").to_lowercase();
            let hold = Hold { method, moment, outcome };
            println!("{hold:?}");
            if stage == Stage::Starting {
                socket.hold(hold);
            }
            world.create(name, spec()).await;
            if stage != Stage::Starting {
                world.pod_until(name, |pod| condition(pod, "Ready") == "True").await;
                socket.hold(hold);
                delete(&world, name, 30).await;
            }
            socket.held().await;
            let before = socket.looks();
            delete(&world, name, 1).await;
            if stage != Stage::Ended {
                socket.looked(before).await;
                let there = world.pod_until(name, |_| true).await;
                assert!(!there.is_null(), "{hold:?}: gone with a call under way");
            }
            socket.release();
            world.pod_until(name, Value::is_null).await;
            world.until_nothing_runs().await;
        }
    }
    assert_eq!(socket.torn(), [""; 0], "calls that were dropped half-way");
}

#[tokio::test]
async fn a_sandbox_being_run_is_waited_for() {
    cancel("RunPodSandbox", Stage::Starting).await;
}

#[tokio::test]
async fn a_container_being_created_is_waited_for() {
    cancel("CreateContainer", Stage::Starting).await;
}

#[tokio::test]
async fn a_container_being_started_is_waited_for() {
    cancel("StartContainer", Stage::Starting).await;
}

#[tokio::test]
async fn a_container_being_stopped_is_waited_for() {
    cancel("StopContainer", Stage::Termination).await;
}

#[tokio::test]
async fn a_container_being_removed_is_waited_for() {
    cancel("RemoveContainer", Stage::Ended).await;
}

#[tokio::test]
async fn a_sandbox_being_stopped_is_waited_for() {
    cancel("StopPodSandbox", Stage::Termination).await;
}

#[tokio::test]
async fn a_sandbox_being_removed_is_waited_for() {
    cancel("RemovePodSandbox", Stage::Ended).await;
}

/// Nothing of a pull is the pod's: it goes on without it, and the next who wants the image finds its turn free.
#[tokio::test]
async fn a_pull_goes_on_without_its_pod() {
    let world = World::over_a_socket().await;
    let socket = world.socket();
    for moment in MOMENTS {
        for outcome in OUTCOMES {
            let name = &format!("pull-{moment:?}-{outcome:?}").to_lowercase();
            socket.hold(Hold { method: "PullImage", moment, outcome });
            world.create(name, spec()).await;
            socket.held().await;
            delete(&world, name, 1).await;
            world.pod_until(name, Value::is_null).await;
            assert_eq!(world.runtime.count(), (0, 0), "{moment:?} {outcome:?}");
            socket.release();
            let next = &format!("next-{name}");
            world.create(next, spec()).await;
            world.pod_until(next, |pod| condition(pod, "Ready") == "True").await;
            delete(&world, next, 1).await;
            world.pod_until(next, Value::is_null).await;
        }
    }
    assert_eq!(socket.torn(), [""; 0]);
}

/// Looks change nothing: whether one comes late or fails, the pod ends after it.
#[tokio::test]
async fn a_pod_ends_after_a_look_that_is_late_or_fails() {
    let world = World::over_a_socket().await;
    let socket = world.socket();
    for method in ["ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "ImageStatus"] {
        for moment in [Moment::Before, Moment::After] {
            for outcome in [Outcome::Done, Outcome::Refused] {
                let name = &format!("{method}-{moment:?}-{outcome:?}").to_lowercase();
                socket.hold(Hold { method, moment, outcome });
                world.create(name, spec()).await;
                socket.held().await;
                delete(&world, name, 1).await;
                socket.release();
                world.pod_until(name, Value::is_null).await;
                assert_eq!(world.runtime.count(), (0, 0), "{method} {moment:?} {outcome:?}");
            }
        }
    }
}

/// What was begun when the kubelet stops is done when it has stopped; the next one finds it and goes on from there.
#[tokio::test]
async fn a_kubelet_that_stops_brings_its_calls_to_their_end() {
    let mut world = World::over_a_socket().await;
    let socket = world.socket();
    let during = |method| Hold { method, moment: Moment::During, outcome: Outcome::Done };
    for method in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        let name = &method.to_lowercase();
        socket.hold(during(method));
        world.create(name, spec()).await;
        socket.held().await;
        let stopping = world.begin_to_stop();
        socket.release();
        stopping.await.unwrap();
        world.start_kubelet();
        world.pod_until(name, |pod| condition(pod, "Ready") == "True").await;
        assert_eq!(world.runtime.stops(), [], "{method}: what was being started is used");
        delete(&world, name, 1).await;
        world.until_nothing_runs().await;
        world.runtime.forget_stops();
    }
    for method in ["StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"] {
        let name = &method.to_lowercase();
        world.create(name, spec()).await;
        world.pod_until(name, |pod| condition(pod, "Ready") == "True").await;
        socket.hold(during(method));
        delete(&world, name, 1).await;
        socket.held().await;
        let stopping = world.begin_to_stop();
        socket.release();
        stopping.await.unwrap();
        world.start_kubelet();
        world.pod_until(name, Value::is_null).await;
        world.until_nothing_runs().await;
    }
    assert_eq!(socket.torn(), [""; 0]);
}

#[tokio::test]
async fn a_task_that_the_runtime_cannot_delete_is_killed_at_its_shim() {
    let world = World::start().await;
    world.create("p", spec()).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.runtime.stick();
    delete(&world, "p", 1).await;
    world.pod_until("p", Value::is_null).await;
    assert_eq!(world.runtime.count(), (0, 0));
    assert_eq!(world.runtime.killed().len(), 1, "one pod has one shim");
    let told = world.event("FailedKillPod").await;
    assert_eq!(
        told,
        "error killing pod: rpc error: code = FailedPrecondition desc = cannot delete running task"
    );
    let told = world.event("ForcedKill").await;
    assert!(told.starts_with("The runtime cannot end the pod: killed the shim of sandbox s"), "{told}");
}

/// Pods that went while there was no kubelet are no less stubborn.
#[tokio::test]
async fn remains_are_removed_until_there_are_none() {
    let mut world = World::start().await;
    world.create("p", spec()).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    world.stop_kubelet().await;
    world.runtime.stick();
    delete(&world, "p", 0).await;
    world.pod_until("p", Value::is_null).await;
    world.start_kubelet();
    world.until_nothing_runs().await;
    assert_eq!(world.runtime.killed().len(), 1);
    let cleaned = async || json!(world.figures().contains("\nkubelet_orphan_pod_cleaned_volumes 1\n"));
    until(cleaned, |cleaned| *cleaned == json!(true)).await;
    world.shows("kubelet_orphan_pod_cleaned_volumes_errors 0");
}

/// Somebody waits for its last word: a Job that counts it, and the namespace that waits for the Job.
#[tokio::test]
async fn a_pod_that_is_deleted_before_it_ran_has_failed() {
    let world = World::start().await;
    world.runtime.lose_image("gone:1");
    let finalizers = |list: Value| Patch::Merge(json!({ "metadata": { "finalizers": list } }));
    let container = json!({ "name": "c", "image": "gone:1" });
    for (name, extra) in [
        ("plain", json!({})),
        (
            "with-init",
            json!({ "initContainers": [{ "name": "i", "image": "gone:1" }, { "name": "j", "image": "i" }] }),
        ),
    ] {
        let mut spec = json!({ "containers": [container] });
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        world.create(name, spec).await;
        let keep = finalizers(json!(["example.com/keep"]));
        world.pods().patch(name, &PatchParams::default(), &keep).await.unwrap();
        let waits =
            |pod: &Value| pod["status"]["phase"] == "Pending" && !pod["status"]["startTime"].is_null();
        world.pod_until(name, waits).await;
        delete(&world, name, 1).await;
        let pod = world.pod_until(name, |pod| pod["status"]["phase"] == "Failed").await;
        let first = if name == "plain" { "containerStatuses" } else { "initContainerStatuses" };
        let end = &pod["status"][first][0]["state"]["terminated"];
        assert_eq!(
            (&end["exitCode"], &end["reason"]),
            (&json!(137), &json!("ContainerStatusUnknown")),
            "{pod:#}"
        );
        if name == "with-init" {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
            assert_eq!(waiting, "PodInitializing", "its turn never came");
        }
        world.pod_until(name, |pod| pod["metadata"]["deletionGracePeriodSeconds"] == 0).await;
        world.pods().patch(name, &PatchParams::default(), &finalizers(Value::Null)).await.unwrap();
        world.pod_until(name, Value::is_null).await;
    }
}

/// The signal goes to the whole process, and only this kubelet has been told to listen to it.
#[tokio::test]
async fn pods_end_by_priority_before_the_machine_does() {
    let mut world = World::start().await;
    world.stop_kubelet().await;
    let period =
        |priority: i64, seconds: u64| json!({ "priority": priority, "shutdownGracePeriodSeconds": seconds });
    world.written = json!({ "shutdownGracePeriodByPodPriority": [period(0, 20), period(2_000_000_000, 10)] });
    world.start_kubelet();
    let spec = |name: &str, class: &str| json!({ "terminationGracePeriodSeconds": 600, "priorityClassName": class, "containers": [{ "name": name, "image": "i" }] });
    world.create("plain", spec("plain", "")).await;
    world.create("critical", spec("critical", "system-node-critical")).await;
    for name in ["plain", "critical"] {
        world.pod_until(name, |pod| condition(pod, "Ready") == "True").await;
    }
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGPWR).unwrap();
    for name in ["plain", "critical"] {
        let pod = world.pod_until(name, |pod| pod["status"]["phase"] == "Failed").await;
        assert_eq!(pod["status"]["reason"], "Terminated");
        assert_eq!(pod["status"]["message"], "Pod was terminated in response to imminent node shutdown.");
        assert_eq!(condition(&pod, "DisruptionTarget"), "True");
    }
    let stops = world.runtime.stops();
    let names: Vec<&str> = stops.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["plain", "critical"], "the others end first");
    assert!(stops[0].1.as_secs() <= 20 && stops[1].1.as_secs() <= 10, "{stops:?}");
    let ready = |node: &Value| {
        let all = node["status"]["conditions"].as_array().into_iter().flatten();
        all.into_iter().any(|c| {
            c["type"] == "Ready" && c["status"] == "False" && c["message"] == "node is shutting down"
        })
    };
    world.node_until(ready).await;
    world.create("late", spec("late", "")).await;
    let late = world.pod_until("late", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(late["status"]["reason"], "NodeShutdown");
    assert_eq!(late["status"]["message"], "Pod was rejected: Pod was rejected as the node is shutting down.");
}

//! The columns of pods in tables.

use super::*;

const CREATED: &str = "2026-01-01T00:00:00Z";

#[track_caller]
fn row(patch: Value, ready: &str, status: &str, restarts: &str) {
    let mut object = pod(&json!({ "metadata": { "creationTimestamp": CREATED } }));
    testing::merge(&mut object, &patch);
    let cells = Pods.row(&object, "2026-01-01T00:10:00Z".parse().unwrap());
    assert_eq!(cells.len(), Pods.columns().len());
    let got: Vec<&str> = cells.iter().filter_map(Value::as_str).collect();
    assert_eq!(&got[..5], ["p", ready, status, restarts, "10m"], "{patch}");
}

#[test]
fn of_running_and_failing_pods() {
    row(json!({ "status": { "phase": "Pending" } }), "0/1", "Pending", "0");
    let running = json!({ "name": "c", "ready": true, "restartCount": 3, "state": { "running": {} },
        "lastState": { "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T00:05:00Z" } } });
    row(
        json!({ "status": { "phase": "Running", "containerStatuses": [running] } }),
        "1/1",
        "Running",
        "3 (5m ago)",
    );
    let waiting =
        json!({ "name": "c", "restartCount": 2, "state": { "waiting": { "reason": "CrashLoopBackOff" } } });
    row(
        json!({ "status": { "phase": "Running", "containerStatuses": [waiting] } }),
        "0/1",
        "CrashLoopBackOff",
        "2",
    );
    let done = json!({ "name": "c", "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } });
    row(json!({ "status": { "phase": "Succeeded", "containerStatuses": [done] } }), "0/1", "Completed", "0");
    let killed = json!({ "name": "c", "state": { "terminated": { "exitCode": 137, "signal": 9 } } });
    row(json!({ "status": { "phase": "Failed", "containerStatuses": [killed] } }), "0/1", "Signal:9", "0");
    row(json!({ "status": { "phase": "Failed", "reason": "Evicted" } }), "0/1", "Evicted", "0");
}

#[test]
fn of_pods_that_initialize() {
    let spec = json!({ "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }] });
    let i_runs = json!({ "name": "i", "state": { "running": {} } });
    let i_done = json!({ "name": "i", "restartCount": 1, "state": { "terminated": { "exitCode": 0 } } });
    let s_started = json!({ "name": "s", "started": true, "ready": true, "state": { "running": {} } });
    let with = |init: Value| {
        json!({ "spec": spec, "status": { "phase": "Pending", "initContainerStatuses": init,
        "containerStatuses": [{ "name": "c", "state": { "waiting": { "reason": "PodInitializing" } } }] } })
    };
    row(with(json!([i_runs])), "0/2", "Init:0/2", "0");
    let failed =
        json!({ "name": "i", "restartCount": 4, "state": { "waiting": { "reason": "CrashLoopBackOff" } } });
    row(with(json!([failed])), "0/2", "Init:CrashLoopBackOff", "4");
    let error = json!({ "name": "i", "state": { "terminated": { "exitCode": 3 } } });
    row(with(json!([error])), "0/2", "Init:ExitCode:3", "0");
    row(with(json!([i_done, s_started])), "1/2", "PodInitializing", "0");
}

#[test]
fn of_pods_that_go_or_wait() {
    let deleted = json!({ "metadata": { "deletionTimestamp": CREATED }, "status": { "phase": "Running" } });
    row(deleted, "0/1", "Terminating", "0");
    let lost = json!({ "metadata": { "deletionTimestamp": CREATED }, "status": { "phase": "Running", "reason": "NodeLost" } });
    row(lost, "0/1", "Unknown", "0");
    let gated = json!({ "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }] } });
    row(gated, "0/1", "SchedulingGated", "0");
}

#[test]
fn wide_cells_are_none_when_empty() {
    let cells = Pods.row(&pod(&json!({})), Timestamp::UNIX_EPOCH);
    assert_eq!(cells[5..], ["<none>", "<none>", "<none>", "<none>"]);
    let gated =
        pod(&json!({ "spec": { "readinessGates": [{ "conditionType": "a/b" }, { "conditionType": "c" }] },
        "status": { "conditions": [{ "type": "c", "status": "True" }] } }));
    assert_eq!(Pods.row(&gated, Timestamp::UNIX_EPOCH)[8], "1/2");
}

use super::*;
use crate::testing::{self, World};
use coracle_api::Origin;
use serde_json::json;

fn base() -> Object {
    json!({ "metadata": { "name": "p", "namespace": "d" },
        "spec": { "containers": [{ "name": "c", "image": "i:1" }] } })
}

/// A pod with the JSON merge patch `patch` applied, defaulted.
fn pod(patch: &Value) -> Object {
    let mut object = base();
    testing::merge(&mut object, patch);
    Pods.defaults(&mut object);
    object
}

#[track_caller]
fn check(patch: Value, expected: &[&str]) {
    let world = World::default();
    let mut errors = Vec::new();
    Pods.validate(&pod(&patch), &world.env(), &mut errors);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected, "{patch}");
}

#[track_caller]
fn check_container(extra: Value, expected: &[&str]) {
    let mut container = json!({ "name": "c", "image": "i:1" });
    testing::merge(&mut container, &extra);
    check(json!({ "spec": { "containers": [container] } }), expected);
}

#[test]
fn a_plain_pod_is_valid() {
    check(json!({}), &[]);
}

#[test]
fn containers_are_checked() {
    check(json!({ "spec": { "containers": [] } }), &["spec.containers: Required value"]);
    check_container(json!({ "name": "" }), &["spec.containers[0].name: Required value"]);
    check_container(json!({ "image": "" }), &["spec.containers[0].image: Required value"]);
    check_container(
        json!({ "imagePullPolicy": "Sometimes" }),
        &[
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
    check(
        json!({ "spec": { "containers": [{ "name": "c", "image": "i" }, { "name": "c", "image": "i" }] } }),
        &["spec.containers[1].name: Duplicate value: \"c\""],
    );
    check(
        json!({ "spec": { "initContainers": [{ "name": "i", "image": "i",
            "readinessProbe": { "tcpSocket": { "port": 1 } } }] } }),
        &[
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
    check(
        json!({ "spec": { "initContainers": [{ "name": "i", "image": "i", "restartPolicy": "Always",
            "readinessProbe": { "tcpSocket": { "port": 1 } } }] } }),
        &[],
    );
}

#[test]
fn a_resize_does_not_restart_what_runs_once() {
    let policy = json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]);
    let pod = |container: Value| json!({ "spec": { "initContainers": [container] } });
    let once = pod(json!({ "name": "i", "image": "i", "resizePolicy": policy }));
    let refusal = "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be \
                   set to 'RestartContainer' for non-sidecar initContainers";
    check(once.clone(), &[refusal]);
    let sidecar = json!({ "name": "i", "image": "i", "restartPolicy": "Always", "resizePolicy": policy });
    check(pod(sidecar.clone()), &[]);
    check(json!({ "spec": { "containers": [{ "name": "c", "image": "i", "resizePolicy": policy }] } }), &[]);
    let forgiven = |old: &Value| {
        let mut errors = vec![FieldError::invalid("spec", &json!("x"), "wrong")];
        errors[0].origin = Some(Origin::InitContainerRestart);
        crate::forgive_resizes(&mut errors, old);
        errors.is_empty()
    };
    assert!(forgiven(&once) && forgiven(&json!({ "spec": { "template": once } })));
    assert!(!forgiven(&pod(sidecar)) && !forgiven(&pod(json!({ "name": "i" }))));
}

#[test]
fn ports_env_and_probes_are_checked() {
    check_container(
        json!({ "ports": [{ "containerPort": 70000 }] }),
        &[
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ],
    );
    check_container(
        json!({ "env": [{ "value": "x" }] }),
        &["spec.containers[0].env[0].name: Required value"],
    );
    check_container(
        json!({ "env": [{ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "status.phase" } } }] }),
        &[
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"status.phase\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
        ],
    );
    check_container(
        json!({ "env": [{ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['a.b/c']" } } }] }),
        &[],
    );
    check_container(
        json!({ "livenessProbe": {} }),
        &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
    );
    check_container(
        json!({ "livenessProbe": { "exec": { "command": ["x"] }, "successThreshold": 2 } }),
        &["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"],
    );
}

#[test]
fn resources_are_checked() {
    check_container(
        json!({ "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } }),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ],
    );
    check_container(
        json!({ "resources": { "limits": { "memory": "-1" } } }),
        &[
            "spec.containers[0].resources.limits[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.containers[0].resources.requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
        ],
    );
    check_container(
        json!({ "resources": { "requests": { "example.com/gpu": "1" } } }),
        &[
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ],
    );
}

#[test]
fn volumes_are_checked() {
    check_container(
        json!({ "volumeMounts": [{ "name": "v", "mountPath": "/x" }] }),
        &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
    );
    check(
        json!({ "spec": { "volumes": [{ "name": "v", "hostPath": { "path": "/a/../b" } }] } }),
        &["spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
    );
    check(
        json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": {}, "configMap": { "name": "c" } }] } }),
        &["spec.volumes[0].configMap: Forbidden: may not specify more than 1 volume type"],
    );
}

#[test]
fn scheduling_is_checked() {
    check(
        json!({ "spec": { "tolerations": [{ "value": "x" }] } }),
        &[
            "spec.tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ],
    );
    check(
        json!({ "spec": { "topologySpreadConstraints": [{ "maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule" }] } }),
        &["spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"],
    );
    check(
        json!({ "spec": { "restartPolicy": "Maybe" } }),
        &[
            "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ],
    );
    check(
        json!({ "spec": { "activeDeadlineSeconds": 0 } }),
        &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
    );
}

fn update(change: Value) -> Vec<String> {
    let world = World::default();
    let (old, mut new) = (pod(&json!({})), pod(&json!({})));
    testing::merge(&mut new, &change);
    let mut errors = Vec::new();
    Pods.validate_update(&new, &old, &world.env(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn updates_may_change_images_only() {
    assert!(
        update(json!({ "spec": { "containers": [{ "name": "c", "image": "other",
        "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "resources": {} }] } }))
        .is_empty()
    );
    assert!(update(json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } })).is_empty());
    let errors = update(json!({ "spec": { "hostNetwork": true } }));
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].starts_with(
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        ),
        "{errors:?}"
    );
    assert!(errors[0].ends_with("\n  spec.hostNetwork: null -> true"), "{errors:?}");
    let errors = update(json!({ "spec": { "containers": [] } }));
    assert_eq!(errors, ["spec.containers: Forbidden: pod updates may not add or remove containers"]);
}

#[test]
fn creation_sets_phase_and_class() {
    let world = World::default();
    let mut object = pod(&json!({ "status": { "phase": "Running" } }));
    Pods.prepare_create(&mut object, &world.env());
    assert_eq!(object["status"], json!({ "phase": "Pending", "qosClass": "BestEffort" }));
}

#[test]
fn deletion_is_graceful_only_where_a_kubelet_has_work() {
    let mut object = pod(&json!({}));
    assert_eq!(Pods.graceful_deletion(&object, None), Some(0));
    object["spec"]["nodeName"] = "n".into();
    assert_eq!(Pods.graceful_deletion(&object, None), Some(30));
    assert_eq!(Pods.graceful_deletion(&object, Some(5)), Some(5));
    assert_eq!(Pods.graceful_deletion(&object, Some(-5)), Some(1));
    object["status"] = json!({ "phase": "Succeeded" });
    assert_eq!(Pods.graceful_deletion(&object, None), Some(0));
}

#[test]
fn status_updates_keep_deletion_and_align_addresses() {
    let world = World::default();
    let mut old = pod(&json!({ "status": { "qosClass": "BestEffort" } }));
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let mut new = pod(&json!({ "status": { "podIP": "10.0.0.1" } }));
    Pods.prepare_status_update(&mut new, &old, &world.env());
    assert_eq!(new["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(
        new["status"],
        json!({ "qosClass": "BestEffort", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }] })
    );
    new["status"]["podIP"] = "10.0.0.2".into();
    Pods.prepare_status_update(&mut new, &old, &world.env());
    assert_eq!(new["status"]["podIPs"], json!([{ "ip": "10.0.0.2" }]), "who writes one knows no other");
    remove(&mut new, "status.podIP");
    Pods.prepare_status_update(&mut new, &old, &world.env());
    assert_eq!(new["status"]["podIP"], "10.0.0.2");
    new["status"]["hostIP"] = "10.0.0.3".into();
    new["status"]["hostIPs"] = json!([{ "ip": "10.0.0.4" }]);
    assert_eq!(
        testing::status_errors(&Pods, &new, &old),
        ["status.hostIPs[0].ip: Invalid value: \"10.0.0.4\": must be equal to `hostIP`"]
    );
}

#[test]
fn mistakes_of_the_claims_made_for_a_pod_name_their_field() {
    let old =
        pod(&json!({ "spec": { "resourceClaims": [{ "name": "c", "resourceClaimTemplateName": "t" }] } }));
    let mut new = old.clone();
    new["status"] = json!({ "resourceClaimStatuses": [
        { "name": "c", "resourceClaimName": "A" },
        { "name": "d", "resourceClaimName": "d" },
    ] });
    let errors = testing::status_errors(&Pods, &new, &old);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[0].starts_with("status.resourceClaimStatuses[0].resourceClaimName: Invalid value: \"A\":")
    );
    assert!(
        errors[1]
            .starts_with("status.resourceClaimStatuses[1].name: Invalid value: \"d\": must match the name")
    );
}

mod rows;

#[test]
fn volumes_and_devices_do_not_overlap() {
    let pod = |mounts: Value, devices: Value| {
        json!({ "spec": {
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }, { "name": "i", "image": { "reference": "r" } }],
            "containers": [{ "name": "c", "image": "i:1", "volumeMounts": mounts, "volumeDevices": devices }] } })
    };
    let at = |rest: &str| format!("spec.containers[0].{rest}");
    check(pod(json!([{ "name": "v", "mountPath": "/a" }]), json!([])), &[]);
    check(
        pod(json!([{ "name": "v", "mountPath": "/a" }]), json!([{ "name": "v", "devicePath": "/a" }])),
        &[
            &at("volumeMounts[0].name: Invalid value: \"v\": must not already exist in volumeDevices"),
            &at(
                "volumeMounts[0].mountPath: Invalid value: \"/a\": must not already exist as a path in volumeDevices",
            ),
            &at("volumeDevices[0].name: Invalid value: \"v\": must not already exist in volumeMounts"),
            &at(
                "volumeDevices[0].devicePath: Invalid value: \"/a\": must not already exist as a path in volumeMounts",
            ),
        ],
    );
    check(
        pod(json!([{ "name": "i", "mountPath": "/a", "subPath": "b" }]), json!([])),
        &[&at("volumeMounts[0].subPath: Invalid value: \"b\": not allowed in image volume sources")],
    );
    check(
        pod(json!([]), json!([{ "name": "v", "devicePath": "/a/../b" }])),
        &[&at("volumeDevices[0].devicePath: Invalid value: \"/a/../b\": can not contain backsteps ('..')")],
    );
}

#[test]
fn projected_files_and_claims_of_ephemeral_volumes() {
    let projected = |sources: Value| json!({ "spec": { "volumes": [{ "name": "v", "projected": { "sources": sources } }] } });
    let map = |file: &str| json!({ "configMap": { "name": "m", "items": [{ "key": "k", "path": file }] } });
    check(projected(json!([map("a"), map("b"), {}])), &[]);
    check(
        projected(json!([map("a"), map("a")])),
        &["spec.volumes[0].projected: Invalid value: \"m\": conflicting duplicate paths"],
    );
    check(
        projected(json!([{ "serviceAccountToken": { "path": "t", "expirationSeconds": 600 } }])),
        &["spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when \
           serviceAccountName is not set"],
    );
    let claim = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1" } } } });
    check(
        json!({ "spec": { "volumes": [{ "name": "e", "ephemeral": { "volumeClaimTemplate": claim } },
            { "name": "c", "persistentVolumeClaim": { "claimName": "p-e" } }] } }),
        &[
            "spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: \"p-e\": must not reference a PVC that gets \
           created for an ephemeral volume",
        ],
    );
}

#[test]
fn rules_by_exit_codes() {
    let rule = json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
    check_container(json!({ "restartPolicy": "Never", "restartPolicyRules": rule }), &[]);
    check_container(
        json!({ "restartPolicyRules": rule }),
        &[
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
        ],
    );
    check_container(
        json!({ "restartPolicy": "Never", "restartPolicyRules": [{ "action": "Stop", "exitCodes": { "operator": "In" } }] }),
        &[
            "spec.containers[0].restartPolicyRules[0].action: Unsupported value: \"Stop\": supported values: \"Restart\", \"RestartAllContainers\"",
            "spec.containers[0].restartPolicyRules[0].exitCodes.values: Required value: must have at least one value",
        ],
    );
}

#[test]
fn a_gated_pod_may_be_narrowed() {
    let gated = |spec: Value| {
        let mut object = pod(&json!({ "spec": { "schedulingGates": [{ "name": "a/b" }] } }));
        testing::merge(&mut object, &json!({ "spec": spec }));
        object
    };
    let changed = |old: Value, new: Value| {
        let mut errors = Vec::new();
        validate::update::pod(&gated(new), &gated(old), &mut Errors(&mut errors));
        errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>()
    };
    let term = |keys: &[&str]| {
        let expressions: Vec<Value> =
            keys.iter().map(|key| json!({ "key": key, "operator": "Exists" })).collect();
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
            { "nodeSelectorTerms": [{ "matchExpressions": expressions }] } } } })
    };
    let terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    assert!(changed(json!({}), term(&["a"])).is_empty());
    assert!(changed(term(&["a"]), term(&["a", "b"])).is_empty());
    assert_eq!(changed(term(&["a", "b"]), term(&["a"])), [format!("{terms}[0]")]);
    assert_eq!(changed(term(&["a"]), json!({})), [terms]);
    assert!(
        changed(json!({ "nodeSelector": { "a": "1" } }), json!({ "nodeSelector": { "a": "1", "b": "2" } }))
            .is_empty()
    );
    assert_eq!(changed(json!({ "nodeSelector": { "a": "1" } }), json!({})), ["spec.nodeSelector"]);
    let near =
        json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [] } } });
    assert_eq!(changed(json!({}), near), ["spec"]);
}

#[test]
fn host_processes_go_together() {
    let pod = |own: bool, host: bool| {
        json!({ "spec": { "hostNetwork": host, "os": { "name": "windows" }, "containers": [
            { "name": "a", "image": "i", "securityContext": { "windowsOptions": { "hostProcess": true, "runAsUserName": "D\\u" } } },
            { "name": "b", "image": "i", "securityContext": { "windowsOptions": { "hostProcess": own } } }] } })
    };
    check(pod(true, true), &[]);
    check(
        pod(false, false),
        &[
            "spec: Invalid value: \"\": If pod contains any hostProcess containers then all containers must be HostProcess containers",
            "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
        ],
    );
}

#[test]
fn a_pod_that_was_made_without_its_own_requests_can_be_labelled() {
    let world = World::default();
    let mut old = pod(&json!({ "spec": { "resources": { "limits": { "cpu": "1" } } } }));
    remove(&mut old, "spec.resources.requests");
    let updated = |patch: Value| {
        let mut new = old.clone();
        testing::merge(&mut new, &patch);
        Pods.defaults(&mut new);
        Pods.prepare_update(&mut new, &old, &world.env());
        let mut errors = Vec::new();
        Pods.validate_update(&new, &old, &world.env(), &mut errors);
        errors.len()
    };
    assert_eq!(updated(json!({ "metadata": { "labels": { "a": "b" } } })), 0);
    let other = json!({ "spec": { "resources": { "requests": { "cpu": "500m" } } } });
    assert_eq!(updated(other), 1, "its own word is refused as ever");
}

#[test]
fn a_stop_signal_is_dropped_as_its_gate_is_off() {
    let kept = |lifecycle: Value| {
        let container = json!({ "name": "c", "image": "i:1", "lifecycle": lifecycle });
        let made = pod(&json!({ "spec": { "containers": [container] } }));
        made["spec"]["containers"][0].get("lifecycle").cloned()
    };
    assert_eq!(kept(json!({ "stopSignal": "SIGUSR1" })), None);
    let sleep = json!({ "preStop": { "sleep": { "seconds": 1 } } });
    let mut both = sleep.clone();
    both["stopSignal"] = json!("SIGUSR1");
    assert_eq!(kept(both), Some(sleep));
    assert_eq!(kept(json!({})), Some(json!({})));
}

#[test]
fn variables_of_files_come_from_volumes_that_begin_empty() {
    let with = |source: Value, expected: &[&str]| {
        let mut reference = json!({ "volumeName": "v", "path": "a.env", "key": "A" });
        testing::merge(&mut reference, &source);
        let variable = json!({ "name": "A", "valueFrom": { "fileKeyRef": reference } });
        let volumes =
            json!([{ "name": "v", "emptyDir": {} }, { "name": "h", "hostPath": { "path": "/tmp" } }]);
        let container = json!({ "name": "c", "image": "i:1", "env": [variable] });
        let spec = json!({ "spec": { "volumes": volumes, "containers": [container] } });
        let expected: Vec<String> = expected
            .iter()
            .map(|error| format!("spec.containers[0].env[0].valueFrom.fileKeyRef.{error}"))
            .collect();
        check(spec.clone(), &expected.iter().map(String::as_str).collect::<Vec<_>>());
        pod(&spec)["spec"]["containers"][0]["env"][0]["valueFrom"]["fileKeyRef"]["optional"].clone()
    };
    assert_eq!(with(json!({}), &[]), false);
    assert_eq!(with(json!({ "optional": true }), &[]), true);
    with(json!({ "volumeName": "no" }), &["volumeName: Not found: \"no\""]);
    let kind = "volumeName: Invalid value: \"h\": referenced volume must be of type emptyDir";
    with(json!({ "volumeName": "h" }), &[kind]);
    with(json!({ "path": "/a" }), &["path: Invalid value: \"/a\": must be a relative path"]);
    with(json!({ "path": "a/../b" }), &["path: Invalid value: \"a/../b\": must not contain '..'"]);
    with(json!({ "key": "" }), &["key: Required value"]);
}

#[test]
fn what_has_ended_for_good_comes_back_only_with_all_others() {
    let moved = |rules: Value| {
        let source =
            json!({ "name": "s", "image": "i:1", "restartPolicy": "Never", "restartPolicyRules": rules });
        let spec =
            json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i:1" }, source] });
        let with = |state: Value| {
            let mut made = pod(&json!({ "spec": spec.clone() }));
            made["status"] = json!({ "containerStatuses": [{ "name": "c", "state": state }] });
            made
        };
        let (old, new) = (with(json!({ "terminated": { "exitCode": 1 } })), with(json!({ "running": {} })));
        let mut errors = Vec::new();
        Pods.validate_status_update(&new, &old, &World::default().env(), &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let rule = |action: &str| {
        let exit = json!({ "operator": "In", "values": [42] });
        json!([{ "action": action, "exitCodes": exit }])
    };
    let once = moved(rule("Restart"));
    assert!(
        once.len() == 1 && once[0].contains("may not be transitioned to non-terminated state"),
        "{once:?}"
    );
    assert_eq!(moved(rule("RestartAllContainers")), [""; 0]);
}

use super::*;
use crate::Strategy;
use crate::testing::{self, World, status_errors};

fn object(strategy: &dyn Strategy, patch: &Value) -> Object {
    let mut object = json!({ "metadata": { "name": "w", "namespace": "d" }, "spec": {
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i:1" }] } } } });
    testing::merge(&mut object, patch);
    strategy.defaults(&mut object);
    object
}

fn errors(strategy: &dyn Strategy, patch: &Value) -> Vec<String> {
    testing::errors(strategy, object(strategy, patch))
}

#[test]
fn a_deployment_gets_upstreams_defaults() {
    let object = object(&Deployments, &json!({}));
    let mut spec = object["spec"].clone();
    remove(&mut spec, "template");
    assert_eq!(
        spec,
        json!({ "selector": { "matchLabels": { "a": "b" } }, "replicas": 1, "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%", "maxSurge": "25%" } } })
    );
    assert_eq!(object["spec"]["template"]["spec"]["restartPolicy"], "Always");
    assert!(!has(&object, "spec.template.spec.enableServiceLinks"), "a default of pods only");
    let zero = self::object(&Deployments, &json!({ "spec": { "replicas": 0 } }));
    assert_eq!(zero["spec"]["replicas"], 0);
}

#[test]
fn minimal_workloads_are_valid() {
    let all: [&dyn Strategy; 4] = [&Deployments, &ReplicaSets, &StatefulSets, &DaemonSets];
    for strategy in all {
        assert_eq!(errors(strategy, &json!({})), [""; 0]);
    }
    let claims = json!({ "spec": {
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } }],
        "template": { "spec": { "containers": [{ "name": "c", "image": "i",
            "volumeMounts": [{ "name": "data", "mountPath": "/d" }] }] } } } });
    assert_eq!(errors(&StatefulSets, &claims), [""; 0]);
}

#[test]
fn mistakes_of_deployments() {
    for (patch, expected) in [
        (
            json!({ "spec": { "selector": { "matchLabels": { "a": "c" } } } }),
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
        ),
        (
            json!({ "spec": { "replicas": -1 } }),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({ "spec": { "template": { "spec": { "restartPolicy": "Never" } } } }),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            json!({ "spec": { "strategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "0%" } } } }),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
        ),
        (
            json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": {} } } }),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            json!({ "spec": { "minReadySeconds": 600 } }),
            "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
        ),
        (
            json!({ "spec": { "template": { "spec": { "containers": [] } } } }),
            "spec.template.spec.containers: Required value",
        ),
    ] {
        assert_eq!(errors(&Deployments, &patch), [expected], "{patch}");
    }
}

#[test]
fn selectors_that_are_missing_or_wrong() {
    let no_match = "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`";
    let none = json!({ "spec": { "selector": null } });
    for strategy in [&Deployments as &dyn Strategy, &ReplicaSets, &StatefulSets] {
        assert_eq!(errors(strategy, &none), ["spec.selector: Required value", no_match]);
    }
    assert_eq!(errors(&DaemonSets, &none), [no_match]);
    let odd = json!({ "spec": { "selector": { "matchLabels": null, "matchExpressions": [{ "key": "a", "operator": "Is" }] } } });
    let shown = "{\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Is\"}]}";
    assert_eq!(
        errors(&Deployments, &odd),
        [
            "spec.selector.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator".to_owned(),
            format!("spec.selector: Invalid value: {shown}: invalid label selector"),
        ]
    );
}

#[test]
fn mistakes_of_the_others() {
    let update = |strategy: Value| json!({ "spec": { "updateStrategy": strategy } });
    let cases: [(&dyn Strategy, Value, &str); 8] = [
        (
            &DaemonSets,
            update(json!({ "type": "X" })),
            "spec.updateStrategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":null}: supported values: \"RollingUpdate\", \"OnDelete\"",
        ),
        (
            &DaemonSets,
            update(json!({ "rollingUpdate": { "maxUnavailable": 0 } })),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
        ),
        (
            &DaemonSets,
            update(json!({ "rollingUpdate": { "maxSurge": "10%" } })),
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: \"10%\": may not be set when maxUnavailable is non-zero",
        ),
        (
            &StatefulSets,
            update(json!({ "type": "OnDelete", "rollingUpdate": {} })),
            "spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":0,\"MaxUnavailable\":null}: only allowed for updateStrategy 'RollingUpdate'",
        ),
        (
            &StatefulSets,
            update(json!({ "rollingUpdate": { "maxUnavailable": "0%" } })),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": cannot be 0",
        ),
        (
            &StatefulSets,
            json!({ "spec": { "podManagementPolicy": "X" } }),
            "spec.podManagementPolicy: Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
        ),
        (
            &StatefulSets,
            json!({ "spec": { "persistentVolumeClaimRetentionPolicy": { "whenScaled": "X" } } }),
            "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: \"X\": supported values: \"Retain\", \"Delete\"",
        ),
        (
            &StatefulSets,
            json!({ "spec": { "template": { "spec": { "activeDeadlineSeconds": 1 } } } }),
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported",
        ),
    ];
    for (strategy, patch, expected) in cases {
        assert_eq!(errors(strategy, &patch), [expected], "{patch}");
    }
}

#[test]
fn what_older_stateful_sets_are_made_of_may_stay_wrong() {
    let odd = json!({ "spec": { "serviceName": "A.b", "volumeClaimTemplates": [{ "spec": {} }],
        "template": { "spec": { "containers": [] } } } });
    let old = object(&StatefulSets, &odd);
    let mut errors = Vec::new();
    StatefulSets.validate_changed(&old, &old, &World::default().env(), &mut errors);
    assert_eq!(errors, []);
    assert_eq!(self::errors(&StatefulSets, &odd).len(), 4);
}

#[test]
fn a_daemon_set_is_counted_by_whoever_makes_it() {
    let made = object(&DaemonSets, &json!({}));
    assert_eq!(made["metadata"]["annotations"][daemonsets::TEMPLATE_GENERATION], "0");
    let stored = object(&DaemonSets, &json!({ "metadata": { "uid": "u" } }));
    assert!(!has(&stored, "metadata.annotations"));
}

#[test]
fn a_stateful_sets_strategy_is_filled_in_where_nothing_is_said() {
    let made = |strategy: Value| {
        object(&StatefulSets, &json!({ "spec": { "updateStrategy": strategy } }))["spec"]["updateStrategy"]
            .clone()
    };
    assert_eq!(made(Value::Null), json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }));
    assert_eq!(made(json!({ "type": "RollingUpdate" })), json!({ "type": "RollingUpdate" }));
}

#[test]
fn selectors_do_not_change() {
    let world = World::default();
    let old = object(&Deployments, &json!({}));
    let new =
        object(&Deployments, &json!({ "spec": { "selector": { "matchLabels": { "a": "b", "c": "d" } } } }));
    let mut errors = Vec::new();
    Deployments.validate_update(&new, &old, &world.env(), &mut errors);
    assert_eq!(
        errors[0].to_string(),
        "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"c\":\"d\"}}: field is immutable"
    );
    errors.clear();
    StatefulSets.validate_update(&new, &old, &world.env(), &mut errors);
    assert_eq!((errors[0].field.as_str(), errors[0].reason), ("spec", "FieldValueForbidden"));
}

#[test]
fn generations_count_what_upstream_counts() {
    let old = object(&Deployments, &json!({}));
    let annotated = object(&Deployments, &json!({ "metadata": { "annotations": { "a": "b" } } }));
    assert!(Deployments.changes_generation(&annotated, &old));
    assert!(!ReplicaSets.changes_generation(&annotated, &old));
}

#[test]
fn a_deployments_status_carries_annotations_and_no_labels() {
    let world = World::default();
    for labels in [json!({ "a": "old" }), Value::Null] {
        let old = object(&Deployments, &json!({ "metadata": { "labels": labels } }));
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({ "a": "new" });
        new["metadata"]["annotations"] = json!({ "b": "new" });
        Deployments.prepare_status_update(&mut new, &old, &world.env());
        assert_eq!(
            new["metadata"].get("labels").unwrap_or(&Value::Null),
            old["metadata"].get("labels").unwrap_or(&Value::Null)
        );
        assert_eq!(new["metadata"]["annotations"]["b"], "new");
    }
}

#[test]
fn a_daemon_set_counts_its_templates() {
    let world = World::default();
    let mut old = object(&DaemonSets, &json!({}));
    DaemonSets.prepare_create(&mut old, &world.env());
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["dnsPolicy"] = "Default".into();
    DaemonSets.prepare_update(&mut new, &old, &world.env());
    assert_eq!(new["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "2");
}

#[test]
fn rows() {
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    let patch = json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "replicas": 3 },
        "status": { "replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1 } });
    let row = |strategy: &dyn Strategy| {
        let cells = strategy.row(&object(strategy, &patch), now);
        assert_eq!(cells.len(), strategy.columns().len());
        Value::Array(cells)
    };
    assert_eq!(row(&Deployments), json!(["w", "2/3", 3, 1, "60m", "c", "i:1", "a=b"]));
    assert_eq!(row(&ReplicaSets), json!(["w", 3, 3, 2, "60m", "c", "i:1", "a=b"]));
    assert_eq!(row(&StatefulSets), json!(["w", "2/3", "60m", "c", "i:1"]));
    assert_eq!(row(&DaemonSets), json!(["w", 0, 0, 0, 0, 0, "<none>", "60m", "c", "i:1", "a=b"]));
}

#[test]
fn counts_of_a_status_fit_together() {
    let errors = |strategy: &dyn Strategy, new: Value, old: Value| {
        status_errors(strategy, &json!({ "status": new }), &json!({ "status": old }))
    };
    let good = json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 1, "collisionCount": 1 });
    assert!(errors(&Deployments, good.clone(), json!({ "collisionCount": 1 })).is_empty());
    assert_eq!(
        errors(&Deployments, good.clone(), json!({ "collisionCount": 2 })),
        ["status.collisionCount: Invalid value: 1: cannot be decremented"]
    );
    assert_eq!(
        errors(
            &ReplicaSets,
            json!({ "replicas": 1, "readyReplicas": 2, "availableReplicas": -1 }),
            json!({})
        ),
        [
            "status.availableReplicas: Invalid value: -1: must be greater than or equal to 0",
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ]
    );
    for strategy in [&Deployments as &dyn Strategy, &ReplicaSets] {
        assert_eq!(
            errors(strategy, json!({ "terminatingReplicas": -1 }), json!({})),
            ["status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0"]
        );
    }
    let ahead = json!({ "replicas": 2, "readyReplicas": 1, "availableReplicas": 2 });
    assert_eq!(
        errors(&StatefulSets, ahead, json!({})),
        ["status.availableReplicas: Invalid value: 2: cannot be greater than status.readyReplicas"]
    );
    assert_eq!(
        errors(&DaemonSets, json!({ "numberReady": -2 }), json!({})),
        ["status.numberReady: Invalid value: -2: must be greater than or equal to 0"]
    );
}

use super::*;
use crate::strategy::testing::{self, World};

fn template() -> Value {
    json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i:1" }] } })
}

fn job(patch: &Value) -> Object {
    let mut object = json!({ "metadata": { "name": "j", "uid": "u" }, "spec": { "template": template() } });
    testing::merge(&mut object, patch);
    Jobs.defaults(&mut object);
    Jobs.prepare_create(&mut object, &World::default().env());
    object
}

fn errors(strategy: &dyn Strategy, object: &Object) -> Vec<String> {
    let mut errors = Vec::new();
    strategy.validate(object, &World::default().env(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_job_selects_its_own_pods() {
    let object = job(&json!({}));
    assert_eq!(
        object["spec"]["selector"],
        json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": "u" } })
    );
    assert_eq!(object["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    for (field, value) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(object["spec"][field], value, "{field}");
    }
    assert_eq!(errors(&Jobs, &object), [""; 0]);
}

#[test]
fn mistakes() {
    let always = job(&json!({ "spec": { "template": { "spec": { "restartPolicy": "Always" } } } }));
    assert_eq!(
        errors(&Jobs, &always),
        ["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""]
    );
    let mut cron = json!({ "metadata": { "name": "c" }, "spec": { "schedule": "* * * * *",
        "jobTemplate": { "spec": { "template": template() } } } });
    CronJobs.defaults(&mut cron);
    assert_eq!(cron["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(errors(&CronJobs, &cron), [""; 0]);
    cron["spec"]["schedule"] = "61 * * * *".into();
    assert_eq!(
        errors(&CronJobs, &cron),
        ["spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61"]
    );
}

#[test]
fn a_started_job_keeps_its_template() {
    let (old, mut new) = (job(&json!({})), job(&json!({})));
    new["spec"]["template"]["spec"]["hostNetwork"] = true.into();
    let mut errors = Vec::new();
    Jobs.validate_update(&new, &old, &World::default().env(), &mut errors);
    assert_eq!((errors.len(), errors[0].field.as_str()), (1, "spec.template"));
    assert!(errors[0].detail.ends_with("field is immutable"));
}

#[test]
fn rows() {
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    let done = job(&json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" } }));
    let mut done = done;
    done["status"] = json!({ "succeeded": 1, "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:00:07Z", "conditions": [{ "type": "Complete", "status": "True" }] });
    let row = Jobs.row(&done, now);
    assert_eq!(row[..5], ["j", "Complete", "1/1", "7s", "10m"]);
    let cron = json!({ "metadata": { "name": "c" }, "spec": { "schedule": "@daily", "suspend": false } });
    let row = Value::Array(CronJobs.row(&cron, now)[..6].to_vec());
    assert_eq!(row, json!(["c", "@daily", "<none>", "False", 0, "<none>"]));
}

#[test]
fn policies_of_jobs_are_judged() {
    let rules = |rules: Value| json!({ "spec": { "podFailurePolicy": { "rules": rules } } });
    let indexed = |policy: Value| json!({ "spec": { "completionMode": "Indexed", "completions": 5, "successPolicy": policy } });
    let codes = |operator: &str, values: Value| {
        rules(json!([{ "action": "FailJob", "onExitCodes": { "operator": operator, "values": values } }]))
    };
    let cases = [
        (codes("In", json!([1, 42])), ""),
        (
            codes("In", json!([0])),
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ),
        (
            codes("NotIn", json!([3, 1])),
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [3,1]: must be ordered",
        ),
        (
            rules(json!([{ "action": "FailIndex", "onPodConditions": [{ "type": "A", "status": "True" }] }])),
            "spec.podFailurePolicy.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
        ),
        (
            json!({ "spec": { "maxFailedIndexes": 1 } }),
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
        ),
        (indexed(json!({ "rules": [{ "succeededIndexes": "0,2-4", "succeededCount": 3 }] })), ""),
        (
            indexed(json!({ "rules": [{ "succeededCount": 6 }] })),
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
        ),
        (
            indexed(json!({ "rules": [{}] })),
            "spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
        ),
        (
            json!({ "spec": { "managedBy": "me" } }),
            "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(errors(&Jobs, &job(&patch)).join("; "), expected, "{patch}");
    }
}

#[test]
fn a_waiting_job_may_be_steered_and_nothing_else() {
    let changed = |old: Value, new: Value| {
        let (old, mut new) = (job(&old), job(&new));
        new["status"] = old["status"].clone();
        let mut errors = Vec::new();
        Jobs.validate_update(&new, &old, &World::default().env(), &mut errors);
        errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>()
    };
    let suspended = json!({ "spec": { "suspend": true } });
    let of = |template: Value| json!({ "spec": { "suspend": true, "template": template } });
    for steering in [
        json!({ "spec": { "nodeSelector": { "a": "b" } } }),
        json!({ "spec": { "tolerations": [{ "operator": "Exists" }], "schedulingGates": [{ "name": "a/b" }] } }),
        json!({ "metadata": { "annotations": { "a": "b" } } }),
        json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {} } } } }),
    ] {
        assert!(changed(suspended.clone(), of(steering.clone())).is_empty(), "{steering}");
        let running = json!({ "spec": { "template": steering } });
        assert_eq!(changed(json!({}), running), ["spec.template"], "{steering}");
    }
    let other = of(json!({ "spec": { "terminationGracePeriodSeconds": 1 } }));
    assert_eq!(changed(suspended.clone(), other), ["spec.template"]);
    let apart = of(json!({ "spec": { "affinity": { "podAffinity": {} } } }));
    assert_eq!(changed(suspended, apart), ["spec.template"]);
}

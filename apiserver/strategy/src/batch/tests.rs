use super::*;
use crate::Strategy;
use crate::testing::{self, World, status_errors, update_errors};

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
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(object["spec"][field], value, "{field}");
    }
    assert_eq!(errors(&Jobs, &object), [""; 0]);
}

#[test]
fn a_job_without_labels_has_all_those_of_its_template() {
    let labelled = json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } });
    for (sent, count) in [(Value::Null, 5), (json!({}), 5), (json!({ "a": "b" }), 1)] {
        let mut object = job(&labelled);
        if count == 1 {
            object["metadata"]["labels"] = sent.clone();
        }
        Jobs.complete_labels(&mut object, &sent);
        assert_eq!(object["metadata"]["labels"].as_object().unwrap().len(), count, "{sent}");
    }
    let mut object = job(&json!({}));
    Jobs.complete_labels(&mut object, &Value::Null);
    assert_eq!(object["metadata"]["labels"], Value::Null, "labels that are judged");
    Jobs.complete_judged(&mut object);
    assert_eq!(object["metadata"]["labels"].as_object().unwrap().len(), 4);
}

#[test]
fn mistakes() {
    let always = job(&json!({ "spec": { "template": { "spec": { "restartPolicy": "Always" } } } }));
    assert_eq!(
        errors(&Jobs, &always),
        ["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""]
    );
    let other = job(&json!({ "spec": { "template": { "spec": { "restartPolicy": "X" } } } }));
    assert_eq!(
        errors(&Jobs, &other)[1],
        "spec.template.spec.restartPolicy: Unsupported value: \"X\": supported values: \"OnFailure\", \"Never\""
    );
    let indexed = json!({ "metadata": { "name": "j".repeat(62) }, "spec": { "completionMode": "Indexed", "completions": 11 } });
    assert!(
        errors(&Jobs, &job(&indexed))[0]
            .ends_with(&format!("will not able to create pod with invalid DNS label: {}-10", "j".repeat(62)))
    );
}

#[test]
fn patterns_of_conditions_mean_true_ones() {
    let patterns = json!([{ "action": "Ignore", "onPodConditions": [{ "type": "A" }] }]);
    let object = job(&json!({ "spec": { "podFailurePolicy": { "rules": patterns } } }));
    assert_eq!(object["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
    assert_eq!(errors(&Jobs, &object), [""; 0]);
}

#[test]
fn a_generated_selector_is_the_jobs_own() {
    let labelled =
        job(&json!({ "spec": { "template": { "metadata": { "labels": { "job-name": "other" } } } } }));
    let found = errors(&Jobs, &labelled);
    assert!(found[0].starts_with("spec.template.metadata.labels[job-name]: Invalid value: {"), "{found:?}");
    assert!(found[0].ends_with(": must be 'j'") && found.len() == 1, "{found:?}");
    let selecting = job(&json!({ "spec": { "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } } } } }));
    let found = errors(&Jobs, &selecting);
    assert!(found[0].ends_with("`selector` not auto-generated") && found.len() == 1, "{found:?}");
    let by_hand =
        job(&json!({ "spec": { "manualSelector": true, "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } } } } }));
    assert_eq!(errors(&Jobs, &by_hand), [""; 0]);
}

#[test]
fn cron_jobs() {
    let cron = |patch: Value| {
        let mut cron = json!({ "metadata": { "name": "c" }, "spec": { "schedule": "* * * * *",
            "jobTemplate": { "spec": { "template": template() } } } });
        testing::merge(&mut cron, &json!({ "spec": patch }));
        CronJobs.defaults(&mut cron);
        cron
    };
    let created = |patch: Value| {
        let mut found = Vec::new();
        let object = cron(patch);
        CronJobs.validate(&object, &World::default().env(), &mut found);
        CronJobs.validate_create(&object, &World::default().env(), &mut found);
        testing::texts(&found)
    };
    assert_eq!(cron(json!({}))["spec"]["concurrencyPolicy"], "Allow");
    let zoned = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
    for (patch, want) in [
        (json!({}), vec![]),
        (json!({ "schedule": null }), vec!["spec.schedule: Required value".to_owned()]),
        (
            json!({ "schedule": "61 * * * *" }),
            vec!["spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61".to_owned()],
        ),
        (
            json!({ "schedule": "TZ=UTC * * * * *" }),
            vec![format!("spec.schedule: Invalid value: \"TZ=UTC * * * * *\": {zoned}")],
        ),
        (
            json!({ "timeZone": "lOCAL" }),
            vec!["spec.timeZone: Invalid value: \"lOCAL\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()],
        ),
        (
            json!({ "timeZone": "No/Where" }),
            vec!["spec.timeZone: Invalid value: \"No/Where\": unknown time zone No/Where".to_owned()],
        ),
        (
            json!({ "jobTemplate": { "spec": { "selector": {}, "manualSelector": true } } }),
            vec![
                "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated".to_owned(),
                "spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"".to_owned(),
            ],
        ),
    ] {
        assert_eq!(created(patch.clone()), want, "{patch}");
    }
    let old = cron(json!({ "schedule": "TZ=UTC * * * * *" }));
    assert_eq!(update_errors(&CronJobs, &old, &old), [""; 0]);
    let both = cron(json!({ "schedule": "TZ=UTC * * * * *", "timeZone": "UTC" }));
    assert!(
        update_errors(&CronJobs, &both, &old)[0]
            .ends_with("cannot use both timeZone field and TZ or CRON_TZ in schedule")
    );
}

const START: &str = "2026-01-01T00:00:00Z";

fn conditions(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({ "type": kind, "status": "True" })).collect()
}

/// What the change of a status is refused for, of a Job without indexes.
fn changed(new: Value, old: Value) -> Vec<String> {
    let with = |status| json!({ "spec": { "completions": 3, "parallelism": 1 }, "status": status });
    status_errors(&Jobs, &with(new), &with(old))
}

fn at_status(field: &str, rest: &str) -> Vec<String> {
    vec![format!("status.{field}: {rest}")]
}

#[test]
fn conditions_of_a_status_go_together() {
    let met = conditions(&["SuccessCriteriaMet", "Complete"]);
    let (start, end) = (START, "2026-01-01T00:01:00Z");
    let done = json!({ "conditions": met, "startTime": start, "completionTime": end, "succeeded": 1 });
    assert_eq!(changed(done, json!({ "startTime": start, "active": 1 })), [""; 0]);
    let at = at_status;
    for (new, old, want) in [
        (
            json!({ "startTime": start, "completionTime": end, "conditions": conditions(&["Complete"]) }),
            json!({}),
            at(
                "conditions",
                "Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            ),
        ),
        (
            json!({ "startTime": start, "conditions": conditions(&["Failed"]) }),
            json!({}),
            at(
                "conditions",
                "Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
            ),
        ),
        (
            json!({ "conditions": met, "startTime": start }),
            json!({}),
            at("completionTime", "Required value: completionTime is required for Complete jobs"),
        ),
        (
            json!({ "conditions": conditions(&["SuccessCriteriaMet"]), "startTime": start, "succeeded": 1 }),
            json!({ "conditions": met, "startTime": start, "succeeded": 1 }),
            at("conditions", "Invalid value: cannot disable the terminal Complete=True condition"),
        ),
    ] {
        assert_eq!(changed(new.clone(), old), want, "{new}");
    }
}

#[test]
fn numbers_of_a_status_go_together() {
    let (start, at) = (START, at_status);
    for (new, old, want) in [
        (
            json!({ "active": -1 }),
            json!({}),
            at("active", "Invalid value: -1: must be greater than or equal to 0"),
        ),
        (
            json!({ "startTime": start, "ready": 2, "active": 1 }),
            json!({}),
            at("ready", "Invalid value: 2: cannot set more ready pods than active"),
        ),
        (
            json!({ "failed": 1 }),
            json!({ "failed": 2 }),
            at("failed", "Invalid value: 1: cannot decrease the failed counter"),
        ),
        (
            json!({}),
            json!({ "startTime": start }),
            at("startTime", "Required value: startTime cannot be removed for unsuspended job"),
        ),
        (
            json!({ "startTime": "2024-01-02T00:00:00Z" }),
            json!({ "startTime": "2024-01-01T00:00:00Z" }),
            at(
                "startTime",
                "Invalid value: \"2024-01-02T00:00:00Z\": field is immutable for unsuspended job once set",
            ),
        ),
        (
            json!({ "completedIndexes": "0" }),
            json!({}),
            at(
                "completedIndexes",
                "Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode",
            ),
        ),
    ] {
        assert_eq!(changed(new.clone(), old), want, "{new}");
    }
    let by_index = |status: Value| json!({ "spec": { "completions": 5, "completionMode": "Indexed", "backoffLimitPerIndex": 1 }, "status": status });
    let both = by_index(json!({ "completedIndexes": "0-2", "failedIndexes": "2,4" }));
    assert_eq!(
        status_errors(&Jobs, &both, &by_index(json!({}))),
        at("failedIndexes", "Invalid value: \"2,4\": failedIndexes and completedIndexes overlap at index: 2")
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
fn policies_of_failure_are_judged() {
    let rules = |rules: Value| json!({ "spec": { "podFailurePolicy": { "rules": rules } } });
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
            rules(json!([{ "action": "FailJob" }])),
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            json!({ "spec": { "podFailurePolicy": { "rules": [] }, "podReplacementPolicy": "TerminatingOrFailed" } }),
            "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(errors(&Jobs, &job(&patch)).join("; "), expected, "{patch}");
    }
}

#[test]
fn indexes_and_policies_of_success_are_judged() {
    let indexed = |policy: Value| json!({ "spec": { "completionMode": "Indexed", "completions": 5, "successPolicy": policy } });
    let cases = [
        (
            json!({ "spec": { "maxFailedIndexes": 1 } }),
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified; spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
        ),
        (
            json!({ "spec": { "completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1, "maxFailedIndexes": 3 } }),
            "spec.maxFailedIndexes: Invalid value: 3: must be less than or equal to completions",
        ),
        (
            json!({ "spec": { "completionMode": "Indexed", "completions": null, "parallelism": 2 } }),
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            indexed(json!({ "rules": [{ "succeededIndexes": "3-1" }] })),
            "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"3-1\": error parsing succeededIndexes: non-increasing order, previous: 3, current: 1",
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
    let resources = json!([{ "name": "c", "image": "i:1", "resources": { "requests": { "cpu": "1" } } }]);
    let asking = json!({ "spec": { "containers": resources } });
    assert!(changed(suspended.clone(), of(asking.clone())).is_empty());
    assert_eq!(changed(json!({}), json!({ "spec": { "template": asking } })), ["spec.template"]);
    let other = of(json!({ "spec": { "terminationGracePeriodSeconds": 1 } }));
    assert_eq!(changed(suspended.clone(), other), ["spec.template"]);
    let apart = of(json!({ "spec": { "affinity": { "podAffinity": {} } } }));
    assert_eq!(changed(suspended, apart), ["spec.template"]);
}

#[test]
fn a_job_that_is_suspended_again_may_be_steered_once_its_pods_are_gone() {
    let started = |status: Value| {
        let mut old = job(&json!({ "spec": { "suspend": true } }));
        old["status"] = status;
        old["status"]["startTime"] = json!("2026-01-01T00:00:00Z");
        let mut new = old.clone();
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({ "a": "b" });
        let mut errors = Vec::new();
        Jobs.validate_update(&new, &old, &World::default().env(), &mut errors);
        errors.len()
    };
    let suspended = json!([{ "type": "Suspended", "status": "True" }]);
    assert_eq!(started(json!({ "conditions": suspended })), 0);
    assert_eq!(started(json!({ "conditions": suspended, "active": 1 })), 1, "some run still");
    assert_eq!(started(json!({})), 1, "the controller has not seen it");
}

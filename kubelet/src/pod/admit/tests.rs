use super::*;
use crate::pod_facts::critical::SYSTEM_CRITICAL;
use serde_json::{Value, json};

fn pod(name: &str, spec: Value, status: Value) -> Pod {
    let mut whole = json!({ "containers": [{ "name": "c" }] });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(
        json!({ "metadata": { "name": name, "uid": name }, "spec": whole, "status": status }),
    )
    .unwrap()
}

fn node(more: Value) -> Node {
    let mut status = json!({ "allocatable": { "cpu": "1", "memory": "1Gi", "pods": "10" } });
    status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({ "metadata": { "name": "n1" }, "status": status })).unwrap()
}

fn cpu(amount: &str, priority: i32) -> Value {
    let container = json!({ "name": "c", "resources": { "requests": { "cpu": amount } } });
    json!({ "priority": priority, "containers": [container] })
}

fn verdict(spec: Value, node: &Node, others: &[Pod]) -> Verdict {
    let others: Vec<&Pod> = others.iter().collect();
    judge(
        &pod("new", spec, json!({})),
        &AdmitAttributes { node, others: &others, apparmor: false, sysctls: &[] },
    )
}

fn reason(spec: Value, node: &Node) -> String {
    match verdict(spec, node, &[]) {
        Verdict::Refused(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_what_nobody_has_begun_with_is_judged() {
    let new = |status: Value| is_new(&pod("p", json!({}), status));
    assert!(new(json!({ "phase": "Pending" })));
    assert!(!new(json!({ "phase": "Pending", "startTime": "2026-01-01T00:00:00Z" })));
    assert!(!new(json!({ "phase": "Failed" })));
}

#[test]
fn critical_pods_make_room_others_do_not() {
    let node = node(json!({}));
    let there = [pod("there", cpu("800m", 0), json!({}))];
    assert_eq!(
        verdict(cpu("300m", 0), &node, &there),
        Verdict::Refused(Refusal::new(
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 300, used: 800, capacity: 1000"
        ))
    );
    assert_eq!(
        verdict(cpu("300m", SYSTEM_CRITICAL), &node, &there),
        Verdict::Preempts { victims: vec!["there".to_owned()], short_of: "cpu".to_owned() }
    );
    let mut elsewhere = cpu("300m", SYSTEM_CRITICAL);
    elsewhere["nodeSelector"] = json!({ "disk": "ssd" });
    assert_eq!(
        verdict(elsewhere, &node, &there),
        Verdict::Refused(Refusal::new(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        ))
    );
    let Verdict::Refused(refusal) = verdict(cpu("2", SYSTEM_CRITICAL), &node, &there) else { panic!() };
    assert_eq!(refusal.reason, "UnexpectedAdmissionError");
}

#[test]
fn a_node_that_runs_short_takes_few() {
    let short = |kind: &str| node(json!({ "conditions": [{ "type": kind, "status": "True" }] }));
    assert_eq!(reason(json!({}), &short("MemoryPressure")), "Evicted");
    assert_eq!(verdict(cpu("1m", 0), &short("MemoryPressure"), &[]), Verdict::Admitted);
    assert_eq!(reason(cpu("1m", 0), &short("DiskPressure")), "Evicted");
    assert_eq!(verdict(cpu("1m", SYSTEM_CRITICAL), &short("DiskPressure"), &[]), Verdict::Admitted);
}

#[test]
fn what_the_node_cannot_keep_is_refused() {
    let plain = node(json!({}));
    let context = |context: Value| json!({ "securityContext": context });
    let strict = || context(json!({ "supplementalGroupsPolicy": "Strict" }));
    let able = node(json!({ "features": { "supplementalGroupsPolicy": true } }));
    assert_eq!(reason(strict(), &plain), "SupplementalGroupsPolicyNotSupported");
    assert_eq!(verdict(strict(), &able, &[]), Verdict::Admitted);
    let unsafe_one = context(json!({ "sysctls": [{ "name": "kernel.msgmax", "value": "1" }] }));
    assert_eq!(reason(unsafe_one, &plain), "SysctlForbidden");
    assert_eq!(reason(json!({ "os": { "name": "windows" } }), &plain), "PodOSNotSupported");
    let mapped = |users: bool| json!({ "hostNetwork": true, "hostUsers": users });
    assert_eq!(reason(mapped(false), &plain), "PodFeatureUnsupported");
    assert_eq!(verdict(mapped(true), &plain, &[]), Verdict::Admitted);
    let apparmor = |kind: &str| context(json!({ "appArmorProfile": { "type": kind } }));
    assert_eq!(reason(apparmor("RuntimeDefault"), &plain), "AppArmor");
    assert_eq!(verdict(apparmor("Unconfined"), &plain, &[]), Verdict::Admitted);
}

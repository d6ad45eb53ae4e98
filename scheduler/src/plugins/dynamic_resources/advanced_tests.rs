//! Partitions, shares, administrators' access, preferences and extended resources.

use super::tests::Fake;
use super::*;
use crate::plugins::testing::{node, pod};
use serde_json::json;

fn fake(devices: Value, more: &[Value], claims: &[Value]) -> Fake {
    let slice = |name: &str, key: &str, content: &Value| {
        json!({"metadata": {"name": name}, "spec": {"driver": "d.example.com", "nodeName": "a", key: content,
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1 + more.len()}}})
    };
    let mut slices = vec![slice("devices", "devices", &devices)];
    slices.extend(more.iter().map(|counters| slice("counters", "sharedCounters", counters)));
    Fake { claims: claims.to_vec(), slices, classes: vec![json!({"metadata": {"name": "gpu"}, "spec": {}})] }
}

fn claim(name: &str, request: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    json_patch::merge(&mut exactly, &request);
    json!({"metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

fn holding(name: &str, result: Value) -> Value {
    let mut claim = claim(name, json!({}));
    let mut full = json!({"request": "r", "driver": "d.example.com", "pool": "a"});
    json_patch::merge(&mut full, &result);
    claim["status"] = json!({"allocation": {"devices": {"results": [full]}}});
    claim
}

/// The results that node `a` would give, or its refusal.
fn given(fake: Fake, names: &[&str]) -> Result<Vec<Value>, String> {
    let plugin = DynamicResources::new(&Handle::with(Arc::new(fake)), &json!({})).expect("arguments");
    let claims: Vec<Value> = names.iter().map(|c| json!({"name": c, "resourceClaimName": c})).collect();
    let pod = pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [], "resourceClaims": claims}}));
    let (mut state, node) = (CycleState::default(), node(json!({"metadata": {"name": "a"}})));
    assert_eq!(plugin.pre_filter(&mut state, &pod, &Snapshot::default()), Status::Success);
    let status = plugin.filter(&state, &pod, &node);
    if !status.is_success() {
        return Err(status.message());
    }
    assert_eq!(plugin.reserve(&mut state, &pod, &node), Status::Success);
    let decided = plugin.in_binding.get("p").expect("a decision");
    let results = decided.allocations.iter().flatten().filter_map(|a| a["devices"]["results"].as_array());
    Ok(results.flatten().cloned().collect())
}

fn names(results: &[Value]) -> Vec<&str> {
    results.iter().filter_map(|r| r["device"].as_str()).collect()
}

const NOTHING: &str = "cannot allocate all claims";

/// A card of 40 Gi with a whole form and partitions of 10 and 20.
fn partitions() -> (Value, Value) {
    let partition = |name: &str, memory: &str| {
        json!({"name": name, "consumesCounters":
            [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]})
    };
    let devices = json!([
        partition("half-0", "20Gi"),
        partition("half-1", "20Gi"),
        partition("quarter-0", "10Gi"),
        partition("quarter-1", "10Gi"),
        partition("whole", "40Gi"),
    ]);
    (devices, json!([{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]))
}

#[test]
fn partitions_share_what_their_card_has() {
    let (devices, counters) = partitions();
    let counters = [counters];
    let ask = |count: i64| claim("c", json!({"count": count}));
    let got = given(fake(devices.clone(), &counters, &[ask(2)]), &["c"]).expect("both halves");
    assert_eq!(names(&got), ["half-0", "half-1"]);
    let got = given(fake(devices.clone(), &counters, &[ask(3)]), &["c"]).expect("a half and two quarters");
    assert_eq!(names(&got), ["half-0", "quarter-0", "quarter-1"]);
    assert_eq!(given(fake(devices.clone(), &counters, &[ask(4)]), &["c"]), Err(NOTHING.to_owned()));
    let held = holding("other", json!({"device": "half-1"}));
    // One half would leave nothing for the second device.
    let got = given(fake(devices.clone(), &counters, &[ask(2), held]), &["c"]).expect("two quarters");
    assert_eq!(names(&got), ["quarter-0", "quarter-1"]);
    let all = holding("other", json!({"device": "whole"}));
    assert_eq!(given(fake(devices.clone(), &counters, &[ask(1), all]), &["c"]), Err(NOTHING.to_owned()));
    // Without its counters a partition cannot be had.
    assert_eq!(given(fake(devices, &[], &[ask(1)]), &["c"]), Err(NOTHING.to_owned()));
}

#[test]
fn claims_share_a_device_as_far_as_its_capacity_goes() {
    let policy = json!({"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}});
    let devices = json!([{"name": "nic", "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "40Gi", "requestPolicy": policy}}}]);
    let ask =
        |name: &str, amount: &str| claim(name, json!({"capacity": {"requests": {"bandwidth": amount}}}));
    let held = holding(
        "held",
        json!({"device": "nic", "shareID": "s",
        "consumedCapacity": {"bandwidth": "20Gi"}}),
    );
    let got = given(fake(devices.clone(), &[], &[ask("c", "15Gi"), held.clone()]), &["c"]).expect("a share");
    assert_eq!(got[0]["consumedCapacity"], json!({"bandwidth": "20Gi"}));
    assert!(got[0]["shareID"].is_string());
    assert_eq!(
        given(fake(devices.clone(), &[], &[ask("c", "21Gi"), held.clone()]), &["c"]),
        Err(NOTHING.to_owned())
    );
    let two = [ask("c", "1Gi"), claim("d", json!({})), held.clone()];
    let got = given(fake(devices.clone(), &[], &two), &["c", "d"]).expect("two shares of one device");
    assert_eq!(names(&got), ["nic", "nic"]);
    assert_ne!(got[0]["shareID"], got[1]["shareID"]);
    let three = [ask("c", "10Gi"), ask("d", "20Gi"), held];
    assert_eq!(given(fake(devices, &[], &three), &["c", "d"]), Err(NOTHING.to_owned()));
    let plain = json!([{"name": "small", "capacity": {"bandwidth": {"value": "1Gi"}}},
        {"name": "vast", "capacity": {"bandwidth": {"value": "99Gi"}}}]);
    let got = given(fake(plain.clone(), &[], &[ask("c", "2Gi")]), &["c"]).expect("one that is large enough");
    assert_eq!(names(&got), ["vast"]);
    assert!(got[0]["shareID"].is_null() && got[0]["consumedCapacity"].is_null());
}

#[test]
fn administrators_see_what_others_use() {
    let devices = json!([{"name": "x"}]);
    let held = holding("held", json!({"device": "x"}));
    let plain = claim("c", json!({}));
    assert_eq!(given(fake(devices.clone(), &[], &[plain, held.clone()]), &["c"]), Err(NOTHING.to_owned()));
    let admin = claim("c", json!({"adminAccess": true}));
    let got = given(fake(devices.clone(), &[], &[admin, held]), &["c"]).expect("a look at it");
    assert_eq!(got[0]["adminAccess"], true);
    let watched = holding("held", json!({"device": "x", "adminAccess": true}));
    assert!(given(fake(devices, &[], &[claim("c", json!({})), watched]), &["c"]).is_ok());
}

#[test]
fn taints_keep_off_whoever_does_not_tolerate_them() {
    let devices = json!([{"name": "x", "taints": [{"key": "sick", "value": "very", "effect": "NoExecute"}]}]);
    assert_eq!(given(fake(devices.clone(), &[], &[claim("c", json!({}))]), &["c"]), Err(NOTHING.to_owned()));
    for toleration in [
        json!({"key": "sick", "operator": "Exists"}),
        json!({"operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "sick", "operator": "Equal", "value": "very"}),
    ] {
        let patient = claim("c", json!({"tolerations": [toleration]}));
        let got = given(fake(devices.clone(), &[], &[patient]), &["c"]).expect("tolerated");
        assert_eq!(got[0]["tolerations"], json!([toleration]));
    }
}

#[test]
fn a_claim_that_another_pod_is_about_to_allocate_is_waited_for() {
    let cluster = fake(json!([{"name": "x"}, {"name": "y"}]), &[], &[claim("c", json!({}))]);
    let plugin = DynamicResources::new(&Handle::with(Arc::new(cluster)), &json!({})).expect("arguments");
    let using = |uid: &str| {
        pod(json!({"metadata": {"name": uid, "namespace": "default", "uid": uid},
            "spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}}))
    };
    let (mut state, node) = (CycleState::default(), node(json!({"metadata": {"name": "a"}})));
    let first = using("first");
    assert_eq!(plugin.pre_filter(&mut state, &first, &Snapshot::default()), Status::Success);
    assert_eq!(plugin.reserve(&mut state, &first, &node), Status::Success);
    let said = plugin.pre_filter(&mut state, &using("second"), &Snapshot::default());
    assert_eq!(said.message(), "resource claim default/c is in the process of being allocated");
    plugin.unreserve(&first, "a");
    assert_eq!(plugin.pre_filter(&mut state, &using("second"), &Snapshot::default()), Status::Success);
}

#[test]
fn extended_resources_come_from_a_plugin_or_from_devices() {
    let mut cluster = fake(json!([{"name": "x"}]), &[], &[]);
    cluster.classes[0]["spec"]["extendedResourceName"] = json!("example.com/gpu");
    let plugin = DynamicResources::new(&Handle::with(Arc::new(cluster)), &json!({})).expect("arguments");
    let asking = |resource: &str, amount: i64| {
        pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"containers":
            [{"name": "main", "resources": {"requests": {resource: amount.to_string()}}}]}}))
    };
    let bare = node(json!({"metadata": {"name": "a"}}));
    let equipped =
        node(json!({"metadata": {"name": "b"}, "status": {"allocatable": {"example.com/gpu": "4"}}}));
    for (resource, amount, on_bare, on_equipped) in [
        ("example.com/gpu", 1, true, true),
        ("example.com/gpu", 2, false, true),
        ("deviceclass.resource.kubernetes.io/gpu", 1, true, false),
    ] {
        let (pod, mut state) = (asking(resource, amount), CycleState::default());
        assert_eq!(plugin.pre_filter(&mut state, &pod, &Snapshot::default()), Status::Success);
        assert_eq!(plugin.filter(&state, &pod, &bare).is_success(), on_bare, "{resource} {amount}");
        assert_eq!(plugin.filter(&state, &pod, &equipped).is_success(), on_equipped, "{resource} {amount}");
    }
    let (pod, mut state) = (asking("example.com/gpu", 1), CycleState::default());
    assert_eq!(plugin.pre_filter(&mut state, &pod, &Snapshot::default()), Status::Success);
    assert_eq!(plugin.reserve(&mut state, &pod, &bare), Status::Success);
    let extended = plugin.in_binding.get("p").and_then(|d| d.extended).expect("a claim to make");
    assert_eq!(
        extended.mappings,
        [json!({"containerName": "main", "resourceName": "example.com/gpu",
        "requestName": "container-0-request-0"})]
    );
    assert_eq!(extended.allocation["devices"]["results"][0]["device"], "x");
    assert_eq!(
        plugin.pre_filter(&mut state, &asking("unknown.com/x", 1), &Snapshot::default()),
        Status::Skip
    );
}

#[test]
fn preferred_alternatives_score_higher() {
    let mut wants = claim("c", json!({}));
    let sub = |name: &str| {
        let expression = format!("device.attributes['d.example.com'].model == '{name}'");
        json!({"name": name, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]})
    };
    wants["spec"]["devices"]["requests"] =
        json!([{"name": "r", "firstAvailable": [sub("best"), sub("good")]}]);
    let score = |model: &str| {
        let devices = json!([{"name": "x", "attributes": {"model": {"string": model}}}]);
        let cluster = fake(devices, &[], &[wants.clone()]);
        let plugin = DynamicResources::new(&Handle::with(Arc::new(cluster)), &json!({})).expect("arguments");
        let pod = pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}}));
        let (mut state, node) = (CycleState::default(), node(json!({"metadata": {"name": "a"}})));
        assert_eq!(plugin.pre_filter(&mut state, &pod, &Snapshot::default()), Status::Success);
        assert_eq!(plugin.pre_score(&mut state, &pod, &Snapshot::default(), &[]), Status::Success);
        plugin.score(&state, &pod, &node)
    };
    assert_eq!((score("best"), score("good")), (8, 7));
}

#[tokio::test]
async fn a_binding_goes_on_once_its_claims_are_seen_as_written() {
    let at = |version: &str| {
        let mut claim = claim("c", json!({}));
        claim["metadata"]["resourceVersion"] = json!(version);
        claim
    };
    let cluster = fake(json!([]), &[], &[at("10")]);
    let plugin = DynamicResources::new(&Handle::with(Arc::new(cluster)), &json!({})).expect("arguments");
    for (written, seen) in [("9", true), ("10", true), ("11", false)] {
        assert_eq!(plugin.seen(&[at(written)]).await.is_success(), seen, "{written}");
    }
    plugin.in_binding.put("p", Decided::of(&[Arc::new(at("10"))]));
    let pod = using_claim("p");
    assert!(plugin.pre_bind_pre_flight(&pod, "a"), "the claim is not reserved for it");
    plugin.post_bind(&pod, "a").await;
    assert!(!plugin.pre_bind_pre_flight(&pod, "a"), "nothing is kept of a pod that is bound");
}

fn using_claim(uid: &str) -> PodInfo {
    pod(json!({"metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": [], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}}))
}

#[test]
fn devices_are_looked_for_as_long_as_the_configuration_says() {
    let devices: Vec<Value> =
        (0..30).map(|n| json!({"name": format!("x{n}"), "attributes": {"serial": {"int": n}}})).collect();
    let mut wants = claim("c", json!({}));
    let some = |count: u32| json!({"deviceClassName": "gpu", "count": count});
    wants["spec"]["devices"] = json!({"requests": [{"name": "one", "exactly": some(1)}, {"name": "two", "exactly": some(2)}],
        "constraints": [{"requests": ["two"], "matchAttribute": "d.example.com/serial"}]});
    let refusal = |arguments: Value| {
        let cluster = fake(json!(devices), &[], &[wants.clone()]);
        let plugin = DynamicResources::new(&Handle::with(Arc::new(cluster)), &arguments).expect("arguments");
        let (mut state, node) = (CycleState::default(), node(json!({"metadata": {"name": "a"}})));
        let pod = using_claim("p");
        assert_eq!(plugin.pre_filter(&mut state, &pod, &Snapshot::default()), Status::Success);
        plugin.filter(&state, &pod, &node).message()
    };
    assert_eq!(refusal(json!({"filterTimeout": "1ns"})), "timed out trying to allocate devices");
    assert_eq!(refusal(json!({"filterTimeout": "0s"})), "cannot allocate all claims");
    assert_eq!(refusal(json!({})), "cannot allocate all claims");
    let wrong = DynamicResources::new(&Handle::offline(), &json!({"bindingTimeout": "999ms"}));
    let why = wrong.err().unwrap_or_default();
    assert_eq!(why, ["bindingTimeout: Invalid value: \"999ms\": must be at least 1 second"]);
}

#[test]
fn a_claim_that_went_before_it_was_seen_holds_nothing() {
    let plugin = |claims: &[Value]| {
        let cluster = fake(json!([{"name": "x"}]), &[], claims);
        DynamicResources::new(&Handle::with(Arc::new(cluster)), &json!({})).expect("arguments")
    };
    let mut decided = Decided::of(&[Arc::new(claim("c", json!({})))]);
    let result = json!({"request": "r", "driver": "d.example.com", "pool": "a", "device": "x"});
    decided.allocations = vec![Some(json!({"devices": {"results": [result]}}))];
    let id = devices::DeviceId::of(&result);
    for (claims, taken) in [(vec![claim("c", json!({}))], true), (vec![], false)] {
        let plugin = plugin(&claims);
        plugin.in_binding.put("p", decided.clone());
        assert_eq!(plugin.taken().holds(&id), taken, "{} claims", claims.len());
    }
}

#[test]
fn a_fault_of_a_claim_ends_the_attempt_and_an_absent_class_every_node() {
    let wants = |class: &str, expression: &str| {
        let mut claim = claim("c", json!({}));
        let selectors = json!([{"cel": {"expression": expression}}]);
        claim["spec"]["devices"] = json!({"requests": [{"name": "r", "exactly":
            {"deviceClassName": class, "selectors": selectors}}]});
        let cluster = fake(json!([{"name": "x"}]), &[], &[claim]);
        DynamicResources::new(&Handle::with(Arc::new(cluster)), &json!({})).expect("arguments")
    };
    let pod = using_claim("p");
    let mut state = CycleState::default();
    let broken = wants("gpu", "device.attributes['a.example.com'].b == 1");
    assert_eq!(broken.pre_filter(&mut state, &pod, &Snapshot::default()), Status::Success);
    let status = broken.filter(&state, &pod, &node(json!({"metadata": {"name": "a"}})));
    let why = "claim default/c: selector #0: CEL runtime error: no such key: b";
    assert_eq!(status, Status::Error(why.to_owned()));
    let absent = wants("tpu", "true");
    let status = absent.pre_filter(&mut state, &pod, &Snapshot::default());
    assert_eq!(status, Status::unresolvable("request r: device class tpu does not exist"));
}

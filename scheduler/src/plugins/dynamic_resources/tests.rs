use super::*;
use crate::plugins::testing::{node, pod};
use serde_json::json;

#[derive(Default)]
pub struct Fake {
    pub claims: Vec<Value>,
    pub slices: Vec<Value>,
    pub classes: Vec<Value>,
}

fn found(list: &[Value], name: &str) -> Option<Arc<Value>> {
    list.iter().find(|o| o["metadata"]["name"] == name).cloned().map(Arc::new)
}

impl Cluster for Fake {
    fn resource_claim(&self, _namespace: &str, name: &str) -> Option<Arc<Value>> {
        found(&self.claims, name)
    }
    fn resource_claims(&self) -> Vec<Arc<Value>> {
        self.claims.iter().cloned().map(Arc::new).collect()
    }
    fn resource_slices(&self) -> Vec<Arc<Value>> {
        self.slices.iter().cloned().map(Arc::new).collect()
    }
    fn device_class(&self, name: &str) -> Option<Arc<Value>> {
        found(&self.classes, name)
    }
    fn device_classes(&self) -> Vec<Arc<Value>> {
        self.classes.iter().cloned().map(Arc::new).collect()
    }
}

fn device(name: &str, model: &str, memory: &str, numa: i64) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}, "numa.org/node": {"int": numa},
        "version": {"version": "1.2.3"}}, "capacity": {"memory": {"value": memory}}})
}

fn slice(host: &str, devices: Value) -> Value {
    json!({"metadata": {"name": host}, "spec": {"driver": "gpu.example.com", "nodeName": host,
        "pool": {"name": host, "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

fn class(expression: &str) -> Value {
    json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})
}

fn claim(name: &str, devices: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}})
}

fn exactly(request: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    json_patch::merge(&mut exactly, &request);
    json!({"requests": [{"name": "r", "exactly": exactly}]})
}

fn cluster(devices: Value) -> Fake {
    Fake {
        claims: vec![claim("c", devices)],
        slices: vec![
            slice("a", json!([device("g0", "small", "8Gi", 0), device("g1", "large", "40Gi", 0)])),
            slice("b", json!([device("g0", "large", "40Gi", 0), device("g1", "large", "80Gi", 1)])),
        ],
        classes: vec![class("device.driver == 'gpu.example.com'")],
    }
}

fn using(claims: &[&str]) -> PodInfo {
    let claims: Vec<Value> = claims.iter().map(|c| json!({"name": c, "resourceClaimName": c})).collect();
    pod(json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [], "resourceClaims": claims}}))
}

/// The devices that a node would give, or its refusal.
fn on(fake: Fake, pod: &PodInfo, host: &str) -> Result<Vec<String>, String> {
    let plugin = DynamicResources::new(&Handle::with(Arc::new(fake)), &json!({})).expect("arguments");
    let mut state = CycleState::default();
    let refused = plugin.pre_filter(&mut state, pod, &Snapshot::default());
    if refused != Status::Success {
        return Err(refused.message());
    }
    let node = node(json!({"metadata": {"name": host}}));
    let status = plugin.filter(&state, pod, &node);
    if !status.is_success() {
        return Err(status.message());
    }
    assert_eq!(plugin.reserve(&mut state, pod, &node), Status::Success);
    let decided = plugin.in_binding.get(&pod.uid).expect("a decision");
    let allocations = decided.allocations.iter().flatten();
    let results = allocations.flat_map(|a| a["devices"]["results"].as_array().cloned().unwrap_or_default());
    Ok(results.filter_map(|r| r["device"].as_str().map(str::to_owned)).collect())
}

fn given(devices: Value, host: &str) -> Result<Vec<String>, String> {
    on(cluster(devices), &using(&["c"]), host)
}

fn none() -> Result<Vec<String>, String> {
    Err("cannot allocate all claims".to_owned())
}

fn names(names: &[&str]) -> Result<Vec<String>, String> {
    Ok(names.iter().map(|n| (*n).to_owned()).collect())
}

#[test]
fn selectors_choose_devices() {
    let select = |expression: &str| exactly(json!({"selectors": [{"cel": {"expression": expression}}]}));
    assert_eq!(given(exactly(json!({})), "a"), names(&["g0"]));
    let large = select("device.attributes['gpu.example.com'].model == 'large'");
    assert_eq!(given(large, "a"), names(&["g1"]));
    let roomy = "device.capacity['gpu.example.com'].memory.compareTo(quantity('64Gi')) >= 0";
    assert_eq!(given(select(roomy), "a"), none());
    assert_eq!(given(select(roomy), "b"), names(&["g1"]));
    let newer = "device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.0.0'))";
    assert_eq!(given(select(newer), "a"), names(&["g0"]));
    assert_eq!(given(exactly(json!({})), "elsewhere"), none());
    let unknown = "device.attributes['other.example.com'].model == 'large'";
    let why = given(select(unknown), "a").expect_err("no such attribute");
    assert_eq!(why, "claim default/c: selector #0: CEL runtime error: no such key: model");
    let guarded =
        "!('model' in device.attributes['other.example.com']) && !('other.example.com' in device.attributes)";
    assert_eq!(given(select(guarded), "a"), names(&["g0"]));
    let why = given(select("device.nothing"), "a").expect_err("no such field");
    assert!(why.starts_with("claim default/c: selector #0: CEL compile error: "), "{why}");
}

#[test]
fn counts_and_all_devices() {
    assert_eq!(given(exactly(json!({"count": 2})), "a"), names(&["g0", "g1"]));
    assert_eq!(given(exactly(json!({"count": 3})), "a"), none());
    assert_eq!(given(exactly(json!({"allocationMode": "All"})), "b"), names(&["g0", "g1"]));
    let missing = exactly(json!({"deviceClassName": "tpu"}));
    assert_eq!(given(missing, "a"), Err("request r: device class tpu does not exist".to_owned()));
}

#[test]
fn constraints_hold_over_requests() {
    let mut two = exactly(json!({"count": 2}));
    two["constraints"] = json!([{"matchAttribute": "numa.org/node"}]);
    assert_eq!(given(two.clone(), "a"), names(&["g0", "g1"]));
    assert_eq!(given(two.clone(), "b"), none());
    two["constraints"] = json!([{"distinctAttribute": "numa.org/node"}]);
    assert_eq!(given(two, "b"), names(&["g0", "g1"]));
}

#[test]
fn the_first_alternative_that_can_be_had_is_taken() {
    let sub = |name: &str, model: &str| {
        let expression = format!("device.attributes['gpu.example.com'].model == '{model}'");
        json!({"name": name, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]})
    };
    let requests =
        json!({"requests": [{"name": "r", "firstAvailable": [sub("s", "small"), sub("l", "large")]}]});
    assert_eq!(given(requests.clone(), "a"), names(&["g0"]));
    assert_eq!(given(requests, "b"), names(&["g0"]));
}

#[test]
fn what_others_hold_is_not_given_again() {
    let mut fake = cluster(exactly(json!({})));
    let mut other = claim("other", exactly(json!({})));
    other["status"]["allocation"] = json!({"devices": {"results":
        [{"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "g0"}]}});
    fake.claims.push(other);
    assert_eq!(on(fake, &using(&["c"]), "a"), names(&["g1"]));
    let mut fake = cluster(exactly(json!({})));
    fake.slices[0]["spec"]["devices"][0]["taints"] = json!([{"key": "sick", "effect": "NoSchedule"}]);
    assert_eq!(on(fake, &using(&["c"]), "a"), names(&["g1"]));
    let mut fake = cluster(exactly(json!({})));
    fake.slices[0]["spec"]["pool"]["resourceSliceCount"] = json!(2);
    assert_eq!(on(fake, &using(&["c"]), "a"), none());
}

#[test]
fn an_allocated_claim_is_used_where_it_is() {
    let mut fake = cluster(exactly(json!({})));
    fake.claims[0]["status"]["allocation"] = json!({"nodeSelector": {"nodeSelectorTerms": [{"matchFields":
        [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}});
    let again = |fake: &Fake| Fake { claims: fake.claims.clone(), ..cluster(json!({})) };
    assert_eq!(on(again(&fake), &using(&["c"]), "a"), names(&[]));
    assert_eq!(on(fake, &using(&["c"]), "b"), Err("resourceclaim not available on the node".to_owned()));
    assert_eq!(given(exactly(json!({})), "a"), names(&["g0"]));
    assert_eq!(
        on(cluster(json!({})), &using(&["gone"]), "a"),
        Err("resourceclaim \"gone\" not found".to_owned())
    );
}

#[test]
fn a_pod_without_claims_is_none_of_its_business() {
    let plugin = DynamicResources::new(&Handle::offline(), &json!({})).expect("arguments");
    let plain = pod(json!({"spec": {"containers": []}}));
    assert_eq!(plugin.pre_filter(&mut CycleState::default(), &plain, &Snapshot::default()), Status::Skip);
    assert_eq!(plugin.pre_enqueue(&plain), Status::Success);
    let waiting = pod(json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"containers": [],
        "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]}}));
    assert_eq!(plugin.pre_enqueue(&waiting).message(), "pod \"d/p\": ResourceClaim not created yet");
}

//! Server-side apply, with any configuration on any object.

use coracle_api::managed::{self, Request, Set, SingleVersion};
use coracle_api::{decode, schema};
use serde_json::{Value, json};

/// A configuration, or a live object and a configuration for it.
pub fn apply(bytes: &[u8]) {
    let Ok(input) = serde_json::from_slice::<Value>(bytes) else { return };
    match input.as_array().map(Vec::as_slice) {
        Some([live, config]) => applied(Some(live), config),
        Some(_) => {}
        None => {
            applied(None, &input);
            [super::pod(), super::deployment()].iter().for_each(|live| applied(Some(live), &input));
        }
    }
}

/// Applied again, a configuration changes nothing, and whoever applies the same has no conflict with it.
fn applied(live: Option<&Value>, config: &Value) {
    let text = |value: &'_ Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(config, "apiVersion"), text(config, "kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(ty) = schema::root(group, version, &kind) else { return };
    if live.is_some_and(|live| text(live, "apiVersion") != api_version || text(live, "kind") != kind) {
        return;
    }
    let reset = Set::new();
    let request = |manager| Request {
        manager,
        subresource: "",
        api_version: &api_version,
        ty,
        versions: &SingleVersion,
        reset: &reset,
        now: "2026-01-02T03:04:05Z",
    };
    let one = request("one");
    let Ok(once) = managed::apply(&one, live, config, true) else { return };
    assert!(super::depth(&once) < super::DEEPEST);
    managed::decode(&once["metadata"]["managedFields"]).expect("its own words");
    // The server stores no other objects than these.
    let stored =
        |object: &Value| decode::conform(&mut object.clone(), ty).is_ok_and(|problems| problems.is_empty());
    if !live.is_none_or(stored) || !stored(&once) {
        return;
    }
    let again = managed::apply(&one, Some(&once), config, false).expect("no conflict with oneself");
    assert_eq!(again, once);
    let shared =
        managed::apply(&request("two"), Some(&once), config, false).expect("the same is no conflict");
    assert_eq!(without_owners(shared), without_owners(once));
}

fn without_owners(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

pub fn seeds() -> Vec<Value> {
    let pod = |spec: Value| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web",
        "labels": { "app": "api" }, "finalizers": ["a/b", "c/d"] }, "spec": spec })
    };
    let container = json!({ "name": "c", "image": "i:2", "env": [{ "name": "E", "value": "2" }],
        "ports": [{ "containerPort": 80, "protocol": "UDP" }, { "containerPort": 80 }],
        "resources": { "requests": { "cpu": "0.1" } } });
    let one = pod(json!({ "containers": [container, { "name": "d", "image": "i" }] }));
    let two = pod(json!({ "tolerations": [{ "key": "a" }], "volumes": [{ "name": "v", "emptyDir": {} }] }));
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": { "replicas": 3, "template": { "spec": { "containers": [container] } } } });
    let live = super::pod();
    vec![one.clone(), two.clone(), deployment, json!([live, one]), json!([live, two]), json!([one, two])]
}

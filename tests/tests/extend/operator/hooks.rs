//! The operator's webhooks, and their configurations.

use super::types;
use coracle_tests::hook::{Call, Hook, Told, review};
use serde_json::{Value, json};

/// One server for all three.
pub fn start() -> Hook {
    Hook::start(|call| match call.route() {
        "/convert" => review::converted(call, types::convert),
        "/mutate" => mutate(call),
        _ => validate(call),
    })
}

/// A site of no replicas gets one, and a label says which host it is.
fn mutate(call: &Call) -> Told {
    let object = &call.body["request"]["object"];
    let mut patch = Vec::new();
    if object["spec"]["replicas"].as_i64().unwrap_or_default() == 0 {
        patch.push(json!({"op": "add", "path": "/spec/replicas", "value": 1}));
    }
    if object["metadata"]["labels"].is_null() {
        patch.push(json!({"op": "add", "path": "/metadata/labels", "value": {}}));
    }
    patch.push(json!({"op": "add", "path": "/metadata/labels/sites.coracle.dev~1host", "value": object["spec"]["host"]}));
    review::patched(call, &Value::Array(patch))
}

fn validate(call: &Call) -> Told {
    let request = &call.body["request"];
    let (host, old) = (&request["object"]["spec"]["host"], &request["oldObject"]["spec"]["host"]);
    if *host == "forbidden" {
        return review::denied(call, "no site may be called forbidden");
    }
    if !old.is_null() && old != host {
        return review::denied(call, "a site does not move");
    }
    if request["object"]["spec"]["replicas"].as_i64().unwrap_or_default() > 5 {
        return review::admission(
            call,
            json!({"allowed": true, "warnings": ["more than five replicas are a waste"]}),
        );
    }
    review::allowed(call)
}

/// The two configurations, for version v1 and whatever converts to it.
pub fn configurations(hook: &Hook) -> [Value; 2] {
    let rule = json!({"apiGroups": ["sites.coracle.dev"], "apiVersions": ["v1"], "resources": ["sites"], "operations": ["CREATE", "UPDATE"]});
    ["Mutating", "Validating"].map(|kind| {
        let path = if kind == "Mutating" { "/mutate" } else { "/validate" };
        let webhook = json!({
            "name": "sites.coracle.dev", "rules": [rule], "clientConfig": hook.client_config(path),
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "matchPolicy": "Equivalent",
        });
        let kind = format!("{kind}WebhookConfiguration");
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "sites"}, "webhooks": [webhook]})
    })
}

//! In what resources differ by rule: which can be created by PUT, get a generated name, be updated without naming a version,
//! and what a deletion and a write of the status do to their metadata. The exceptions are upstream's own.

use crate::operations::NAMESPACE;
use crate::samples::{SAMPLES, Sample};
use crate::{Suite, eventually, make_namespace};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

const CREATED_BY_PUT: [&str; 10] = [
    "clusterrolebindings",
    "clusterroles",
    "endpoints",
    "events",
    "leases",
    "limitranges",
    "rolebindings",
    "roles",
    "runtimeclasses",
    "services",
];
/// Their names are made of what they say.
const NEVER_GENERATED: [&str; 3] = ["apiservices", "customresourcedefinitions", "ipaddresses"];
const NAME_A_VERSION: [&str; 15] = [
    "apiservices",
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "customresourcedefinitions",
    "leases",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "poddisruptionbudgets",
    "runtimeclasses",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
    "volumeattachments",
];
/// A write of their status keeps the metadata as they were.
const STATUS_ALONE: [&str; 8] = [
    "apiservices",
    "deployments",
    "flowschemas",
    "prioritylevelconfigurations",
    "resourceclaims",
    "servicecidrs",
    "validatingadmissionpolicies",
    "volumeattachments",
];
const BLOCK: &str = "conformance.example.com/block";

#[test]
fn resources_differ_as_upstreams_do() {
    let mut suite = Suite::start();
    make_namespace(&suite.rest, NAMESPACE);
    for sample in SAMPLES {
        suite.check(&format!("{}.{}", sample.plural, sample.group), |rest| {
            created_by_put(rest, sample);
            generated_name(rest, sample);
            updated_without_version(rest, sample);
            deleted_in_foreground(rest, sample);
            if !sample.status.is_empty() {
                status_and_metadata(rest, sample);
            }
        });
    }
    suite.check("addresses and rights of what a PUT creates", rights_of_put);
    suite.end();
}

fn one(sample: &Sample, object: &Value) -> String {
    format!("{}/{}", sample.collection(), object["metadata"]["name"].as_str().expect("a name"))
}

fn remove(rest: &Rest, path: &str) {
    let now = r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Background"}"#;
    rest.call("DELETE", path, &[], now).ok();
}

fn created_by_put(rest: &Rest, sample: &Sample) {
    let object = sample.object(4);
    let path = one(sample, &object);
    let reply = rest.call("PUT", &path, &[], &object.to_string());
    if CREATED_BY_PUT.contains(&sample.plural) {
        assert_eq!(reply.code, 201, "{}", reply.body);
        assert!(reply.body["metadata"]["uid"].is_string(), "{}", reply.body);
        remove(rest, &path);
    } else {
        assert!(reply.code >= 400, "{}", reply.body);
        assert_eq!(rest.call("GET", &path, &[], "").code, 404);
    }
}

fn generated_name(rest: &Rest, sample: &Sample) {
    let mut object = sample.object(5);
    object["metadata"]["name"] = Value::Null;
    object["metadata"]["generateName"] = json!("generated-");
    let reply = rest.call("POST", &sample.collection(), &[], &object.to_string());
    if NEVER_GENERATED.contains(&sample.plural) {
        reply.refused(422, "Invalid");
        return;
    }
    let made = reply.ok();
    assert!(made["metadata"]["name"].as_str().is_some_and(|n| n.len() == "generated-".len() + 5), "{made}");
    remove(rest, &one(sample, &made));
}

fn updated_without_version(rest: &Rest, sample: &Sample) {
    let path = one(sample, &rest.create(&sample.collection(), &sample.object(6)));
    // A controller may write meanwhile what cannot be taken back.
    let replace = || {
        let mut found = rest.get(&path);
        found["metadata"]["resourceVersion"] = Value::Null;
        rest.call("PUT", &path, &[], &found.to_string())
    };
    if NAME_A_VERSION.contains(&sample.plural) {
        let message = replace().refused(422, "Invalid");
        assert!(message.ends_with("must be specified for an update"), "{message}");
    } else {
        eventually("an update", || (replace().code == 200).then_some(()));
    }
    remove(rest, &path);
}

/// Without a word of the client's, and with the wish to see the dependents gone first.
fn deleted_in_foreground(rest: &Rest, sample: &Sample) {
    for policy in ["", "Foreground"] {
        let path = one(sample, &rest.create(&sample.collection(), &sample.object(7)));
        rest.merge(&path, &json!({"metadata": {"finalizers": [BLOCK]}}));
        let options = match policy {
            "" => String::new(),
            policy => {
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}).to_string()
            }
        };
        let deleted = rest.call("DELETE", &path, &[], &options).ok();
        let collects = |finalizer: &&str| ["orphan", "foregroundDeletion"].contains(finalizer);
        let finalizers = deleted["metadata"]["finalizers"].as_array().into_iter().flatten();
        let added = finalizers.filter_map(Value::as_str).find(collects);
        let expected = match (policy, sample.plural) {
            (_, "events") => None,
            ("", "jobs" | "replicationcontrollers") => Some("orphan"),
            ("", _) => None,
            _ => Some("foregroundDeletion"),
        };
        assert_eq!(added, expected, "{policy}: {deleted}");
        released(rest, &path);
    }
}

fn released(rest: &Rest, path: &str) {
    eventually("its end", || {
        let body = r#"{"metadata":{"finalizers":null}}"#;
        rest.call("PATCH", path, &["Content-Type: application/merge-patch+json"], body);
        (rest.call("GET", path, &[], "").code == 404).then_some(())
    });
}

fn status_and_metadata(rest: &Rest, sample: &Sample) {
    let made = rest.create(&sample.collection(), &sample.object(3));
    let path = one(sample, &made);
    let labels = json!({"metadata": {"labels": {"by-status": "yes"}}});
    let patched = rest.merge(&format!("{path}/status"), &labels);
    let keeps = STATUS_ALONE.contains(&sample.plural);
    assert_eq!(patched["metadata"]["labels"]["by-status"].is_null(), keeps, "{patched}");
    assert_eq!(patched["metadata"]["generation"], made["metadata"]["generation"]);
    remove(rest, &path);
}

/// Whoever may update and not create is refused, and a Service gets its address.
fn rights_of_put(rest: &Rest) {
    let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "put"}, "spec": {"ports": [{"port": 80}]}});
    let made = rest.call("PUT", &format!("{services}/put"), &[], &service.to_string()).ok();
    assert!(made["spec"]["clusterIP"].is_string(), "{made}");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rule = json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["update"]});
    rest.create(roles, &json!({"metadata": {"name": "updates-roles"}, "rules": [rule]}));
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "updater"});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "updates-roles"});
    let binding = json!({"metadata": {"name": "updates-roles"}, "subjects": [subject], "roleRef": role});
    rest.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    let wide = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "wide"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let told = |words: &str| {
        let headers = ["Impersonate-User: updater"];
        let message =
            rest.call("PUT", &format!("{roles}/wide"), &headers, &wide.to_string()).refused(403, "Forbidden");
        message.contains(words).then_some(())
    };
    eventually("that creating is refused", || told("cannot create resource"));
    let create = json!([{"op": "add", "path": "/rules/0/verbs/-", "value": "create"}]).to_string();
    let headers = ["Content-Type: application/json-patch+json"];
    rest.call("PATCH", &format!("{roles}/updates-roles"), &headers, &create).ok();
    eventually("that more rights are refused", || told("is attempting to grant RBAC permissions"));
}

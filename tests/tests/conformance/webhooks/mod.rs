//! Admission webhooks: what they deny, change and hold up; and configurations of them.

mod changed;
mod denied;

use crate::Suite;
use coracle_tests::custom::{self, definition, version};
use coracle_tests::hook::{Call, Hook, Told, review};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};
use std::time::Duration;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// What the webhook of these tests does, by its path.
fn answer(call: &Call) -> Told {
    let object = &call.body["request"]["object"];
    let data = &object["data"];
    match call.route() {
        "/deny" => match data["webhook-e2e-test"].as_str().or(object["metadata"]["name"].as_str()) {
            Some("webhook-disallow") => review::denied(call, "the object contains unwanted data"),
            Some("unlucky") => review::admission(call, json!({"allowed": false})),
            _ => review::allowed(call),
        },
        "/deny-always" => review::denied(call, "no"),
        "/deny-deletion" => {
            let kept = &call.body["request"]["oldObject"]["metadata"]["name"];
            if kept == "keep" { review::denied(call, "keep it") } else { review::allowed(call) }
        }
        "/mutate" if data["mutation-start"] == "yes" && data["mutation-stage-1"].is_null() => {
            review::patched(call, &json!([{"op": "add", "path": "/data/mutation-stage-1", "value": "yes"}]))
        }
        "/mutate-more" if data["mutation-stage-1"] == "yes" && data["mutation-stage-2"].is_null() => {
            review::patched(call, &json!([{"op": "add", "path": "/data/mutation-stage-2", "value": "yes"}]))
        }
        "/add-container" => {
            let container = json!({"name": "webhook-added", "image": "nginx"});
            review::patched(
                call,
                &json!([{"op": "add", "path": "/spec/initContainers", "value": [container]}]),
            )
        }
        "/add-label" => review::patched(
            call,
            &json!([{"op": "add", "path": "/metadata/labels", "value": {"mutated": "yes"}}]),
        ),
        "/slow" => {
            std::thread::sleep(Duration::from_secs(5));
            review::allowed(call)
        }
        "/warn" => {
            let annotations = json!({"why": "because"});
            review::admission(
                call,
                json!({"allowed": true, "warnings": ["first", "second \"quoted\""], "auditAnnotations": annotations}),
            )
        }
        "/bad-patch" => review::patched(call, &json!([{"op": "remove", "path": "/data/none"}])),
        "/no-review" => {
            Told::json(200, &json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}))
        }
        "/wrong-uid" => {
            let response = json!({"uid": "other", "allowed": true});
            Told::json(
                200,
                &json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}),
            )
        }
        "/broken" => Told::text(500, "out of order"),
        _ => review::allowed(call),
    }
}

/// A configuration with one webhook for one resource in one namespace (by the label each has).
struct Wanted<'a> {
    kind: &'a str,
    name: &'a str,
    namespace: &'a str,
    path: &'a str,
    resources: &'a str,
    operations: &'a [&'a str],
}

impl Wanted<'_> {
    fn build(&self, client: &Value) -> Value {
        let (group, resource) = self.resources.split_once('/').unwrap_or(("", self.resources));
        let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": self.operations});
        let selector = match self.namespace {
            "" => json!({}),
            namespace => json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}}),
        };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": self.kind,
            "metadata": {"name": self.name, "labels": {"from": self.name}},
            "webhooks": [{
                "name": format!("{}.example.com", self.name), "rules": [rule], "clientConfig": client,
                "sideEffects": "None", "admissionReviewVersions": ["v1"], "namespaceSelector": selector, "timeoutSeconds": 10,
            }],
        })
    }

    fn path(&self) -> String {
        format!("{GROUP}/{}s", self.kind.to_lowercase())
    }

    fn register(&self, rest: &Rest, hook: &Hook) -> String {
        rest.create(&self.path(), &self.build(&hook.client_config(self.path)));
        format!("{}/{}", self.path(), self.name)
    }
}

const VALIDATING: &str = "ValidatingWebhookConfiguration";
const MUTATING: &str = "MutatingWebhookConfiguration";

fn maps(ns: &str) -> String {
    format!("/api/v1/namespaces/{ns}/configmaps")
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

const START: &str = "mutation-start";

#[test]
fn webhooks_deny() {
    let mut suite = Suite::start();
    let hook = Hook::start(answer);
    suite.check_in("hooks", |rest, ns| denied::denied(rest, ns, &hook));
    suite.check_in("custom", |rest, ns| denied::custom_denied(rest, ns, &hook));
    suite.check("definitions", |rest| denied::definitions(rest, &hook));
    suite.check_in("closed", denied::closed);
    suite.check_in("timeouts", |rest, ns| denied::timeouts(rest, ns, &hook));
    suite.check_in("nonsense", |rest, ns| denied::nonsense(rest, ns, &hook));
    suite.check_in("exempt", |rest, ns| denied::exempt(rest, ns, &hook));
    suite.check_in("listed-validating", |rest, ns| listed(rest, ns, &hook, VALIDATING));
    suite.check_in("changed-validating", |rest, ns| changed(rest, ns, &hook, VALIDATING));
    suite.check_in("warned", |rest, ns| denied::warned(rest, ns, &hook));
    suite.end();
}

#[test]
fn webhooks_change() {
    let mut suite = Suite::start();
    let hook = Hook::start(answer);
    suite.check_in("ordered", |rest, ns| changed::ordered(rest, ns, &hook));
    suite.check_in("defaulted", |rest, ns| changed::defaulted(rest, ns, &hook));
    suite.check_in("custom", |rest, ns| changed::custom_changed(rest, ns, &hook));
    suite.check_in("stored-version", |rest, ns| changed::stored_version(rest, ns, &hook));
    suite.check_in("listed-mutating", |rest, ns| listed(rest, ns, &hook, MUTATING));
    suite.check_in("changed-mutating", |rest, ns| changed(rest, ns, &hook, MUTATING));
    suite.check_in("conditions", |rest, ns| changed::conditions(rest, ns, &hook));
    suite.check_in("connections", |rest, ns| changed::connections(rest, ns, &hook));
    suite.check("discovery", |rest| {
        let resources = rest.get(GROUP);
        let names: Vec<_> =
            resources["resources"].as_array().expect("resources").iter().map(|r| &r["name"]).collect();
        for name in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            assert!(names.contains(&&json!(name)), "{names:?}");
        }
    });
    suite.end();
}

fn bag(group: &str) -> Value {
    definition(group, "bags", "Bag", &[version("v1", custom::anything())])
}

fn custom_object(group: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Bag", "metadata": {"name": name}, "data": data})
}

fn listed(rest: &Rest, ns: &str, hook: &Hook, kind: &str) {
    let path = format!("{GROUP}/{}s", kind.to_lowercase());
    let what = if kind == VALIDATING { "/deny-always" } else { "/mutate" };
    for n in 0..10 {
        let name = format!("listed-{ns}-{n}");
        let wanted = Wanted {
            kind,
            name: &name,
            namespace: ns,
            path: what,
            resources: "configmaps",
            operations: &["CREATE"],
        };
        let mut wanted = wanted.build(&hook.client_config(what));
        wanted["metadata"]["labels"] = json!({"listed": ns});
        rest.create(&path, &wanted);
    }
    let selected = format!("{path}?labelSelector=listed={ns}");
    assert_eq!(rest.get(&selected)["items"].as_array().map(Vec::len), Some(10));
    assert!(acts(rest, ns, kind, "before"));
    rest.call("DELETE", &selected, &[], "").ok();
    assert_eq!(rest.get(&selected)["items"], json!([]));
    assert!(!acts(rest, ns, kind, "after"));
}

/// Whether a new object is denied or changed, as the kind of webhook says.
fn acts(rest: &Rest, ns: &str, kind: &str, name: &str) -> bool {
    let reply = rest.call("POST", &maps(ns), &[], &map(name, json!({START: "yes"})).to_string());
    if kind == VALIDATING {
        return reply.code == 403;
    }
    reply.ok()["data"]["mutation-stage-1"] == "yes"
}

fn changed(rest: &Rest, ns: &str, hook: &Hook, kind: &str) {
    let what = if kind == VALIDATING { "/deny-always" } else { "/mutate" };
    let one = Wanted {
        kind,
        name: ns,
        namespace: ns,
        path: what,
        resources: "configmaps",
        operations: &["CREATE"],
    }
    .register(rest, hook);
    let mut found = rest.get(&one);
    found["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
    rest.replace(&one, &found);
    assert!(!acts(rest, ns, kind, "updated"), "no longer on creation");
    let patch = json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]);
    rest.call("PATCH", &one, &["Content-Type: application/json-patch+json"], &patch.to_string()).ok();
    assert!(acts(rest, ns, kind, "patched"), "on creation again");
}

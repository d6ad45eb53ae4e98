//! Definitions of custom resources: how they come to be served, and how they go.

use crate::support::{Fixture, PATIENCE};
use http::Request;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

mod crd_published;

pub const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// `<plural>.<group>` with one version.
pub fn definition(plural: &str, kind: &str, group: &str, schema: Value) -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": { "group": group, "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } })
}

pub fn open() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

pub async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.api.maintain_definitions();
    for (uri, body) in [("/api/v1/namespaces", "default"), ("/api/v1/namespaces", "other")] {
        fixture.post(uri, &json!({ "metadata": { "name": body } })).await.expect(201);
    }
    fixture
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let list = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

/// `status reason` of a condition.
fn brief(object: &Value, kind: &str) -> String {
    let found = condition(object, kind);
    format!("{} {}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
}

/// The definition, as soon as it is as it should be.
pub async fn until(fixture: &Fixture, name: &str, what: impl Fn(&Value) -> bool) -> Value {
    let uri = format!("{CRDS}/{name}");
    let begun = Instant::now();
    let mut last = Value::Null;
    while begun.elapsed() < PATIENCE {
        let answer = fixture.get(&uri).await;
        last = if answer.status == 404 { Value::Null } else { answer.expect(200) };
        if what(&last) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{name} stays {last:#}");
}

pub async fn established(fixture: &Fixture, definition: &Value) -> Value {
    fixture.post(CRDS, definition).await.expect(201);
    let name = definition["metadata"]["name"].as_str().unwrap();
    until(fixture, name, |object| brief(object, "Established") == "True InitialNamesAccepted").await
}

#[tokio::test]
async fn served_at_once_and_gone_with_its_objects() {
    let fixture = fixture().await;
    let widgets = definition("widgets", "Widget", "a.example.com", open());
    let begun = Instant::now();
    let object = established(&fixture, &widgets).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(brief(&object, "NamesAccepted"), "True NoConflicts");
    assert_eq!(object["status"]["acceptedNames"]["listKind"], "WidgetList");
    assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
    assert!(object["metadata"].get("finalizers").is_none());
    let of = |namespace: &str| format!("/apis/a.example.com/v1/namespaces/{namespace}/widgets");
    let widget = |name: &str| json!({ "apiVersion": "a.example.com/v1", "kind": "Widget", "metadata": { "name": name } });
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    fixture.post(&of("default"), &widget("one")).await.expect(201);
    fixture.post(&of("other"), &widget("two")).await.expect(201);
    fixture.post(&of("other"), &held).await.expect(201);
    let deleted = fixture.delete(&format!("{CRDS}/widgets.a.example.com")).await.expect(200);
    assert_eq!(brief(&deleted, "Terminating"), "True InstanceDeletionPending");
    assert_eq!(deleted["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let waiting = until(&fixture, "widgets.a.example.com", |object| {
        brief(object, "Terminating") == "True InstanceDeletionInProgress"
    })
    .await;
    assert_eq!(condition(&waiting, "Terminating")["message"], "CustomResource deletion is in progress");
    let mut left = Value::Null;
    for _ in 0..1000 {
        left = fixture.get("/apis/a.example.com/v1/widgets").await.expect(200);
        if left["items"].as_array().unwrap().len() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(left["items"][0]["metadata"]["name"], "held", "{left:#}");
    assert!(left["items"][0]["metadata"]["deletionTimestamp"].is_string());
    let free = json!({ "metadata": { "finalizers": null } });
    fixture.patch(&format!("{}/held", of("other")), "merge-patch", &free).await.expect(200);
    until(&fixture, "widgets.a.example.com", Value::is_null).await;
    assert_eq!(fixture.get(&of("default")).await.status, 404);

    established(&fixture, &widgets).await;
    let list = fixture.get(&of("default")).await.expect(200);
    assert_eq!(list["items"], json!([]), "a new definition begins with nothing");
}

#[tokio::test]
async fn names_go_to_who_was_first_and_on_when_they_are_free() {
    let fixture = fixture().await;
    let first = definition("widgets", "Widget", "b.example.com", open());
    established(&fixture, &first).await;
    let mut second = definition("gadgets", "Widget", "b.example.com", open());
    second["spec"]["names"]["listKind"] = "GadgetList".into();
    fixture.post(CRDS, &second).await.expect(201);
    let refused =
        until(&fixture, "gadgets.b.example.com", |o| brief(o, "NamesAccepted") == "False KindConflict").await;
    assert_eq!(condition(&refused, "NamesAccepted")["message"], "\"Widget\" is already in use");
    assert_eq!(brief(&refused, "Established"), "False NotAccepted");
    assert_eq!(fixture.get("/apis/b.example.com/v1/gadgets").await.status, 404);
    established(&fixture, &definition("gadgets", "Widget", "c.example.com", open())).await;
    fixture.delete(&format!("{CRDS}/widgets.b.example.com")).await.expect(200);
    until(&fixture, "gadgets.b.example.com", |o| brief(o, "Established") == "True InitialNamesAccepted")
        .await;
    fixture.get("/apis/b.example.com/v1/gadgets").await.expect(200);
}

#[tokio::test]
async fn a_definition_that_was_never_served_goes_at_once() {
    let fixture = fixture().await;
    established(&fixture, &definition("widgets", "Widget", "d.example.com", open())).await;
    fixture.post(CRDS, &definition("others", "Widget", "d.example.com", open())).await.expect(201);
    until(&fixture, "others.d.example.com", |o| brief(o, "Established") == "False NotAccepted").await;
    fixture.delete(&format!("{CRDS}/others.d.example.com")).await.expect(200);
    until(&fixture, "others.d.example.com", Value::is_null).await;
}

#[tokio::test]
async fn storage_versions_are_remembered_and_cannot_be_forgotten() {
    let fixture = fixture().await;
    let mut widgets = definition("widgets", "Widget", "e.example.com", open());
    let stored = established(&fixture, &widgets).await;
    let mut second = widgets["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    widgets["spec"]["versions"][0]["storage"] = false.into();
    widgets["spec"]["versions"].as_array_mut().unwrap().push(second);
    let uri = format!("{CRDS}/widgets.e.example.com");
    let mut new = stored.clone();
    new["spec"]["versions"] = widgets["spec"]["versions"].clone();
    let both = fixture.replace(&uri, &new).await.expect(200);
    assert_eq!(both["status"]["storedVersions"], json!(["v1", "v2"]));
    new["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let error = fixture.replace(&uri, &new).await.expect(422);
    assert!(error["message"].as_str().unwrap().contains("v1 was previously a storage version"), "{error}");
    let status = |versions: Value| json!({ "status": { "storedVersions": versions } });
    let error =
        fixture.patch(&format!("{uri}/status"), "merge-patch", &status(json!(["v1"]))).await.expect(422);
    assert!(error["message"].as_str().unwrap().contains("must have the storage version v2"), "{error}");
    fixture.patch(&format!("{uri}/status"), "merge-patch", &status(json!(["v2"]))).await.expect(200);
    fixture.replace(&uri, &new).await.expect(200);
    assert_eq!(fixture.get("/apis/e.example.com/v1/widgets").await.status, 404);
    fixture.get("/apis/e.example.com/v2/widgets").await.expect(200);
}

#[tokio::test]
async fn schemas_that_make_no_sense_are_refused_and_nothing_is_stored() {
    let fixture = fixture().await;
    let bad = definition(
        "widgets",
        "Widget",
        "f.example.com",
        json!({ "type": "object", "additionalProperties": "x" }),
    );
    let error = fixture.post(CRDS, &bad).await.expect(400);
    assert!(error["message"].as_str().unwrap().contains("boolean or JSON schema expected"), "{error}");
    let bad = definition(
        "widgets",
        "Widget",
        "f.example.com",
        json!({ "type": "object", "properties": { "a": {} } }),
    );
    let error = fixture.post(CRDS, &bad).await.expect(422);
    assert_eq!(
        error["message"],
        "CustomResourceDefinition.apiextensions.k8s.io \"widgets.f.example.com\" is invalid: \
         spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"
    );
    assert_eq!(fixture.get(&format!("{CRDS}/widgets.f.example.com")).await.status, 404);
}

/// What routes, gateways and policies of meshes are made of, as (where it stands in the spec, its schema).
fn shapes_of_routes() -> Vec<(&'static str, Value)> {
    let name = json!({ "type": "string", "maxLength": 253 });
    let rules = |rules: &[&str]| -> Vec<Value> { rules.iter().map(|rule| json!({ "rule": rule })).collect() };
    let matches = json!({ "type": "array", "maxItems": 64, "items": { "type": "object" } });
    let path = json!({ "type": "object", "properties": { "type": name, "prefix": name } });
    let filter = json!({ "type": "object", "properties": { "type": name, "path": path } });
    let filters = json!({ "type": "array", "maxItems": 16, "items": filter,
        "x-kubernetes-validations": rules(&[
            "!(self.exists(f, f.type == 'A') && self.exists(f, f.type == 'B'))",
            "self.filter(f, f.type == 'A').size() <= 1"]) });
    let backend = json!({ "type": "object", "properties": { "filters": filters } });
    let backends = json!({ "type": "array", "maxItems": 16, "items": backend });
    let rule = json!({ "type": "object",
        "properties": { "name": name, "matches": matches, "filters": filters, "backends": backends },
        "x-kubernetes-validations": rules(&["has(self.backends) && self.backends.exists_one(b, has(b.filters) && \
            b.filters.exists_one(f, has(f.path) && f.path.type == 'P' && has(f.path.prefix))) ? size(self.matches) == 1 : true"]) });
    let sum: Vec<String> =
        (0..16).map(|i| format!("(self.size() > {i} ? self[{i}].matches.size() : 0)")).collect();
    let parents =
        json!({ "type": "object", "properties": { "group": name, "name": name, "namespace": name } });
    let pairs = "self.all(a, self.exists_one(b, a.group == b.group && a.name == b.name && \
        (has(a.__namespace__) ? has(b.__namespace__) && a.__namespace__ == b.__namespace__ : !has(b.__namespace__))))";
    let keys = |rule: &str, map: Value| {
        let mut map = map;
        map["x-kubernetes-validations"] = json!([{ "rule": rule }]);
        map
    };
    let text = json!({ "type": "string" });
    vec![
        (
            "rules",
            json!({ "type": "array", "maxItems": 16, "items": rule, "x-kubernetes-validations": rules(&[
                &format!("{} <= 128", sum.join(" + ")),
                "self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && a.name == b.name))"]) }),
        ),
        (
            "parents",
            json!({ "type": "array", "maxItems": 32, "items": parents, "x-kubernetes-validations": rules(&[pairs]) }),
        ),
        (
            "labels",
            keys(
                "self.all(key, key.split(\"/\")[0].size() < 253 && key.matches(r\"\"\"^([A-Za-z0-9][-A-Za-z0-9_.]*)?$\"\"\"))",
                json!({ "type": "object", "maxProperties": 8, "additionalProperties": name }),
            ),
        ),
        (
            "ports",
            keys(
                "self.all(key, 0 < int(key) && int(key) <= 65535)",
                json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": "object" } }),
            ),
        ),
        (
            "url",
            keys(
                "isURL(self) ? (url(self).getScheme() in ['', 'http', 'https']) : (isURL('http://' + self) && \
                 url('http://' + self).getScheme() in ['', 'http', 'https'])",
                text.clone(),
            ),
        ),
        ("label", keys("format.dns1123Label().validate(self) == null", name.clone())),
        ("duration", keys("duration(self) >= duration('1ms')", text)),
    ]
}

#[tokio::test]
async fn rules_of_routes_gateways_and_meshes_cost_what_they_may() {
    let fixture = fixture().await;
    let make = |field: &str, schema: &Value| {
        let spec = json!({ "type": "object", "properties": { field: schema } });
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        definition("routes", "Route", "example.com", schema)
    };
    let uri = format!("{CRDS}?dryRun=All");
    for (field, schema) in shapes_of_routes() {
        fixture.post(&uri, &make(field, &schema)).await.expect(201);
    }
    for (field, mut schema) in shapes_of_routes().into_iter().filter(|(_, schema)| schema["type"] == "array")
    {
        schema.as_object_mut().unwrap().remove("maxItems");
        let refused = fixture.post(&uri, &make(field, &schema)).await.expect(422);
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("estimated rule cost exceeds budget"), "{field}: {message}");
    }
}

#[tokio::test]
async fn protected_groups_say_who_approved_them() {
    let fixture = fixture().await;
    let mut widgets = definition("widgets", "Widget", "g.k8s.io", open());
    let error = fixture.post(CRDS, &widgets).await.expect(422);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("metadata.annotations[api-approved.kubernetes.io]: Required value")
    );
    widgets["metadata"]["annotations"] =
        json!({ "api-approved.kubernetes.io": "https://github.com/kubernetes/x/pull/1" });
    let object = established(&fixture, &widgets).await;
    assert_eq!(brief(&object, "KubernetesAPIApprovalPolicyConformant"), "True ApprovedAnnotation");
}

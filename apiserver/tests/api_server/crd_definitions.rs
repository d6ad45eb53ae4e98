//! Definitions of custom resources: how they come to be served, and how they go.

use crate::support::{Fixture, PATIENCE};
use http::Request;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

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

/// Everything that is published, as of now, with what was known as of the last time.
async fn published(fixture: &Fixture, etag: &str) -> (u16, String, Value) {
    let request =
        Request::get("/openapi/v2").header("if-none-match", etag).body(axum::body::Body::empty()).unwrap();
    let answer = fixture.call(request).await;
    let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
    (answer.status.as_u16(), answer.header("etag").to_owned(), body)
}

#[tokio::test]
async fn discovery_and_openapi_follow_at_once() {
    let fixture = fixture().await;
    let (_, before, _) = published(&fixture, "").await;
    assert_eq!(published(&fixture, &before).await.0, 304);
    let stored = established(&fixture, &in_two_versions()).await;
    let (status, after, document) = published(&fixture, &before).await;
    assert!(status == 200 && after != before);
    in_openapi(&fixture, &document).await;
    in_discovery(&fixture).await;

    let mut fewer = stored;
    fewer["spec"]["versions"][0]["served"] = false.into();
    fixture.replace(&format!("{CRDS}/widgets.stable.example.io"), &fewer).await.expect(200);
    let (_, third, document) = published(&fixture, &after).await;
    assert_ne!(third, after);
    assert!(document["definitions"].get("io.example.stable.v1beta1.Widget").is_none());
    assert!(document["definitions"]["io.example.stable.v1.Widget"].is_object());
    assert_eq!(fixture.get("/apis/stable.example.io/v1beta1").await.status, 404);
    fixture.delete(&format!("{CRDS}/widgets.stable.example.io")).await.expect(200);
    until(&fixture, "widgets.stable.example.io", Value::is_null).await;
    assert_eq!(published(&fixture, "").await.1, before, "the same as before there was a definition");
}

/// A definition served as v1 and v1beta1, with both subresources.
fn in_two_versions() -> Value {
    let schema = json!({ "type": "object", "description": "Widgets for a test", "properties": {
        "spec": { "type": "object", "required": ["size"], "description": "What is wanted", "properties": {
            "size": { "type": "integer", "minimum": 1, "description": "How large" },
            "port": { "x-kubernetes-int-or-string": true },
            "maybe": { "type": "string", "nullable": true },
            "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } } } });
    let mut widgets = definition("widgets", "Widget", "stable.example.io", schema);
    widgets["spec"]["names"]["shortNames"] = json!(["wd"]);
    widgets["spec"]["versions"][0]["subresources"] = json!({ "status": {}, "scale": { "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size" } });
    let mut beta = widgets["spec"]["versions"][0].clone();
    (beta["name"], beta["storage"]) = ("v1beta1".into(), false.into());
    widgets["spec"]["versions"].as_array_mut().unwrap().insert(0, beta);
    widgets
}

/// What both versions of OpenAPI say of it; `document` is the second.
async fn in_openapi(fixture: &Fixture, document: &Value) {
    let kind = &document["definitions"]["io.example.stable.v1.Widget"];
    assert_eq!(
        kind["x-kubernetes-group-version-kind"],
        json!([{ "group": "stable.example.io", "kind": "Widget", "version": "v1" }])
    );
    let spec = &kind["properties"]["spec"];
    assert_eq!((&spec["type"], &spec["required"]), (&json!("object"), &json!(["size"])));
    assert_eq!(spec["properties"]["size"]["minimum"], 1);
    assert_eq!(spec["properties"]["maybe"], json!({}));
    assert_eq!(spec["properties"]["any"], json!({ "x-kubernetes-preserve-unknown-fields": true }));
    assert_eq!(
        kind["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let path = "/apis/stable.example.io/v1/namespaces/{namespace}/widgets/{name}/scale";
    let scale = &document["paths"][path]["patch"];
    assert_eq!(scale["x-kubernetes-group-version-kind"]["kind"], "Widget", "{scale}");
    assert_eq!(
        scale["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.autoscaling.v1.Scale",
        "{scale}"
    );
    let pages: Vec<&String> =
        document["paths"].as_object().unwrap().keys().filter(|p| p.ends_with('/')).collect();
    assert!(pages.iter().all(|page| !page.contains("stable.example.io")), "no page is described: {pages:?}");
    let get = &document["paths"]["/apis/stable.example.io/v1/namespaces/{namespace}/widgets/{name}"]["get"];
    assert_eq!(get["consumes"], json!(["application/json", "application/yaml"]));

    let index = fixture.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/stable.example.io/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let answer = fixture.get(&url).await;
    assert!(answer.header("cache-control").contains("immutable"));
    let schemas = &answer.expect(200)["components"]["schemas"];
    let maybe = &schemas["io.example.stable.v1.Widget"]["properties"]["spec"]["properties"]["maybe"];
    assert_eq!(*maybe, json!({ "type": "string", "nullable": true }));
    assert!(index["paths"].get("apis/stable.example.io").is_none(), "groups of definitions have no page");
}

const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// What the document of a group's version says beside the schema, as upstream's server of custom resources says it.
#[tokio::test]
async fn version_3_says_what_upstream_says() {
    let fixture = fixture().await;
    let mut widgets = in_two_versions();
    let selectable = json!([{ "jsonPath": ".spec.size" }, { "jsonPath": ".spec.maybe" }]);
    widgets["spec"]["versions"][1]["selectableFields"] = selectable;
    let inner = json!({ "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true });
    let spec = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";
    widgets.pointer_mut(spec).unwrap()["inner"] = inner;
    established(&fixture, &widgets).await;
    let document = fixture.get("/openapi/v3/apis/stable.example.io/v1").await.expect(200);
    assert_eq!(document["info"], json!({ "title": "Kubernetes CRD Swagger", "version": "v0.1.0" }));
    assert!(document["components"].get("securitySchemes").is_none());
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1";
    let mut names: Vec<String> =
        ["Widget", "WidgetList"].map(|kind| format!("io.example.stable.v1.{kind}")).into();
    names.extend(
        ["Scale", "ScaleSpec", "ScaleStatus"].map(|kind| format!("io.k8s.api.autoscaling.v1.{kind}")),
    );
    let common = [
        "DeleteOptions",
        "FieldsV1",
        "ListMeta",
        "ManagedFieldsEntry",
        "ObjectMeta",
        "OwnerReference",
        "Patch",
        "Preconditions",
        "ShardInfo",
        "Status",
        "StatusCause",
        "StatusDetails",
        "Time",
    ];
    names.extend(common.map(|kind| format!("{meta}.{kind}")));
    assert_eq!(
        schemas.keys().collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>(),
        "what is referred to, no more"
    );
    let widget = &schemas["io.example.stable.v1.Widget"];
    for kind in ["Widget", "WidgetList"] {
        assert_eq!(
            schemas[&format!("io.example.stable.v1.{kind}")]["x-kubernetes-selectable-fields"],
            json!([{ "fieldPath": "spec.size" }, { "fieldPath": "spec.maybe" }])
        );
    }
    let inner = &widget["properties"]["spec"]["properties"]["inner"];
    assert_eq!(inner["required"], json!(["kind", "apiVersion"]));
    assert_eq!(
        inner["properties"]["kind"]["description"],
        format!(
            "kind is a string value representing the type of this object. In CamelCase. More info: {CONVENTIONS}#types-kinds"
        )
    );
    let list = &schemas["io.example.stable.v1.WidgetList"]["properties"];
    assert_eq!(list["items"]["description"], format!("List of widgets. More info: {CONVENTIONS}"));
    assert_eq!(
        list["metadata"]["description"],
        format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds")
    );
    let of = schemas[&format!("{meta}.DeleteOptions")]["x-kubernetes-group-version-kind"].as_array().unwrap();
    let has = |group: &str| of.iter().any(|identity| identity["group"] == group);
    assert!(has("apps") && has("") && !has("apiextensions.k8s.io") && !has("admission.k8s.io"), "{of:?}");
    requests(&document["paths"]);
}

/// Parameters, answers and bodies of the requests.
fn requests(paths: &Value) {
    let all = "/apis/stable.example.io/v1/namespaces/{namespace}/widgets";
    let (all, one) = (&paths[all], &paths[format!("{all}/{{name}}")]);
    let scale = &paths["/apis/stable.example.io/v1/namespaces/{namespace}/widgets/{name}/scale"];
    let query = |item: &Value, verb: &str| -> String {
        let lists = [&item["parameters"], &item[verb]["parameters"]];
        let mut names: Vec<&str> = lists
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .filter(|parameter| parameter["in"] == "query")
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        names.sort_unstable();
        names.join(" ")
    };
    let listing = "allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion \
                   resourceVersionMatch sendInitialEvents shardSelector timeoutSeconds watch";
    for (item, verb, id, parameters, codes) in [
        (all, "get", "listStableExampleIoV1NamespacedWidget", listing, "200 401"),
        (all, "delete", "deleteStableExampleIoV1CollectionNamespacedWidget", listing, "200 401"),
        (
            all,
            "post",
            "createStableExampleIoV1NamespacedWidget",
            "dryRun fieldManager fieldValidation pretty",
            "200 201 202 401",
        ),
        (one, "get", "readStableExampleIoV1NamespacedWidget", "pretty resourceVersion", "200 401"),
        (
            one,
            "put",
            "replaceStableExampleIoV1NamespacedWidget",
            "dryRun fieldManager fieldValidation pretty",
            "200 201 401",
        ),
        (
            one,
            "patch",
            "patchStableExampleIoV1NamespacedWidget",
            "dryRun fieldManager fieldValidation force pretty",
            "200 401",
        ),
        (scale, "get", "readStableExampleIoV1NamespacedWidgetScale", "pretty resourceVersion", "200 401"),
    ] {
        let operation = &item[verb];
        assert_eq!(operation["operationId"], id);
        assert_eq!(query(item, verb), parameters, "{id}");
        let answered: Vec<&str> =
            operation["responses"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(answered.join(" "), codes, "{id}");
        assert_eq!(
            operation["x-kubernetes-group-version-kind"],
            json!({ "group": "stable.example.io", "version": "v1", "kind": "Widget" })
        );
    }
    assert!(all["delete"].get("requestBody").is_none() && one["delete"]["requestBody"].is_object());
    assert_eq!(all["delete"]["x-kubernetes-action"], "deletecollection");
}

async fn in_discovery(fixture: &Fixture) {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = fixture.get("/apis").await.expect(200);
    let group =
        groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "stable.example.io").unwrap();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(group["versions"][1]["version"], "v1beta1");
    let list = fixture.get("/apis/stable.example.io/v1").await.expect(200);
    assert_eq!(list["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(list["resources"][2]["name"], "widgets/scale");
    let all = fixture.get_as("/apis", AGGREGATED).await.expect(200);
    let items = all["items"].as_array().unwrap();
    let group = items.iter().find(|g| g["metadata"]["name"] == "stable.example.io").unwrap();
    assert_eq!(group["versions"][0]["version"], "v1");
    assert_eq!(
        group["versions"][0]["resources"][0]["responseKind"],
        json!({ "group": "stable.example.io", "version": "v1", "kind": "Widget" })
    );
}

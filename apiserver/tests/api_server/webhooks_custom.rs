//! Webhooks and custom resources: pruning after a patch, versions, scale.

use crate::custom_support::*;
use crate::webhooks_support::*;
use serde_json::{Value, json};

fn on(operations: &[&str], version: &str) -> Value {
    json!({ "apiGroups": ["example.com"], "apiVersions": [version], "operations": operations, "resources": ["widgets"] })
}

#[tokio::test]
async fn what_is_patched_is_pruned_and_filled_in() {
    let server = server().await;
    establish(&server, &definition(&json!({}))).await;
    let adds = |path: &'static str| {
        move |review: &Value| match review["request"]["object"]["spec"].get("color") {
            Some(_) => patch(json!([{ "op": "add", "path": path, "value": 7 }])),
            None => deny("no default"),
        }
    };
    let (known, unknown) = (hook(adds("/spec/size")).await, hook(adds("/spec/unknown")).await);
    configure(&server, MUTATING, "a", json!([entry("a.b.c", known.url("/"), on(&["CREATE"], "v1"))])).await;
    configure(&server, MUTATING, "b", json!([entry("b.b.c", unknown.url("/"), on(&["CREATE"], "v1"))])).await;
    let made = server.post(WIDGETS, &widget("w", &json!({}))).await.expect(201);
    assert_eq!(made["spec"], json!({ "color": "red", "size": 7 }));
    assert_eq!(unknown.only()["object"]["spec"]["size"], 7);
    // What a webhook has made is judged like what a client sends.
    let wrong = hook(|_| patch(json!([{ "op": "add", "path": "/spec/size", "value": 70 }]))).await;
    configure(&server, MUTATING, "c", json!([entry("c.b.c", wrong.url("/"), on(&["CREATE"], "v1"))])).await;
    let refused = message(&server.post(WIDGETS, &widget("x", &json!({}))).await, 422);
    assert!(refused.contains("spec.size"), "{refused}");
}

#[tokio::test]
async fn creation_update_and_deletion_can_be_denied() {
    let server = server().await;
    establish(&server, &definition(&json!({}))).await;
    let hook = hook(|review| {
        let request = &review["request"];
        let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
        if object["spec"]["color"] == "unwanted" { deny("unwanted color") } else { allow() }
    })
    .await;
    let all = on(&["CREATE", "UPDATE", "DELETE"], "*");
    configure(&server, VALIDATING, "a", json!([entry("a.b.c", hook.url("/"), all)])).await;
    server.post(WIDGETS, &widget("w", &json!({ "color": "unwanted" }))).await.expect(400);
    server.post(WIDGETS, &widget("w", &json!({ "color": "blue" }))).await.expect(201);
    let one = format!("{WIDGETS}/w");
    let change = json!({ "spec": { "color": "unwanted" } });
    let refused = message(&server.patch(&one, "merge-patch", &change).await, 400);
    assert_eq!(refused, "admission webhook \"a.b.c\" denied the request: unwanted color");
    apply(&server, &one, "fieldManager=me&force=true", &widget("w", &json!({ "color": "unwanted" })))
        .await
        .expect(400);
    server.delete(&one).await.expect(200);
    assert_eq!(hook.seen().last().unwrap()["request"]["oldObject"]["spec"]["color"], "blue");
}

#[tokio::test]
async fn definitions_can_be_denied() {
    let server = server().await;
    let hook = hook(|_| deny("no definitions")).await;
    let rules = rule(&["CREATE"], &["customresourcedefinitions"]);
    configure(&server, VALIDATING, "a", json!([entry("a.b.c", hook.url("/"), rules)])).await;
    server.post(DEFINITIONS, &definition(&json!({}))).await.expect(400);
}

#[tokio::test]
async fn other_versions_are_shown_and_taken_back() {
    let server = server().await;
    let spec = json!({ "type": "object", "properties": { "size": { "type": "integer" } } });
    let versions = json!([version("v1", true, &spec), version("v2", false, &spec)]);
    establish(&server, &of_versions(&versions)).await;
    let hook = hook(|review| {
        let size = review["request"]["object"]["spec"]["size"].as_i64().unwrap();
        patch(json!([{ "op": "replace", "path": "/spec/size", "value": size + 1 }]))
    })
    .await;
    configure(
        &server,
        MUTATING,
        "a",
        json!([entry("a.b.c", hook.url("/"), on(&["CREATE", "UPDATE"], "v2"))]),
    )
    .await;
    let made = server.post(WIDGETS, &widget("w", &json!({ "size": 1 }))).await.expect(201);
    assert_eq!((&made["apiVersion"], &made["spec"]["size"]), (&json!("example.com/v1"), &json!(2)));
    let seen = hook.only();
    assert_eq!((&seen["kind"]["version"], &seen["requestKind"]["version"]), (&json!("v2"), &json!("v1")));
    assert_eq!(seen["object"]["apiVersion"], "example.com/v2");
    // The other version becomes the stored one; what is there is still of the first.
    let mut versions = json!([version("v1", false, &spec), version("v2", true, &spec)]);
    versions[0]["storage"] = false.into();
    redefine(&server, &json!({ "spec": { "versions": versions } })).await;
    let changed =
        server.patch(&format!("{WIDGETS}/w"), "merge-patch", &json!({ "spec": { "size": 10 } })).await;
    assert_eq!(changed.expect(200)["spec"]["size"], 11);
    let seen = hook.seen().pop().unwrap();
    assert_eq!(seen["request"]["oldObject"]["apiVersion"], "example.com/v2");
}

#[tokio::test]
async fn a_custom_scale_is_a_scale() {
    let server = server().await;
    let spec = json!({ "type": "object", "properties": { "size": { "type": "integer" } } });
    let mut v1 = version("v1", true, &spec);
    v1["subresources"] =
        json!({ "scale": { "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size" } });
    establish(&server, &of_versions(&json!([v1]))).await;
    server.post(WIDGETS, &widget("w", &json!({ "size": 1 }))).await.expect(201);
    let hook = hook(|_| patch(json!([{ "op": "replace", "path": "/spec/replicas", "value": 4 }]))).await;
    configure(
        &server,
        MUTATING,
        "a",
        json!([entry("a.b.c", hook.url("/"), rule(&["UPDATE"], &["*/scale"]))]),
    )
    .await;
    let asked = json!({ "spec": { "replicas": 9 } });
    server.patch(&format!("{WIDGETS}/w/scale"), "merge-patch", &asked).await.expect(200);
    assert_eq!(server.get(&format!("{WIDGETS}/w")).await.expect(200)["spec"]["size"], 4);
    let seen = hook.only();
    assert_eq!((&seen["object"]["kind"], &seen["object"]["spec"]["replicas"]), (&json!("Scale"), &json!(9)));
}

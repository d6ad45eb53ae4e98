//! Server-side apply by a definition's schema, its scale, and its selectable fields.

use crate::custom_support::*;
use crate::support::Fixture;
use serde_json::{Value, json};

fn fields<'v>(object: &'v Value, manager: &str) -> &'v Value {
    let list = object["metadata"]["managedFields"].as_array().unwrap();
    list.iter().find(|e| e["manager"] == manager).map_or(&Value::Null, |e| &e["fieldsV1"])
}

#[tokio::test]
async fn lists_and_maps_merge_as_the_schema_says() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    let one = format!("{WIDGETS}/a");
    let first = json!({ "tags": ["x"], "parts": [{ "name": "p", "count": 2 }], "labels": { "l": "1" }, "free": { "a": { "b": 1 } } });
    let made = apply(&api, &one, "fieldManager=one", &widget("a", &first)).await.expect(201);
    assert_eq!(
        fields(&made, "one"),
        &json!({ "f:spec": { "f:tags": { "v:\"x\"": {} }, "f:labels": { "f:l": {} }, "f:free": { "f:a": { ".": {}, "f:b": {} } },
            "f:parts": { "k:{\"name\":\"p\"}": { ".": {}, "f:name": {}, "f:count": {} } } } })
    );
    let second = json!({ "tags": ["y"], "parts": [{ "name": "q" }], "labels": { "m": "2" }, "free": { "a": { "c": 2 } } });
    let both = apply(&api, &one, "fieldManager=two", &widget("a", &second)).await.expect(200);
    assert_eq!(both["spec"]["tags"], json!(["x", "y"]));
    assert_eq!(both["spec"]["parts"], json!([{ "name": "p", "count": 2 }, { "name": "q", "count": 1 }]));
    assert_eq!(
        (&both["spec"]["labels"], &both["spec"]["free"]),
        (&json!({ "l": "1", "m": "2" }), &json!({ "a": { "b": 1, "c": 2 } }))
    );
    let conflict =
        apply(&api, &one, "fieldManager=two", &widget("a", &json!({ "labels": { "l": "3" } }))).await;
    let text = message(&conflict, 409);
    assert_eq!(text, "Apply failed with 1 conflict: conflict with \"one\": .spec.labels.l");
    let less = apply(&api, &one, "fieldManager=one", &widget("a", &json!({}))).await.expect(200);
    assert_eq!((&less["spec"]["tags"], &less["spec"]["labels"]), (&json!(["y"]), &json!({ "m": "2" })));
    let unknown = apply(&api, &one, "fieldManager=one", &widget("a", &json!({ "nope": 1 }))).await;
    assert!(message(&unknown, 500).contains(".spec.nope: field not declared in schema"));
}

fn scaled() -> Value {
    let mut crd =
        definition(&json!({ "subresources": { "status": {}, "scale": { "specReplicasPath": ".spec.workers",
        "statusReplicasPath": ".status.workers", "labelSelectorPath": ".status.selector" } } }));
    let properties = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    properties["spec"]["properties"]["workers"] = json!({ "type": "integer" });
    properties["status"]["properties"] =
        json!({ "workers": { "type": "integer" }, "selector": { "type": "string" } });
    crd
}

#[tokio::test]
async fn scale() {
    let api = Fixture::new().await;
    establish(&api, &scaled()).await;
    api.post(WIDGETS, &widget("none", &json!({}))).await.expect(201);
    let missing = message(&api.get(&format!("{WIDGETS}/none/scale")).await, 500);
    assert_eq!(missing, "Internal error occurred: the spec replicas field \".spec.workers\" does not exist");
    api.post(WIDGETS, &widget("a", &json!({ "workers": 3 }))).await.expect(201);
    let status = json!({ "status": { "workers": 2, "selector": "app=a" } });
    api.patch(&format!("{WIDGETS}/a/status"), "merge-patch", &status).await.expect(200);
    let uri = format!("{WIDGETS}/a/scale");
    let scale = api.get(&uri).await.expect(200);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({ "replicas": 3 }), &json!({ "replicas": 2, "selector": "app=a" }))
    );
    let mut next = scale.clone();
    next["spec"]["replicas"] = 5.into();
    assert_eq!(api.put(&uri, &next).await.expect(200)["spec"]["replicas"], 5);
    assert_eq!(api.put(&uri, &next).await.status, 409, "the version is an old one");
    let patched = api.patch(&uri, "merge-patch", &json!({ "spec": { "replicas": 7 } })).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 7);
    let object = api.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!((&object["spec"]["workers"], &object["metadata"]["generation"]), (&json!(7), &json!(3)));
    assert_eq!(object["status"]["workers"], 2);
    let negative = api.patch(&uri, "merge-patch", &json!({ "spec": { "replicas": -1 } })).await;
    let text = message(&negative, 422);
    assert!(text.ends_with(".spec.workers: Invalid value: -1: should be a non-negative integer"), "{text}");
    let applied = json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "a" }, "spec": { "replicas": 9 } });
    let scale = apply(&api, &uri, "fieldManager=scaler&force=true", &applied).await.expect(200);
    assert_eq!(scale["spec"]["replicas"], 9);
    let object = api.get(&format!("{WIDGETS}/a")).await.expect(200);
    let owner = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["manager"] == "scaler")
        .unwrap();
    assert_eq!(
        (&owner["subresource"], &owner["fieldsV1"]),
        (&json!("scale"), &json!({ "f:spec": { "f:workers": {} } }))
    );
}

#[tokio::test]
async fn selectable_fields() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        api.post(WIDGETS, &widget(name, &json!({ "color": color, "size": 1 }))).await.expect(201);
    }
    let by = |selector: &str| format!("{WIDGETS}?fieldSelector={selector}");
    assert_eq!(
        message(&api.get(&by("spec.color%3Dred")).await, 400),
        "field label not supported: spec.color"
    );
    let mut versions = definition(
        &json!({ "selectableFields": [{ "jsonPath": ".spec.color" }, { "jsonPath": ".spec.size" }] }),
    );
    redefine(&api, &json!({ "spec": { "versions": versions["spec"]["versions"].take() } })).await;
    let names = |list: Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(api.get(&by("spec.color%3Dred")).await.expect(200)), ["a", "c"]);
    assert_eq!(names(api.get(&by("spec.size%3D1,spec.color!%3Dred")).await.expect(200)), ["b"]);
    assert_eq!(names(api.get(&by("metadata.name%3Db")).await.expect(200)), ["b"]);
    let mut events = api.watch(&format!("{}&watch=1&resourceVersion=0", by("spec.color%3Dblue"))).await;
    assert_eq!(events.brief().await, "ADDED b");
    api.patch(&format!("{WIDGETS}/b"), "merge-patch", &json!({ "spec": { "color": "red" } }))
        .await
        .expect(200);
    assert_eq!(events.brief().await, "DELETED b");
    api.patch(&format!("{WIDGETS}/a"), "merge-patch", &json!({ "spec": { "color": "blue" } }))
        .await
        .expect(200);
    assert_eq!(events.brief().await, "ADDED a");
    api.delete(&by("spec.color%3Dred")).await.expect(200);
    assert_eq!(names(api.get(WIDGETS).await.expect(200)), ["a"]);
}

//! Custom resources: every verb, what is dropped and filled in, and how they are shown.

use crate::custom_support::*;
use crate::support::{Fixture, version as revision};
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

/// A server that serves widgets, with one in it.
async fn with_widget() -> (Fixture, String, Value) {
    let api = Fixture::new().await;
    assert_eq!(api.get(WIDGETS).await.status, 404);
    api.post(DEFINITIONS, &definition(&Value::Null)).await.expect(201);
    assert_eq!(api.get(WIDGETS).await.status, 404, "not established yet");
    settle(&api, "widgets.example.com").await;
    let made = api.post(WIDGETS, &widget("a", &json!({ "size": 3 }))).await.expect(201);
    (api, format!("{WIDGETS}/a"), made)
}

#[tokio::test]
async fn created_listed_and_updated() {
    let (api, one, made) = with_widget().await;
    assert_eq!(made["spec"], json!({ "size": 3, "color": "red" }));
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["apiVersion"], "example.com/v1");
    assert_eq!(api.get(&one).await.expect(200), made);
    assert_eq!(api.post(WIDGETS, &widget("a", &json!({}))).await.status, 409);

    let list = api.get(WIDGETS).await.expect(200);
    assert_eq!(list["metadata"]["continue"], "", "as upstream writes what has no struct");
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("WidgetList"), 1));
    assert_eq!(list["items"][0], made, "items say what they are");
    assert_eq!(api.get("/apis/example.com/v1/widgets").await.expect(200)["items"][0]["spec"], made["spec"]);

    let mut next = made.clone();
    next["spec"]["size"] = 4.into();
    next["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let refused = api.put(&one, &next).await;
    assert_eq!(
        message(&refused, 422),
        "Widget.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
    );
    next["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    let updated = api.put(&one, &next).await.expect(200);
    assert_eq!(updated["metadata"]["generation"], 2);
    assert!(message(&api.put(&one, &next).await, 409).contains("the object has been modified"));
}

#[tokio::test]
async fn patched_and_selected() {
    let (api, one, _) = with_widget().await;
    let labelled =
        api.patch(&one, "merge-patch", &json!({ "metadata": { "labels": { "l": "1" } } })).await.expect(200);
    assert_eq!(labelled["metadata"]["generation"], 1, "labels are no change of the desired state");
    let patched = api
        .patch(&one, "json-patch", &json!([{ "op": "replace", "path": "/spec/size", "value": 5 }]))
        .await
        .expect(200);
    assert_eq!((&patched["spec"]["size"], &patched["metadata"]["generation"]), (&json!(5), &json!(2)));
    let same = api.patch(&one, "merge-patch", &json!({ "spec": { "size": 5 } })).await.expect(200);
    assert_eq!(revision(&same), revision(&patched), "a patch that changes nothing writes nothing");
    let strategic = api.patch(&one, "strategic-merge-patch", &json!({})).await;
    assert_eq!(
        message(&strategic, 415),
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/apply-patch+yaml"
    );
    for (kind, patch) in [
        ("merge-patch", json!({ "kind": "Foo" })),
        ("json-patch", json!([{ "op": "replace", "path": "/kind", "value": "Foo" }])),
    ] {
        assert_eq!(
            message(&api.patch(&one, kind, &patch).await, 422),
            "Widget.example.com \"a\" is invalid: kind: Invalid value: \"Foo\": must be Widget"
        );
    }
    let selected = api.get(&format!("{WIDGETS}?labelSelector=l%3D1")).await.expect(200);
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn counted_named_and_deleted() {
    let (api, one, _) = with_widget().await;
    let other = api.get(&format!("{one}/other")).await;
    assert_eq!(message(&other, 404), "widgets.example.com \"a\" not found");
    let page = api.get("/metrics").await;
    let page = std::str::from_utf8(&page.body).unwrap();
    let counted = "apiserver_request_total{verb=\"POST\",dry_run=\"\",group=\"example.com\",version=\"v1\",\
        resource=\"widgets\",subresource=\"\",scope=\"resource\",component=\"apiserver\",code=\"201\"}";
    assert!(page.contains(counted), "{page}");

    let dry = api.post(&format!("{WIDGETS}?dryRun=All"), &widget("dry", &json!({}))).await.expect(201);
    assert_eq!(dry["spec"]["color"], "red");
    assert_eq!(api.get(&format!("{WIDGETS}/dry")).await.status, 404);
    let generated =
        json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "generateName": "g-" } });
    let named = api.post(WIDGETS, &generated).await.expect(201);
    assert!(named["metadata"]["name"].as_str().unwrap().starts_with("g-"));

    let gone = api.delete(&one).await.expect(200);
    assert_eq!((&gone["kind"], &gone["details"]["kind"]), (&json!("Status"), &json!("widgets")));
    assert_eq!(api.get(&one).await.status, 404);
    assert_eq!(api.delete(WIDGETS).await.expect(200)["items"].as_array().unwrap().len(), 1);
    assert!(api.get(WIDGETS).await.expect(200)["items"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn identity_is_not_guessed() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    let mut other = widget("a", &json!({}));
    other["kind"] = "Gadget".into();
    assert_eq!(
        message(&api.post(WIDGETS, &other).await, 422),
        "Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget"
    );
    other = widget("a", &json!({}));
    other["apiVersion"] = "example.com/v2".into();
    assert_eq!(
        message(&api.post(WIDGETS, &other).await, 400),
        "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"
    );
    let bad_name = message(&api.post(WIDGETS, &widget("A_b", &json!({}))).await, 422);
    assert!(bad_name.contains("metadata.name: Invalid value: \"A_b\""), "{bad_name}");
    let mut labels = widget("a", &json!({}));
    labels["metadata"]["labels"] = json!({ "x": 1 });
    let wrong = message(&api.post(WIDGETS, &labels).await, 400);
    let expected = "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct \
                    field ObjectMeta.labels";
    assert!(wrong.starts_with(expected), "{wrong}");
    assert_eq!(api.get("/apis/example.com/v1/namespaces/default/gadgets").await.status, 404);
    assert_eq!(api.get("/apis/example.com/v2/namespaces/default/widgets").await.status, 404);
}

#[tokio::test]
async fn unknown_fields_are_dropped_warned_of_or_refused() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    let body = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","bogus":1},
        "spec":{"size":1,"size":2,"nope":1,"free":{"any":1},"parts":[{"name":"p","what":1}],
        "inner":{"apiVersion":"v1","kind":"X","metadata":{"name":"y","odd":1},"spec":{"kept":true}}},"top":1}"#;
    let ask = |query: &'static str| api.ask("POST", query, "application/json", body);
    let strict = ask("/apis/example.com/v1/namespaces/default/widgets?fieldValidation=Strict").await;
    assert_eq!(
        message(&strict, 400),
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: duplicate field \"spec.size\", \
         unknown field \"metadata.bogus\", unknown field \"spec.nope\", unknown field \"spec.parts[0].what\", unknown \
         field \"top\", unknown field \"spec.inner.metadata.odd\""
    );
    let warned = ask("/apis/example.com/v1/namespaces/default/widgets").await;
    let warnings: Vec<&str> = warned.headers.get_all("warning").iter().map(|v| v.to_str().unwrap()).collect();
    assert_eq!(warnings.len(), 6, "{warnings:?}");
    assert!(warnings[0].contains("duplicate field \\\"spec.size\\\""), "{warnings:?}");
    let made = warned.expect(201);
    assert_eq!(
        made["spec"],
        json!({ "size": 2, "color": "red", "free": { "any": 1 }, "parts": [{ "name": "p", "count": 1 }],
            "inner": { "apiVersion": "v1", "kind": "X", "metadata": { "name": "y" }, "spec": { "kept": true } } })
    );
    assert_eq!(made.get("top"), None);
    let ignored = api
        .patch(
            &format!("{WIDGETS}/a?fieldValidation=Ignore"),
            "merge-patch",
            &json!({ "spec": { "nope": 1 } }),
        )
        .await;
    assert_eq!(ignored.header("warning"), "");
    assert_eq!(ignored.expect(200)["spec"].get("nope"), None);
    let refused = api
        .patch(
            &format!("{WIDGETS}/a?fieldValidation=Strict"),
            "merge-patch",
            &json!({ "spec": { "nope": 1 } }),
        )
        .await;
    assert!(message(&refused, 422).ends_with("strict decoding error: unknown field \"spec.nope\""));
}

#[tokio::test]
async fn defaults_reach_what_is_stored_already() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    let made = api.post(WIDGETS, &widget("a", &json!({ "size": null, "color": null }))).await.expect(201);
    assert_eq!(made["spec"], json!({ "color": "red" }), "nulls count as not given");
    let mut changed = definition(&Value::Null)["spec"]["versions"].clone();
    changed[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["new"] =
        json!({ "type": "string", "default": "fresh" });
    let spec = &mut changed[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec.as_object_mut().unwrap().remove("color");
    redefine(&api, &json!({ "spec": { "versions": changed } })).await;
    let one = format!("{WIDGETS}/a");
    let seen = api.get(&one).await.expect(200);
    assert_eq!(seen["spec"], json!({ "new": "fresh" }));
    assert_eq!(revision(&seen), revision(&made));
    assert_eq!(api.get(WIDGETS).await.expect(200)["items"][0]["spec"], seen["spec"]);
    let mut events = api.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(events.next().await.unwrap()["object"]["spec"], seen["spec"]);
    let written =
        api.patch(&one, "merge-patch", &json!({ "metadata": { "labels": { "a": "b" } } })).await.expect(200);
    assert_eq!((&written["spec"], &written["metadata"]["generation"]), (&seen["spec"], &json!(1)));
}

#[tokio::test]
async fn a_status_of_its_own() {
    let api = Fixture::new().await;
    establish(&api, &definition(&json!({ "subresources": { "status": {} } }))).await;
    let mut body = widget("a", &json!({ "size": 1 }));
    body["status"] = json!({ "ready": 7 });
    let made = api.post(WIDGETS, &body).await.expect(201);
    assert_eq!(made.get("status"), None);
    let status = format!("{WIDGETS}/a/status");
    let mut next = made.clone();
    next["status"] = json!({ "ready": 2 });
    next["spec"]["size"] = 9.into();
    next["metadata"]["labels"] = json!({ "not": "taken" });
    let updated = api.put(&status, &next).await.expect(200);
    assert_eq!((&updated["status"], &updated["spec"]["size"]), (&json!({ "ready": 2 }), &json!(1)));
    assert_eq!((updated["metadata"].get("labels"), &updated["metadata"]["generation"]), (None, &json!(1)));
    let main = api.patch(&format!("{WIDGETS}/a"), "merge-patch", &json!({ "status": { "ready": 5 } })).await;
    assert_eq!(main.expect(200)["status"]["ready"], 2);
    let wrong = api.patch(&status, "merge-patch", &json!({ "status": { "ready": "x" } })).await;
    assert!(message(&wrong, 422).contains("status.ready: Invalid value: \"string\""));
    let owners = updated["metadata"]["managedFields"].as_array().unwrap();
    assert!(owners.iter().any(|e| e["subresource"] == "status"), "{owners:?}");
}

#[tokio::test]
async fn tables_metadata_and_formats() {
    let api = Fixture::new().await;
    let columns = json!({ "additionalPrinterColumns": [
        { "name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large" },
        { "name": "Tags", "type": "string", "jsonPath": ".spec.tags", "priority": 1 },
        { "name": "Part", "type": "integer", "jsonPath": ".spec.parts[?(@.name==\"b\")].count" },
        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" }] });
    establish(&api, &definition(&columns)).await;
    let spec =
        json!({ "size": 3, "tags": ["x", "y"], "parts": [{ "name": "a" }, { "name": "b", "count": 4 }] });
    api.post(WIDGETS, &widget("a", &spec)).await.expect(201);
    let table_type = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = api.get_as(WIDGETS, table_type).await.expect(200);
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Size", "Tags", "Part", "Age"]);
    assert_eq!(table["columnDefinitions"][1]["description"], "How large");
    assert_eq!(
        table["columnDefinitions"][2]["description"],
        "Custom resource definition column (in JSONPath format): .spec.tags"
    );
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("a"), json!(3), json!("[\"x\",\"y\"]"), json!(4)]);
    assert!(cells[4].as_str().unwrap().ends_with('s'), "{cells:?}");

    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let partial = api.get_as(&format!("{WIDGETS}/a"), metadata).await.expect(200);
    assert_eq!((&partial["kind"], partial.get("spec")), (&json!("PartialObjectMetadata"), None));
    let protobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    assert_eq!(&api.get_as(WIDGETS, protobuf).await.body[..4], b"k8s\0");
    let refused = api.get_as(WIDGETS, "application/vnd.kubernetes.protobuf").await;
    assert_eq!(refused.status, 406);
    let text = String::from_utf8_lossy(&refused.body);
    assert!(
        text.contains("only the following media types are accepted: application/json, application/yaml,"),
        "{text}"
    );
    let both = api.get_as(WIDGETS, "application/vnd.kubernetes.protobuf,application/json").await;
    assert_eq!(both.expect(200)["kind"], "WidgetList");
    let yaml = api.get_as(&format!("{WIDGETS}/a"), "application/yaml").await;
    assert!(String::from_utf8_lossy(&yaml.body).contains("color: red\n"));
    let sent = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: why\nspec:\n  size: 2.0\n";
    let made = api.ask("POST", WIDGETS, "application/yaml", sent).await.expect(201);
    assert_eq!(made["spec"]["size"].to_string(), "2");
    let request = Request::post(WIDGETS).header("content-type", "application/vnd.kubernetes.protobuf");
    let binary = api.call(request.body(Body::from(&b"k8s\0"[..])).unwrap()).await;
    assert_eq!(
        message(&binary, 415),
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml"
    );

    redefine(&api, &json!({ "spec": { "versions": definition(&Value::Null)["spec"]["versions"] } })).await;
    let table = api.get_as(WIDGETS, table_type).await.expect(200);
    let names: Vec<&Value> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Age"], "the age is shown where nothing else is asked for");
}

#[tokio::test]
async fn watches_end_with_what_they_show() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    let mut events = api.watch(&format!("{WIDGETS}?watch=1&resourceVersion=0")).await;
    api.post(WIDGETS, &widget("a", &json!({}))).await.expect(201);
    assert_eq!(events.brief().await, "ADDED a");
    redefine(&api, &json!({ "metadata": { "labels": { "a": "b" } } })).await;
    api.delete(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(events.brief().await, "DELETED a", "a label of the definition is no change of what it serves");
    let mut versions = definition(&Value::Null)["spec"]["versions"].clone();
    versions[0]["served"] = false.into();
    redefine(&api, &json!({ "spec": { "versions": versions } })).await;
    assert!(events.next().await.is_none());
    assert_eq!(api.get(WIDGETS).await.status, 404);
    let message = message(&api.get(&format!("{WIDGETS}/a")).await, 404);
    assert_eq!(message, "the server could not find the requested resource");
    versions[0]["served"] = true.into();
    redefine(&api, &json!({ "spec": { "versions": versions } })).await;
    let mut events = api.watch(&format!("{WIDGETS}?watch=1")).await;
    api.post(WIDGETS, &widget("b", &json!({}))).await.expect(201);
    assert_eq!(events.brief().await, "ADDED b");
    let mut terminating = api.get(&format!("{DEFINITIONS}/widgets.example.com")).await.expect(200);
    terminating["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "type": "Terminating", "status": "True",
        "reason": "Test", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z" }));
    api.put(&format!("{DEFINITIONS}/widgets.example.com/status"), &terminating).await.expect(200);
    let refused = api.post(WIDGETS, &widget("c", &json!({}))).await;
    let text = "create not allowed while custom resource definition is terminating";
    assert_eq!(refused.expect(405)["message"], text);
    api.delete(&format!("{WIDGETS}/b")).await.expect(200);
    assert_eq!(events.brief().await, "DELETED b", "watchers see the instances go");
    let revision = api.api.registry().store.commit(gone()).await.unwrap();
    assert!(api.api.cache().wait_for(revision, crate::support::PATIENCE).await);
    assert!(events.next().await.is_none());
    assert_eq!(api.get(WIDGETS).await.status, 404);
}

/// The definition's end, as its controller would bring it about.
fn gone() -> coracle_apiserver::store::Txn {
    let key = "customresourcedefinitions.apiextensions.k8s.io//widgets.example.com".into();
    let op = coracle_apiserver::store::Op::Delete { key };
    coracle_apiserver::store::Txn {
        guards: Vec::new(),
        ops: vec![op],
        durability: coracle_apiserver::store::Durability::Synced,
    }
}

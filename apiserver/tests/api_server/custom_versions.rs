//! Custom resources in several versions, without a webhook.

use crate::custom_support::*;
use crate::support::{Fixture, version as revision};
use serde_json::{Value, json};

const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

fn two(stored: &str) -> Value {
    let spec = |fields: Value| json!({ "type": "object", "properties": fields });
    let text = json!({ "type": "string" });
    let v1 = version("v1", stored == "v1", &spec(json!({ "both": text, "old": text })));
    let v2 = version(
        "v2",
        stored == "v2",
        &spec(json!({ "both": text, "new": { "type": "string", "default": "n" } })),
    );
    of_versions(&json!([v1, v2]))
}

/// What is in the store.
fn kept(api: &Fixture, name: &str) -> Value {
    let cached = api.api.cache().find("widgets.example.com", "default", name).unwrap();
    serde_json::from_slice(&cached.raw.bytes()).unwrap()
}

#[tokio::test]
async fn every_version_shows_the_same_objects() {
    let api = Fixture::new().await;
    establish(&api, &two("v1")).await;
    let made = api.post(WIDGETS, &widget("a", &json!({ "both": "b", "old": "o" }))).await.expect(201);
    let other = api.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(other["apiVersion"], "example.com/v2");
    assert_eq!(other["spec"], json!({ "both": "b" }), "no defaults of a version that is not stored");
    assert_eq!(revision(&other), revision(&made));
    assert_eq!(api.get(V2).await.expect(200)["items"][0], other);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let row = &api.get_as(&format!("{V2}?includeObject=Object"), table).await.expect(200)["rows"][0];
    assert_eq!(row["object"]["apiVersion"], "example.com/v2");

    let mut events = api.watch(&format!("{V2}?watch=1")).await;
    assert_eq!(events.next().await.unwrap()["object"], other);
    let mut body = widget("b", &json!({ "both": "b" }));
    body["apiVersion"] = "example.com/v2".into();
    let second = api.post(V2, &body).await.expect(201);
    assert_eq!(
        (&second["apiVersion"], &second["spec"]),
        (&json!("example.com/v2"), &json!({ "both": "b" })),
        "what is stored is what is answered"
    );
    assert_eq!(
        (&kept(&api, "b")["apiVersion"], &kept(&api, "b")["spec"]),
        (&json!("example.com/v1"), &json!({ "both": "b" }))
    );
    let event = events.next().await.unwrap();
    assert_eq!(event["object"]["apiVersion"], "example.com/v2");
    let patched =
        api.patch(&format!("{V2}/a"), "merge-patch", &json!({ "spec": { "both": "c" } })).await.expect(200);
    assert_eq!(patched["spec"], json!({ "both": "c" }));
    assert_eq!(api.get(&format!("{WIDGETS}/a")).await.expect(200)["spec"], json!({ "both": "c" }));
    api.delete(&format!("{V2}/a")).await.expect(200);
    assert_eq!(events.brief().await, "MODIFIED a");
    assert_eq!(events.next().await.unwrap()["object"]["apiVersion"], "example.com/v2");
}

/// An answer to a write has the defaults of both versions, as a read has those of the stored one.
#[tokio::test]
async fn a_write_is_answered_with_the_defaults_of_the_stored_version() {
    let api = Fixture::new().await;
    let spec = |defaulted: &str| {
        let mut fields = json!({ "one": { "type": "string" }, "two": { "type": "string" } });
        fields[defaulted]["default"] = defaulted.into();
        json!({ "type": "object", "properties": fields })
    };
    let versions = [version("v1", false, &spec("one")), version("v2", true, &spec("two"))];
    establish(&api, &of_versions(&json!(versions))).await;
    let made = api.post(WIDGETS, &widget("a", &json!({}))).await.expect(201);
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v1"), &json!({ "one": "one", "two": "two" }))
    );
    assert_eq!(kept(&api, "a")["spec"], json!({ "one": "one" }));
    assert_eq!(api.get(&format!("{WIDGETS}/a")).await.expect(200), made);
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    let patched = api.patch(&format!("{WIDGETS}/a"), "merge-patch", &labels).await.expect(200);
    assert_eq!(patched["spec"]["two"], "two");
}

#[tokio::test]
async fn a_write_migrates_to_the_storage_version() {
    let api = Fixture::new().await;
    establish(&api, &two("v1")).await;
    let made = api.post(WIDGETS, &widget("a", &json!({ "both": "b", "old": "o" }))).await.expect(201);
    redefine(&api, &json!({ "spec": { "versions": two("v2")["spec"]["versions"] } })).await;
    assert_eq!(kept(&api, "a")["apiVersion"], "example.com/v1");
    let old = api.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!((&old["spec"], revision(&old)), (&json!({ "both": "b", "old": "o" }), revision(&made)));
    assert_eq!(api.get(&format!("{V2}/a")).await.expect(200)["spec"], json!({ "both": "b" }));
    let same = api.put(&format!("{V2}/a"), &api.get(&format!("{V2}/a")).await.expect(200)).await.expect(200);
    assert!(revision(&same) > revision(&made));
    assert_eq!(kept(&api, "a")["apiVersion"], "example.com/v2");
    let again = api.put(&format!("{V2}/a"), &same).await.expect(200);
    assert_eq!(revision(&again), revision(&same));
}

#[tokio::test]
async fn owners_are_known_by_version() {
    let api = Fixture::new().await;
    establish(&api, &two("v1")).await;
    let config = |version: &str, spec: Value| json!({ "apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": { "name": "a" }, "spec": spec });
    apply(
        &api,
        &format!("{WIDGETS}/a"),
        "fieldManager=one",
        &config("v1", json!({ "both": "b", "old": "o" })),
    )
    .await
    .expect(201);
    let two =
        apply(&api, &format!("{V2}/a"), "fieldManager=two", &config("v2", json!({ "both": "c" }))).await;
    let text = message(&two, 409);
    assert!(text.contains("conflict with \"one\": .spec.both"), "{text}");
    let forced =
        apply(&api, &format!("{V2}/a"), "fieldManager=two&force=true", &config("v2", json!({ "both": "c" })))
            .await
            .expect(200);
    let owners = forced["metadata"]["managedFields"].as_array().unwrap();
    let of = |manager: &str| owners.iter().find(|e| e["manager"] == manager).unwrap_or(&Value::Null);
    assert_eq!(
        (&of("two")["apiVersion"], &of("two")["fieldsV1"]),
        (&json!("example.com/v2"), &json!({ "f:spec": { "f:both": {} } }))
    );
    assert_eq!(of("one")["apiVersion"], "example.com/v1");
}

#[tokio::test]
async fn deprecated_versions_say_so() {
    let api = Fixture::new().await;
    let mut crd = two("v2");
    crd["spec"]["versions"][0]["deprecated"] = true.into();
    establish(&api, &crd).await;
    let warned = api.get(WIDGETS).await;
    assert_eq!(
        warned.header("warning"),
        "299 - \"example.com/v1 Widget is deprecated; use example.com/v2 Widget\""
    );
    assert_eq!(api.get(V2).await.header("warning"), "");
    crd["spec"]["versions"][0]["deprecationWarning"] = "gone soon".into();
    redefine(&api, &json!({ "spec": { "versions": crd["spec"]["versions"] } })).await;
    assert_eq!(api.get(WIDGETS).await.header("warning"), "299 - \"gone soon\"");
}

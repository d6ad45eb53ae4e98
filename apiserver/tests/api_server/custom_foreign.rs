//! What of a custom resource is known only after a webhook has converted it: fields to select by, and fields that managers
//! of the other version own.

use crate::custom_support::{apply, establish, message, of_versions, redefine, version};
use crate::support::Fixture;
use crate::webhooks_support::{Hook, Reaction, hook};
use serde_json::{Value, json};

const V1: &str = "/apis/example.com/v1/namespaces/default/widgets";
const V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

/// `v1` has `spec.both: "left:right"` and is stored, `v2` has the two apart.
fn definition(hook: &Hook) -> Value {
    let of = |names: &[&str]| {
        let fields = names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" })));
        json!({ "type": "object", "properties": fields.collect::<serde_json::Map<_, _>>() })
    };
    let mut v2 = version("v2", false, &of(&["left", "right"]));
    v2["selectableFields"] = json!([{ "jsonPath": ".spec.left" }]);
    let mut definition = of_versions(&json!([version("v1", true, &of(&["both"])), v2]));
    definition["spec"]["conversion"] = json!({ "strategy": "Webhook",
        "webhook": { "clientConfig": hook.url("/convert"), "conversionReviewVersions": ["v1"] } });
    definition
}

fn converted(object: &Value, wanted: &Value) -> Value {
    let (mut new, spec) = (object.clone(), &object["spec"]);
    new["apiVersion"] = wanted.clone();
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    new["spec"] = if wanted == "example.com/v2" {
        let (left, right) = text("both").split_once(':').unwrap_or_default();
        json!({ "left": left, "right": right })
    } else {
        json!({ "both": format!("{}:{}", text("left"), text("right")) })
    };
    new
}

fn answer(review: &Value) -> Reaction {
    let request = &review["request"];
    let objects = request["objects"].as_array().unwrap().iter();
    let objects: Vec<Value> =
        objects.map(|object| converted(object, &request["desiredAPIVersion"])).collect();
    let response =
        json!({ "uid": request["uid"], "result": { "status": "Success" }, "convertedObjects": objects });
    let review =
        json!({ "kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response });
    Reaction::Raw(200, review.to_string())
}

async fn serve() -> (Fixture, Hook) {
    let hook = hook(answer).await;
    let api = Fixture::new().await;
    establish(&api, &definition(&hook)).await;
    (api, hook)
}

fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

#[tokio::test]
async fn fields_are_selected_by_after_the_conversion() {
    let (api, _hook) = serve().await;
    for (name, both) in [("one", "a:1"), ("two", "b:2"), ("three", "a:3")] {
        api.post(V1, &widget("v1", name, json!({ "both": both }))).await.expect(201);
    }
    let uri = format!("{V2}?fieldSelector=spec.left%3Da");
    let names = async |uri: &str| -> Vec<String> {
        let list = api.get(uri).await.expect(200);
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(name).collect()
    };
    assert_eq!(names(&uri).await, ["one", "three"]);
    assert_eq!(names(&format!("{uri},metadata.name%3Dthree")).await, ["three"]);
    let page = api.get(&format!("{uri}&limit=1")).await.expect(200);
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&format!("{uri}&limit=1&continue={token}")).await, ["three"]);
    let refused = api.get(&format!("{V1}?fieldSelector=spec.left%3Da")).await;
    assert_eq!(message(&refused, 400), "field label not supported: spec.left");

    let mut events = api.watch(&format!("{uri}&watch=1")).await;
    assert_eq!(events.brief().await, "ADDED one");
    assert_eq!(events.brief().await, "ADDED three");
    api.patch(&format!("{V2}/two"), "merge-patch", &json!({ "spec": { "left": "a" } })).await.expect(200);
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]),
        (&json!("ADDED"), &json!({ "left": "a", "right": "2" }))
    );
    api.patch(&format!("{V1}/one"), "merge-patch", &json!({ "spec": { "both": "c:1" } })).await.expect(200);
    assert_eq!(events.brief().await, "DELETED one");
    api.post(V1, &widget("v1", "four", json!({ "both": "d:4" }))).await.expect(201);
    api.delete(&format!("{V1}/three")).await.expect(200);
    assert_eq!(events.brief().await, "DELETED three");
}

/// The version that is stored now is not that of the objects that are there already.
#[tokio::test]
async fn objects_of_an_older_storage_version_are_selected_after_the_conversion() {
    let (api, hook) = serve().await;
    api.post(V1, &widget("v1", "old", json!({ "both": "a:1" }))).await.expect(201);
    let mut versions = definition(&hook)["spec"]["versions"].take();
    for version in versions.as_array_mut().unwrap() {
        version["storage"] = (version["name"] == "v2").into();
    }
    redefine(&api, &json!({ "spec": { "versions": versions } })).await;
    api.post(V2, &widget("v2", "new", json!({ "left": "a" }))).await.expect(201);
    api.post(V2, &widget("v2", "other", json!({ "left": "b" }))).await.expect(201);
    let uri = format!("{V2}?fieldSelector=spec.left%3Da");
    let list = api.get(&uri).await.expect(200);
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["new", "old"]);
    let mut events = api.watch(&format!("{uri}&watch=1")).await;
    assert_eq!(events.brief().await, "ADDED new");
    assert_eq!(events.brief().await, "ADDED old");
    api.patch(&format!("{V1}/old"), "merge-patch", &json!({ "spec": { "both": "c:1" } })).await.expect(200);
    assert_eq!(events.brief().await, "DELETED old");
    api.delete(&uri).await.expect(200);
    let left = api.get(V2).await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 2, "{left}");
}

#[tokio::test]
async fn owners_of_the_other_version_are_asked_through_the_webhook() {
    let (api, hook) = serve().await;
    let one = widget("v1", "a", json!({ "both": "l:r" }));
    apply(&api, &format!("{V1}/a"), "fieldManager=one", &one).await.expect(201);
    let two = widget("v2", "a", json!({ "left": "l" }));
    let made = apply(&api, &format!("{V2}/a"), "fieldManager=two", &two).await.expect(200);
    assert_eq!(made["spec"], json!({ "left": "l", "right": "r" }), "the same value is no conflict");
    let other = widget("v2", "a", json!({ "left": "x" }));
    let conflict = apply(&api, &format!("{V2}/a"), "fieldManager=two", &other).await;
    assert_eq!(message(&conflict, 409), "Apply failed with 1 conflict: conflict with \"one\": .spec.both");
    let forced = apply(&api, &format!("{V2}/a"), "fieldManager=two&force=true", &other).await.expect(200);
    let owners = forced["metadata"]["managedFields"].as_array().unwrap();
    let owner = |manager: &str| owners.iter().find(|entry| entry["manager"] == manager);
    assert!(owner("one").is_none(), "what it owned is another's now: {owners:?}");
    assert_eq!(owner("two").unwrap()["fieldsV1"], json!({ "f:spec": { "f:left": {} } }));
    assert_eq!(api.get(&format!("{V1}/a")).await.expect(200)["spec"], json!({ "both": "x:r" }));
    assert!(!hook.seen().is_empty());
    redefine(&api, &json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } })).await;
    let asked = hook.seen().len();
    assert_eq!(api.get(&format!("{V2}/a")).await.expect(200)["spec"], json!({}));
    assert_eq!(hook.seen().len(), asked);
}

//! What is wrong with a custom resource, in upstream's words.

use crate::custom_support::*;
use crate::support::Fixture;
use serde_json::{Value, json};

fn validated(spec: &Value) -> Value {
    of_versions(&json!([version("v1", true, spec)]))
}

/// What a creation is refused with, without the words that go before it.
async fn refused(api: &Fixture, spec: &Value) -> String {
    let text = message(&api.post(WIDGETS, &widget("x", spec)).await, 422);
    let head = "Widget.example.com \"x\" is invalid: ";
    text.strip_prefix(head).unwrap_or(&text).to_owned()
}

#[tokio::test]
async fn schemas_are_held_against_objects() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    for (spec, expected) in [
        (
            json!({ "size": 0 }),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({ "size": "big" }),
            r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#,
        ),
        (json!({ "parts": [{ "count": 1 }] }), "spec.parts[0].name: Required value"),
        (json!({ "tags": ["a", "a"] }), r#"spec.tags[1]: Duplicate value: "a""#),
        (
            json!({ "parts": [{ "name": "a" }, { "name": "a" }] }),
            r#"spec.parts[1]: Duplicate value: {"name":"a"}"#,
        ),
        (json!({ "inner": { "kind": "X" } }), "spec.inner.apiVersion: Required value"),
        (
            json!({ "inner": { "apiVersion": "v1", "kind": "X", "metadata": { "labels": { "a b": "c" } } } }),
            "spec.inner.metadata.labels: Invalid value: \"a b\"",
        ),
        (
            json!({ "port": 1.5 }),
            r#"spec.port: Invalid value: "number": spec.port in body must be of type integer,string: "number""#,
        ),
        (
            json!({ "labels": { "a": 1 } }),
            r#"spec.labels.a: Invalid value: "integer": spec.labels.a in body must be of type string: "integer""#,
        ),
    ] {
        let text = refused(&api, &spec).await;
        assert!(text.starts_with(expected), "{spec}: {text}");
    }
    let many = refused(&api, &json!({ "size": 11, "port": true })).await;
    assert!(many.starts_with('[') && many.contains("spec.size: ") && many.contains("spec.port: "), "{many}");
    for fine in [json!({ "port": 80 }), json!({ "port": "http" }), json!({ "size": 10 })] {
        let mut body = widget("", &fine);
        body["metadata"] = json!({ "generateName": "fine-" });
        api.post(WIDGETS, &body).await.expect(201);
    }
}

#[tokio::test]
async fn an_update_answers_for_what_it_changes() {
    let api = Fixture::new().await;
    let spec = |max: i64| {
        json!({ "type": "object", "properties": { "size": { "type": "integer", "maximum": max },
            "note": { "type": "string" }, "list": { "type": "array", "items": { "type": "integer", "maximum": max } } } })
    };
    establish(&api, &validated(&spec(100))).await;
    api.post(WIDGETS, &widget("a", &json!({ "size": 50, "list": [50] }))).await.expect(201);
    redefine(&api, &json!({ "spec": { "versions": [version("v1", true, &spec(10))] } })).await;
    let one = format!("{WIDGETS}/a");
    let patch = async |spec: Value| api.patch(&one, "merge-patch", &json!({ "spec": spec })).await;
    patch(json!({ "note": "hello" })).await.expect(200);
    let worse = message(&patch(json!({ "size": 51 })).await, 422);
    assert!(worse.ends_with("spec.size in body should be less than or equal to 10"), "{worse}");
    let list = message(&patch(json!({ "list": [50, 1] })).await, 422);
    assert!(list.ends_with("spec.list[0] in body should be less than or equal to 10"), "{list}");
    patch(json!({ "size": 5 })).await.expect(200);
}

#[tokio::test]
async fn rules() {
    let api = Fixture::new().await;
    let spec = json!({ "type": "object",
        "x-kubernetes-validations": [
            { "rule": "self.min <= self.max", "message": "min must not be above max" },
            { "rule": "!has(self.mode) || self.mode != 'odd' || self.max % 2 == 1",
                "messageExpression": "'max is %d'.format([self.max])", "reason": "FieldValueForbidden", "fieldPath": ".max" }],
        "properties": {
            "min": { "type": "integer" }, "max": { "type": "integer" }, "mode": { "type": "string", "maxLength": 10,
                "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "mode is immutable" }] },
            "once": { "type": "string", "maxLength": 5, "x-kubernetes-validations": [
                { "rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "begin with first" }] } },
        "required": ["min", "max"] });
    establish(&api, &validated(&spec)).await;
    for (spec, expected) in [
        (json!({ "min": 2, "max": 1 }), "spec: Invalid value: min must not be above max"),
        (json!({ "min": 1, "max": 2, "mode": "odd" }), "spec.max: Forbidden: max is 2"),
        (json!({ "min": 1, "max": 2, "once": "x" }), "spec.once: Invalid value: \"x\": begin with first"),
    ] {
        let text = refused(&api, &spec).await;
        let text = text.replace("Invalid value: \"object\": ", "Invalid value: ");
        assert!(text.starts_with(expected), "{spec}: {text}");
    }
    let blocked = refused(&api, &json!({ "min": 2 })).await;
    assert!(
        blocked.contains("spec.max: Required value")
            && blocked.contains(
                "<nil>: Invalid value: \"null\": some validation rules were not checked because the object was invalid; \
                 correct the existing errors to complete validation"
            ),
        "{blocked}"
    );
    api.post(WIDGETS, &widget("a", &json!({ "min": 1, "max": 3, "mode": "odd" }))).await.expect(201);
    let changed =
        api.patch(&format!("{WIDGETS}/a"), "merge-patch", &json!({ "spec": { "mode": "even" } })).await;
    let text = message(&changed, 422);
    assert!(text.ends_with("spec.mode: Invalid value: \"even\": mode is immutable"), "{text}");
    api.patch(&format!("{WIDGETS}/a"), "merge-patch", &json!({ "spec": { "max": 5 } })).await.expect(200);
}

#[tokio::test]
async fn rules_have_a_budget() {
    let api = Fixture::new().await;
    let spec = json!({ "type": "object", "properties": { "list": { "type": "array", "maxItems": 1000,
        "items": { "type": "string", "maxLength": 20 }, "x-kubernetes-validations": [
            { "rule": "self.all(x, self.all(y, x == y || x != y))" }] } } });
    let made = api.post(DEFINITIONS, &validated(&spec)).await;
    if made.status == 422 {
        // What could cost too much is not accepted in the first place.
        assert!(message(&made, 422).contains("cost"));
        return;
    }
    settle(&api, "widgets.example.com").await;
    let list: Vec<String> = (0..1000).map(|i| format!("item-{i}")).collect();
    let text = refused(&api, &json!({ "list": list })).await;
    assert!(text.contains("no further validation rules will be run"), "{text}");
}

#[tokio::test]
async fn finalizers_without_a_domain_are_warned_of() {
    let api = Fixture::new().await;
    establish(&api, &definition(&Value::Null)).await;
    let mut body = widget("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["held", "example.com/held"]);
    let made = api.post(WIDGETS, &body).await;
    let warning = made.header("warning").to_owned();
    assert!(warning.contains("prefer a domain-qualified finalizer name including a path (/)"), "{warning}");
    made.expect(201);
    let deleted = api.delete(&format!("{WIDGETS}/a")).await.expect(200);
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    let free = api
        .patch(&format!("{WIDGETS}/a"), "merge-patch", &json!({ "metadata": { "finalizers": null } }))
        .await;
    free.expect(200);
    assert_eq!(api.get(&format!("{WIDGETS}/a")).await.status, 404);
}

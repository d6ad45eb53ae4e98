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
    // Elements of a list of which nothing more is said are compared by their places.
    patch(json!({ "list": [50, 1] })).await.expect(200);
    let list = message(&patch(json!({ "list": [51, 1] })).await, 422);
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
        assert!(text.starts_with(expected), "{spec}: {text}");
    }
    let blocked = refused(&api, &json!({ "min": 2 })).await;
    assert!(
        blocked.contains("spec.max: Required value")
            && blocked.contains(
                "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
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

/// What apply has made of an object is decoded by nobody, so nulls that a creation would leave out are refused.
#[tokio::test]
async fn applied_nulls_are_refused() {
    let api = Fixture::new().await;
    let list = json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": { "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string" }, "note": { "type": "string" },
            "none": { "type": "string", "nullable": true }, "some": { "type": "string", "default": "a" } } } });
    establish(&api, &validated(&json!({ "type": "object", "properties": { "list": list } }))).await;
    let object = |item: Value| widget("a", &json!({ "list": [item] }));
    let fine = json!({ "name": "x", "none": null, "some": null });
    let apply = async |object: Value| {
        let uri = format!("{WIDGETS}/a?fieldManager=me");
        api.ask("PATCH", &uri, "application/apply-patch+yaml", object.to_string()).await
    };
    let wrong = object(json!({ "name": "x", "note": null }));
    let wanted = "spec.list[0].note: Invalid value: \"null\": spec.list[0].note in body must be of type string: \"null\"";
    for _ in 0..2 {
        let text = message(&apply(wrong.clone()).await, 422);
        assert!(text.ends_with(wanted), "{text}");
        let kept = apply(object(fine.clone())).await;
        assert!(kept.status == 200 || kept.status == 201);
    }
    let item = &api.get(&format!("{WIDGETS}/a")).await.expect(200)["spec"]["list"][0];
    assert_eq!(*item, json!({ "name": "x", "none": null, "some": "a" }));
    let mut other = wrong;
    other["metadata"]["name"] = "b".into();
    let created = api.post(WIDGETS, &other).await.expect(201);
    assert_eq!(created["spec"]["list"][0], json!({ "name": "x", "some": "a" }));
}

/// A rule that is broken as it was before an update is told of in a warning.
#[tokio::test]
async fn rules_that_stay_broken_are_warned_of() {
    let api = Fixture::new().await;
    let spec = |rules: Value| {
        json!({ "type": "object", "properties": {
        "a": { "type": "object", "properties": { "size": { "type": "integer" } }, "x-kubernetes-validations": rules },
        "note": { "type": "string" } } })
    };
    establish(&api, &validated(&spec(json!([])))).await;
    api.post(WIDGETS, &widget("a", &json!({ "a": { "size": 1 } }))).await.expect(201);
    let rules = json!([{ "rule": "self.size > 1", "message": "must be more" }]);
    redefine(&api, &json!({ "spec": { "versions": [version("v1", true, &spec(rules))] } })).await;
    let patch =
        async |spec: Value| api.patch(&format!("{WIDGETS}/a"), "merge-patch", &json!({ "spec": spec })).await;
    let kept = patch(json!({ "note": "x" })).await;
    assert_eq!(kept.header("warning"), "299 - \"spec.a: Invalid value: must be more\"");
    kept.expect(200);
    let text = message(&patch(json!({ "a": { "size": 0 } })).await, 422);
    assert!(text.ends_with("spec.a: Invalid value: must be more"), "{text}");
}

/// Upstream's path of the object as a whole is no path.
#[tokio::test]
async fn rules_of_the_whole_object() {
    let api = Fixture::new().await;
    let mut version = version("v1", true, &json!({ "type": "object" }));
    version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
        json!([{ "rule": "self.metadata.name != 'x'", "message": "x is taken" }]);
    establish(&api, &of_versions(&json!([version]))).await;
    assert_eq!(refused(&api, &json!({})).await, "<nil>: Invalid value: x is taken");
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

//! Policies and custom resources: as parameters, as what is validated, and as what is mutated.

use crate::policies::*;
use crate::support::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const LIMITS: &str = "/apis/example.com/v1/limits";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition(kind: &str, scope: &str, schema: &Value) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": { "group": "example.com", "scope": scope,
            "names": { "kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List") },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] },
    })
}

/// Limits are cluster-scoped, widgets are not.
async fn served() -> Fixture {
    let fixture = world().await;
    fixture.api.maintain_definitions();
    let limit = json!({ "type": "object", "properties": { "max": { "type": "integer" } } });
    let widget = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "size": { "type": "integer" },
        "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "words": { "type": "array", "items": { "type": "string" } },
        "parts": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": { "type": "object", "required": ["name"], "properties": {
                "name": { "type": "string" }, "color": { "type": "string" }, "count": { "type": "integer" } } } } } } } });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for (kind, scope, schema) in [("Limit", "Cluster", limit), ("Widget", "Namespaced", widget)] {
        fixture.post(path, &definition(kind, scope, &schema)).await.expect(201);
    }
    for plural in [LIMITS, WIDGETS] {
        let began = Instant::now();
        while fixture.get(plural).await.status != 200 {
            assert!(began.elapsed() < Duration::from_secs(20), "{plural} is not served");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    fixture
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

fn on_widgets() -> Value {
    json!({ "matchConstraints": { "resourceRules": rules_of("example.com", "widgets") } })
}

#[tokio::test]
async fn custom_resources_are_parameters_of_policies_on_custom_resources() {
    let fixture = served().await;
    let limit =
        json!({ "apiVersion": "example.com/v1", "kind": "Limit", "metadata": { "name": "small" }, "max": 3 });
    fixture.post(LIMITS, &limit).await.expect(201);
    let mut spec = on_widgets();
    merge(
        &mut spec,
        &json!({ "paramKind": { "apiVersion": "example.com/v1", "kind": "Limit" },
            "validations": [{ "expression": "object.spec.size <= params.max", "messageExpression": "params.kind + ' ' + string(params.max)" }] }),
    );
    let bound = json!({ "validationActions": ["Deny"], "paramRef": { "name": "small", "parameterNotFoundAction": "Deny" } });
    fixture.bind("p", &spec, &bound).await;
    fixture.post(WIDGETS, &widget("a", &json!({ "size": 3 }))).await.expect(201);
    let denied = fixture.post(WIDGETS, &widget("b", &json!({ "size": 4 }))).await.expect(422);
    assert!(message(&denied).ends_with("denied request: Limit 3"), "{denied}");
    let path = format!("{GROUP}/validatingadmissionpolicybindings/p");
    let wrong = json!({ "spec": { "paramRef": { "namespace": "default" } } });
    fixture.patch(&path, "merge-patch", &wrong).await.expect(200);
    let denied = fixture.post(WIDGETS, &widget("b", &json!({ "size": 1 }))).await.expect(422);
    assert!(
        message(&denied)
            .ends_with("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
        "{denied}"
    );
}

#[tokio::test]
async fn custom_resources_are_merged_by_their_schema() {
    let fixture = served().await;
    let expression = "Object{ spec: Object.spec{ size: object.spec.size * 2, tags: ['policy'], \
        parts: [Object.spec.parts{ name: 'a', color: 'red' }, Object.spec.parts{ name: 'z' }] } }";
    fixture.mutate("p", &json!([apply(expression)]), &on_widgets()).await;
    let spec = json!({ "size": 2, "tags": ["own"], "parts": [{ "name": "a", "color": "blue", "count": 1 }, { "name": "b" }] });
    let made = fixture.post(WIDGETS, &widget("a", &spec)).await.expect(201);
    assert_eq!(made["spec"]["size"], 4);
    assert_eq!(made["spec"]["tags"], json!(["own", "policy"]));
    let parts = made["spec"]["parts"].as_array().unwrap();
    assert!(parts.contains(&json!({ "name": "a", "color": "red", "count": 1 })), "{made}");
    assert!(parts.contains(&json!({ "name": "b" })) && parts.contains(&json!({ "name": "z" })), "{made}");
    let path = format!("{GROUP}/mutatingadmissionpolicies/p");
    for (expression, wanted) in [
        (
            "Object{ spec: Object.spec{ words: ['x'] } }",
            "may not mutate atomic arrays, maps or structs: .spec.words",
        ),
        ("Object{ spec: Object.spec{ nothing: 1 } }", "failed to convert patch object to typed object: "),
        ("Object{ spec: Object.spec{ size: 'x' } }", "failed to convert patch object to typed object: "),
    ] {
        let change = json!({ "spec": { "mutations": [apply(expression)] } });
        fixture.patch(&path, "merge-patch", &change).await.expect(200);
        let denied = fixture.post(WIDGETS, &widget("b", &json!({ "size": 1 }))).await.expect(403);
        assert!(message(&denied).contains(wanted), "{denied}");
    }
}

#[tokio::test]
async fn types_of_custom_resources_are_checked() {
    let fixture = served().await;
    fixture.api.maintain_policies();
    let mut spec = on_widgets();
    merge(
        &mut spec,
        &json!({ "paramKind": { "apiVersion": "example.com/v1", "kind": "Limit" },
            "validations": [{ "expression": "object.spec.size < params.max" }, { "expression": "object.spec.sizes < params.min" }] }),
    );
    let path = format!("{GROUP}/validatingadmissionpolicies");
    fixture.post(&path, &validating("p", &spec)).await.expect(201);
    let began = Instant::now();
    let status = loop {
        let policy = fixture.get(&format!("{path}/p")).await.expect(200);
        if policy["status"]["observedGeneration"] == 1 {
            break policy["status"].clone();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{policy}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let warnings = status["typeChecking"]["expressionWarnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{status}");
    let text = warnings[0]["warning"].as_str().unwrap();
    assert!(text.starts_with("example.com/v1, Kind=Widget: ERROR:"), "{text}");
    assert!(text.contains("undefined field 'sizes'") && text.contains("undefined field 'min'"), "{text}");
}

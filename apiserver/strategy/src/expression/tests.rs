//! Conditions and variables against one request.

use super::*;
use coracle_api::UserInfo;
use coracle_requests::admission::Operation;
use serde_json::{Value, json};

fn request() -> Value {
    let user = UserInfo::authenticated("jane", &["dev"]);
    let facts = RequestFacts {
        kind: ["apps", "v1", "Deployment"],
        resource: ["apps", "v1", "deployments"],
        request_kind: ["apps", "v1", "Deployment"],
        request_resource: ["apps", "v1", "deployments"],
        subresource: "",
        name: "web",
        namespace: "ns",
        operation: Operation::Create,
        user: &user,
        dry_run: false,
        options: None,
    };
    facts.to_json()
}

/// What they say, or the error's words.
fn matches(conditions: &[&str]) -> Result<Matched, String> {
    let list: Vec<Value> = conditions
        .iter()
        .enumerate()
        .map(|(i, source)| json!({ "name": format!("c{i}"), "expression": source }))
        .collect();
    let object = json!({ "spec": { "replicas": 3 } });
    let input = Input {
        object: Some(&object),
        old_object: None,
        request: &request(),
        params: None,
        namespace: None,
        authorizer: None,
        metrics: None,
    };
    MatchConditions::compile(&json!(list)).matches(&input).map_err(|error| error.to_string())
}

#[test]
fn a_false_condition_decides() {
    assert_eq!(matches(&["object.spec.replicas == 3", "oldObject == null"]), Ok(Matched::Yes));
    assert_eq!(matches(&["object.nothing == 1", "object.spec.replicas > 3"]), Ok(Matched::No("c1".into())));
    let error = matches(&["object.nothing == 1", "true"]).unwrap_err();
    assert_eq!(error, "expression 'object.nothing == 1' resulted in error: no such key: nothing");
}

#[test]
fn the_request_is_typed() {
    assert_eq!(
        matches(&[
            "request.userInfo.username == 'jane' && 'dev' in request.userInfo.groups",
            "request.resource.resource == 'deployments' && !has(request.subResource)"
        ]),
        Ok(Matched::Yes)
    );
    let error = matches(&["request.nothing == 'a'"]).unwrap_err();
    assert!(error.contains("undefined field 'nothing'"), "{error}");
    let error = matches(&["object.spec.replicas"]).unwrap_err();
    assert_eq!(error, "compilation error: must evaluate to bool but got dyn");
}

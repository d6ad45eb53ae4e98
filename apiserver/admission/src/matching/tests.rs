//! Tables of who is concerned by what.

use super::*;
use crate::{Operation, RequestOptions};
use coracle_access::authz::testing::World;
use coracle_api::{UserInfo, catalogue};
use parking_lot::Mutex;
use serde_json::json;

/// `OPERATION group/version/plural[/subresource] namespace name`
fn ask(matcher: &Matcher, world: &World, request: &str, object: Option<&Object>) -> Result<bool, ApiError> {
    let parts: Vec<&str> = request.split(' ').collect();
    let path: Vec<&str> = parts[1].split('/').collect();
    let operation = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect]
        .into_iter()
        .find(|operation| operation.name() == parts[0])
        .unwrap();
    let attributes = Attributes {
        operation,
        user: &UserInfo::authenticated("jane", &[]),
        resource: catalogue::by_plural(path[0], path[1], path[2]).unwrap(),
        subresource: path.get(3).unwrap_or(&""),
        namespace: parts.get(2).unwrap_or(&""),
        name: parts.get(3).unwrap_or(&""),
        dry_run: false,
        asked: RequestOptions::Nothing,
        warnings: &Mutex::default(),
        store: None,
        versions: None,
    };
    matcher.matches(&attributes, object, None, world).map(|found| found.is_some())
}

fn hook(rule: Value) -> Matcher {
    Matcher::of_webhook(&json!({ "rules": [rule] })).unwrap()
}

#[test]
fn rules() {
    let world = World::default();
    let all = |resources: Value| json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources });
    for (rule, request, wanted) in [
        (all(json!(["*"])), "CREATE /v1/pods n p", true),
        (all(json!(["*"])), "UPDATE /v1/pods/status n p", false),
        (all(json!(["*/*"])), "UPDATE /v1/pods/status n p", true),
        (all(json!(["pods/*"])), "UPDATE /v1/pods/status n p", true),
        (all(json!(["pods/*"])), "CREATE /v1/pods n p", true),
        (all(json!(["*/scale"])), "UPDATE apps/v1/deployments/scale n d", true),
        (all(json!(["*/scale"])), "UPDATE apps/v1/deployments n d", false),
        (all(json!(["pods/exec"])), "CONNECT /v1/pods/exec n p", true),
        (all(json!(["pods", "nodes"])), "DELETE /v1/nodes  n1", true),
        (all(json!(["pods"])), "CREATE /v1/services n s", false),
    ] {
        assert_eq!(ask(&hook(rule.clone()), &world, request, None), Ok(wanted), "{rule} {request}");
    }
    let narrow = json!({ "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "DELETE"],
        "resources": ["deployments"] });
    for (request, wanted) in [
        ("CREATE apps/v1/deployments n d", true),
        ("UPDATE apps/v1/deployments n d", false),
        ("CREATE apps/v1/replicasets n d", false),
    ] {
        assert_eq!(ask(&hook(narrow.clone()), &world, request, None), Ok(wanted), "{request}");
    }
}

#[test]
fn scopes() {
    let world = World::default();
    for (scope, pod, node, namespace) in
        [("*", true, true, true), ("Cluster", false, true, true), ("Namespaced", true, false, false)]
    {
        let matcher =
            hook(json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
            "scope": scope }));
        let asked = |request| ask(&matcher, &world, request, None).unwrap();
        let found =
            (asked("CREATE /v1/pods n p"), asked("CREATE /v1/nodes"), asked("CREATE /v1/namespaces  n"));
        assert_eq!(found, (pod, node, namespace), "{scope}");
    }
}

#[test]
fn names_and_exclusions_of_policies() {
    let world = World::default();
    let rule = |names: Value| {
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"],
            "resourceNames": names })
    };
    let matcher = Matcher::of_resources(
        &json!({ "resourceRules": [rule(json!([]))], "excludeResourceRules": [rule(json!(["free"]))] }),
    )
    .unwrap();
    assert_eq!(ask(&matcher, &world, "CREATE /v1/configmaps n m", None), Ok(true));
    assert_eq!(ask(&matcher, &world, "CREATE /v1/configmaps n free", None), Ok(false));
    let named = Matcher::of_resources(&json!({ "resourceRules": [rule(json!(["m"]))] })).unwrap();
    assert_eq!(ask(&named, &world, "CREATE /v1/configmaps n m", None), Ok(true));
    assert_eq!(ask(&named, &world, "CREATE /v1/configmaps n other", None), Ok(false));
    let everything = Matcher::of_resources(&Value::Null).unwrap();
    assert_eq!(ask(&everything, &world, "CONNECT /v1/pods/exec n p", None), Ok(true));
}

#[test]
fn a_missing_namespace_is_told_only_to_those_it_concerns() {
    let world = World::default();
    let selecting = |resources: Value| {
        let rule =
            json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources });
        Matcher::of_webhook(&json!({ "rules": [rule], "namespaceSelector": { "matchLabels": { "a": "b" } } }))
            .unwrap()
    };
    let request = "CREATE /v1/pods gone p";
    assert_eq!(ask(&selecting(json!(["nodes"])), &world, request, None), Ok(false));
    assert_eq!(ask(&selecting(json!(["pods"])), &world, request, None).unwrap_err().code, 404);
    world.put("namespaces.", json!({ "metadata": { "name": "gone", "labels": { "a": "b" } } }));
    assert_eq!(ask(&selecting(json!(["pods"])), &world, request, None), Ok(true));
    // A new Namespace is judged by the labels it is to have, a deleted one by those it has.
    let unlabelled = json!({ "metadata": { "name": "gone" } });
    let matcher = selecting(json!(["namespaces"]));
    assert_eq!(ask(&matcher, &world, "UPDATE /v1/namespaces  gone", Some(&unlabelled)), Ok(false));
    assert_eq!(ask(&matcher, &world, "DELETE /v1/namespaces  gone", None), Ok(true));
}

//! Patches of built-in objects: what they refuse, and how field validation judges them.

use crate::support::Fixture;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

async fn with_deployment() -> (Fixture, String) {
    let api = Fixture::new().await;
    api.post(DEPLOYMENTS, &deployment()).await.expect(201);
    (api, format!("{DEPLOYMENTS}/web"))
}

#[tokio::test]
async fn unknown_fields_in_patches_are_judged() {
    let (api, uri) = with_deployment().await;
    let patches = [
        ("merge-patch", json!({"spec": {"foo": 1}})),
        ("strategic-merge-patch", json!({"spec": {"foo": 1}})),
        ("json-patch", json!([{"op": "add", "path": "/spec/foo", "value": 1}])),
    ];
    for (kind, patch) in patches {
        let strict = api.patch(&format!("{uri}?fieldValidation=Strict"), kind, &patch).await.expect(422);
        let message = strict["message"].as_str().unwrap();
        assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: \""), "{kind}: {message}");
        assert!(
            message.ends_with(": strict decoding error: unknown field \"spec.foo\""),
            "{kind}: {message}"
        );
        assert_eq!(strict["details"]["causes"][0]["field"], "patch");
        let warned = api.patch(&uri, kind, &patch).await;
        warned.expect(200);
        assert_eq!(warned.header("warning"), "299 - \"unknown field \\\"spec.foo\\\"\"", "{kind}");
        let ignored = api.patch(&format!("{uri}?fieldValidation=Ignore"), kind, &patch).await;
        ignored.expect(200);
        assert_eq!(ignored.header("warning"), "");
    }
    let strict = format!("{uri}?fieldValidation=Strict");
    let strategic = api.patch(&strict, "strategic-merge-patch", &json!({"spec": {"foo": 1}})).await;
    assert!(strategic.json()["message"].as_str().unwrap().contains("\"map[spec:map[foo:1]]\""));
}

#[tokio::test]
async fn duplicate_fields_in_patches_are_judged() {
    let (api, uri) = with_deployment().await;
    let twice = r#"{"spec": {"paused": true, "paused": false}}"#;
    for kind in ["merge-patch", "strategic-merge-patch"] {
        let media = format!("application/{kind}+json");
        let strict =
            api.ask("PATCH", &format!("{uri}?fieldValidation=Strict"), &media, twice).await.expect(422);
        let message = strict["message"].as_str().unwrap();
        assert!(message.ends_with("strict decoding error: duplicate field \"spec.paused\""), "{message}");
        let warned = api.ask("PATCH", &uri, &media, twice).await;
        warned.expect(200);
        assert_eq!(warned.header("warning"), "299 - \"duplicate field \\\"spec.paused\\\"\"");
    }
}

#[tokio::test]
async fn bodies_are_judged_in_json_and_yaml() {
    let api = Fixture::new().await;
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"my-dep","unknownMeta":"foo"},
        "spec":{"unknownField":"foo","replicas":2,"replicas":3,"selector":{"matchLabels":{"app":"nginx"}},
        "template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:latest"}]}}}}"#;
    let strict = format!("{DEPLOYMENTS}?fieldValidation=Strict");
    let refused = api.ask("POST", &strict, "application/json", body).await.expect(400);
    assert_eq!(
        refused["message"],
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \
         \"metadata.unknownMeta\", unknown field \"spec.unknownField\", duplicate field \"spec.replicas\""
    );
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\nfoo: 1\ndata:\n  k: '1'\n  k: '2'\n";
    let uri = "/api/v1/namespaces/default/configmaps";
    let refused =
        api.ask("POST", &format!("{uri}?fieldValidation=Strict"), "application/yaml", yaml).await.expect(400);
    assert_eq!(
        refused["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  \
         line 8: key \"k\" already set in map, unknown field \"foo\""
    );
    let warned = api.ask("POST", uri, "application/yaml", yaml).await;
    let warnings: Vec<_> = warned.headers.get_all("warning").iter().collect();
    assert_eq!(
        warnings,
        [r#"299 - "line 8: key \"k\" already set in map""#, r#"299 - "unknown field \"foo\"""#]
    );
    assert_eq!(warned.expect(201)["data"]["k"], "2");
    let refused = api.ask("POST", uri, "application/yaml", "a: 1\n b: 2").await.expect(400);
    assert_eq!(
        refused["message"],
        "the object provided is unrecognized (must be of type ConfigMap): yaml: line 2: mapping values are not allowed in \
         this context (613a20310a20623a2032)"
    );
}

#[tokio::test]
async fn wrong_types_in_patches_name_the_patch() {
    let (api, uri) = with_deployment().await;
    let refused = api.patch(&uri, "merge-patch", &json!({"spec": {"replicas": "x"}})).await.expect(422);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains(
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn strategic_merges_speak_as_upstreams_converter() {
    let (api, uri) = with_deployment().await;
    let container = |item: Value| json!({"spec": {"template": {"spec": {"containers": [item]}}}});
    let words = " \"\" is invalid: patch: Invalid value: \"map[metadata:map[labels:x]]\": cannot restore map from string";
    let namespace = "the namespace of the provided object does not match the namespace sent on the request";
    for (patch, code, message) in [
        (json!({"metadata": {"labels": "x"}}), 422, words),
        (
            container(json!({"image": "x"})),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (container(json!("c")), 500, "list element types are not identical: [[map["),
        (json!({"metadata": {"namespace": "b"}}), 400, namespace),
        (
            json!({"metadata": {"resourceVersion": "x"}}),
            500,
            "strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
    ] {
        let refused = api.patch(&uri, "strategic-merge-patch", &patch).await.expect(code);
        let said = refused["message"].as_str().unwrap();
        assert!(said.starts_with(message), "{patch}: {said}");
        assert!(code != 500 || refused.get("reason").is_none(), "{refused}");
    }
    let before = api.get(&uri).await.expect(200);
    let other = json!({"kind": "X", "apiVersion": "y/v1"});
    let patched = api.patch(&uri, "strategic-merge-patch", &other).await.expect(200);
    assert_eq!(patched, before, "what it says of the kind is lost");
    api.patch(&uri, "merge-patch", &other).await.expect(422);
}

#[tokio::test]
async fn metadata_that_no_patch_changes() {
    let (api, uri) = with_deployment().await;
    let before = api.get(&uri).await.expect(200);
    for (patch, code) in [
        (json!({"metadata": {"name": "b"}}), 400),
        (json!({"metadata": {"name": null}}), 400),
        (json!({"metadata": {"namespace": "b"}}), 400),
        (json!({"metadata": {"uid": "b"}}), 422),
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), 422),
        (json!({"metadata": {"resourceVersion": "999"}}), 409),
        (
            json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 99, "selfLink": "x"}}),
            200,
        ),
    ] {
        api.patch(&uri, "merge-patch", &patch).await.expect(code);
    }
    assert_eq!(api.get(&uri).await.expect(200), before);
    api.patch(&format!("{DEPLOYMENTS}/none"), "strategic-merge-patch", &json!({})).await.expect(404);
    api.patch(&format!("{DEPLOYMENTS}/none"), "json-patch", &json!([])).await.expect(404);
}

#[tokio::test]
async fn many_writers_of_one_object_all_get_through() {
    let (api, uri) = with_deployment().await;
    let patches = (0..40).map(|n| {
        let (api, uri) = (api.clone(), uri.clone());
        let patch = json!({"metadata": {"annotations": {format!("k{n}"): "1"}}});
        tokio::spawn(async move { api.patch(&uri, "strategic-merge-patch", &patch).await })
    });
    for patch in patches.collect::<Vec<_>>() {
        patch.await.unwrap().expect(200);
    }
    let annotations = api.get(&uri).await.expect(200)["metadata"]["annotations"].clone();
    assert_eq!(annotations.as_object().unwrap().len(), 40);
}

#[tokio::test]
async fn strategic_directives_reach_the_object() {
    let api = Fixture::new().await;
    let pod = json!({"metadata": {"name": "p", "finalizers": ["a/b", "c/d"]}, "spec": {"containers": [
        {"name": "a", "image": "i"}, {"name": "b", "image": "i", "env": [{"name": "X", "value": "1"}]}],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}});
    api.post(PODS, &pod).await.expect(201);
    let uri = format!("{PODS}/p?dryRun=All");
    let finalizers = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}});
    let patched = api.patch(&uri, "strategic-merge-patch", &finalizers).await.expect(200);
    assert_eq!(patched["metadata"]["finalizers"], json!(["c/d"]));
    let bad = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]}});
    api.patch(&uri, "strategic-merge-patch", &bad).await.expect(400);
    let order = json!({"metadata": {"finalizers": ["e/f"], "$setElementOrder/finalizers": ["e/f", "c/d"]}});
    let patched = api.patch(&uri, "strategic-merge-patch", &order).await.expect(200);
    assert_eq!(patched["metadata"]["finalizers"], json!(["e/f", "a/b", "c/d"]));
}

#[tokio::test]
async fn owner_references_are_kept_once() {
    let api = Fixture::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-1"});
    let body = json!({"metadata": {"name": "a", "ownerReferences": [owner, owner]}});
    let made = api.post("/api/v1/namespaces/default/configmaps", &body).await;
    assert_eq!(made.expect(201)["metadata"]["ownerReferences"], json!([owner]));
    assert!(
        made.header("warning").ends_with("duplicate UID(s) observed: u-1\""),
        "{}",
        made.header("warning")
    );
}

/// Decoding refuses it, as it refuses wrong types; a strategic merge is not decoded.
#[tokio::test]
async fn patches_that_change_the_kind_are_refused() {
    let (api, uri) = with_deployment().await;
    for (kind, patch) in [
        ("merge-patch", json!({ "kind": "Foo" })),
        ("json-patch", json!([{ "op": "replace", "path": "/kind", "value": "Foo" }])),
    ] {
        let refused = api.patch(&uri, kind, &patch).await.expect(422);
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: \""), "{message}");
        assert!(message.contains("no kind \"Foo\" is registered for version \"apps/v1\""), "{message}");
    }
    let kept = api.patch(&uri, "strategic-merge-patch", &json!({ "kind": "Foo" })).await.expect(200);
    assert_eq!(kept["kind"], "Deployment");
}

//! What policies are asked about: deletions, subresources, other versions of the same resource.

use crate::policies::*;
use crate::support::*;
use serde_json::{Value, json};

fn rules(group: &str, version: &str, resource: &str, operation: &str) -> Value {
    json!({ "matchConstraints": { "resourceRules": [{ "apiGroups": [group], "apiVersions": [version],
        "operations": [operation], "resources": [resource] }] } })
}

fn with(mut spec: Value, more: &Value) -> Value {
    merge(&mut spec, more);
    spec
}

fn deployment(replicas: i64) -> Value {
    json!({ "metadata": { "name": "a" }, "spec": { "replicas": replicas, "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
}

#[tokio::test]
async fn deletions_show_what_goes() {
    let fixture = world().await;
    let rule = json!({ "validations": [{ "expression":
        "object == null && request.operation == 'DELETE' && request.options.kind == 'DeleteOptions' && oldObject.data.k != 'v'",
        "message": "stays" }] });
    fixture.enforce("p", &with(rules("", "v1", "configmaps", "DELETE"), &rule)).await;
    fixture.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let denied = fixture.delete(&format!("{CONFIG_MAPS}/a")).await.expect(422);
    assert!(message(&denied).ends_with("denied request: stays"), "{denied}");
    fixture.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    let change = json!({ "data": { "k": "w" } });
    fixture.patch(&format!("{CONFIG_MAPS}/a"), "merge-patch", &change).await.expect(200);
    fixture.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
}

#[tokio::test]
async fn a_scale_is_what_its_policy_sees() {
    let fixture = world().await;
    let rule = json!({ "validations": [{ "expression":
        "request.subResource == 'scale' && request.kind.kind == 'Scale' && request.resource.resource == 'deployments' && object.spec.replicas < 5" }] });
    fixture.enforce("p", &with(rules("apps", "v1", "deployments/scale", "UPDATE"), &rule)).await;
    fixture.post(DEPLOYMENTS, &deployment(9)).await.expect(201);
    let scale = |replicas: i64| json!({ "spec": { "replicas": replicas } });
    let path = format!("{DEPLOYMENTS}/a/scale");
    fixture.patch(&path, "merge-patch", &scale(4)).await.expect(200);
    let denied = fixture.patch(&path, "merge-patch", &scale(5)).await.expect(422);
    assert!(message(&denied).contains("denied request: failed expression: request.subResource"), "{denied}");
    assert_eq!(fixture.get(&path).await.expect(200)["spec"]["replicas"], 4);
}

#[tokio::test]
async fn equivalent_versions_are_shown_as_the_rules_name_them() {
    let fixture = world().await;
    let rule = json!({ "validations": [{ "expression":
        "request.resource.version == 'v2' && request.requestResource.version == 'v1' && object.apiVersion == 'autoscaling/v2' && \
         object.spec.metrics[0].resource.target.averageUtilization < 90" }] });
    fixture
        .enforce("p", &with(rules("autoscaling", "v2", "horizontalpodautoscalers", "CREATE"), &rule))
        .await;
    let autoscaler = |name: &str, percent: i64| {
        json!({ "metadata": { "name": name }, "spec": { "maxReplicas": 3, "targetCPUUtilizationPercentage": percent,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" } } })
    };
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    fixture.post(path, &autoscaler("a", 80)).await.expect(201);
    fixture.post(path, &autoscaler("b", 95)).await.expect(422);
    // A policy that matches exactly is not asked about other versions.
    let exact = json!({ "spec": { "matchConstraints": { "matchPolicy": "Exact" } } });
    let policy = format!("{GROUP}/validatingadmissionpolicies/p");
    fixture.patch(&policy, "merge-patch", &exact).await.expect(200);
    fixture.post(path, &autoscaler("b", 95)).await.expect(201);
}

#[tokio::test]
async fn excluded_resources_and_names() {
    let fixture = world().await;
    let rule = json!({
        "matchConstraints": {
            "resourceRules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"] }],
            "excludeResourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"] },
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"], "resourceNames": ["free"] },
            ] },
        "validations": [{ "expression": "false" }],
    });
    fixture.enforce("p", &rule).await;
    fixture.post(CONFIG_MAPS, &config_map("a")).await.expect(422);
    fixture.post(CONFIG_MAPS, &config_map("free")).await.expect(201);
    let secret = json!({ "metadata": { "name": "s" } });
    fixture.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    fixture.post(DEPLOYMENTS, &deployment(1)).await.expect(422);
}

#[tokio::test]
async fn mutations_reach_subresources_in_their_own_form() {
    let fixture = world().await;
    let spec = rules("apps", "v1", "deployments/scale", "UPDATE");
    let mutation = apply("Object{ spec: Object.spec{ replicas: object.spec.replicas + 1 } }");
    fixture.mutate("p", &json!([mutation]), &spec).await;
    fixture.post(DEPLOYMENTS, &deployment(1)).await.expect(201);
    let path = format!("{DEPLOYMENTS}/a/scale");
    let answer = fixture.patch(&path, "merge-patch", &json!({ "spec": { "replicas": 3 } })).await.expect(200);
    assert_eq!(answer["spec"]["replicas"], 4);
    assert_eq!(fixture.get(&format!("{DEPLOYMENTS}/a")).await.expect(200)["spec"]["replicas"], 4);
}

/// A cluster whose questions were refused would not work.
#[tokio::test]
async fn questions_are_not_asked_about() {
    let fixture = world().await;
    let rule = json!({ "validations": [{ "expression": "false" }] });
    fixture.enforce("p", &with(rules("*", "*", "*/*", "*"), &rule)).await;
    let token = json!({ "spec": { "token": "x" } });
    let access =
        json!({ "spec": { "user": "u", "resourceAttributes": { "verb": "get", "namespace": "default" } } });
    for (path, question) in [
        ("authentication.k8s.io/v1/tokenreviews", &token),
        ("authentication.k8s.io/v1/selfsubjectreviews", &json!({})),
        ("authorization.k8s.io/v1/subjectaccessreviews", &access),
        ("authorization.k8s.io/v1/selfsubjectaccessreviews", &access),
        ("authorization.k8s.io/v1/selfsubjectrulesreviews", &json!({ "spec": { "namespace": "default" } })),
        ("authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", &access),
    ] {
        let answer = fixture.post(&format!("/apis/{path}"), question).await.json();
        assert!(!message(&answer).contains("denied request"), "{path}: {answer}");
    }
    fixture.post(CONFIG_MAPS, &config_map("a")).await.expect(422);
}

//! Field ownership and server-side apply, as clients meet them.

use crate::custom_support::{DEFINITIONS, WIDGETS, definition, establish, widget};
use crate::support::{Answer, Fixture};
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn deployment(replicas: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

async fn apply(api: &Fixture, uri: &str, query: &str, body: &Value) -> Answer {
    let uri = format!("{uri}?{query}");
    api.ask("PATCH", &uri, "application/apply-patch+yaml", body.to_string()).await
}

fn entry<'v>(object: &'v Value, manager: &str) -> &'v Value {
    let list =
        object["metadata"]["managedFields"].as_array().unwrap_or_else(|| panic!("no owners: {object}"));
    list.iter().find(|e| e["manager"] == manager).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn writes_name_their_managers() {
    let api = Fixture::new().await;
    let request = Request::post(CONFIG_MAPS)
        .header("content-type", "application/json")
        .header("user-agent", "kubectl/v1.32.0 (linux/amd64)")
        .body(Body::from(
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "1"}}).to_string(),
        ));
    let made = api.call(request.unwrap()).await.expect(201);
    assert_eq!(
        entry(&made, "kubectl"),
        &json!({"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": entry(&made, "kubectl")["time"],
            "fieldsV1": {"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:labels": {".": {}, "f:x": {}}}}})
    );
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")).await.expect(200), made);
    let uri = format!("{CONFIG_MAPS}/a?fieldManager=other");
    let patched = api.patch(&uri, "merge-patch", &json!({"data": {"m": "2"}})).await.expect(200);
    assert_eq!(entry(&patched, "other")["fieldsV1"], json!({"f:data": {"f:m": {}}}));
    let mut next = patched.clone();
    next["data"]["k"] = "3".into();
    let updated = api.put(&uri, &next).await.expect(200);
    assert_eq!(entry(&updated, "other")["fieldsV1"], json!({"f:data": {"f:k": {}, "f:m": {}}}));
    // Forgetting the owners, in either way.
    for reset in [json!([]), json!([{}])] {
        let mut forget = updated.clone();
        forget["metadata"]["managedFields"] = reset;
        forget["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let forgotten = api.put(&uri, &forget).await.expect(200);
        assert_eq!(forgotten["metadata"].get("managedFields"), None);
    }
}

#[tokio::test]
async fn the_status_belongs_to_who_reports_it() {
    let api = Fixture::new().await;
    let uri = format!("{DEPLOYMENTS}/web");
    let mut body = deployment(json!(1));
    body["status"] = json!({"replicas": 7});
    let made = api.post(&format!("{DEPLOYMENTS}?fieldManager=me"), &body).await.expect(201);
    assert_eq!(entry(&made, "me")["fieldsV1"].get("f:status"), None);
    let status = json!({"status": {"replicas": 1}, "spec": {"replicas": 9}});
    let reported =
        api.patch(&format!("{uri}/status?fieldManager=controller"), "merge-patch", &status).await.expect(200);
    let controller = entry(&reported, "controller");
    assert_eq!(controller["subresource"], "status");
    assert_eq!(controller["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
    let applied = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "status": {"replicas": 2}});
    let refused = apply(&api, &format!("{uri}/status"), "fieldManager=other", &applied).await.expect(409);
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"controller\" with subresource \"status\" using apps/v1: \
         .status.replicas"
    );
    let forced =
        apply(&api, &format!("{uri}/status"), "fieldManager=other&force=true", &applied).await.expect(200);
    assert_eq!((&forced["status"]["replicas"], &forced["spec"]["replicas"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn who_changes_nothing_but_ownership_has_no_time() {
    let api = Fixture::new().await;
    let uri = format!("{DEPLOYMENTS}/web");
    apply(&api, &uri, "fieldManager=me", &deployment(json!(1))).await.expect(201);
    let shared = apply(&api, &uri, "fieldManager=other", &deployment(json!(1))).await.expect(200);
    assert_eq!(entry(&shared, "other").get("time"), None);
    assert_eq!(shared["metadata"]["managedFields"][0]["manager"], "other", "it comes first");
}

#[tokio::test]
async fn apply_creates_updates_and_repeats() {
    let api = Fixture::new().await;
    let uri = format!("{DEPLOYMENTS}/web");
    let query = "fieldManager=me";
    let made = apply(&api, &uri, query, &deployment(json!(1))).await.expect(201);
    assert_eq!(made["spec"]["strategy"]["type"], "RollingUpdate", "defaults are filled in");
    assert_eq!(entry(&made, "me")["operation"], "Apply");
    assert_eq!(entry(&made, "me")["fieldsV1"]["f:spec"].get("f:strategy"), None, "but not owned");
    let again = apply(&api, &uri, query, &deployment(json!(1))).await.expect(200);
    assert_eq!(again, made, "neither the version nor any time changes");
    let dry = apply(&api, &uri, "fieldManager=me&dryRun=All", &deployment(json!(5))).await.expect(200);
    assert_eq!(dry["spec"]["replicas"], 5);
    assert_eq!(api.get(&uri).await.expect(200), made);
    let mut less = deployment(json!(1));
    less["spec"].as_object_mut().unwrap().remove("replicas");
    less["metadata"]["labels"] = json!({"a": "b"});
    let changed = apply(&api, &uri, query, &less).await.expect(200);
    assert_eq!(changed["spec"]["replicas"], 1, "the default stands in for what is no longer applied");
    assert_eq!(entry(&changed, "me")["fieldsV1"]["f:metadata"], json!({"f:labels": {"f:a": {}}}));
    let unlabelled = apply(&api, &uri, query, &deployment(json!(2))).await.expect(200);
    assert_eq!(unlabelled["metadata"].get("labels"), None);
    assert_eq!(unlabelled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn conflicts_name_manager_and_field() {
    let api = Fixture::new().await;
    let uri = format!("{DEPLOYMENTS}/web");
    api.post(&format!("{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply"), &deployment(json!(1)))
        .await
        .expect(201);
    let wanted = deployment(json!(3));
    let refused = apply(&api, &uri, "fieldManager=me", &wanted).await.expect(409);
    assert_eq!(refused["reason"], "Conflict");
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: .spec.replicas"
    );
    assert_eq!(
        refused["details"],
        json!({"causes": [{"reason": "FieldManagerConflict", "field": ".spec.replicas",
            "message": "conflict with \"kubectl-client-side-apply\" using apps/v1"}]})
    );
    let forced = apply(&api, &uri, "fieldManager=me&force=true", &wanted).await.expect(200);
    assert_eq!(forced["spec"]["replicas"], 3);
    assert_eq!(entry(&forced, "kubectl-client-side-apply")["fieldsV1"]["f:spec"].get("f:replicas"), None);
}

#[tokio::test]
async fn what_apply_refuses() {
    let api = Fixture::new().await;
    let uri = format!("{DEPLOYMENTS}/web");
    let body = deployment(json!(1));
    let with = |path: &str, value: Value| {
        let mut body = body.clone();
        *body.pointer_mut(path).unwrap() = value;
        body
    };
    let meta = |field: &str, value: Value| {
        let mut body = body.clone();
        body["metadata"][field] = value;
        body
    };
    let no_manager = apply(&api, &uri, "", &body).await.expect(422);
    assert_eq!(
        no_manager["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let me = "fieldManager=me";
    let table = [
        (with("/kind", json!("Pod")), 400, "invalid object type: apps/v1, Kind=Pod"),
        (with("/apiVersion", json!("v1")), 400, "invalid object type: /v1, Kind=Deployment"),
        (
            with("/metadata/name", json!("b")),
            400,
            "the name of the object (b) does not match the name on the URL (web)",
        ),
        (
            meta("namespace", json!("x")),
            400,
            "the namespace of the object (x) does not match the namespace on the URL (default)",
        ),
        (meta("managedFields", json!([])), 400, "metadata.managedFields must be nil"),
        (
            meta("uid", json!("u")),
            409,
            "Operation cannot be fulfilled on deployments.apps \"web\": uid mismatch: the provided object specified uid u, \
             and no existing object was found",
        ),
        (
            with("/spec/replicas", json!("x")),
            500,
            "failed to create typed patch object (/web; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int \
             or float), got string",
        ),
    ];
    for (body, code, message) in table {
        let refused = apply(&api, &uri, me, &body).await.expect(code);
        assert_eq!(refused["message"], message);
        assert_eq!(refused.get("reason").is_none(), code == 500, "{refused}");
    }
    let mut nameless = body.clone();
    nameless["metadata"].as_object_mut().unwrap().remove("name");
    apply(&api, &uri, me, &nameless).await.expect(400);
    let unreadable =
        api.ask("PATCH", &format!("{uri}?{me}"), "application/apply-patch+yaml", "a: [").await.expect(400);
    assert_eq!(
        unreadable["message"],
        "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"
    );
    api.ask("PATCH", &format!("{uri}?{me}"), "application/apply-patch+yaml", "[]").await.expect(400);
    api.get(&uri).await.expect(404);
    // On an object that is there.
    apply(&api, &uri, me, &body).await.expect(201);
    apply(&api, &uri, me, &meta("resourceVersion", json!("999"))).await.expect(409);
    let other = apply(&api, &uri, me, &meta("uid", json!("u"))).await.expect(422);
    assert_eq!(other["details"]["causes"][0]["field"], "metadata.uid");
    let forced = api.patch(&format!("{uri}?force=true"), "merge-patch", &json!({})).await.expect(422);
    assert!(
        forced["message"]
            .as_str()
            .unwrap()
            .ends_with("force: Forbidden: may not be specified for non-apply patch")
    );
    apply(&api, &format!("{DEPLOYMENTS}/none/status"), me, &meta("name", json!("none"))).await.expect(404);
}

#[tokio::test]
async fn apply_follows_field_validation() {
    let api = Fixture::new().await;
    let uri = format!("{CONFIG_MAPS}/a?fieldManager=me");
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: '1'\n  k: '2'\n";
    let send = |query: &str| {
        let uri = format!("{uri}&dryRun=All{query}");
        let api = api.clone();
        async move { api.ask("PATCH", &uri, "application/apply-patch+yaml", twice).await }
    };
    let strict = send("&fieldValidation=Strict").await.expect(400);
    assert_eq!(
        strict["message"],
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"k\" already \
         set in map"
    );
    let warned = send("").await;
    assert_eq!(warned.expect(201)["data"]["k"], "2");
    assert_eq!(warned.header("warning"), r#"299 - "line 6: key \"k\" already set in map""#);
    assert_eq!(send("&fieldValidation=Ignore").await.header("warning"), "");
}

#[tokio::test]
async fn scaling_moves_the_replicas_to_who_scales() {
    let api = Fixture::new().await;
    let uri = format!("{DEPLOYMENTS}/web");
    apply(&api, &uri, "fieldManager=me", &deployment(json!(1))).await.expect(201);
    let scale = json!({"spec": {"replicas": 4}});
    api.patch(&format!("{uri}/scale?fieldManager=hpa"), "merge-patch", &scale).await.expect(200);
    let scaled = api.get(&uri).await.expect(200);
    assert_eq!(scaled["spec"]["replicas"], 4);
    assert_eq!(entry(&scaled, "me")["fieldsV1"]["f:spec"].get("f:replicas"), None);
    let hpa = entry(&scaled, "hpa");
    assert_eq!(hpa["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!((&hpa["subresource"], &hpa["apiVersion"]), (&json!("scale"), &json!("apps/v1")));
    let refused = apply(&api, &uri, "fieldManager=me", &deployment(json!(1))).await.expect(409);
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    // Applying to the scale itself.
    let config = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 6}});
    let conflict = apply(&api, &format!("{uri}/scale"), "fieldManager=b", &config).await.expect(409);
    assert!(
        conflict["message"].as_str().unwrap().ends_with("using autoscaling/v1: .spec.replicas"),
        "{conflict}"
    );
    let shown = apply(&api, &format!("{uri}/scale"), "fieldManager=b&force=true", &config).await.expect(200);
    assert_eq!((&shown["kind"], &shown["spec"]["replicas"]), (&json!("Scale"), &json!(6)));
    let scaled = api.get(&uri).await.expect(200);
    assert_eq!(entry(&scaled, "b")["operation"], "Apply");
    assert_eq!(entry(&scaled, "hpa"), &Value::Null);
}

#[tokio::test]
async fn kubectl_migrates_from_client_side_apply() {
    let api = Fixture::new().await;
    let uri = format!("{DEPLOYMENTS}/web");
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut live = deployment(json!(1));
    live["metadata"]["annotations"] = json!({LAST: format!("{}\n", deployment(json!(1)))});
    api.post(&format!("{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply"), &live).await.expect(201);
    let applied = apply(&api, &uri, "fieldManager=kubectl", &deployment(json!(2))).await.expect(200);
    assert_eq!(applied["spec"]["replicas"], 2);
    assert!(applied["metadata"]["annotations"][LAST].as_str().unwrap().contains("\"replicas\":2"));
    // kubectl's own way: a JSON patch that renames the manager, bound to the version it has seen.
    let version = &applied["metadata"]["resourceVersion"];
    let at = applied["metadata"]["managedFields"].as_array().unwrap();
    let at = at.iter().position(|e| e["manager"] == "kubectl-client-side-apply").unwrap();
    let operations = json!([
        {"op": "replace", "path": format!("/metadata/managedFields/{at}/manager"), "value": "kubectl"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version}]);
    let renamed = api.patch(&uri, "json-patch", &operations).await.expect(200);
    assert_eq!(entry(&renamed, "kubectl-client-side-apply"), &Value::Null);
    api.patch(&uri, "json-patch", &operations).await.expect(409);
}

#[tokio::test]
async fn owners_know_their_versions() {
    let api = Fixture::new().await;
    let v1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h";
    let v2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/h";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let config = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50, "scaleTargetRef": target}});
    let made = apply(&api, v1, "fieldManager=a", &config).await.expect(201);
    assert_eq!(entry(&made, "a")["apiVersion"], "autoscaling/v1");
    let newer = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 5, "scaleTargetRef": target}});
    let refused = apply(&api, v2, "fieldManager=b", &newer).await.expect(409);
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"a\": .spec.maxReplicas");
    let forced = apply(&api, v2, "fieldManager=b&force=true", &newer).await.expect(200);
    assert_eq!(entry(&forced, "b")["apiVersion"], "autoscaling/v2");
    assert_eq!(entry(&forced, "a")["apiVersion"], "autoscaling/v1");
    assert_eq!(forced["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
}

#[tokio::test]
async fn updates_without_a_change_are_no_writes() {
    let api = Fixture::new().await;
    let uri = format!("{CONFIG_MAPS}/a");
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    let made = api.post(&format!("{CONFIG_MAPS}?fieldManager=x"), &body).await.expect(201);
    let patched =
        api.patch(&format!("{uri}?fieldManager=y"), "merge-patch", &json!({"data": {"k": "1"}})).await;
    assert_eq!(patched.expect(200), made);
    assert_eq!(api.put(&format!("{uri}?fieldManager=z"), &body).await.expect(200), made);
}

/// Writes of a definition's status change its metadata, too; those of a custom resource do not.
#[tokio::test]
async fn who_applies_a_status_owns_what_it_changes() {
    let api = Fixture::new().await;
    let definition = definition(&json!({ "subresources": { "status": {} } }));
    establish(&api, &definition).await;
    let labels = json!({ "l": "1" });
    let name = "widgets.example.com";
    let uri = format!("{DEFINITIONS}/{name}/status");
    let accepted = json!({ "acceptedNames": definition["spec"]["names"], "storedVersions": ["v1"] });
    let sent = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": name, "labels": labels }, "status": accepted });
    let changed = apply(&api, &uri, "fieldManager=me&force=true", &sent).await.expect(200);
    assert_eq!(changed["metadata"]["labels"], labels);
    assert_eq!(entry(&changed, "me")["fieldsV1"]["f:metadata"], json!({ "f:labels": { "f:l": {} } }));
    let mut object = widget("w", &json!({}));
    api.post(WIDGETS, &object).await.expect(201);
    object["metadata"]["labels"] = labels;
    object["status"] = json!({ "ready": 1 });
    let status = format!("{WIDGETS}/w/status");
    let changed = apply(&api, &status, "fieldManager=me&force=true", &object).await.expect(200);
    assert_eq!(changed["metadata"]["labels"], Value::Null);
    assert_eq!(entry(&changed, "me")["fieldsV1"], json!({ "f:status": { "f:ready": {} } }));
}

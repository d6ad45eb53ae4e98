//! Create, update and patch.

use crate::support::*;
use serde_json::{Value, json};

#[tokio::test]
async fn create_stamps_what_the_server_owns() {
    let api = Fixture::new().await;
    let mut body = config_map("a");
    body["metadata"]["uid"] = "mine".into();
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    let made = api.post(CONFIG_MAPS, &body).await.expect(201);
    assert_ne!(made["metadata"]["uid"], "mine");
    assert_ne!(made["metadata"]["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(made["metadata"]["namespace"], "default");
    assert!(made["metadata"].get("selfLink").is_none());
    let read = api.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    assert_eq!(read, made);
    let again = api.post(CONFIG_MAPS, &body).await.expect(409);
    assert_eq!(again["reason"], "AlreadyExists");
    assert_eq!(again["message"], "configmaps \"a\" already exists");
}

#[tokio::test]
async fn generated_names_differ() {
    let api = Fixture::new().await;
    let body = json!({"metadata": {"generateName": "gen-"}});
    let one = api.post(CONFIG_MAPS, &body).await.expect(201);
    let two = api.post(CONFIG_MAPS, &body).await.expect(201);
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
    assert!(one["metadata"]["name"].as_str().unwrap().starts_with("gen-"));
    assert_eq!(one["kind"], "ConfigMap");
}

#[tokio::test]
async fn bad_identities_are_refused() {
    let api = Fixture::new().await;
    let mut other = config_map("a");
    other["metadata"]["namespace"] = "elsewhere".into();
    api.post(CONFIG_MAPS, &other).await.expect(400);
    api.post(CONFIG_MAPS, &json!({"kind": "Pod", "apiVersion": "v1"})).await.expect(400);
    api.post(CONFIG_MAPS, &json!({"kind": "ConfigMap", "apiVersion": "v2"})).await.expect(400);
    let mut versioned = config_map("a");
    versioned["metadata"]["resourceVersion"] = "1".into();
    let refused = api.post(CONFIG_MAPS, &versioned).await.expect(500);
    assert_eq!(refused["message"], "resourceVersion should not be set on objects to be created");
    assert_eq!(refused.get("reason"), None);
    // The store says so, after everybody else, and is not asked when nothing is to be written.
    versioned["metadata"]["name"] = "Not A Name".into();
    api.post(CONFIG_MAPS, &versioned).await.expect(422);
    versioned["metadata"]["name"] = "a".into();
    api.post(&format!("{CONFIG_MAPS}?dryRun=All"), &versioned).await.expect(201);
    let invalid = api.post(CONFIG_MAPS, &config_map("Not A Name")).await.expect(422);
    assert_eq!(invalid["details"]["causes"][0]["field"], "metadata.name");
    let nameless = api.post(CONFIG_MAPS, &json!({})).await.expect(422);
    assert_eq!(nameless["reason"], "Invalid");
    assert_eq!(api.get(CONFIG_MAPS).await.expect(200)["items"], json!([]));
}

/// Clients beside kubectl and helm send manifests as they are.
#[tokio::test]
async fn a_namespace_of_what_has_none_is_cleared() {
    let api = Fixture::new().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "wild", "namespace": "default"}, "rules": []});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let mut made = api.post(roles, &role).await.expect(201);
    assert!(made["metadata"].get("namespace").is_none(), "{made}");
    made["metadata"]["namespace"] = "kube-system".into();
    let updated = api.put(&format!("{roles}/wild"), &made).await.expect(200);
    assert!(updated["metadata"].get("namespace").is_none(), "{updated}");
}

#[tokio::test]
async fn updates_are_optimistic() {
    let api = Fixture::new().await;
    let uri = format!("{CONFIG_MAPS}/a");
    let first = api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let mut next = first.clone();
    next["data"]["k"] = "2".into();
    let second = api.put(&uri, &next).await.expect(200);
    assert!(version(&second) > version(&first));
    let stale = api.put(&uri, &next).await.expect(409);
    assert_eq!(
        stale["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    next["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let blind = api.put(&uri, &next).await.expect(200);
    assert_eq!(version(&blind), version(&second), "an update without a change is no write");
    next["metadata"]["uid"] = "other".into();
    let wrong = api.put(&uri, &next).await.expect(409);
    assert!(wrong["message"].as_str().unwrap().contains("Precondition failed: UID in precondition: other"));
    api.put(&format!("{CONFIG_MAPS}/b"), &config_map("b")).await.expect(404);
    api.put(&uri, &config_map("b")).await.expect(400);
}

#[tokio::test]
async fn leases_are_created_by_update_but_never_blindly_replaced() {
    let api = Fixture::new().await;
    let uri = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    let made = api.put(uri, &lease).await.expect(201);
    let refused = api.put(uri, &lease).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.resourceVersion");
    api.put(uri, &made).await.expect(200);
}

#[tokio::test]
async fn the_three_patches() {
    let api = Fixture::new().await;
    let uri = format!("{CONFIG_MAPS}/a");
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let merged = api.patch(&uri, "merge-patch", &json!({"data": {"k": null, "m": "1"}})).await.expect(200);
    assert_eq!(merged["data"], json!({"m": "1"}));
    let operations = json!([{"op": "test", "path": "/data/m", "value": "1"},
        {"op": "replace", "path": "/data/m", "value": "2"}]);
    let patched = api.patch(&uri, "json-patch", &operations).await.expect(200);
    assert_eq!(patched["data"], json!({"m": "2"}));
    api.patch(&uri, "json-patch", &operations).await.expect(422);
    let pods = format!("{PODS}/p");
    api.post(PODS, &pod("p")).await.expect(201);
    let strategic = json!({"spec": {"containers": [{"name": "c", "image": "j"}]}});
    let pod = api.patch(&pods, "strategic-merge-patch", &strategic).await.expect(200);
    assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(pod["spec"]["containers"][0]["image"], "j");
    assert_eq!(pod["metadata"]["uid"], api.get(&pods).await.json()["metadata"]["uid"]);
}

#[tokio::test]
async fn bad_patches_change_nothing() {
    let api = Fixture::new().await;
    let uri = format!("{CONFIG_MAPS}/a");
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    api.patch(&uri, "merge-patch", &json!([])).await.expect(400);
    api.patch(&uri, "json-patch", &json!({})).await.expect(400);
    api.patch(&uri, "merge-patch", &json!({"kind": "Pod"})).await.expect(422);
    api.patch(&uri, "merge-patch", &json!({"data": "text"})).await.expect(422);
    api.patch(&uri, "merge-patch", &json!({"metadata": {"resourceVersion": "99"}})).await.expect(409);
    api.ask("PATCH", &uri, "application/json", "{}").await.expect(415);
    api.patch(&format!("{CONFIG_MAPS}/b"), "merge-patch", &json!({})).await.expect(404);
    assert_eq!(api.get(&uri).await.json(), made);
}

#[tokio::test]
async fn concurrent_patches_all_count() {
    let api = Fixture::new().await;
    let uri = format!("{CONFIG_MAPS}/a");
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let patches = (0..4).map(|n| {
        let (api, uri) = (api.clone(), uri.clone());
        tokio::spawn(
            async move { api.patch(&uri, "merge-patch", &json!({"data": {format!("k{n}"): "1"}})).await },
        )
    });
    for patch in patches.collect::<Vec<_>>() {
        patch.await.unwrap().expect(200);
    }
    assert_eq!(api.get(&uri).await.json()["data"].as_object().unwrap().len(), 5);
}

#[tokio::test]
async fn dry_run_does_everything_but_the_write() {
    let api = Fixture::new().await;
    let made = api.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a")).await.expect(201);
    assert!(made["metadata"]["uid"].is_string());
    api.get(&format!("{CONFIG_MAPS}/a")).await.expect(404);
    api.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("A B")).await.expect(422);
    let real = api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let uri = format!("{CONFIG_MAPS}/a?dryRun=All");
    let patched = api.patch(&uri, "merge-patch", &json!({"data": {"k": "9"}})).await.expect(200);
    assert_eq!(patched["data"]["k"], "9");
    api.delete(&uri).await.expect(200);
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")).await.expect(200), real);
    api.post(&format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("b")).await.expect(422);
}

#[tokio::test]
async fn unknown_fields_are_judged() {
    let api = Fixture::new().await;
    let with_typo = |name: &str| {
        let mut body = config_map(name);
        body["dtaa"] = json!({});
        body
    };
    let warned = api.post(CONFIG_MAPS, &with_typo("a")).await;
    assert!(warned.expect(201).get("dtaa").is_none());
    assert_eq!(warned.header("warning"), "299 - \"unknown field \\\"dtaa\\\"\"");
    let ignored = api.post(&format!("{CONFIG_MAPS}?fieldValidation=Ignore"), &with_typo("b")).await;
    ignored.expect(201);
    assert_eq!(ignored.header("warning"), "");
    let strict =
        api.post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &with_typo("c")).await.expect(400);
    assert!(strict["message"].as_str().unwrap().contains("unknown field \"dtaa\""), "{strict}");
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec() {
    let api = Fixture::new().await;
    let base = "/apis/apps/v1/namespaces/default/deployments";
    let body = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let made = api.post(base, &body).await.expect(201);
    assert_eq!(made["metadata"]["generation"], 1);
    let uri = format!("{base}/d");
    let scaled = api.patch(&uri, "merge-patch", &json!({"spec": {"replicas": 3}})).await.expect(200);
    assert_eq!(scaled["metadata"]["generation"], 2);
    let labels = json!({"metadata": {"labels": {"x": "y"}, "generation": 9}});
    assert_eq!(api.patch(&uri, "merge-patch", &labels).await.expect(200)["metadata"]["generation"], 2);
    let status = json!({"status": {"replicas": 3}, "spec": {"replicas": 7}});
    let main = api.patch(&uri, "merge-patch", &json!({"status": {"replicas": 1}})).await.expect(200);
    assert_eq!(main["status"].get("replicas").unwrap_or(&Value::Null), &Value::Null);
    let updated = api.patch(&format!("{uri}/status"), "merge-patch", &status).await.expect(200);
    assert_eq!((&updated["status"]["replicas"], &updated["spec"]["replicas"]), (&json!(3), &json!(3)));
    assert_eq!(updated["metadata"]["generation"], 2);
}

/// What guards the cluster, or stands for one holder, is never replaced by somebody who has not seen it.
#[tokio::test]
async fn some_kinds_are_never_replaced_blindly() {
    let api = Fixture::new().await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let capacities = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities";
    for (uri, object) in [
        (hooks, json!({ "metadata": { "name": "a" } })),
        (capacities, json!({ "metadata": { "name": "a" }, "storageClassName": "s" })),
    ] {
        let made = api.post(uri, &object).await.expect(201);
        let one = format!("{uri}/a");
        let refused = api.put(&one, &object).await.expect(422);
        let cause = &refused["details"]["causes"][0];
        assert_eq!(
            (cause["field"].as_str(), cause["message"].as_str()),
            (Some("metadata.resourceVersion"), Some("Invalid value: 0x0: must be specified for an update"))
        );
        api.put(&one, &made).await.expect(200);
    }
}

/// As Go's client sends them: with the zeros of what the old API had.
#[tokio::test]
async fn an_event_of_the_new_api_goes_on_by_its_series() {
    let api = Fixture::new().await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({ "metadata": { "name": "e" }, "eventTime": "2026-01-01T00:00:00.000001Z", "type": "Normal",
        "reportingController": "a.b/c", "reportingInstance": "i", "action": "a", "reason": "r", "note": "n",
        "regarding": { "kind": "Pod", "namespace": "default", "name": "p" } });
    api.post(events, &event).await.expect(201);
    let one = format!("{events}/e");
    let mut again = api.get(&one).await.expect(200);
    again["series"] = json!({ "count": 2, "lastObservedTime": "2026-01-01T00:00:02.000000Z" });
    again["deprecatedSource"] = json!({});
    again["deprecatedFirstTimestamp"] = Value::Null;
    again["deprecatedLastTimestamp"] = Value::Null;
    assert_eq!(api.put(&one, &again).await.expect(200)["series"]["count"], 2);
    let refused = api.patch(&one, "merge-patch", &json!({ "note": "m" })).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "message");
    let core = "/api/v1/namespaces/default/events/e";
    assert_eq!(api.patch(core, "merge-patch", &json!({ "message": "m" })).await.expect(200)["message"], "m");
}

//! Deletion: grace, finalizers, preconditions, collections.

use crate::support::*;
use serde_json::json;

#[tokio::test]
async fn plain_objects_are_gone_at_once() {
    let api = Fixture::new().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let uri = format!("{CONFIG_MAPS}/a");
    let status = api.delete(&uri).await.expect(200);
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}));
    api.get(&uri).await.expect(404);
    let missing = api.delete(&uri).await.expect(404);
    assert_eq!(missing["message"], "configmaps \"a\" not found");
}

#[tokio::test]
async fn preconditions() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let uri = format!("{CONFIG_MAPS}/a");
    for wrong in [json!({"uid": "other"}), json!({"resourceVersion": "1000"})] {
        let body = json!({"preconditions": wrong}).to_string();
        let refused = api.ask("DELETE", &uri, "application/json", body).await.expect(409);
        assert!(refused["message"].as_str().unwrap().contains("in the precondition ("), "{refused}");
    }
    api.delete(&format!("{uri}?gracePeriodSeconds=x")).await.expect(400);
    api.get(&uri).await.expect(200);
}

#[tokio::test]
async fn options_that_cannot_be_read_have_upstreams_words_and_delete_nothing() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let scheme = "pkg/apis/meta/internalversion/scheme/register.go:27";
    let unknown = |kind: &str, version: &str| {
        format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{scheme}\"")
    };
    let parse = "couldn't get version/kind; json parse error: ";
    let of = "json: cannot unmarshal string into Go struct field ";
    for (body, words) in [
        (r#"{"kind":"ConfigMap","apiVersion":"v1"}"#, unknown("ConfigMap", "v1")),
        (r#"{"kind":"Pod"}"#, unknown("Pod", "meta.k8s.io/v1")),
        (r#"{"kind":"ListOptions","apiVersion":"v1"}"#, unknown("ListOptions", "v1")),
        (r#"{"kind":"ListOptions"}"#, "decoded object cannot be converted to DeleteOptions".to_owned()),
        (
            r#"{"kind":"Status","apiVersion":"v1"}"#,
            "decoded object cannot be converted to DeleteOptions".to_owned(),
        ),
        ("{", format!("{parse}unexpected end of JSON input")),
        ("x", format!("{parse}invalid character 'x' looking for beginning of value")),
        (r#"{"gracePeriodSeconds":"5"}"#, format!("{of}DeleteOptions.gracePeriodSeconds of type int64")),
        (r#"{"preconditions":"x"}"#, format!("{of}DeleteOptions.preconditions of type v1.Preconditions")),
    ] {
        for uri in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}/a")] {
            let refused = api.ask("DELETE", &uri, "application/json", body.to_owned()).await.expect(500);
            assert_eq!((refused["message"].as_str(), refused.get("reason")), (Some(&*words), None), "{body}");
        }
    }
    api.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    for taken in ["v1", "apps/v1", "meta.k8s.io/v1"] {
        let body =
            json!({"kind": "DeleteOptions", "apiVersion": taken, "dryRun": ["All"], "gracePeriodSeconds": 0});
        api.ask("DELETE", &format!("{CONFIG_MAPS}/a"), "application/json", body.to_string())
            .await
            .expect(200);
    }
    api.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
}

#[tokio::test]
async fn finalizers_hold_until_the_last_is_removed() {
    let api = Fixture::new().await;
    let mut body = config_map("a");
    body["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    api.post(CONFIG_MAPS, &body).await.expect(201);
    let uri = format!("{CONFIG_MAPS}/a");
    let marked = api.delete(&uri).await.expect(200);
    assert_eq!(marked["kind"], "ConfigMap");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let finalizers = |list: serde_json::Value| json!({"metadata": {"finalizers": list}});
    let added = finalizers(json!(["example.com/one", "example.com/new"]));
    api.patch(&uri, "merge-patch", &added).await.expect(422);
    api.patch(&uri, "merge-patch", &finalizers(json!(["example.com/one"]))).await.expect(200);
    api.get(&uri).await.expect(200);
    api.patch(&uri, "merge-patch", &finalizers(json!(null))).await.expect(200);
    api.get(&uri).await.expect(404);
}

#[tokio::test]
async fn propagation_becomes_finalizers() {
    let api = Fixture::new().await;
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
        let uri = format!("{CONFIG_MAPS}/a?propagationPolicy={policy}");
        let held = api.delete(&uri).await.expect(200);
        assert_eq!(held["metadata"]["finalizers"], json!([finalizer]));
        api.delete(&format!("{CONFIG_MAPS}/a?propagationPolicy=Background")).await.expect(200);
        api.get(&format!("{CONFIG_MAPS}/a")).await.expect(404);
    }
}

#[tokio::test]
async fn pods_get_grace() {
    let api = Fixture::new().await;
    let mut body = pod("p");
    body["spec"]["nodeName"] = "n".into();
    body["spec"]["terminationGracePeriodSeconds"] = 30.into();
    api.post(PODS, &body).await.expect(201);
    let uri = format!("{PODS}/p");
    let marked = api.delete(&uri).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["generation"], 2);
    let again = api.delete(&uri).await.expect(200);
    assert_eq!(
        version(&again),
        version(&marked),
        "a second deletion without a shorter grace changes nothing"
    );
    let shorter = api.delete(&format!("{uri}?gracePeriodSeconds=1")).await.expect(200);
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 1);
    let gone = api.delete(&format!("{uri}?gracePeriodSeconds=0")).await.expect(200);
    assert_eq!(gone["kind"], "Pod");
    api.get(&uri).await.expect(404);
}

#[tokio::test]
async fn unscheduled_pods_go_at_once() {
    let api = Fixture::new().await;
    api.post(PODS, &pod("p")).await.expect(201);
    api.delete(&format!("{PODS}/p")).await.expect(200);
    api.get(&format!("{PODS}/p")).await.expect(404);
}

#[tokio::test]
async fn collections_by_selector() {
    let api = Fixture::new().await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        api.post(CONFIG_MAPS, &labelled(name, app)).await.expect(201);
    }
    let dry = api.delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx&dryRun=All")).await.expect(200);
    assert_eq!(dry["items"].as_array().unwrap().len(), 2);
    let deleted = api.delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx")).await.expect(200);
    assert_eq!(deleted["kind"], "ConfigMapList");
    assert_eq!(deleted["items"].as_array().unwrap().len(), 2);
    let left = api.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
}

/// Jobs leave their pods behind where nothing is said, and who deletes them is told so.
#[tokio::test]
async fn jobs_that_leave_their_pods_behind() {
    let api = Fixture::new().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = |name: &str| {
        json!({ "metadata": { "name": name }, "spec": { "template": { "spec": { "restartPolicy": "Never",
        "containers": [{ "name": "c", "image": "i" }] } } } })
    };
    let words = "299 - \"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                 remove them or set propagationPolicy=Orphan to suppress this warning\"";
    for (query, warning) in [
        ("", words),
        ("?propagationPolicy=Background", ""),
        ("?propagationPolicy=Orphan", ""),
        ("?orphanDependents=true", ""),
    ] {
        api.post(jobs, &job("a")).await.expect(201);
        for path in [format!("{jobs}/a"), jobs.to_owned()] {
            let gone = api.delete(&format!("{path}{query}")).await;
            assert_eq!(gone.header("warning"), warning, "{path}{query}");
        }
        api.patch(&format!("{jobs}/a"), "merge-patch", &json!({ "metadata": { "finalizers": null } })).await;
        api.get(&format!("{jobs}/a")).await.expect(404);
    }
}

#[tokio::test]
async fn namespaces_terminate_before_they_go() {
    let api = Fixture::new().await;
    let made = api.post("/api/v1/namespaces", &json!({"metadata": {"name": "ns"}})).await.expect(201);
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["status"]["phase"], "Active");
    let held = api.delete("/api/v1/namespaces/ns").await.expect(200);
    assert_eq!(held["status"]["phase"], "Terminating");
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let again = api.delete("/api/v1/namespaces/ns").await.expect(200);
    assert_eq!(version(&again), version(&held));
    let mut done = held.clone();
    done["spec"]["finalizers"] = json!([]);
    api.put("/api/v1/namespaces/ns/finalize", &done).await.expect(200);
    api.get("/api/v1/namespaces/ns").await.expect(404);
}

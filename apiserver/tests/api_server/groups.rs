//! Groups whose objects extend the API, resources that are stored in another version, and documents that clients keep.

use crate::support::*;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

const SCALERS: &str = "namespaces/default/horizontalpodautoscalers";

#[tokio::test]
async fn autoscalers_are_the_same_in_both_versions() {
    let api = Fixture::new().await;
    let (old, new) = (format!("/apis/autoscaling/v1/{SCALERS}"), format!("/apis/autoscaling/v2/{SCALERS}"));
    let scaler = json!({ "metadata": { "name": "h" }, "spec": { "maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } } });
    let made = api.post(&old, &scaler).await.expect(201);
    assert_eq!((&made["apiVersion"], &made["spec"]["minReplicas"]), (&json!("autoscaling/v1"), &json!(1)));
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 50);
    let seen = api.get(&format!("{new}/h")).await.expect(200);
    assert_eq!(seen["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
    let mut changed = seen.clone();
    changed["spec"]["metrics"].as_array_mut().unwrap().push(json!({ "type": "Pods", "pods": {
        "metric": { "name": "m" }, "target": { "type": "AverageValue", "averageValue": "2" } } }));
    changed["spec"]["behavior"] = json!({ "scaleDown": { "stabilizationWindowSeconds": 7 } });
    api.put(&format!("{new}/h"), &changed).await.expect(200);
    let list = api.get(&old).await.expect(200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("HorizontalPodAutoscalerList"), &json!("autoscaling/v1"))
    );
    let shown = &list["items"][0];
    assert!(
        shown["kind"].is_null() && shown["apiVersion"].is_null(),
        "as where nothing is converted: {shown}"
    );
    let annotation = |name: &str| {
        let text =
            shown["metadata"]["annotations"][format!("autoscaling.alpha.kubernetes.io/{name}")].as_str();
        serde_json::from_str::<Value>(text.unwrap()).unwrap()
    };
    assert_eq!(annotation("metrics")[0]["pods"]["targetAverageValue"], "2");
    assert_eq!(annotation("behavior")["ScaleDown"]["StabilizationWindowSeconds"], 7);
    // What is written back in the old version is not lost in the new one.
    api.put(&format!("{old}/h"), shown).await.expect(200);
    let again = api.get(&format!("{new}/h")).await.expect(200);
    assert_eq!(again["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"], 7);
    assert_eq!(again["spec"]["metrics"].as_array().unwrap().len(), 2);
    assert!(again["metadata"].get("annotations").is_none());
}

#[tokio::test]
async fn definitions_are_kept_and_checked() {
    let api = Fixture::new().await;
    let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "additionalProperties": { "type": "string" } } } });
    let definition = json!({ "metadata": { "name": "widgets.example.com" }, "spec": { "group": "example.com",
        "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
        "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } });
    let made = api.post(uri, &definition).await.expect(201);
    assert_eq!(
        (&made["metadata"]["generation"], &made["spec"]["names"]["listKind"]),
        (&json!(1), &json!("WidgetList"))
    );
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let mut wrong = definition.clone();
    wrong["metadata"]["name"] = "x".into();
    let status = api.post(uri, &wrong).await.expect(422);
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
    let mut changed = made.clone();
    changed["spec"]["versions"][0]["served"] = false.into();
    assert_eq!(
        api.put(&format!("{uri}/widgets.example.com"), &changed).await.expect(200)["metadata"]["generation"],
        2
    );
}

#[tokio::test]
async fn services_of_the_api_are_local() {
    let api = Fixture::new().await;
    let uri = "/apis/apiregistration.k8s.io/v1/apiservices";
    let service = json!({ "metadata": { "name": "v1.example.com" }, "spec": { "group": "example.com", "version": "v1",
        "groupPriorityMinimum": 1, "versionPriority": 1 } });
    let made = api.post(uri, &service).await.expect(201);
    assert_eq!(made["status"]["conditions"][0]["reason"], "Local");
    let mut core = service.clone();
    core["metadata"]["name"] = "v1.".into();
    core["spec"]["group"] = "".into();
    api.post(uri, &core).await.expect(201);
}

/// The index of OpenAPI v3 holds hashes; with the right one a document is kept, with an old one the client is sent on.
#[tokio::test]
async fn documents_are_kept_by_their_hash() {
    let api = Fixture::new().await;
    let index = api.get("/openapi/v3").await.expect(200);
    let address = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let ask = async |uri: &str, tag: &str| {
        let request = Request::get(uri).header("if-none-match", tag).header("accept", "application/json");
        api.send(request.body(Body::empty()).unwrap()).await
    };
    let kept = ask(&address, "").await;
    assert_eq!(kept.status(), 200);
    assert_eq!(kept.headers()["cache-control"], "public, immutable");
    assert!(kept.headers().contains_key("expires"));
    let tag = kept.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(ask(&address, &tag).await.status(), 304);
    let (path, _) = address.split_once('?').unwrap();
    let moved = ask(&format!("{path}?hash=OLD"), "").await;
    assert_eq!((moved.status().as_u16(), moved.headers()["location"].to_str().unwrap()), (301, &*address));
    let plain = ask(path, "").await;
    assert!(plain.status() == 200 && !plain.headers().contains_key("expires"));
}

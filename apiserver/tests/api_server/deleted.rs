//! What DELETE answers, on every resource of the catalogue: the object or a Status, as the published OpenAPI says (which
//! is compared with facts of upstream's elsewhere).

use crate::support::*;
use coracle_api::{Resource, catalogue};
use coracle_apiserver::store::{Durability, Op, Txn};
use serde_json::{Value, json};
use std::sync::Arc;

fn path(resource: &Resource, namespace: &str) -> String {
    let root =
        if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
    let scope = if resource.namespaced { format!("namespaces/{namespace}/") } else { String::new() };
    format!("{root}/{}/{scope}{}", resource.version, resource.plural)
}

/// Puts an object into the store that has metadata only: what it must have beside that is not this test's business.
async fn store(api: &Fixture, resource: &Resource, finalizers: &Value) {
    let mut metadata = json!({ "name": "x", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" });
    if resource.namespaced {
        metadata["namespace"] = "default".into();
    }
    if finalizers.is_array() {
        metadata["finalizers"] = finalizers.clone();
    }
    let namespace = if resource.namespaced { "default" } else { "" };
    let (kind, version) = (&resource.storage.kind, resource.storage_api_version());
    let value = format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata}}}"#);
    let put = Op::Put { key: format!("{}/{namespace}/x", resource.storage.key).into(), value: value.into() };
    let registry = api.api.registry();
    let txn = Txn { guards: Vec::new(), ops: vec![put], durability: Durability::Synced };
    let revision = registry.store.commit(txn).await.unwrap();
    assert!(registry.cache.wait_for(revision, PATIENCE).await);
}

/// The kind of the answer that the documents promise.
fn promised(documents: &Value, resource: &Resource) -> String {
    let path = format!("{}/{{name}}", path(resource, "{namespace}"));
    let schema = &documents["paths"][&path]["delete"]["responses"]["200"]["schema"]["$ref"];
    schema.as_str().unwrap_or_else(|| panic!("{path}")).rsplit('.').next().unwrap().to_owned()
}

#[tokio::test]
async fn every_deletion_is_answered_as_published() {
    let api = Fixture::new().await;
    let documents = api.get("/openapi/v2").await.expect(200);
    let mut with_object = 0;
    // A definition waits for its instances, and is shown as it waits.
    let at_once =
        |r: &&Arc<Resource>| r.is_stored() && r.supports("delete") && r.plural != "customresourcedefinitions";
    for resource in catalogue::catalogue().iter().filter(at_once) {
        let uri = format!("{}/x", path(resource, "default"));
        store(&api, resource, &Value::Null).await;
        // Jobs and ReplicationControllers would be held to leave their pods behind.
        let answer = api.delete(&format!("{uri}?propagationPolicy=Background")).await.expect(200);
        assert_eq!(answer["kind"], promised(&documents, resource).as_str(), "{uri}");
        if answer["kind"] == "Status" {
            let mut details = json!({ "name": "x", "kind": resource.plural, "uid": "u" });
            if !resource.group.is_empty() {
                details["group"] = (*resource.group).into();
            }
            assert_eq!((&answer["status"], &answer["details"]), (&json!("Success"), &details), "{uri}");
        } else {
            with_object += 1;
            assert_eq!(
                (&answer["metadata"]["name"], &answer["apiVersion"]),
                (&json!("x"), &json!(resource.api_version()))
            );
        }
        api.get(&uri).await.expect(404);
    }
    assert_eq!(with_object, 16, "upstream's that return what they delete");
}

#[tokio::test]
async fn what_finalizers_hold_is_answered_with_the_object() {
    let api = Fixture::new().await;
    for resource in catalogue::catalogue().iter().filter(|r| r.is_stored() && r.supports("delete")) {
        let uri = format!("{}/x", path(resource, "default"));
        store(&api, resource, &json!(["example.com/hold"])).await;
        let answer = api.delete(&uri).await.expect(200);
        assert_eq!(
            (&answer["kind"], &answer["apiVersion"]),
            (&json!(resource.kind), &json!(resource.api_version())),
            "{uri}"
        );
        assert!(answer["metadata"]["deletionTimestamp"].is_string(), "{uri}");
        let kept = api.get(&uri).await.expect(200);
        assert_eq!(version(&kept), version(&answer), "{uri}");
    }
}

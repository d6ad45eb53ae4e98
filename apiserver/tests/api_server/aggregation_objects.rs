//! What aggregation writes into the API, and leaves to others.

use super::*;

#[tokio::test]
async fn custom_groups_have_api_services() {
    let fixture = Fixture::new().await;
    fixture.api.maintain_definitions();
    fixture.api.maintain_aggregation();
    let version = |name: &str, served: bool, storage: bool| {
        json!({ "name": name, "served": served, "storage": storage,
            "schema": { "openAPIV3Schema": { "type": "object" } } })
    };
    let names = json!({ "plural": "crates", "singular": "crate", "kind": "Crate", "listKind": "CrateList" });
    let definition = json!({
        "metadata": { "name": "crates.cargo.io" },
        "spec": { "group": "cargo.io", "scope": "Namespaced", "names": names,
            "versions": [version("v1", true, true), version("v1beta1", true, false), version("v0", false, false)] },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    fixture.post(path, &definition).await.expect(201);
    for name in ["v1.cargo.io", "v1beta1.cargo.io"] {
        let found = until(&fixture, name, "Local").await;
        assert_eq!(found["message"], "Local APIServices are always available");
        let object = fixture.get(&format!("{API_SERVICES}/{name}")).await.expect(200);
        assert_eq!(object["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
        assert_eq!(
            (&object["spec"]["groupPriorityMinimum"], &object["spec"]["versionPriority"]),
            (&json!(1000), &json!(100))
        );
    }
    fixture.get(&format!("{API_SERVICES}/v0.cargo.io")).await.expect(404);
    // What is deleted comes back as long as the group is there.
    fixture.delete(&format!("{API_SERVICES}/v1.cargo.io")).await.expect(200);
    until(&fixture, "v1.cargo.io", "Local").await;
    fixture.delete(&format!("{path}/crates.cargo.io")).await;
    let deadline = Instant::now() + PATIENCE / 3;
    while fixture.get(&format!("{API_SERVICES}/v1.cargo.io")).await.status != 404 {
        assert!(Instant::now() < deadline, "the APIService is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn status_is_for_everybody_to_write() {
    let world = World::aggregated().await;
    let path = format!("{API_SERVICES}/v1.toy.io");
    let mut object = world.fixture.get(&path).await.expect(200);
    let extra =
        json!({ "type": "StatusUpdated", "status": "True", "reason": "E2E", "message": "Set from e2e test" });
    object["status"]["conditions"].as_array_mut().unwrap().push(extra);
    world.fixture.put(&format!("{path}/status"), &object).await.expect(200);
    // The aggregator writes its own condition and leaves this one.
    world.fixture.delete(&format!("{SLICES}/toy-1")).await.expect(200);
    world.until("EndpointsNotFound").await;
    let conditions = world.fixture.get(&path).await.expect(200)["status"]["conditions"].clone();
    let types: Vec<&str> =
        conditions.as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["Available", "StatusUpdated"]);
}

#[tokio::test]
async fn whom_to_trust_is_kept() {
    let world = World::new().await;
    let namespace = json!({ "metadata": { "name": "kube-system" } });
    world.fixture.post("/api/v1/namespaces", &namespace).await;
    let path = "/api/v1/namespaces/kube-system/configmaps";
    let one = format!("{path}/extension-apiserver-authentication");
    let deadline = Instant::now() + PATIENCE / 3;
    let found = loop {
        let found = world.fixture.get(&one).await;
        if found.status == 200 {
            break found.json();
        }
        assert!(Instant::now() < deadline, "no ConfigMap");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(found["data"]["requestheader-username-headers"], "[\"X-Remote-User\"]");
    let ca = found["data"]["requestheader-client-ca-file"].as_str().unwrap().to_owned();
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----"), "{ca}");
    let spoilt =
        json!({ "data": { "requestheader-client-ca-file": "evil", "requestheader-allowed-names": null } });
    world.fixture.patch(&one, "merge-patch", &spoilt).await.expect(200);
    loop {
        let data = world.fixture.get(&one).await.expect(200)["data"].clone();
        if data["requestheader-client-ca-file"] == *ca && data["requestheader-allowed-names"].is_string() {
            break;
        }
        assert!(Instant::now() < deadline, "it stays spoilt: {data}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.fixture.delete(&one).await.expect(200);
    while world.fixture.get(&one).await.status != 200 {
        assert!(Instant::now() < deadline, "it stays deleted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

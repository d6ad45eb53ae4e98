//! What aggregated servers publish, in the documents of this one.

use super::*;

#[tokio::test]
async fn documents_are_merged() {
    let world = World::aggregated().await;
    let found = world.discovers(|v| v["freshness"] == "Current").await;
    assert_eq!(found["resources"][0]["resource"], "things");
    assert_eq!(found["resources"][0]["subresources"][0]["subresource"], "shell");
    let groups = world.fixture.get("/apis").await.expect(200);
    let toy = groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "toy.io").unwrap();
    assert_eq!(toy["preferredVersion"]["groupVersion"], "toy.io/v1");
    assert_eq!(world.fixture.get("/apis/toy.io").await.expect(200)["kind"], "APIGroup");
    assert_eq!(world.fixture.get("/apis/toy.io/v1").await.expect(200)["resources"][0]["name"], "things");
    let deadline = Instant::now() + PATIENCE / 3;
    let v3 = loop {
        let v3 = world.fixture.get("/openapi/v3").await.expect(200);
        if v3["paths"]["apis/toy.io/v1"].is_object() || Instant::now() > deadline {
            break v3;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let url = v3["paths"]["apis/toy.io/v1"]["serverRelativeURL"].as_str().expect("the toy's document");
    assert_eq!(url, "/openapi/v3/apis/toy.io/v1?hash=ABC");
    assert_eq!(world.fixture.get(url).await.expect(200)["of"], "toy");
    let apps = v3["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(!apps.contains("EVIL"), "{apps}");
    let v2 = world.fixture.get_as("/openapi/v2", "application/json").await.expect(200);
    assert!(v2["paths"]["/apis/toy.io/v1/things"].is_object());
    assert!(v2["definitions"]["io.toy.v1.Thing"].is_object());
    assert!(v2["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["get"].is_object());
    assert!(v2["paths"].get("/apis/apps/v1/deployments").is_none_or(|p| p["get"] != "evil"));
}

/// `kubectl explain` and `apply` ask for v3 of everybody.
#[tokio::test]
async fn who_publishes_v2_alone_is_shown_in_v3() {
    let world = World::new().await;
    world.toy.set(Mood::Old);
    world.register(&world.toy.api_service("toy")).await;
    world.until("Passed").await;
    let deadline = Instant::now() + PATIENCE / 3;
    let url = loop {
        let v3 = world.fixture.get("/openapi/v3").await.expect(200);
        match v3["paths"]["apis/toy.io/v1"]["serverRelativeURL"].as_str() {
            Some(url) => break url.to_owned(),
            None => assert!(Instant::now() < deadline, "last: {}", v3["paths"]),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let document = world.fixture.get(&url).await.expect(200);
    assert_eq!(document["openapi"], "3.0.0");
    assert_eq!(document["components"]["schemas"]["io.toy.v1.Thing"]["type"], "object");
    assert!(document["paths"]["/apis/toy.io/v1/things"]["get"].is_object());
    let (path, hash) = url.split_once("?hash=").unwrap();
    assert!(hash.len() > 20, "{hash}");
    let moved = world.fixture.get(&format!("{path}?hash=OLD")).await;
    assert_eq!(moved.status, 301);
    assert_eq!(world.fixture.get("/openapi/v3/apis/toy.io/v2").await.status, 404);
}

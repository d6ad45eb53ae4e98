//! Lists: selectors, pages, versions.

use crate::support::*;
use serde_json::{Value, json};

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

async fn with_config_maps(count: usize) -> Fixture {
    let api = Fixture::new().await;
    for n in 0..count {
        api.post(CONFIG_MAPS, &config_map(&format!("c{n:02}"))).await.expect(201);
    }
    api
}

#[tokio::test]
async fn items_are_whole_and_versioned() {
    let api = with_config_maps(2).await;
    let list = api.get(CONFIG_MAPS).await.expect(200);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(names(&list), ["c00", "c01"]);
    for item in list["items"].as_array().unwrap() {
        let uri = format!("{CONFIG_MAPS}/{}", item["metadata"]["name"].as_str().unwrap());
        let single = api.get(&uri).await.json();
        assert_eq!(single["metadata"], item["metadata"]);
        assert_eq!(single["data"], item["data"]);
    }
    assert!(version(&list) >= version(&list["items"][1]));
    assert_eq!(names(&api.get("/api/v1/configmaps").await.expect(200)), ["c00", "c01"]);
    assert!(names(&api.get("/api/v1/namespaces/other/configmaps").await.expect(200)).is_empty());
}

#[tokio::test]
async fn selectors() {
    let api = Fixture::new().await;
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        api.post(CONFIG_MAPS, &labelled(name, app)).await.expect(201);
    }
    let table: [(&str, &[&str]); 7] = [
        ("labelSelector=app%3Dx", &["a", "c"]),
        ("labelSelector=app!%3Dx", &["b"]),
        ("labelSelector=app+in+(x,y)", &["a", "b", "c"]),
        ("labelSelector=!app", &[]),
        ("fieldSelector=metadata.name%3Db", &["b"]),
        ("fieldSelector=metadata.name!%3Db", &["a", "c"]),
        ("labelSelector=app%3Dx&fieldSelector=metadata.name%3Dc", &["c"]),
    ];
    for (query, expected) in table {
        assert_eq!(names(&api.get(&format!("{CONFIG_MAPS}?{query}")).await.expect(200)), expected, "{query}");
    }
    for bad in ["fieldSelector=spec.nope%3Dx", "labelSelector=a%3D%3D%3Db", "fieldSelector=x"] {
        api.get(&format!("{CONFIG_MAPS}?{bad}")).await.expect(400);
    }
    let mut body = pod("p");
    body["spec"]["nodeName"] = "n1".into();
    api.post(PODS, &body).await.expect(201);
    api.post(PODS, &pod("q")).await.expect(201);
    assert_eq!(names(&api.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await.expect(200)), ["p"]);
    assert_eq!(names(&api.get("/api/v1/pods?fieldSelector=spec.nodeName%3D").await.expect(200)), ["q"]);
}

#[tokio::test]
async fn pages_show_one_moment() {
    let api = with_config_maps(7).await;
    let first = api.get(&format!("{CONFIG_MAPS}?limit=3")).await.expect(200);
    assert_eq!(names(&first), ["c00", "c01", "c02"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    api.post(CONFIG_MAPS, &config_map("c035")).await.expect(201);
    api.delete(&format!("{CONFIG_MAPS}/c04")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{CONFIG_MAPS}?limit=3&continue={token}")).await.expect(200);
    assert_eq!(names(&second), ["c03", "c04", "c05"]);
    assert_eq!(version(&second), version(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = api.get(&format!("{CONFIG_MAPS}?limit=3&continue={token}")).await.expect(200);
    assert_eq!(names(&last), ["c06"]);
    assert!(last["metadata"].get("continue").is_none());
    assert!(last["metadata"].get("remainingItemCount").is_none());
    api.get(&format!("{CONFIG_MAPS}?continue=nonsense")).await.expect(400);
    api.get(&format!("{CONFIG_MAPS}?continue={token}&resourceVersion=5")).await.expect(400);
}

#[tokio::test]
async fn expired_pages_offer_the_rest() {
    let api = with_config_maps(4).await;
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let changed = api.post(CONFIG_MAPS, &config_map("c99")).await.expect(201);
    let store = &api.api.registry().store;
    store.compact(coracle_apiserver::store::Revision(version(&changed))).await.unwrap();
    let expired = api.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await.expect(410);
    assert_eq!(expired["reason"], "Expired");
    assert!(expired["message"].as_str().unwrap().starts_with("The provided continue parameter is too old"));
    let rest = expired["metadata"]["continue"].as_str().unwrap();
    let list = api.get(&format!("{CONFIG_MAPS}?continue={rest}")).await.expect(200);
    assert_eq!(names(&list), ["c02", "c03", "c99"]);
}

/// A page's revision ends with the store's history, whether its own resource has changed since or not.
#[tokio::test]
async fn pages_of_what_is_unchanged_expire_too() {
    let api = with_config_maps(4).await;
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let secret = json!({ "metadata": { "name": "s" } });
    let other = api.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let store = &api.api.registry().store;
    store.compact(coracle_apiserver::store::Revision(version(&other))).await.unwrap();
    let expired = api.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await.expect(410);
    let rest = expired["metadata"]["continue"].as_str().unwrap();
    let list = api.get(&format!("{CONFIG_MAPS}?limit=1&continue={rest}")).await.expect(200);
    assert_eq!((names(&list), &list["metadata"]["remainingItemCount"]), (vec!["c02"], &json!(1)));
    assert_ne!(version(&list), version(&first));
}

#[tokio::test]
async fn resource_versions() {
    let api = with_config_maps(2).await;
    let then = version(&api.get(CONFIG_MAPS).await.json());
    api.post(CONFIG_MAPS, &config_map("c02")).await.expect(201);
    let exact = format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let old = api.get(&exact).await.expect(200);
    assert_eq!((names(&old), version(&old)), (vec!["c00", "c01"], then));
    for query in ["resourceVersion=0", &format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan")] {
        assert_eq!(names(&api.get(&format!("{CONFIG_MAPS}?{query}")).await.expect(200)).len(), 3);
    }
    let future = api.get(&format!("{CONFIG_MAPS}?resourceVersion=100000")).await.expect(504);
    assert_eq!(future["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(future["details"]["retryAfterSeconds"], 1);
    api.get(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact")).await.expect(422);
    api.get(&format!("{CONFIG_MAPS}?resourceVersion=0&resourceVersionMatch=Exact")).await.expect(422);
    api.get(&format!("{CONFIG_MAPS}?resourceVersion=abc")).await.expect(400);
}

#[tokio::test]
async fn a_restart_keeps_objects_and_versions() {
    let store: std::sync::Arc<dyn coracle_apiserver::store::Store> =
        coracle_apiserver::store::MemoryStore::new();
    let before = Fixture::over(store.clone()).await;
    let made = before.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let after = Fixture::over(store).await;
    assert_eq!(after.get(&format!("{CONFIG_MAPS}/a")).await.expect(200), made);
}

//! Watches: order, selectors, resumption, bookmarks, ends.

use crate::support::*;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn events_come_in_order_and_from_the_start() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("old")).await.expect(201);
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    assert_eq!(watch.brief().await, "ADDED old");
    api.post(CONFIG_MAPS, &config_map("new")).await.expect(201);
    let patched = api
        .patch(&format!("{CONFIG_MAPS}/new"), "merge-patch", &json!({"data": {"k": "2"}}))
        .await
        .expect(200);
    api.delete(&format!("{CONFIG_MAPS}/old")).await.expect(200);
    assert_eq!(watch.brief().await, "ADDED new");
    let modified = watch.next().await.unwrap();
    assert_eq!(modified["type"], "MODIFIED");
    assert_eq!(modified["object"], patched);
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["name"], "old");
    assert!(version(&deleted["object"]) > version(&patched), "a deletion has a version of its own");
}

#[tokio::test]
async fn many_watchers_see_the_same_order() {
    let api = Fixture::new().await;
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(api.watch(&format!("{CONFIG_MAPS}?watch=true")).await);
    }
    let writers = (0..8).map(|n| {
        let api = api.clone();
        tokio::spawn(async move {
            for m in 0..10 {
                api.post(CONFIG_MAPS, &config_map(&format!("c-{n}-{m}"))).await.expect(201);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let mut orders = Vec::new();
    for watch in &mut watches {
        let mut versions = Vec::new();
        for _ in 0..80 {
            versions.push(version(&watch.next().await.unwrap()["object"]));
        }
        assert!(versions.is_sorted());
        orders.push(versions);
    }
    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn selectors_turn_updates_into_additions_and_deletions() {
    let api = Fixture::new().await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=app%3Dx")).await;
    let uri = format!("{CONFIG_MAPS}/a");
    let label = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    api.post(CONFIG_MAPS, &labelled("a", "y")).await.expect(201);
    api.patch(&uri, "merge-patch", &label("x")).await.expect(200);
    api.patch(&uri, "merge-patch", &json!({"data": {"k": "v"}})).await.expect(200);
    let gone = api.patch(&uri, "merge-patch", &label("y")).await.expect(200);
    api.patch(&uri, "merge-patch", &label("x")).await.expect(200);
    api.delete(&uri).await.expect(200);
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(watch.brief().await, "MODIFIED a");
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["labels"]["app"], "x", "the last state that matched");
    assert_eq!(version(&deleted["object"]), version(&gone));
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(watch.brief().await, "DELETED a");
}

#[tokio::test]
async fn resumes_without_gaps_from_memory_and_from_the_store() {
    let store: std::sync::Arc<dyn coracle_apiserver::store::Store> =
        coracle_apiserver::store::MemoryStore::new();
    let api = Fixture::over(store.clone()).await;
    let start = version(&api.post(CONFIG_MAPS, &config_map("a")).await.expect(201));
    api.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    api.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    api.post("/api/v1/namespaces/other/configmaps", &config_map("z")).await.expect(201);
    let restarted = Fixture::over(store).await;
    for server in [&api, &restarted] {
        let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={start}")).await;
        assert_eq!(watch.brief().await, "ADDED b");
        assert_eq!(watch.brief().await, "DELETED a");
        server.post(CONFIG_MAPS, &config_map("c")).await.expect(201);
        assert_eq!(watch.brief().await, "ADDED c");
        server.delete(&format!("{CONFIG_MAPS}/c")).await.expect(200);
    }
}

#[tokio::test]
async fn too_old_is_gone() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let newest = version(&api.post(CONFIG_MAPS, &config_map("b")).await.expect(201));
    let store = api.api.registry().store.clone();
    store.compact(coracle_apiserver::store::Revision(newest)).await.unwrap();
    // A server that has seen the events itself still knows them; a fresh one depends on the store.
    let fresh = Fixture::over(store).await;
    let mut watch = fresh.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1")).await;
    let error = watch.next().await.unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!((&error["object"]["code"], &error["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert!(error["object"]["message"].as_str().unwrap().starts_with("too old resource version: 1 ("));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.brief().await, "ADDED a");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(bookmark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    api.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED b");
    api.get(&format!("{CONFIG_MAPS}?watch=true&sendInitialEvents=true")).await.expect(422);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_follow_the_store() {
    let api = Fixture::new().await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true")).await;
    let elsewhere = api.post("/api/v1/namespaces/other/configmaps", &config_map("z")).await.expect(201);
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(version(&bookmark["object"]), version(&elsewhere));
}

#[tokio::test(start_paused = true)]
async fn timeouts_end_watches() {
    let api = Fixture::new().await;
    let begun = tokio::time::Instant::now();
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=5")).await;
    assert!(watch.next().await.is_none());
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn the_end_of_the_server_ends_watches() {
    let api = Fixture::new().await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    api.api.stop().cancel();
    let ended = tokio::time::timeout(Duration::from_secs(1), watch.next()).await;
    assert!(ended.unwrap().is_none());
}

#[tokio::test]
async fn slow_watchers_are_told_to_start_again() {
    let api = Fixture::new().await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let uri = format!("{CONFIG_MAPS}/a");
    for n in 0..coracle_apiserver::cache::QUEUE_EVENTS + 10 {
        api.patch(&uri, "merge-patch", &json!({"data": {"n": n.to_string()}})).await.expect(200);
    }
    let mut last = watch.next().await.unwrap();
    while let Some(event) = watch.next().await {
        last = event;
    }
    assert_eq!(last["type"], "ERROR");
    assert_eq!(last["object"]["code"], 410);
}

#[tokio::test]
async fn one_object_and_namespaces() {
    let api = Fixture::new().await;
    let mut one = api.watch(&format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Db")).await;
    let mut old_form = api.watch("/api/v1/watch/namespaces/default/configmaps/b").await;
    let mut all = api.watch("/api/v1/configmaps?watch=1").await;
    api.post("/api/v1/namespaces/other/configmaps", &config_map("b")).await.expect(201);
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let made = api.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    assert_eq!(one.next().await.unwrap()["object"], made);
    assert_eq!(old_form.next().await.unwrap()["object"], made);
    for name in ["ADDED b", "ADDED a", "ADDED b"] {
        assert_eq!(all.brief().await, name);
    }
}

#[tokio::test]
async fn in_pieces_or_whole_it_is_the_same_watch() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("old")).await.expect(201);
    let uri = format!(
        "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let promise = coracle_api::Pieces::default();
    let mut request = http::Request::get(&uri).body(axum::body::Body::empty()).unwrap();
    request.extensions_mut().insert(promise.clone());
    let mut in_pieces = api.send(request).await.into_body();
    assert!(promise.promised());
    let mut whole =
        api.send(http::Request::get(&uri).body(axum::body::Body::empty()).unwrap()).await.into_body();
    // An initial object comes in three pieces, the bookmark that ends them in one.
    let initial = take(&mut in_pieces, 4).await;
    let lines = take(&mut whole, 1).await.concat();
    assert_eq!(initial.concat(), lines);
    api.patch(&format!("{CONFIG_MAPS}/old"), "merge-patch", &json!({"data": {"k": "2"}})).await.expect(200);
    let changed = take(&mut in_pieces, 3).await;
    assert_eq!(changed.concat(), take(&mut whole, 1).await.concat());
    assert!(changed[0].ends_with(b"\","), "{:?}", changed[0]);
    assert_eq!(&*changed[2], b"}\n");
    api.delete(&format!("{CONFIG_MAPS}/old")).await.expect(200);
    assert_eq!(take(&mut in_pieces, 3).await.concat(), take(&mut whole, 1).await.concat());
}

async fn take(body: &mut axum::body::Body, frames: usize) -> Vec<bytes::Bytes> {
    use http_body_util::BodyExt;
    let mut taken = Vec::new();
    for _ in 0..frames {
        let frame =
            tokio::time::timeout(Duration::from_secs(10), body.frame()).await.expect("no frame in time");
        taken.push(frame.unwrap().unwrap().into_data().unwrap());
    }
    taken
}

//! What a watch may be asked for, how it ends, and where it goes on.

use crate::support::*;
use coracle_apiserver::store::{MemoryStore, SledStore, Store};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const STREAMING: &str =
    "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

#[tokio::test]
async fn refusals_have_upstreams_words() {
    let api = Fixture::new().await;
    let invalid = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: ";
    let table = [
        (
            "sendInitialEvents=true",
            422,
            format!("{invalid}sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            422,
            format!("{invalid}resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
        ),
        (
            "resourceVersion=abc",
            422,
            "configmaps \"\" is invalid: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
             invalid syntax"
                .into(),
        ),
        ("timeoutSeconds=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".into()),
        ("fieldSelector=a%3Db", 400, "\"a\" is not a known field selector: ".into()),
    ];
    for (query, code, words) in table {
        let status = api.get(&format!("{CONFIG_MAPS}?watch=true&{query}")).await.expect(code);
        assert!(status["message"].as_str().unwrap().starts_with(&words), "{query}: {status}");
    }
    let other = "/api/v1/watch/namespaces/default/configmaps/a?fieldSelector=metadata.name%3Db";
    let status = api.get(other).await.expect(400);
    assert_eq!(status["message"], "fieldSelector metadata.name doesn't match requested name");
}

#[tokio::test]
async fn a_stream_of_the_future_tells_so() {
    let api = Fixture::new().await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{STREAMING}&resourceVersion=100000")).await;
    let error = watch.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(504)));
    assert_eq!(error["object"]["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert!(watch.next().await.is_none());
}

/// A watch from a revision that has not come waits for what comes after it.
#[tokio::test]
async fn plain_watches_of_the_future_wait() {
    let api = Fixture::new().await;
    let made = version(&api.post(CONFIG_MAPS, &config_map("a")).await.expect(201));
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", made + 1)).await;
    api.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    api.post(CONFIG_MAPS, &config_map("c")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED c");
}

#[tokio::test]
async fn streams_of_tables_and_metadata_end_their_initial_events() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let end = json!({"k8s.io/initial-events-end": "true"});
    for (accept, kind) in [
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "Table"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "PartialObjectMetadata"),
    ] {
        let request = http::Request::get(format!("{CONFIG_MAPS}?{STREAMING}&timeoutSeconds=1"));
        let answer =
            api.call(request.header("accept", accept).body(axum::body::Body::empty()).unwrap()).await;
        let lines = answer.body.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        let events: Vec<serde_json::Value> = lines.map(|l| serde_json::from_slice(l).unwrap()).collect();
        assert_eq!(events[0]["type"], "ADDED");
        let bookmark = &events[1];
        assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!(kind)));
        let object = &bookmark["object"];
        // A table's own metadata has no annotations: its one row does.
        let marked = if kind == "Table" { &object["rows"][0]["object"] } else { object };
        assert_eq!(marked["metadata"]["annotations"], end, "{bookmark}");
    }
}

/// Without bookmarks the initial events come all the same; nothing marks their end.
#[tokio::test]
async fn streams_without_bookmarks() {
    let api = Fixture::new().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.brief().await, "ADDED a");
    api.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED b");
    let none = "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{none}")).await;
    api.post(CONFIG_MAPS, &config_map("c")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_before_the_end() {
    let api = Fixture::new().await;
    let begun = tokio::time::Instant::now();
    let mut watch =
        api.watch(&format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=1&timeoutSeconds=150")).await;
    let mut at = Vec::new();
    while let Some(event) = watch.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        at.push(begun.elapsed().as_secs());
    }
    assert_eq!(begun.elapsed().as_secs(), 150);
    assert_eq!(at.len(), 3, "{at:?}");
    assert!((56..=64).contains(&at[0]) && (113..=127).contains(&at[1]), "{at:?}");
    assert_eq!(at[2], 148);
}

#[tokio::test(start_paused = true)]
async fn negative_timeouts_end_at_once() {
    let api = Fixture::new().await;
    let begun = tokio::time::Instant::now();
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=-1")).await;
    assert!(watch.next().await.is_none());
    assert_eq!(begun.elapsed().as_secs(), 0);
}

/// The node's own pods come and go as they are bound: the deleted event shows the last state that was selected, under the
/// revision of the change.
#[tokio::test]
async fn field_selectors_follow_changes() {
    let api = Fixture::new().await;
    let uri = "/api/v1/pods?watch=true&fieldSelector=status.phase%3DPending,spec.nodeName!%3Dx";
    let mut pending = api.watch(uri).await;
    let mut running = api.watch("/api/v1/pods?watch=true&fieldSelector=status.phase%3DRunning").await;
    let made = api.post(PODS, &pod("p")).await.expect(201);
    let status = json!({"status": {"phase": "Running"}});
    let changed = api.patch(&format!("{PODS}/p/status"), "merge-patch", &status).await.expect(200);
    assert_eq!(pending.brief().await, "ADDED p");
    let gone = pending.next().await.unwrap();
    assert_eq!((&gone["type"], &gone["object"]["status"]["phase"]), (&json!("DELETED"), &json!("Pending")));
    assert_eq!(version(&gone["object"]), version(&changed));
    assert_ne!(version(&gone["object"]), version(&made));
    let added = running.next().await.unwrap();
    assert_eq!((&added["type"], &added["object"]), (&json!("ADDED"), &changed));
}

#[tokio::test]
async fn old_paths_watch_collections_and_objects() {
    let api = Fixture::new().await;
    let mut everywhere = api.watch("/api/v1/watch/configmaps").await;
    let mut inside = api.watch("/api/v1/watch/namespaces/default/configmaps").await;
    let mut nodes = api.watch("/api/v1/watch/nodes/n1").await;
    api.post("/api/v1/namespaces/other/configmaps", &config_map("z")).await.expect(201);
    api.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for name in ["n0", "n1"] {
        let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}});
        api.post("/api/v1/nodes", &node).await.expect(201);
    }
    assert_eq!(everywhere.brief().await, "ADDED z");
    assert_eq!(everywhere.brief().await, "ADDED a");
    assert_eq!(inside.brief().await, "ADDED a");
    assert_eq!(nodes.brief().await, "ADDED n1");
}

/// What a client has seen before a restart, it need not see again: the journal holds the history.
#[tokio::test]
async fn watches_resume_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SledStore::open(dir.path().join("db"), Default::default()).unwrap();
    let store: Arc<dyn Store> = open();
    let before = Fixture::over(store.clone()).await;
    let seen = version(&before.post(CONFIG_MAPS, &config_map("a")).await.expect(201));
    before.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    before.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    store.close().await.unwrap();
    drop((before, store));
    let after = Fixture::over(open()).await;
    let mut watch = after.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={seen}")).await;
    assert_eq!(watch.brief().await, "ADDED b");
    assert_eq!(watch.brief().await, "DELETED a");
    after.post(CONFIG_MAPS, &config_map("c")).await.expect(201);
    assert_eq!(watch.brief().await, "ADDED c");
}

/// A thousand watchers, each of one object: each gets the one event that is its own.
#[tokio::test]
async fn many_watchers_of_one_object_each() {
    let api = Fixture::over(MemoryStore::new()).await;
    let mut watches = Vec::new();
    for n in 0..1000 {
        watches.push(api.watch(&format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Dc{n}")).await);
    }
    for n in (0..1000).rev() {
        api.post(CONFIG_MAPS, &config_map(&format!("c{n}"))).await.expect(201);
    }
    for (n, watch) in watches.iter_mut().enumerate() {
        assert_eq!(watch.brief().await, format!("ADDED c{n}"));
        let more = tokio::time::timeout(Duration::ZERO, watch.next()).await;
        assert!(more.is_err(), "nothing more for watcher {n}");
    }
}

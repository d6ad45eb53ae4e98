use super::*;
use crate::testing::{Try, World};
use serde_json::json;
use std::time::Duration;

fn plugin(kind: &str, qps: i32, burst: i32, cache_size: i32) -> EventRateLimit {
    let fields = LimitFields { kind: kind.to_owned(), qps, burst, cache_size };
    EventRateLimit::new(&limits(&[fields]).unwrap())
}

fn event(namespace: &str, name: &str) -> Object {
    json!({ "metadata": { "name": "e", "namespace": namespace }, "source": { "component": "kubelet" },
        "involvedObject": { "kind": "Pod", "namespace": namespace, "name": name } })
}

fn accepts(plugin: &EventRateLimit, user: &str, event: &Object) -> Result<(), (u16, String)> {
    let world = World::new();
    let mut asked = Try::create(&world, "events.");
    asked.user.name = user.to_owned();
    asked.validate(plugin, event, None).map_err(|error| (error.code, error.message))
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_empty_after_its_burst_and_fills_again() {
    let plugin = plugin("Server", 2, 3, 0);
    let one = || accepts(&plugin, "jane", &event("a", "p"));
    (0..3).for_each(|_| one().unwrap());
    let refused = one().unwrap_err();
    assert_eq!(refused, (429, "Too many requests: limit reached on type Server for key ".to_owned()));
    tokio::time::advance(Duration::from_millis(499)).await;
    assert!(one().is_err());
    tokio::time::advance(Duration::from_millis(1)).await;
    one().unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    (0..3).for_each(|_| one().unwrap());
    assert!(one().is_err());
}

#[tokio::test(start_paused = true)]
async fn each_kind_counts_by_its_own_key() {
    let cases =
        [("Namespace", "b", "jane", "p"), ("User", "a", "joe", "p"), ("SourceAndObject", "a", "jane", "q")];
    for (kind, namespace, user, name) in cases {
        let plugin = plugin(kind, 1, 1, 0);
        accepts(&plugin, "jane", &event("a", "p")).unwrap();
        let (_, why) = accepts(&plugin, "jane", &event("a", "p")).unwrap_err();
        assert!(why.contains(&format!("limit reached on type {kind} for key ")), "{why}");
        accepts(&plugin, user, &event(namespace, name)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_used_for_long_is_forgotten() {
    let plugin = plugin("User", 1, 1, 2);
    let one = |user: &str| accepts(&plugin, user, &event("a", "p")).is_ok();
    assert!(one("a") && one("b") && !one("a") && one("c"));
    assert!(!one("a"), "it was used later than b");
    assert!(one("b"), "b was forgotten");
}

#[tokio::test(start_paused = true)]
async fn other_resources_pass() {
    let (world, plugin) = (World::new(), plugin("Server", 1, 1, 0));
    for _ in 0..3 {
        Try::create(&world, "pods.").validate(&plugin, &event("a", "p"), None).unwrap();
    }
    Try::create(&world, "events.events.k8s.io").validate(&plugin, &event("a", "p"), None).unwrap();
    assert!(Try::create(&world, "events.").validate(&plugin, &event("a", "p"), None).is_err());
}

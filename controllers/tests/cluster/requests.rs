//! How many requests the controllers need: for one object, and when nothing happens.

use crate::raw::{Kind, Raw, condition};
use crate::support::World;
use crate::{cluster, deployment};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Longer than any controller waits before it looks at something again by itself.
const CALM: Duration = Duration::from_secs(3);

fn taken(world: &World) -> BTreeMap<String, usize> {
    std::mem::take(&mut *world.requests.lock().unwrap())
}

fn of(requests: &BTreeMap<String, usize>, account: &str, how: &str) -> usize {
    requests.get(&format!("{account} {how}")).copied().unwrap_or(0)
}

/// How often a controller of this process has ended its work on a key.
fn reconciled(controller: &str) -> u64 {
    let mut page = coracle_metrics::Text::default();
    coracle_client::metrics::render(&mut page);
    let series = format!("workqueue_work_duration_seconds_count{{name=\"{controller}\"}} ");
    let page = page.finish();
    let count = page.lines().find_map(|line| line.strip_prefix(series.as_str()));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {series} in {page}"))
}

fn complete(d: &Value) -> bool {
    condition(d, "Progressing")["reason"] == "NewReplicaSetAvailable"
        && d["status"]["observedGeneration"] == d["metadata"]["generation"]
        && d["status"]["availableReplicas"] == d["spec"]["replicas"]
        && d["status"]["replicas"] == d["spec"]["replicas"]
}

/// Waits until nobody has asked anything for a while, and forgets what was asked until then. Nothing is concluded from it:
/// it keeps what one object costs apart from what the one before it cost.
async fn settle(world: &World) {
    loop {
        taken(world);
        tokio::time::sleep(CALM).await;
        if world.requests.lock().unwrap().is_empty() {
            return;
        }
    }
}

#[tokio::test]
async fn a_rollout_writes_little_besides_its_pods_and_then_all_is_quiet() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    settle(&world).await;
    raw.post(DEPLOYMENTS, deployment("web", 20, "a")).await;
    let path = &format!("{DEPLOYMENTS}/web");
    raw.until("20 replicas", path, complete).await;
    settle(&world).await;
    taken(&world);

    raw.post(DEPLOYMENTS, deployment("db", 20, "a")).await;
    raw.until("20 replicas", &format!("{DEPLOYMENTS}/db"), complete).await;
    let made = taken(&world);
    assert_eq!(of(&made, "replicaset-controller", "POST"), 20, "{made:?}");
    assert_eq!(of(&made, "deployment-controller", "POST"), 1, "{made:?}");
    assert_eq!(
        of(&made, "deployment-controller", "GET") + of(&made, "replicaset-controller", "GET"),
        0,
        "{made:?}"
    );
    // Statuses: one for each change that was seen apart; twenty pods become ready one after the other here.
    assert!(of(&made, "replicaset-controller", "PUT") <= 45, "{made:?}");
    assert!(of(&made, "deployment-controller", "PUT") <= 45, "{made:?}");
    println!("a Deployment of 20: {made:?}");

    settle(&world).await;
    let before = reconciled("deployment-controller");
    raw.patch(Kind::Merge, path, json!({ "metadata": { "labels": { "touched": "true" } } })).await;
    // Whatever the controller asks for it, it asks while it works on it.
    while reconciled("deployment-controller") == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut touched = taken(&world);
    // Others may look at something of their own just now.
    touched.retain(|who, _| {
        ["deployment-controller", "replicaset-controller"].iter().any(|c| who.starts_with(c))
    });
    assert!(touched.is_empty(), "a label changes nothing: {touched:?}");
}

#[tokio::test]
async fn what_lost_its_owner_goes_with_one_request() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    raw.post(DEPLOYMENTS, deployment("web", 20, "a")).await;
    let path = &format!("{DEPLOYMENTS}/web");
    raw.until("20 replicas", path, complete).await;
    settle(&world).await;
    raw.delete(path).await;
    raw.until_count("no pods", "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb", 0).await;
    let made = taken(&world);
    println!("a Deployment of 20 deleted: {made:?}");
    let collector = |how| of(&made, "generic-garbage-collector", how);
    assert_eq!((collector("GET"), collector("PATCH")), (0, 0), "{made:?}");
    // A pod more for each that its set made before it knew of its own end.
    let again = of(&made, "replicaset-controller", "POST");
    assert!((21..=21 + again).contains(&collector("DELETE")), "{made:?}");
}

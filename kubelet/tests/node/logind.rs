//! A machine whose end is told by logind, which waits for the kubelet.

use crate::fake_logind::FakeLogind;
use crate::support::{World, condition, until};
use serde_json::{Value, json};

fn is_ready(object: &Value) -> bool {
    condition(object, "Ready") == "True"
}

#[tokio::test]
async fn logind_waits_until_pods_have_ended() {
    let mut world = World::start().await;
    world.stop_kubelet().await;
    // It waits 5 s, as it does where nobody tells it otherwise.
    let logind = FakeLogind::serve(&world.logind(), 5);
    world.written = json!({ "shutdownGracePeriod": "40s", "shutdownGracePeriodCriticalPods": "10s" });
    world.start_kubelet();
    until(async || json!(logind.held()), |held| *held == 1).await;
    let file = std::fs::read_to_string(world.logind().drop_ins.join("99-kubelet.conf")).unwrap();
    assert!(file.ends_with("[Login]\nInhibitDelayMaxSec=40\n"), "{file}");
    assert_eq!(
        logind.inhibitors(),
        [["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"]]
    );

    world.create("p", json!({ "containers": [{ "name": "c", "image": "i" }] })).await;
    world.pod_until("p", is_ready).await;
    world.node_until(is_ready).await;
    // Whoever else says so is not believed.
    logind.say_as(":1.666", true);
    logind.say(true);
    let pod = world.pod_until("p", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(pod["status"]["message"], "Pod was terminated in response to imminent node shutdown.");
    until(async || json!(logind.held()), |held| *held == 0).await;
    assert!(world.runtime.running("c").is_empty(), "the machine ends after its pods");
    world.node_until(|node| condition(node, "Ready") == "False").await;
    assert_eq!(logind.owner_asked(), 1);

    logind.say(false);
    world.node_until(is_ready).await;
    until(async || json!(logind.held()), |held| *held == 1).await;
    world.create("q", json!({ "containers": [{ "name": "d", "image": "i" }] })).await;
    world.pod_until("q", is_ready).await;
    world.stop_kubelet().await;
    until(async || json!(logind.held()), |held| *held == 0).await;
}

#[tokio::test]
async fn a_bus_that_comes_back_is_followed_again() {
    let mut world = World::start().await;
    world.stop_kubelet().await;
    let logind = FakeLogind::serve(&world.logind(), 60);
    world.written = json!({ "shutdownGracePeriod": "40s" });
    world.start_kubelet();
    until(async || json!(logind.held()), |held| *held == 1).await;
    assert!(!world.logind().drop_ins.exists(), "it waits long enough");
    logind.hang_up();
    until(async || json!([logind.held(), logind.inhibitors().len()]), |seen| *seen == json!([1, 2])).await;
    world.stop_kubelet().await;
}

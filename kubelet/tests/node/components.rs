//! Pods that show the parts of the process.

use crate::support::{World, condition, until};
use coracle_kubelet::{Component, ComponentState};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;

fn state(failure: Option<&str>, restarts: u32) -> ComponentState {
    ComponentState { failure: failure.map(str::to_owned), restarts, since: jiff::Timestamp::now() }
}

#[tokio::test]
async fn parts_of_the_process_are_shown_as_they_are_whatever_is_done_to_their_pods() {
    let mut world = World::start().await;
    let (proxy, of_proxy) = watch::channel(state(None, 0));
    let (_dns, of_dns) = watch::channel(state(None, 0));
    let shown = [("kube-proxy", of_proxy), ("coredns", of_dns)];
    world.components = shown.map(|(name, state)| Component { name, state }).into();
    world.stop_kubelet().await;
    world.start_kubelet();
    let pods: Api<Pod> = Api::namespaced(world.admin(), "kube-system");
    let names = async || {
        let all = pods.list(&ListParams::default()).await.unwrap().items.into_iter();
        let ready = all.filter(|pod| condition(&json!(pod), "Ready") == "True");
        json!(ready.filter_map(|pod| pod.metadata.name).collect::<Vec<_>>())
    };
    let both = |names: &Value| *names == json!(["coredns-n1", "kube-proxy-n1"]);
    until(names, both).await;
    let look = async || json!(pods.get_opt("kube-proxy-n1").await.unwrap());
    let pod = look().await;
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(pod["metadata"]["labels"], json!({ "k8s-app": "kube-proxy" }));
    assert!(pod["status"]["podIP"].is_null(), "no Service leads there");

    // What others do has no effect.
    let uid = pod["metadata"]["uid"].clone();
    pods.delete("kube-proxy-n1", &DeleteParams::default()).await.unwrap();
    until(look, |pod| pod["metadata"]["uid"] != uid && condition(pod, "Ready") == "True").await;
    let failed = json!({ "status": { "phase": "Failed", "conditions": [] } });
    pods.patch_status("kube-proxy-n1", &PatchParams::default(), &Patch::Merge(failed)).await.unwrap();
    until(look, |pod| pod["status"]["phase"] == "Running" && condition(pod, "Ready") == "True").await;

    proxy.send_replace(state(Some("no iptables"), 2));
    let failing = until(look, |pod| condition(pod, "Ready") == "False").await;
    let waiting = &failing["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["message"], "no iptables");
    proxy.send_replace(state(None, 3));
    let again = until(look, |pod| condition(pod, "Ready") == "True").await;
    assert_eq!(again["status"]["containerStatuses"][0]["restartCount"], 3);

    // Those that are not shown any more go.
    world.components.clear();
    world.stop_kubelet().await;
    world.start_kubelet();
    until(names, |names| *names == json!([])).await;
}

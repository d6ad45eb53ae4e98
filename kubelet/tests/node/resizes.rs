//! Pods that are resized while they run.

use crate::support::{World, condition};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn amounts(cpu: &str, memory: &str) -> Value {
    let amounts = json!({ "cpu": cpu, "memory": memory });
    json!({ "requests": amounts, "limits": amounts })
}

async fn resize(world: &World, name: &str, spec: Value) {
    let patch = Patch::Strategic(json!({ "spec": spec }));
    world.pods().patch_subresource("resize", name, &PatchParams::default(), &patch).await.unwrap();
}

fn is_quiet(pod: &Value) -> bool {
    let kinds = ["PodResizePending", "PodResizeInProgress"];
    kinds.iter().all(|kind| condition(pod, kind).is_null())
        && pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
}

/// What had to wait is counted when it is granted, by what made room for it.
async fn deferred_is_counted(world: &World) {
    resize(world, "p", json!({ "resources": amounts("1", "48Mi") })).await;
    world.pod_until("p", |pod| condition(pod, "PodResizePending") == "True").await;
    world.pods().delete("q", &DeleteParams::default()).await.unwrap();
    world.pod_until("p", |pod| is_quiet(pod) && pod["status"]["resources"] == amounts("1", "48Mi")).await;
    let line =
        |trigger| format!("kubelet_pod_deferred_accepted_resizes_total{{retry_trigger=\"{trigger}\"}} 1");
    let page = world.figures();
    let counted = ["pod_terminated", "pods_removed"].map(|trigger| page.lines().any(|l| l == line(trigger)));
    assert_ne!(counted[0], counted[1], "{page}");
}

#[tokio::test]
async fn a_pod_is_resized_with_its_containers_and_its_kubelet_may_restart() {
    let mut world = World::start().await;
    let containers = json!([{ "name": "own", "image": "i", "resources": amounts("20m", "16Mi") }, { "name": "none", "image": "i" }]);
    world.create("p", json!({ "terminationGracePeriodSeconds": 1, "resources": amounts("80m", "64Mi"), "containers": containers })).await;
    world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    let runtime = world.runtime.clone();
    let linux = |name: &str| runtime.config(name).linux.unwrap().resources.unwrap();
    assert_eq!(linux("none").memory_limit_in_bytes, 64 << 20, "it has its pod's limit");

    resize(&world, "p", json!({ "resources": amounts("100m", "96Mi"), "containers": [{ "name": "own", "resources": amounts("30m", "16Mi") }] })).await;
    let pod = world
        .pod_until("p", |pod| is_quiet(pod) && pod["status"]["resources"]["limits"]["memory"] == "96Mi")
        .await;
    assert_eq!(pod["status"]["resources"], amounts("100m", "96Mi"));
    assert_eq!(pod["status"]["allocatedResources"], json!({ "cpu": "100m", "memory": "96Mi" }));
    assert_eq!(pod["status"]["containerStatuses"][0]["resources"], amounts("30m", "16Mi"));
    assert_eq!(
        pod["status"]["containerStatuses"][0]["allocatedResources"],
        json!({ "cpu": "30m", "memory": "16Mi" })
    );
    let told = |name: &str| (linux(name).cpu_quota, linux(name).memory_limit_in_bytes);
    assert_eq!((told("own"), told("none")), ((3000, 16 << 20), (10_000, 96 << 20)));
    let said = world.event("ResizeCompleted").await;
    assert!(said.starts_with("Pod resize completed: {\"resources\":{\"limits\":{\"cpu\":\"100m\""), "{said}");

    // The node will never have so much, and the wish is refused.
    let patch = Patch::Strategic(json!({ "spec": { "resources": amounts("9000", "96Mi") } }));
    let refused = world.pods().patch_subresource("resize", "p", &PatchParams::default(), &patch).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("enough allocatable resources: cpu, requested: 9000000"), "{refused}");

    // What another pod has waits, over a restart too; what was granted stays, and the next wish counts.
    world
        .create(
            "q",
            json!({ "containers": [{ "name": "big", "image": "i", "resources": amounts("1500m", "16Mi") }] }),
        )
        .await;
    world.pod_until("q", |pod| condition(pod, "Ready") == "True").await;
    resize(&world, "p", json!({ "resources": amounts("1", "96Mi") })).await;
    let pod = world.pod_until("p", |pod| condition(pod, "PodResizePending") == "True").await;
    assert_eq!(pod["status"]["resources"], amounts("100m", "96Mi"));
    world.stop_kubelet().await;
    world.start_kubelet();
    resize(&world, "p", json!({ "resources": amounts("60m", "48Mi") })).await;
    world.pod_until("p", |pod| is_quiet(pod) && pod["status"]["resources"] == amounts("60m", "48Mi")).await;
    assert_eq!((told("own"), told("none")), ((3000, 16 << 20), (6000, 48 << 20)));
    assert!(world.runtime.stops().is_empty());
    deferred_is_counted(&world).await;
    let pod = world.pod_until("p", |pod| condition(pod, "Ready") == "True").await;
    for status in pod["status"]["containerStatuses"].as_array().unwrap() {
        assert_eq!(status["restartCount"], 0);
    }
}

//! What controllers count.

use crate::cluster;
use crate::raw::Raw;
use crate::support::World;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/default";

async fn counted(world: &World, samples: &[&str]) {
    for sample in samples {
        world.until_counted(sample).await;
    }
}

fn pod(name: &str, more: Value) -> Value {
    let mut spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "metadata": { "name": name, "labels": { "app": "web" } }, "spec": spec })
}

#[tokio::test]
async fn slices_are_counted_with_their_endpoints() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    for name in ["a", "b"] {
        raw.post(&format!("{NAMESPACE}/pods"), pod(name, json!({ "nodeName": "n" }))).await;
    }
    let spec = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80 }], "trafficDistribution": "PreferSameZone" });
    let service = json!({ "metadata": { "name": "web" }, "spec": spec });
    raw.post(&format!("{NAMESPACE}/services"), service).await;
    counted(
        &world,
        &[
            "endpoint_slice_controller_endpoints_desired 2",
            "endpoint_slice_controller_num_endpoint_slices 1",
            "endpoint_slice_controller_desired_endpoint_slices 1",
            "endpoint_slice_controller_changes{operation=\"create\"} 1",
            "endpoint_slice_controller_services_count_by_traffic_distribution{traffic_distribution=\"PreferSameZone\"} 1",
        ],
    )
    .await;
    let page = world.counted.get().unwrap()();
    let synced =
        page.iter().find(|line| line.starts_with("endpoint_slice_controller_syncs{result=\"success\"}"));
    assert!(synced.is_some(), "{page:?}");
    let family = "endpoint_slice_controller_endpointslices_changed_per_sync_count";
    let changed = format!("{family}{{topology=\"Disabled\",traffic_distribution=\"PreferSameZone\"}}");
    assert!(page.iter().any(|line| line.starts_with(&changed)), "{page:?}");
    raw.delete(&format!("{NAMESPACE}/services/web")).await;
    counted(
        &world,
        &[
            "endpoint_slice_controller_endpoints_desired 0",
            "endpoint_slice_controller_services_count_by_traffic_distribution{traffic_distribution=\"PreferSameZone\"} 0",
        ],
    )
    .await;
}

#[tokio::test]
async fn mirrored_endpoints_are_counted() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    let service = json!({ "metadata": { "name": "out" }, "spec": { "ports": [{ "port": 80 }] } });
    raw.post(&format!("{NAMESPACE}/services"), service).await;
    let subsets =
        json!([{ "addresses": [{ "ip": "192.0.2.1" }, { "ip": "192.0.2.2" }], "ports": [{ "port": 80 }] }]);
    let endpoints = json!({ "metadata": { "name": "out" }, "subsets": subsets });
    raw.post(&format!("{NAMESPACE}/endpoints"), endpoints).await;
    counted(
        &world,
        &[
            "endpoint_slice_mirroring_controller_endpoints_desired 2",
            "endpoint_slice_mirroring_controller_num_endpoint_slices 1",
            "endpoint_slice_mirroring_controller_desired_endpoint_slices 1",
            "endpoint_slice_mirroring_controller_changes{operation=\"create\"} 1",
            "endpoint_slice_mirroring_controller_endpoints_added_per_sync_sum 2",
        ],
    )
    .await;
}

#[tokio::test]
async fn autoscalers_are_counted() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "none" });
    let scaler =
        json!({ "metadata": { "name": "web" }, "spec": { "scaleTargetRef": target, "maxReplicas": 3 } });
    raw.post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", scaler).await;
    counted(
        &world,
        &[
            "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 1",
            "horizontal_pod_autoscaler_controller_reconciliations_total{action=\"none\",error=\"internal\"} 1",
            "horizontal_pod_autoscaler_controller_desired_replicas{namespace=\"default\",hpa_name=\"web\"} 0",
        ],
    )
    .await;
}

#[tokio::test]
async fn claims_made_for_pods_are_counted() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    let claim = json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let volume = json!({ "name": "v", "ephemeral": { "volumeClaimTemplate": claim } });
    raw.post(&format!("{NAMESPACE}/pods"), pod("a", json!({ "volumes": [volume] }))).await;
    let devices = json!({ "requests": [{ "name": "r", "exactly": { "deviceClassName": "d" } }] });
    let api = "/apis/resource.k8s.io/v1/namespaces/default";
    let template = json!({ "metadata": { "name": "t" }, "spec": { "spec": { "devices": devices } } });
    raw.post(&format!("{api}/resourceclaimtemplates"), template).await;
    let wanted = json!({ "resourceClaims": [{ "name": "r", "resourceClaimTemplateName": "t" }] });
    raw.post(&format!("{NAMESPACE}/pods"), pod("b", wanted)).await;
    let by_hand = json!({ "metadata": { "name": "h" }, "spec": { "devices": devices } });
    raw.post(&format!("{api}/resourceclaims"), by_hand).await;
    let claims = "resourceclaim_controller_resource_claims";
    let made = format!(
        "{claims}{{allocated=\"false\",admin_access=\"false\",source=\"resource_claim_template\"}} 1"
    );
    let own = format!("{claims}{{allocated=\"false\",admin_access=\"false\",source=\"\"}} 1");
    counted(
        &world,
        &[
            "ephemeral_volume_controller_create_total 1",
            "ephemeral_volume_controller_create_failures_total 0",
            "resourceclaim_controller_creates_total{status=\"success\",admin_access=\"false\"} 1",
            &made,
            &own,
        ],
    )
    .await;
}

#[tokio::test]
async fn what_is_removed_is_counted() {
    let world = cluster().await;
    let raw = Raw::of(&world);
    let mut held = pod("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/keep"]);
    raw.post(&format!("{NAMESPACE}/pods"), held).await;
    raw.delete(&format!("{NAMESPACE}/pods/held")).await;
    let spec = json!({ "ttlSecondsAfterFinished": 0, "template": { "metadata": { "annotations": { crate::support::EXIT: "0" } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } });
    raw.post(
        "/apis/batch/v1/namespaces/default/jobs",
        json!({ "metadata": { "name": "short" }, "spec": spec }),
    )
    .await;
    counted(
        &world,
        &[
            "ttl_after_finished_controller_job_deletion_duration_seconds_bucket{le=\"819.2\"} 1",
            "pod_gc_collector_force_delete_pods_total{namespace=\"default\",reason=\"unscheduled\"} 1",
        ],
    )
    .await;
}

#[tokio::test]
async fn published_authorities_are_counted() {
    let world = cluster().await;
    let page = || world.counted.get().unwrap()();
    let published = || async {
        let code = "root_ca_cert_publisher_sync_total{code=\"200\"} ";
        page().iter().any(|line| line.starts_with(code)).then_some(())
    };
    crate::support::until("a publication", published, || async { page().join("\n") }).await;
}

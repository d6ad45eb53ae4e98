//! Autoscaling by external metrics, which a server of our own serves behind the aggregation layer.

use crate::{nodes, told, workload};
use coracle_tests::Cluster;
use coracle_tests::hook::{Call, Hook, Told};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Autoscalers look every 15 s, and each step waits for one or two looks.
const LOOK: Duration = Duration::from_secs(120);
const BASE: &str = "/apis/external.metrics.k8s.io/v1beta1";

/// The length of a queue, as a metrics adapter tells it.
fn answer(call: &Call, length: &AtomicU32) -> Told {
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1", "resources": []});
    match call.route() {
        BASE => Told::json(200, &list),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_length" => {
            let value = length.load(Ordering::Relaxed).to_string();
            let item = json!({"metricName": "queue_length", "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z", "value": value});
            Told::json(
                200,
                &json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": [item]}),
            )
        }
        _ => Told::json(
            404,
            &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}),
        ),
    }
}

/// Puts it behind the aggregation layer.
fn register(cluster: &Cluster, hook: &Hook) {
    let service = json!({"namespace": "default", "name": "hook", "port": hook.port()});
    let registered = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": {"group": "external.metrics.k8s.io", "version": "v1beta1", "service": service, "caBundle": hook.bundle(), "groupPriorityMinimum": 100, "versionPriority": 100}});
    cluster.apply(&registered.to_string());
    cluster.ok(
        "kubectl wait apiservice/v1beta1.external.metrics.k8s.io --for=condition=Available --timeout=100s",
    );
}

#[test]
fn a_queue_that_grows_and_shrinks_is_followed() {
    let cluster = nodes(2);
    let length = Arc::new(AtomicU32::new(10));
    let told_length = length.clone();
    let hook = Hook::start(move |call| answer(call, &told_length));
    cluster.apply(&Hook::service().to_string());
    register(&cluster, &hook);
    cluster.apply(&workload("Deployment", "worker", "replicas: 1"));
    cluster.ok("kubectl rollout status deployment/worker --timeout=100s");
    cluster.apply(
        r#"
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: worker}
spec:
  minReplicas: 1
  maxReplicas: 6
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: worker}
  metrics: [{type: External, external: {metric: {name: queue_length}, target: {type: AverageValue, averageValue: "10"}}}]
  behavior:
    scaleUp: {policies: [{type: Pods, value: 3, periodSeconds: 15}]}
    scaleDown: {stabilizationWindowSeconds: 1, policies: [{type: Pods, value: 2, periodSeconds: 5}]}
"#,
    );
    let size = "kubectl get deployment worker -o jsonpath='{.spec.replicas}'";
    let condition = |kind: &str| {
        format!("kubectl get hpa worker -o jsonpath='{{.status.conditions[?(@.type==\"{kind}\")].reason}}'")
    };
    cluster.within(LOOK, &condition("ScalingActive"), |reason| reason == "ValidMetricFound");
    cluster.says(size, "1");
    // Three at a time, to the most that is allowed.
    length.store(90, Ordering::Relaxed);
    cluster.within(LOOK, size, |n| n != "1");
    told(
        &cluster,
        "HorizontalPodAutoscaler",
        "worker",
        "Normal SuccessfulRescale New size: 4; reason: external metric queue_length(nil) above target",
    );
    cluster.within(LOOK, size, |n| n == "6");
    cluster.within(LOOK, &condition("ScalingLimited"), |reason| reason == "TooManyReplicas");
    cluster.until("kubectl get deployment worker -o jsonpath='{.status.readyReplicas}'", "6");
    // Two at a time, to what is needed.
    length.store(15, Ordering::Relaxed);
    cluster.within(LOOK, size, |n| n != "6");
    told(
        &cluster,
        "HorizontalPodAutoscaler",
        "worker",
        "Normal SuccessfulRescale New size: 4; reason: All metrics below target",
    );
    cluster.within(LOOK, size, |n| n == "2");
    cluster.until("kubectl get pods -l app=worker -o name | wc -l", "2");
    let shown = "kubectl get hpa worker --no-headers";
    cluster.within(LOOK, shown, |line| {
        line.contains("Deployment/worker") && line.contains("7500m/10 (avg)") && line.contains(" 2 ")
    });
}

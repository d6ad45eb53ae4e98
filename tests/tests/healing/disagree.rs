//! Controllers, and people, that want different things.

use crate::{nodes, told, uids, workload};
use coracle_tests::Cluster;
use std::time::Duration;

/// Autoscalers look every 15 s.
const LOOK: Duration = Duration::from_secs(120);

#[test]
fn two_sets_with_one_selector_keep_to_their_own() {
    let cluster = nodes(2);
    // A pod that both could take belongs to one of them, and counts.
    cluster.ok("kubectl run stray --image=app:1 --labels=app=web");
    let first = workload("ReplicaSet", "one", "replicas: 3").replace("app: one", "app: web");
    let second = first.replace("name: one", "name: two");
    cluster.apply(&format!("{first}{second}"));
    let owners = "kubectl get pods -o jsonpath='{range .items[*]}{.metadata.ownerReferences[*].name}{\"\\n\"}{end}' | sort | uniq -c | tr -s ' '";
    cluster.until(owners, " 3 one\n 3 two");
    cluster.until("kubectl get rs -o jsonpath='{.items[*].status.readyReplicas}'", "3 3");
    let before = uids(&cluster, "web");
    cluster.ok("kubectl scale rs one --replicas=5");
    cluster.until(owners, " 5 one\n 3 two");
    assert!(uids(&cluster, "web").is_superset(&before), "nobody touched another's pods");
    // Whom nobody owns and nobody needs any more goes to the first that selects it.
    cluster.ok("kubectl delete rs two --cascade=orphan");
    cluster.until(owners, " 5 one");
    cluster.ok("kubectl delete rs one");
    cluster.until("kubectl get pods -o name", "");
}

#[test]
fn a_deployment_takes_its_replica_set_back() {
    let cluster = nodes(2);
    cluster.apply(&workload("Deployment", "web", "replicas: 3"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    let set = cluster.ok("kubectl get rs -l app=web -o name");
    let set = set.trim();
    cluster.ok(&format!("kubectl scale {set} --replicas=6"));
    cluster
        .until("kubectl get rs -o jsonpath='{.items[*].spec.replicas} {.items[*].status.replicas}'", "3 3");
    // Which of them go depends on how they lie on the nodes: the fuller node gives first.
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "3");
    // A pod whose label somebody takes away is let go, replaced, and left alone.
    let pod = cluster.ok("kubectl get pods -l app=web -o jsonpath='{.items[0].metadata.name}'");
    cluster.ok(&format!("kubectl label pod {pod} app=debug --overwrite"));
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "3");
    cluster.until(
        &format!("kubectl get pod {pod} -o jsonpath='{{.metadata.ownerReferences}}{{.status.phase}}'"),
        "Running",
    );
    // And taken in again, whereupon one of four must go.
    cluster.ok(&format!("kubectl label pod {pod} app=web --overwrite"));
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "3");
    cluster.until(
        "kubectl get rs -o jsonpath='{.items[*].status.replicas} {.items[*].status.readyReplicas}'",
        "3 3",
    );
}

#[test]
fn two_owners_hold_one_object() {
    let cluster = nodes(1);
    cluster.ok("kubectl create configmap one && kubectl create configmap two");
    let uid =
        |name: &str| cluster.ok(&format!("kubectl get configmap {name} -o jsonpath='{{.metadata.uid}}'"));
    let owner = |name: &str, more: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, name: {name}, uid: {}{more}}}", uid(name))
    };
    let child = |name: &str, owners: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, ownerReferences: [{owners}]}}\n")
    };
    cluster.apply(&child("shared", &format!("{}, {}", owner("one", ""), owner("two", ""))));
    let both = child(
        "torn",
        &format!("{}, {}", owner("one", ", controller: true"), owner("two", ", controller: true")),
    );
    let refused = cluster.run_with("kubectl apply -f -", &both);
    assert!(refused.stderr.contains("Only one reference can have Controller set to true"), "{refused}");
    cluster.ok("kubectl delete configmap one");
    cluster.until("kubectl get configmap shared -o jsonpath='{.metadata.ownerReferences[*].name}'", "two");
    cluster.ok("kubectl delete configmap two");
    cluster.until("kubectl get configmap shared -o name --ignore-not-found", "");
}

fn autoscaler(name: &str, min: u32, max: u32) -> String {
    format!(
        r#"
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}}}
spec:
  minReplicas: {min}
  maxReplicas: {max}
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  metrics: [{{type: Resource, resource: {{name: cpu, target: {{type: Utilization, averageUtilization: 50}}}}}}]
"#
    )
}

#[test]
fn autoscalers_bring_people_back_and_do_not_fight() {
    let cluster = nodes(2);
    cluster.apply(&workload("Deployment", "web", "replicas: 3"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.apply(&autoscaler("first", 2, 4));
    let size = "kubectl get deployment web -o jsonpath='{.spec.replicas}'";
    cluster.within(LOOK, "kubectl get hpa first -o jsonpath='{.status.conditions[*].type}'", |types| {
        types.contains("ScalingActive")
    });
    told(
        &cluster,
        "HorizontalPodAutoscaler",
        "first",
        "Warning FailedGetResourceMetric failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API",
    );
    told(
        &cluster,
        "HorizontalPodAutoscaler",
        "first",
        "Warning FailedComputeMetricsReplicas invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API",
    );
    cluster.says(size, "3");
    cluster.ok("kubectl scale deployment web --replicas=7");
    cluster.within(LOOK, size, |n| n == "4");
    told(
        &cluster,
        "HorizontalPodAutoscaler",
        "first",
        "Normal SuccessfulRescale New size: 4; reason: Current number of replicas above Spec.MaxReplicas",
    );
    cluster.ok("kubectl scale deployment web --replicas=1");
    cluster.within(LOOK, size, |n| n == "2");
    told(
        &cluster,
        "HorizontalPodAutoscaler",
        "first",
        "Normal SuccessfulRescale New size: 2; reason: Current number of replicas below Spec.MinReplicas",
    );
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "2");
    ambiguous(&cluster);
    cluster.says(size, "2");
    // Switched off by hand, and that is respected.
    cluster.ok("kubectl delete hpa second && kubectl scale deployment web --replicas=0");
    cluster.within(
        LOOK,
        "kubectl get hpa first -o jsonpath='{.status.conditions[?(@.type==\"ScalingActive\")].reason}'",
        |r| r == "ScalingDisabled",
    );
    cluster.says(size, "0");
}

/// Another for the same pods: neither acts, and both say why.
fn ambiguous(cluster: &Cluster) {
    cluster.apply(&autoscaler("second", 1, 9));
    let why = "pods by selector app=web are controlled by multiple HPAs: [default/first default/second]";
    for name in ["first", "second"] {
        let line = format!(
            "kubectl get hpa {name} -o jsonpath='{{.status.conditions[?(@.type==\"ScalingActive\")].reason}}: {{.status.conditions[?(@.type==\"ScalingActive\")].message}}'"
        );
        cluster.within(LOOK, &line, |text| text == format!("AmbiguousSelector: {why}"));
        told(cluster, "HorizontalPodAutoscaler", name, &format!("Warning AmbiguousSelector {why}"));
        told(
            cluster,
            "HorizontalPodAutoscaler",
            name,
            &format!("Warning FailedComputeMetricsReplicas {why}"),
        );
    }
}

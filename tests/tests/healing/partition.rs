//! Nodes of which so many fall silent that it is more likely the network than the machines: nobody is evicted, nobody is
//! counted on, and when they are back everything is as it was.

use crate::nodes::{LOST, UNREACHABLE, becomes};
use crate::{nodes_soon_lost, pods_now, pods_since, silence, uids, workload};
use coracle_tests::Cluster;

/// Names of the nodes of the Service's endpoints that are ready, in order.
fn served_by(cluster: &Cluster, expected: &str) {
    let ready = "{range .items[*].endpoints[?(@.conditions.ready==true)]}{.nodeName}{\"\\n\"}{end}";
    cluster.within(
        LOST,
        &format!(
            "kubectl get endpointslices -l kubernetes.io/service-name=web -o jsonpath='{ready}' | sort -u | tr '\n' ' '"
        ),
        |found| found == expected,
    );
}

#[test]
fn a_partition_evicts_nobody_and_heals_without_a_trace() {
    let cluster = nodes_soon_lost(5);
    for (kind, name, spec) in [
        ("Deployment", "web", "replicas: 10"),
        ("StatefulSet", "db", "replicas: 5\n  serviceName: db\n  podManagementPolicy: Parallel"),
        ("DaemonSet", "log", "minReadySeconds: 0"),
    ] {
        // Longer than it takes until all are lost.
        cluster.apply(&workload(kind, name, spec).replace("tolerationSeconds: 2", "tolerationSeconds: 120"));
        cluster.ok(&format!("kubectl rollout status {kind}/{name} --timeout=100s"));
    }
    cluster.ok("kubectl expose deployment web --port=80");
    served_by(&cluster, "sim-0 sim-1 sim-2 sim-3 sim-4 ");
    let before = ["web", "db", "log"].map(|app| uids(&cluster, app));
    let (revision, _) = pods_now(&cluster);
    // Most of them: whoever is cut off here are three of five.
    ["sim-0", "sim-1", "sim-2"].iter().for_each(|node| silence(&cluster, node, true));
    for node in ["sim-0", "sim-1", "sim-2"] {
        becomes_unknown(&cluster, node);
    }
    served_by(&cluster, "sim-3 sim-4 ");
    // And all: who watches them is more likely to be blind.
    ["sim-3", "sim-4"].iter().for_each(|node| silence(&cluster, node, true));
    for node in ["sim-0", "sim-1", "sim-2", "sim-3", "sim-4"] {
        becomes(&cluster, node, "Unknown", &UNREACHABLE[1..]);
    }
    let log = cluster.ok(
        "kubectl get events --field-selector reason=TaintManagerEviction -o jsonpath='{.items[*].message}'",
    );
    assert!(!log.contains("Marking for deletion"), "{log}");
    for node in ["sim-4", "sim-3", "sim-2", "sim-1", "sim-0"] {
        silence(&cluster, node, false);
    }
    for node in ["sim-0", "sim-1", "sim-2", "sim-3", "sim-4"] {
        becomes(&cluster, node, "True", &[]);
    }
    served_by(&cluster, "sim-0 sim-1 sim-2 sim-3 sim-4 ");
    for what in ["statefulset/db", "daemonset/log", "deployment/web"] {
        cluster.ok(&format!("kubectl rollout status {what} --timeout=100s"));
    }
    assert_eq!(["web", "db", "log"].map(|app| uids(&cluster, app)), before);
    for (kind, pod) in pods_since(&cluster, &revision) {
        assert!(kind == "MODIFIED" && pod["metadata"]["deletionTimestamp"].is_null(), "{kind} {pod}");
    }
    cluster.says(
        "kubectl get pods -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}' | tr -d ' 0'",
        "",
    );
}

/// The first one or two that are noticed count as lost machines: what they are told is taken back when the third is.
fn becomes_unknown(cluster: &Cluster, node: &str) {
    let ready =
        format!("kubectl get node {node} -o jsonpath='{{.status.conditions[?(@.type==\"Ready\")].status}}'");
    cluster.within(LOST, &ready, |status| status == "Unknown");
}

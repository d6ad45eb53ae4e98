//! Nodes that are lost: one that returns, one that is taken out of service, one that is deleted.

use crate::{job, nodes, nodes_soon_lost, silence, told, uids, workload};
use coracle_tests::{Cluster, wait_for};
use serde_json::Value;
use std::time::Duration;

/// A node counts as lost 20 s after its last sign of life; the rest is for a busy machine.
pub const LOST: Duration = Duration::from_secs(180);

/// Waits until Ready has this status and the node these taints, as `key:effect`.
pub fn becomes(cluster: &Cluster, node: &str, ready: &str, taints: &[&str]) {
    let line = format!(
        "kubectl get node {node} -o jsonpath='{{.status.conditions[?(@.type==\"Ready\")].status}}{{range .spec.taints[*]}} {{.key}}:{{.effect}}{{end}}'"
    );
    let wanted = std::iter::once(ready).chain(taints.iter().copied()).collect::<Vec<_>>().join(" ");
    cluster.within(LOST, &line, |found| {
        let mut found: Vec<&str> = found.split(' ').collect();
        found[1..].sort_unstable();
        found.join(" ") == wanted
    });
}

pub const UNREACHABLE: [&str; 2] =
    ["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"];

/// Pods of a workload: name, node, and whether they are being deleted.
fn pods(cluster: &Cluster, app: &str) -> Vec<(String, String, bool)> {
    let all: Value =
        serde_json::from_str(&cluster.ok(&format!("kubectl get pods -l app={app} -o json"))).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = all["items"].as_array().expect("items").iter();
    items
        .map(|pod| {
            let meta = &pod["metadata"];
            (text(&meta["name"]), text(&pod["spec"]["nodeName"]), meta["deletionTimestamp"].is_string())
        })
        .collect()
}

/// Waits until as many pods of a workload live, none of them on one of these nodes.
fn lives(cluster: &Cluster, app: &str, count: usize, lost: &[&str]) {
    wait_for(&format!("{count} pods of {app} elsewhere than {lost:?}"), LOST, || {
        let all = pods(cluster, app);
        let living: Vec<_> = all.iter().filter(|(.., deleted)| !deleted).collect();
        let elsewhere = living.iter().all(|(_, node, _)| !node.is_empty() && !lost.contains(&node.as_str()));
        if living.len() == count && elsewhere { Ok(()) } else { Err(format!("{all:#?}")) }
    });
}

/// Six nodes, one pod of everything on each. Half of them may be lost: were it more, nobody would be evicted.
fn filled() -> Cluster {
    let cluster = nodes_soon_lost(6);
    cluster.apply(&workload("Deployment", "web", "replicas: 8"));
    cluster.apply(&workload(
        "StatefulSet",
        "db",
        "replicas: 6\n  serviceName: db\n  podManagementPolicy: Parallel",
    ));
    cluster.apply(&workload("DaemonSet", "log", "minReadySeconds: 0"));
    cluster.apply(&job("sum", "1h", "completions: 6\n  parallelism: 6"));
    cluster.ok("kubectl expose deployment web --port=80");
    for what in ["statefulset/db", "daemonset/log", "deployment/web"] {
        cluster.ok(&format!("kubectl rollout status {what} --timeout=100s"));
    }
    cluster
}

#[test]
fn pods_of_a_lost_node_are_replaced_and_none_is_doubled() {
    let cluster = filled();
    let on = |node: &str, app: &str| -> Vec<String> {
        pods(&cluster, app).into_iter().filter(|(_, n, _)| n == node).map(|(name, ..)| name).collect()
    };
    let lost = ["sim-0", "sim-1", "sim-2"];
    let (db, log) = (lost.map(|node| on(node, "db")), lost.map(|node| on(node, "log")));
    let logs = uids(&cluster, "log");
    lost.iter().for_each(|node| silence(&cluster, node, true));
    for node in lost {
        becomes(&cluster, node, "Unknown", &UNREACHABLE);
        told(&cluster, "Node", node, &format!("Normal NodeNotReady Node {node} status is now: NodeNotReady"));
    }
    lives(&cluster, "web", 8, &lost);
    cluster.until("kubectl get deployment web -o jsonpath='{.status.readyReplicas}'", "8");
    cluster.until(
        "kubectl get endpointslices -l kubernetes.io/service-name=web -o jsonpath='{range .items[*].endpoints[?(@.conditions.ready==true)]}{.nodeName}{\"\\n\"}{end}' | sed s/sim-[345]/left/ | sort | uniq -c | tr -s ' '",
        " 8 left",
    );
    for name in &db[0] {
        told(&cluster, "Pod", name, "Warning NodeNotReady Node is not ready");
        let message = format!("Normal TaintManagerEviction Marking for deletion Pod default/{name}");
        told(&cluster, "Pod", name, &message);
        cluster.says(
            &format!("kubectl get pod {name} -o jsonpath='{{.status.conditions[?(@.type==\"DisruptionTarget\")].reason}}'"),
            "DeletionByTaintManager",
        );
    }
    // At most one pod of an identity: nobody knows whether the old one still runs.
    for name in db.iter().flatten() {
        cluster.until_that(
            &format!("kubectl get pod {name} -o jsonpath='{{.metadata.deletionTimestamp}}'"),
            |t| !t.is_empty(),
        );
    }
    assert_eq!(pods(&cluster, "db").len(), 6);
    assert_eq!(uids(&cluster, "log"), logs, "a daemon's place is its node, lost or not");
    returns(&cluster, &db[0]);
    out_of_service(&cluster, &db[1]);
    deleted(&cluster, &log[2]);
    lives(&cluster, "web", 8, &["sim-1", "sim-2"]);
    lives(&cluster, "sum", 6, &["sim-1", "sim-2"]);
    for (app, count) in [("web", 8), ("db", 6), ("sum", 6), ("log", 4)] {
        cluster.within(
            LOST,
            &format!("kubectl get pods -l app={app} --field-selector=status.phase=Running -o name | wc -l"),
            |n| n.trim() == count.to_string(),
        );
    }
    cluster.until("kubectl get pods -o jsonpath='{.items[*].metadata.deletionTimestamp}'", "");
}

/// A node that speaks again is used again, and what was to go from it goes.
fn returns(cluster: &Cluster, db: &[String]) {
    silence(cluster, "sim-0", false);
    becomes(cluster, "sim-0", "True", &[]);
    for name in db {
        // For a moment there is none of this name.
        let ready = "{.metadata.deletionTimestamp}{.status.conditions[?(@.type==\"Ready\")].status}";
        cluster.until(&format!("kubectl get pod {name} -o jsonpath='{ready}'"), "True");
    }
    cluster.until("kubectl get pods --field-selector=spec.nodeName=sim-0 -o jsonpath='{.items[*].metadata.deletionTimestamp}'", "");
    cluster.until(
        "kubectl get daemonset log -o jsonpath='{.status.numberReady} {.status.desiredNumberScheduled}'",
        "4 4",
    );
}

/// Somebody vouches that the node is down: its pods may be taken for ended.
fn out_of_service(cluster: &Cluster, db: &[String]) {
    cluster.ok("kubectl taint node sim-1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute");
    for name in db {
        cluster.until_that(&format!("kubectl get pod {name} -o jsonpath='{{.spec.nodeName}}'"), |node| {
            ["sim-0", "sim-3", "sim-4", "sim-5"].contains(&node)
        });
    }
    cluster.until("kubectl get pods --field-selector=spec.nodeName=sim-1 -o name", "");
}

/// Without its Node the pods are nobody's; the garbage collector waits a while for it to come back.
fn deleted(cluster: &Cluster, log: &[String]) {
    cluster.ok("kubectl delete node sim-2");
    cluster.within(LOST, "kubectl get pods --field-selector=spec.nodeName=sim-2 -o name", |left| {
        left.is_empty()
    });
    for name in log {
        cluster.says(&format!("kubectl get pod {name} --ignore-not-found -o name"), "");
    }
    told(
        cluster,
        "Node",
        "sim-2",
        "Normal RemovingNode Node sim-2 event: Removing Node sim-2 from Controller",
    );
    told(
        cluster,
        "Node",
        "sim-3",
        "Normal RegisteredNode Node sim-3 event: Registered Node sim-3 in Controller",
    );
}

#[test]
fn a_simulated_node_answers_for_its_missing_kubelet_at_once() {
    let cluster = nodes(1);
    cluster
        .ok("kubectl run box --image=busybox && kubectl wait pod/box --for=condition=Ready --timeout=100s");
    let began = std::time::Instant::now();
    for line in [
        "kubectl logs box",
        "kubectl exec box -- true",
        "kubectl get --raw /api/v1/nodes/sim-0/proxy/healthz",
    ] {
        let answer = cluster.run(line);
        assert_ne!(answer.code, 0, "{line}: {answer}");
        let why = "node \"sim-0\" runs no kubelet: its status has no kubelet endpoint";
        assert!(answer.stderr.contains(why), "{line}: {answer}");
    }
    // A dial that nobody answers would take 30 s each time.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    cluster.says(
        "kubectl get node sim-0 -o jsonpath='{.status.addresses[?(@.type==\"InternalIP\")].address}'",
        "240.0.0.1",
    );
}

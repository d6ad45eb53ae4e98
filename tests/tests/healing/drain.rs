//! Nodes that are emptied: by people, two at a time, within a budget; and one that is lost already.

use crate::nodes::{LOST, UNREACHABLE, becomes};
use crate::{nodes, nodes_soon_lost, pods_now, pods_since, silence, workload};
use coracle_tests::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;

const DRAIN: &str = "kubectl drain --ignore-daemonsets --timeout=150s";

fn budget(cluster: &Cluster, spec: &str) {
    cluster.apply(&format!(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: web}}\nspec: {{selector: {{matchLabels: {{app: web}}}}, {spec}}}\n"
    ));
    cluster.until_that("kubectl get pdb web -o jsonpath='{.status.expectedPods}'", |pods| {
        pods != "0" && !pods.is_empty()
    });
}

fn serves(pod: &Value) -> bool {
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let conditions = pod["status"]["conditions"].as_array();
    pod["metadata"]["deletionTimestamp"].is_null() && conditions.is_some_and(|all| all.iter().any(ready))
}

/// The fewest pods that served at any revision since then.
fn fewest(before: (String, Vec<Value>), cluster: &Cluster) -> usize {
    let (revision, pods) = before;
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut now: BTreeMap<String, bool> = pods.iter().map(|pod| (name(pod), serves(pod))).collect();
    let count = |now: &BTreeMap<String, bool>| now.values().filter(|serves| **serves).count();
    let mut fewest = count(&now);
    for (kind, pod) in pods_since(cluster, &revision) {
        now.insert(name(&pod), kind != "DELETED" && serves(&pod));
        fewest = fewest.min(count(&now));
    }
    fewest
}

#[test]
fn two_drains_at_once_share_one_budget() {
    let cluster = nodes(3);
    cluster.ok("kubectl cordon sim-2");
    cluster.apply(&workload("Deployment", "web", "replicas: 4"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s && kubectl uncordon sim-2");
    budget(&cluster, "maxUnavailable: 1");
    cluster.until("kubectl get pdb web -o jsonpath='{.status.disruptionsAllowed}'", "1");
    let before = pods_now(&cluster);
    std::thread::scope(|scope| {
        for node in ["sim-0", "sim-1"] {
            let cluster = &cluster;
            scope
                .spawn(move || cluster.shows(&format!("{DRAIN} {node}"), &[&format!("node/{node} drained")]));
        }
    });
    cluster.until(
        "kubectl get pods -l app=web -o jsonpath='{.items[*].spec.nodeName}'",
        "sim-2 sim-2 sim-2 sim-2",
    );
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    assert_eq!(fewest(before, &cluster), 3, "the budget lets one of four be away, and that is used");
}

/// Nobody confirms the end of pods there; whoever drains it says how long they are waited for.
#[test]
fn a_lost_node_is_drained_as_far_as_anybody_can() {
    let cluster = nodes_soon_lost(3);
    // They endure the loss, and have little time to end.
    let web = workload("Deployment", "web", "replicas: 3")
        .replace("tolerationSeconds: 2", "tolerationSeconds: 3600")
        .replace("      tolerations:", "      terminationGracePeriodSeconds: 1\n      tolerations:");
    cluster.apply(&web);
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    // What is not ready does no good where it is, says its owner.
    budget(&cluster, "minAvailable: 3, unhealthyPodEvictionPolicy: AlwaysAllow");
    let refused = cluster.run("kubectl drain sim-0 --ignore-daemonsets --timeout=3s");
    assert!(refused.code != 0 && refused.stderr.contains("violate the pod's disruption budget"), "{refused}");
    cluster.ok("kubectl uncordon sim-0");
    silence(&cluster, "sim-0", true);
    becomes(&cluster, "sim-0", "Unknown", &UNREACHABLE);
    cluster.until("kubectl get deployment web -o jsonpath='{.status.readyReplicas}'", "2");
    cluster.shows(&format!("{DRAIN} --skip-wait-for-delete-timeout=1 sim-0"), &["node/sim-0 drained"]);
    cluster.within(LOST, "kubectl get deployment web -o jsonpath='{.status.readyReplicas}'", |n| n == "3");
    // The pod itself is there until its node says that it has ended.
    let dying = "kubectl get pods -l app=web --field-selector spec.nodeName=sim-0 -o jsonpath='{.items[*].metadata.deletionTimestamp}'";
    cluster.until_that(dying, |text| !text.is_empty());
    silence(&cluster, "sim-0", false);
    cluster.within(
        LOST,
        "kubectl get pods -l app=web --field-selector spec.nodeName=sim-0 -o name",
        |left| left.is_empty(),
    );
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "3");
}

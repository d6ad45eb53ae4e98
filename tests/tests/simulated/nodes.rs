//! kubectl cordon, taint and drain.

use super::with_web;
use coracle_tests::Cluster;

#[test]
fn a_cordoned_node_gets_no_pods() {
    let cluster = Cluster::simulated();
    cluster.says("kubectl cordon sim-0", "node/sim-0 cordoned");
    cluster.says("kubectl cordon sim-0", "node/sim-0 already cordoned");
    cluster.says("kubectl get node sim-0 --no-headers | awk '{print $2}'", "Ready,SchedulingDisabled");
    cluster.ok("kubectl create deployment web --image=nginx --replicas=4 && kubectl rollout status deployment/web --timeout=100s");
    cluster.says("kubectl get pods -o jsonpath='{.items[*].spec.nodeName}'", "sim-1 sim-1 sim-1 sim-1");
    cluster.says("kubectl uncordon sim-0", "node/sim-0 uncordoned");
    cluster.until("kubectl get node sim-0 -o jsonpath='{.spec.unschedulable}{.spec.taints}'", "");
}

#[test]
fn taints_and_tolerations() {
    let cluster = Cluster::simulated();
    cluster.says("kubectl taint nodes --all only=crew:NoSchedule", "node/sim-0 tainted\nnode/sim-1 tainted");
    cluster.ok("kubectl run passenger --image=nginx");
    cluster.until_that(
        "kubectl get pod passenger -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        |text| text.starts_with("0/2 nodes are available: 2 node(s) had untolerated taint"),
    );
    cluster.ok("kubectl run sailor --image=nginx --overrides='{\"spec\":{\"tolerations\":[{\"key\":\"only\",\"value\":\"crew\",\"effect\":\"NoSchedule\"}]}}'");
    cluster.ok("kubectl wait pod/sailor --for=condition=Ready --timeout=100s");
    cluster.says("kubectl taint nodes sim-0 only-", "node/sim-0 untainted");
    cluster.ok("kubectl wait pod/passenger --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pod passenger -o jsonpath='{.spec.nodeName}'", "sim-0");
}

#[test]
fn drain_moves_pods_elsewhere() {
    let cluster = with_web();
    cluster.shows(
        "kubectl drain sim-0 --ignore-daemonsets --timeout=100s",
        &["node/sim-0 cordoned", "node/sim-0 drained"],
    );
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.until("kubectl get pods -l app=web -o jsonpath='{.items[*].spec.nodeName}'", "sim-1 sim-1 sim-1");
    cluster
        .ok("kubectl run alone --image=nginx && kubectl wait pod/alone --for=condition=Ready --timeout=100s");
    let refused = cluster.run("kubectl drain sim-1");
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("cannot delete cannot delete Pods that declare no controller (use --force to override): default/alone")
        || refused.stderr.contains("cannot delete Pods that declare no controller (use --force to override): default/alone"), "{refused}");
    cluster.says("kubectl get pod alone -o jsonpath='{.status.phase}'", "Running");
}

#[test]
fn node_selectors_and_names() {
    let cluster = Cluster::simulated();
    cluster.says("kubectl label node sim-1 disk=fast", "node/sim-1 labeled");
    cluster.ok(
        "kubectl run chosen --image=nginx --overrides='{\"spec\":{\"nodeSelector\":{\"disk\":\"fast\"}}}'",
    );
    cluster.ok(
        "kubectl run nowhere --image=nginx --overrides='{\"spec\":{\"nodeSelector\":{\"disk\":\"none\"}}}'",
    );
    cluster.ok("kubectl wait pod/chosen --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pod chosen -o jsonpath='{.spec.nodeName}'", "sim-1");
    cluster.until_that(
        "kubectl get pod nowhere -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        |text| {
            text.starts_with("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
        },
    );
    cluster.ok("kubectl label node sim-0 disk=none");
    cluster.ok("kubectl wait pod/nowhere --for=condition=Ready --timeout=100s");
}

#[test]
fn leases_are_kept_fresh() {
    let cluster = Cluster::simulated();
    cluster.until(
        "kubectl get leases -n kube-node-lease -o jsonpath='{.items[*].spec.holderIdentity}'",
        "sim-0 sim-1",
    );
    cluster.says("kubectl get lease sim-0 -n kube-node-lease -o jsonpath='{.spec.leaseDurationSeconds} {.metadata.ownerReferences[0].kind}'", "40 Node");
}

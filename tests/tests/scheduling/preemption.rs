//! The example of the owner's documents: a full node, three pods of low priority, one of high priority arrives.

use super::{pod, with_priorities};

/// Ten of the node's 32 cores each, so that a fourth does not fit.
fn full() -> coracle_tests::Cluster {
    let cluster = with_priorities();
    let low: String =
        (1..=3).map(|n| pod(&format!("low-priority-pod-{n}"), "low-priority", "10", "")).collect();
    cluster.apply(&low);
    cluster.ok("kubectl wait pod --all --for=condition=Ready --timeout=100s");
    cluster
}

fn uid_of(cluster: &coracle_tests::Cluster, pod: &str) -> String {
    cluster.ok(&format!("kubectl get pod {pod} -o jsonpath='{{.metadata.uid}}'")).trim().to_owned()
}

#[test]
fn the_important_pod_takes_the_place_of_one_and_everybody_is_told() {
    let cluster = full();
    cluster.apply(&pod("high-priority-pod", "high-priority", "10", ""));
    cluster.ok("kubectl wait pod/high-priority-pod --for=condition=Ready --timeout=100s");
    cluster.until("kubectl get pods --no-headers | wc -l", "3");
    let victim = cluster.until_that(
        "kubectl get events --field-selector reason=Preempted -o jsonpath='{.items[*].involvedObject.name}'",
        |name| name.starts_with("low-priority-pod-"),
    );
    let victim = victim.trim();
    cluster.until(
        "kubectl get events --field-selector reason=Preempted -o jsonpath='{.items[*].type} {.items[*].message} {.items[*].related.name}'",
        &format!("Normal Preempted by pod {} on node sim-0 high-priority-pod", uid_of(&cluster, "high-priority-pod")),
    );
    // As upstream's scheduler writes them: with what it did, and in nothing of the older form.
    cluster.until(
        "kubectl get events --field-selector reason=Scheduled,involvedObject.name=high-priority-pod -o \
         jsonpath='{range .items[*]}{.action} {.reportingComponent}{.source.component}{.count}{end}'",
        "Binding default-scheduler",
    );
    cluster.until(
        "kubectl get events --field-selector reason=SuccessfulPreemption -o jsonpath='{.items[*].type} {.items[*].action} {.items[*].related.name}'",
        &format!("Normal Preempting {victim}"),
    );
    cluster.until(
        "kubectl get events --field-selector reason=Scheduled,involvedObject.name=high-priority-pod -o jsonpath='{.items[*].message}'",
        "Successfully assigned default/high-priority-pod to sim-0",
    );
    cluster.until_that(
        "kubectl get events --field-selector reason=FailedScheduling,involvedObject.name=high-priority-pod -o jsonpath='{.items[0].message}'",
        |text| text.starts_with("0/1 nodes are available: 1 Insufficient cpu."),
    );
}

#[test]
fn whoever_may_not_preempt_waits_and_says_why() {
    let cluster = full();
    cluster.apply(
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: polite}\nvalue: 1000\n\
         preemptionPolicy: Never\n",
    );
    cluster.apply(&pod("polite", "polite", "10", ""));
    cluster.until(
        "kubectl get pod polite -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to \
         preemptionPolicy=Never.",
    );
    cluster.apply(&pod("equal", "low-priority", "10", ""));
    cluster.until(
        "kubectl get pod equal -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
         available: 1 No preemption victims found for incoming pod.",
    );
    cluster.until("kubectl get pods --no-headers | grep -c Running", "3");
}

#[test]
fn a_protected_pod_is_taken_last() {
    let cluster = full();
    cluster.apply(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: keep}\nspec:\n  maxUnavailable: 0\n  \
         selector: {matchExpressions: [{key: app, operator: In, values: [low-priority-pod-1, low-priority-pod-3]}]}\n",
    );
    cluster.until(
        "kubectl get pdb keep -o jsonpath='{.status.currentHealthy} {.status.disruptionsAllowed}'",
        "2 0",
    );
    cluster.apply(&pod("high-priority-pod", "high-priority", "10", ""));
    cluster.ok("kubectl wait pod/high-priority-pod --for=condition=Ready --timeout=100s");
    cluster.until(
        "kubectl get pods -o jsonpath='{.items[*].metadata.name}'",
        "high-priority-pod low-priority-pod-1 low-priority-pod-3",
    );
}

/// A volume that only one pod may use is what the important pod lacks, whatever else the node has left; of equals the first
/// keeps it.
#[test]
fn a_volume_of_one_pod_goes_to_the_important_one() {
    let cluster = with_priorities();
    cluster.apply(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: alone}\nspec:\n  storageClassName: by-hand\n  \
         accessModes: [ReadWriteOncePod]\n  capacity: {storage: 1Gi}\n  hostPath: {path: /nowhere}\n---\n\
         apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: alone}\nspec:\n  storageClassName: by-hand\n  \
         accessModes: [ReadWriteOncePod]\n  resources: {requests: {storage: 1Gi}}\n",
    );
    cluster.until("kubectl get pvc alone -o jsonpath='{.status.phase}'", "Bound");
    let volumes = "  volumes: [{name: data, persistentVolumeClaim: {claimName: alone}}]\n";
    cluster.apply(&pod("first", "low-priority", "1", volumes));
    cluster.ok("kubectl wait pod/first --for=condition=Ready --timeout=100s");
    cluster.apply(&pod("equal", "low-priority", "1", volumes));
    cluster.until(
        "kubectl get pod equal -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod \
         access mode. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found \
         for incoming pod.",
    );
    cluster.ok("kubectl delete pod equal --now");
    cluster.apply(&pod("important", "high-priority", "1", volumes));
    cluster.ok("kubectl wait pod/important --for=condition=Ready --timeout=100s");
    cluster.until("kubectl get pods -o name", "pod/important");
    cluster.until(
        "kubectl get events --field-selector reason=Preempted -o jsonpath='{.items[*].involvedObject.name}: {.items[*].message}'",
        &format!("first: Preempted by pod {} on node sim-0", uid_of(&cluster, "important")),
    );
    cluster.says("kubectl get pvc alone -o jsonpath='{.status.phase}'", "Bound");
}

/// A pod that is not bound yet loses its place, and not its life.
#[test]
fn a_pod_on_its_way_goes_back_to_the_queue() {
    let cluster = with_priorities();
    cluster.apply(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: by-hand}\nprovisioner: example.com/by-hand\n\
         volumeBindingMode: WaitForFirstConsumer\n---\n\
         apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  storageClassName: by-hand\n  \
         accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: 1Gi}}\n",
    );
    let volumes = "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n";
    cluster.apply(&pod("waiting", "low-priority", "30", volumes));
    let nominated = "kubectl get pod waiting -o jsonpath='{.status.nominatedNodeName}'";
    cluster.until(nominated, "sim-0");
    cluster.until(
        "kubectl get pvc data -o jsonpath='{.metadata.annotations.volume\\.kubernetes\\.io/selected-node}'",
        "sim-0",
    );
    let uid = cluster.ok("kubectl get pod waiting -o jsonpath='{.metadata.uid}'");
    cluster.apply(&pod("high-priority-pod", "high-priority", "30", ""));
    cluster.ok("kubectl wait pod/high-priority-pod --for=condition=Ready --timeout=100s");
    cluster.says(
        "kubectl get pod waiting -o jsonpath='{.metadata.uid}{.metadata.deletionTimestamp}{.spec.nodeName}'",
        uid.trim(),
    );
    cluster.until(
        "kubectl get events --field-selector reason=Preempted -o jsonpath='{.items[*].message}'",
        &format!(
            "Preempted by pod {} on node sim-0 (in kube-scheduler memory).",
            uid_of(&cluster, "high-priority-pod")
        ),
    );
    cluster.until_that(
        "kubectl get pod waiting -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        |text| text.starts_with("0/1 nodes are available: 1 Insufficient cpu."),
    );
    cluster.until(nominated, "");
    cluster.ok("kubectl delete pod high-priority-pod --now");
    cluster.until(nominated, "sim-0");
}

//! Between the decision and the binding: where a pod is going to run, and what only some nodes can do.

use super::{pod, with_priorities};

const DECLARED: &str = "kubectl get node sim-0 -o jsonpath='{.status.declaredFeatures[*]}'";
const NOMINATED: &str = "kubectl get pod waiting -o jsonpath='{.status.nominatedNodeName}'";

#[test]
fn a_pod_says_where_it_is_going_to_run_while_its_volume_is_made() {
    let cluster = with_priorities();
    let volumes = "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n";
    cluster.apply(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: by-hand}\nprovisioner: example.com/by-hand\n\
         volumeBindingMode: WaitForFirstConsumer\n---\n\
         apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  storageClassName: by-hand\n  \
         accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: 1Gi}}\n",
    );
    cluster.apply(&pod("waiting", "low-priority", "1", volumes));
    cluster.until(NOMINATED, "sim-0");
    cluster.until(
        "kubectl get pvc data -o jsonpath='{.metadata.annotations.volume\\.kubernetes\\.io/selected-node}'",
        "sim-0",
    );
    cluster.says("kubectl get pod waiting -o jsonpath='{.spec.nodeName}'", "");
    cluster.apply(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: made}\nspec:\n  storageClassName: by-hand\n  \
         accessModes: [ReadWriteOnce]\n  capacity: {storage: 1Gi}\n  hostPath: {path: /tmp}\n  \
         claimRef: {namespace: default, name: data}\n",
    );
    cluster.ok("kubectl wait pod/waiting --for=condition=Ready --timeout=100s");
    cluster.says(NOMINATED, "");
}

#[test]
fn a_pod_waits_for_a_node_that_can_restart_all_of_its_containers() {
    let cluster = with_priorities();
    cluster.until_that(DECLARED, |text| text.contains("RestartAllContainersOnContainerExits"));
    cluster.ok("kubectl patch node sim-0 --subresource=status --type=merge -p '{\"status\":{\"declaredFeatures\":null}}'");
    cluster.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: picky}\nspec:\n  restartPolicy: Never\n  containers:\n  \
         - name: app\n    image: nginx\n    restartPolicy: Never\n    restartPolicyRules:\n    \
         - {action: RestartAllContainers, exitCodes: {operator: In, values: [3]}}\n",
    );
    cluster.until_that(
        "kubectl get pod picky -o jsonpath='{.status.conditions[?(@.type==\"PodScheduled\")].message}'",
        |text| {
            text.starts_with(
                "0/1 nodes are available: 1 node declared features check failed - unsatisfied requirements: \
                 RestartAllContainersOnContainerExits.",
            )
        },
    );
    cluster.ok("kubectl patch node sim-0 --subresource=status --type=merge -p \
                '{\"status\":{\"declaredFeatures\":[\"RestartAllContainersOnContainerExits\"]}}'");
    cluster.ok("kubectl wait pod/picky --for=condition=PodScheduled --timeout=100s");
}

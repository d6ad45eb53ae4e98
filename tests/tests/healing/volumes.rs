//! A volume of one node at a time, whose node is lost: it follows its pod only when somebody vouches that the node is down.

use crate::nodes::{LOST, UNREACHABLE, becomes};
use crate::{nodes_soon_lost, silence, told, workload};
use coracle_tests::{Cluster, wait_for};

const VOLUME: &str = r#"
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disks.example.com}
spec: {attachRequired: true}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: gold}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  csi: {driver: disks.example.com, volumeHandle: gold}
"#;

const CLAIM: &str = r#"serviceName: db
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}"#;

/// The node to which the volume is attached, or is to be, each with whether it is.
fn attachments(cluster: &Cluster) -> String {
    cluster.ok("kubectl get volumeattachments -o jsonpath='{range .items[*]}{.spec.nodeName} {.status.attached} {end}'")
}

/// As the driver's attacher does it, for this node.
fn attach(cluster: &Cluster, node: &str) {
    wait_for(&format!("an attachment to {node} alone"), LOST, || {
        let found = attachments(cluster);
        if found.starts_with(&format!("{node} ")) && found.split_whitespace().count() <= 2 {
            Ok(())
        } else {
            Err(found)
        }
    });
    let name = cluster.ok("kubectl get volumeattachments -o name");
    cluster.ok(&format!(
        "kubectl patch {} --subresource=status --type=merge -p '{{\"status\":{{\"attached\":true}}}}'",
        name.trim()
    ));
    let uses = "{\"status\":{\"volumesInUse\":[\"kubernetes.io/csi/disks.example.com^gold\"]}}";
    cluster.ok(&format!("kubectl patch node {node} --subresource=status --type=merge -p '{uses}'"));
}

#[test]
fn a_volume_leaves_a_lost_node_when_somebody_says_that_it_is_out_of_service() {
    let cluster = nodes_soon_lost(3);
    cluster.apply(VOLUME);
    let db = workload("StatefulSet", "db", CLAIM).replace(
        "containers: [{name: c, image: \"app:1\"}]",
        "containers: [{name: c, image: \"app:1\", volumeMounts: [{name: data, mountPath: /d}]}]",
    );
    cluster.apply(&db);
    cluster.ok("kubectl rollout status statefulset/db --timeout=100s");
    let place = "kubectl get pod db-0 -o jsonpath='{.spec.nodeName}'";
    let (lost, uid) = (cluster.ok(place), cluster.ok("kubectl get pod db-0 -o jsonpath='{.metadata.uid}'"));
    attach(&cluster, &lost);
    silence(&cluster, &lost, true);
    becomes(&cluster, &lost, "Unknown", &UNREACHABLE);
    told(&cluster, "Pod", "db-0", "Normal TaintManagerEviction Marking for deletion Pod default/db-0");
    cluster.until_that("kubectl get pod db-0 -o jsonpath='{.metadata.deletionTimestamp}'", |text| {
        !text.is_empty()
    });
    // Who may still write there keeps the volume, and nobody takes his place.
    cluster.says("kubectl get pod db-0 -o jsonpath='{.metadata.uid}'", &uid);
    assert_eq!(attachments(&cluster), format!("{lost} true "));
    cluster
        .ok(&format!("kubectl taint node {lost} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"));
    let found = cluster.within(LOST, place, |node| !node.is_empty() && node != lost);
    attach(&cluster, &found);
    cluster.ok("kubectl wait pod/db-0 --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pvc data-db-0 -o jsonpath='{.status.phase} {.spec.volumeName}'", "Bound gold");
    // The machine is mended, and the owner says so: it is used again, and has nothing of before.
    silence(&cluster, &lost, false);
    cluster.ok(&format!("kubectl taint node {lost} node.kubernetes.io/out-of-service-"));
    becomes(&cluster, &lost, "True", &[]);
    cluster.until(&format!("kubectl get pods --field-selector spec.nodeName={lost} -o name"), "");
    assert_eq!(attachments(&cluster), format!("{found} true "));
}

//! DaemonSets as nodes come, go, and change.

use crate::{SOON_LOST, told, uids, workload};
use coracle_tests::Cluster;
use std::time::Duration;

/// A node that was deleted may be about to come back: its pods are let be for 40 s.
const GONE: Duration = Duration::from_secs(120);

/// A node whose kubelet has not spoken.
const UNHEARD: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: sim-2, labels: {kubernetes.io/hostname: sim-2}}
status: {capacity: {pods: "110", cpu: "4", memory: 8Gi}, allocatable: {pods: "110", cpu: "4", memory: 8Gi}}
"#;

/// The nodes on which pods of this DaemonSet run and are not being deleted, in order.
fn on(cluster: &Cluster, app: &str, expected: &str) {
    let fields =
        "{range .items[*]}{.metadata.deletionTimestamp}/{.spec.nodeName}/{.status.phase}{\"\\n\"}{end}";
    cluster.within(
        GONE,
        &format!(
            "kubectl get pods -l app={app} -o jsonpath='{fields}' | sed -n 's,^/,,p' | sort | tr '\n' ' '"
        ),
        |found| found == expected,
    );
}

fn start(count: &'static str) -> Vec<&'static str> {
    [&["--simulate-nodes", count], &SOON_LOST[..]].concat()
}

#[test]
fn daemons_follow_nodes() {
    let mut cluster = Cluster::start(&start("2"));
    cluster.apply(&workload("DaemonSet", "log", "minReadySeconds: 0"));
    let fast = workload("DaemonSet", "fast", "minReadySeconds: 0")
        .replace("      containers:", "      nodeSelector: {disk: ssd}\n      containers:");
    cluster.apply(&fast);
    on(&cluster, "log", "sim-0/Running sim-1/Running ");
    on(&cluster, "fast", "");
    // A label comes and goes.
    cluster.ok("kubectl label node sim-1 disk=ssd");
    on(&cluster, "fast", "sim-1/Running ");
    cluster.ok("kubectl label node sim-1 disk-");
    on(&cluster, "fast", "");
    // Who is cordoned keeps its daemon, and gets it back.
    cluster.ok("kubectl cordon sim-0");
    let before = uids(&cluster, "log");
    cluster.ok("kubectl delete pods -l app=log --field-selector spec.nodeName=sim-0");
    on(&cluster, "log", "sim-0/Running sim-1/Running ");
    assert_eq!(uids(&cluster, "log").intersection(&before).count(), 1);
    cluster.ok("kubectl uncordon sim-0");
    // Who may not stay goes, and comes back.
    cluster.ok("kubectl taint node sim-0 only=crew:NoExecute");
    on(&cluster, "log", "sim-1/Running ");
    cluster.until("kubectl get daemonset log -o jsonpath='{.status.desiredNumberScheduled}'", "1");
    cluster.ok("kubectl taint node sim-0 only-");
    on(&cluster, "log", "sim-0/Running sim-1/Running ");
    // A node whose kubelet has not spoken gets those that endure everything, and no others.
    let net = workload("DaemonSet", "net", "minReadySeconds: 0")
        .replace("      tolerations:", "      tolerations:\n      - {operator: Exists}");
    cluster.apply(&net);
    cluster.apply(UNHEARD);
    on(&cluster, "net", "sim-0/Running sim-1/Running sim-2/Pending ");
    on(&cluster, "log", "sim-0/Running sim-1/Running ");
    cluster.terminate();
    cluster.restart_with(&start("4"));
    on(&cluster, "log", "sim-0/Running sim-1/Running sim-2/Running sim-3/Running ");
    cluster.until(
        "kubectl get daemonset log -o jsonpath='{.status.desiredNumberScheduled} {.status.numberReady}'",
        "4 4",
    );
    // And one that goes for good takes it along.
    cluster.ok("kubectl delete node sim-3 sim-2");
    on(&cluster, "log", "sim-0/Running sim-1/Running ");
    cluster.until("kubectl get pods -l app=log -o name | wc -l", "2");
    cluster.until(
        "kubectl get daemonset log -o jsonpath='{.status.desiredNumberScheduled} {.status.numberReady}'",
        "2 2",
    );
    told(&cluster, "DaemonSet", "fast", "Normal SuccessfulDelete Deleted pod: fast-*");
}

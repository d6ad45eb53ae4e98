//! Pods that are deleted come back, from whoever owns them, in upstream's words.

use crate::{job, nodes, told, uids, workload};
use coracle_tests::Cluster;

/// The workload's kind, its spec, how many pods it has, and an event of a pod that is made anew.
const OWNERS: [(&str, &str, &str, usize, &str); 5] = [
    ("ReplicationController", "rc", "replicas: 3", 3, "Normal SuccessfulCreate Created pod: rc-*"),
    ("ReplicaSet", "rs", "replicas: 3", 3, "Normal SuccessfulCreate Created pod: rs-*"),
    (
        "Deployment",
        "web",
        "replicas: 3",
        3,
        "Normal ScalingReplicaSet Scaled up replica set web-* from 0 to 3",
    ),
    (
        "StatefulSet",
        "db",
        "replicas: 3\n  serviceName: db",
        3,
        "Normal SuccessfulCreate create Pod db-2 in StatefulSet db successful",
    ),
    (
        "DaemonSet",
        "log",
        "updateStrategy: {type: RollingUpdate}",
        2,
        "Normal SuccessfulCreate Created pod: log-*",
    ),
];

fn ready(cluster: &Cluster, app: &str, count: usize) {
    let line = format!(
        "kubectl get pods -l app={app} -o jsonpath='{{range .items[*]}}{{.metadata.deletionTimestamp}}{{.status.conditions[?(@.type==\"Ready\")].status}}{{\"\\n\"}}{{end}}'"
    );
    cluster.until(&line, "True\n".repeat(count).trim_end());
}

#[test]
fn deleted_pods_come_back() {
    let cluster = nodes(2);
    let all: String = OWNERS.iter().map(|(kind, name, spec, ..)| workload(kind, name, spec)).collect();
    cluster.apply(&all);
    OWNERS.iter().for_each(|(_, app, _, count, _)| ready(&cluster, app, *count));
    let before: Vec<_> = OWNERS.iter().map(|(_, app, ..)| uids(&cluster, app)).collect();
    // Once as kubectl asks, once as somebody without patience does.
    cluster.ok("kubectl delete pods --all --wait=false");
    for ((_, app, _, count, _), before) in OWNERS.iter().zip(&before) {
        cluster.until_that(
            &format!("kubectl get pods -l app={app} -o jsonpath='{{.items[*].metadata.uid}}'"),
            |now| before.iter().all(|uid| !now.contains(uid.as_str())) && now.split(' ').count() == *count,
        );
        ready(&cluster, app, *count);
    }
    cluster.ok("kubectl delete pods --all --force --grace-period=0");
    for (kind, app, _, count, event) in OWNERS {
        ready(&cluster, app, count);
        told(&cluster, kind, app, event);
    }
    cluster.says("kubectl get pods -l app=db -o name", "pod/db-0\npod/db-1\npod/db-2");
    cluster.says(
        "kubectl get pods -l app=log -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\\n' | sort",
        "sim-0\nsim-1",
    );
    cluster.says("kubectl get replicasets -l app=web -o name | wc -l", "1");
    cluster.until(
        "kubectl get rc,rs,deployments,statefulsets -o jsonpath='{.items[*].status.readyReplicas}'",
        "3 3 3 3 3",
    );
}

#[test]
fn a_jobs_deleted_pod_counts_as_failed_and_is_made_anew() {
    let cluster = nodes(2);
    cluster.apply(&job("sum", "3s", "completions: 3\n  parallelism: 3\n  completionMode: Indexed"));
    cluster.until("kubectl get job sum -o jsonpath='{.status.active}'", "3");
    let victim = "kubectl get pods -l batch.kubernetes.io/job-completion-index=1 -o jsonpath='{.items[*].metadata.name}'";
    let victim = cluster.ok(victim);
    cluster.ok(&format!("kubectl delete pod {victim}"));
    cluster.ok("kubectl wait job/sum --for=condition=complete --timeout=100s");
    cluster.says(
        "kubectl get job sum -o jsonpath='{.status.succeeded} {.status.failed} {.status.completedIndexes} {.status.uncountedTerminatedPods}'",
        "3 1 0-2 {}",
    );
    cluster.says("kubectl get pods -l job-name=sum -o jsonpath='{.items[*].metadata.finalizers}'", "");
    told(&cluster, "Job", "sum", "Normal SuccessfulCreate Created pod: sum-1-*");
    told(&cluster, "Job", "sum", "Normal Completed Job completed");
}

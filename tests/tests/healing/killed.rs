//! kill -9 of the server in the middle of things.

use crate::{job, nodes, set, told, uids, workload};
use coracle_tests::{Cluster, Shell, wait_for};
use std::time::Duration;

/// All containers' images of a workload, each once.
fn images(cluster: &Cluster, app: &str) -> Vec<String> {
    let line = format!("kubectl get pods -l app={app} -o jsonpath='{{.items[*].spec.containers[0].image}}'");
    let mut all: Vec<String> = cluster.ok(&line).split_whitespace().map(str::to_owned).collect();
    all.sort();
    all.dedup();
    all
}

/// Waits until some of a workload's pods are of the new template, so that what follows is in the middle of it: unless the
/// machine is so busy that the rollout is over before somebody looks.
fn some_are_new(cluster: &Cluster, app: &str) {
    wait_for("a rollout that has begun", Duration::from_secs(60), || match images(cluster, app) {
        old if old == ["app:1"] => Err("all are old".to_owned()),
        _ => Ok(()),
    });
}

#[test]
fn rollouts_go_on_where_they_stopped() {
    let mut cluster = nodes(4);
    cluster.apply(&workload("StatefulSet", "db", "replicas: 4\n  serviceName: db\n  minReadySeconds: 1"));
    cluster.apply(&workload("DaemonSet", "log", "minReadySeconds: 1"));
    cluster.apply(&workload("Deployment", "web", "replicas: 8\n  minReadySeconds: 1"));
    for what in ["statefulset/db", "daemonset/log", "deployment/web"] {
        cluster.ok(&format!("kubectl rollout status {what} --timeout=100s"));
    }
    let before: Vec<_> = ["db", "log", "web"].map(|app| uids(&cluster, app)).into();
    for (what, app) in [("statefulset/db", "db"), ("daemonset/log", "log"), ("deployment/web", "web")] {
        cluster.ok(&format!("kubectl set image {what} c=app:2"));
        some_are_new(&cluster, app);
        cluster.kill_and_restart();
    }
    for what in ["statefulset/db", "daemonset/log", "deployment/web"] {
        cluster.ok(&format!("kubectl rollout status {what} --timeout=100s"));
    }
    for ((app, count), before) in [("db", 4), ("log", 4), ("web", 8)].into_iter().zip(&before) {
        cluster.until(&format!("kubectl get pods -l app={app} -o name | wc -l"), &count.to_string());
        assert_eq!(images(&cluster, app), ["app:2"], "{app}");
        let now = uids(&cluster, app);
        assert!(now.is_disjoint(before), "every pod of {app} was replaced");
    }
    cluster.says("kubectl get controllerrevisions -o name | wc -l", "4");
    cluster.says("kubectl get replicasets -o name | wc -l", "2");
    cluster.says(
        "kubectl get statefulset db -o jsonpath='{.status.currentRevision}' | cut -c1-3; kubectl get statefulset db -o jsonpath='{.status.currentReplicas} {.status.updatedReplicas} {.status.readyReplicas}'",
        "db-\n4 4 4",
    );
    told(
        &cluster,
        "StatefulSet",
        "db",
        "Normal SuccessfulDelete delete Pod db-0 in StatefulSet db successful",
    );
    told(&cluster, "DaemonSet", "log", "Normal SuccessfulDelete Deleted pod: log-*");
}

#[test]
fn no_pod_of_a_job_is_lost_or_counted_twice() {
    let mut cluster = nodes(2);
    cluster.apply(&job("sum", "1s", "completions: 24\n  parallelism: 6"));
    for least in [3, 12] {
        cluster.until_that("kubectl get job sum -o jsonpath='{.status.succeeded}'", |n| {
            n.parse::<u32>().is_ok_and(|n| n >= least)
        });
        cluster.kill_and_restart();
    }
    cluster.ok("kubectl wait job/sum --for=condition=complete --timeout=100s");
    cluster.says("kubectl get job sum -o jsonpath='{.status.succeeded} {.status.failed}'", "24 ");
    cluster.says("kubectl get pods -l job-name=sum -o jsonpath='{.items[*].metadata.finalizers}'", "");
    cluster.says("kubectl get pods -l job-name=sum -o name | wc -l", "24");
    // Gone with a Job that is deleted while its pods run, finalizers and all.
    cluster.apply(&job("long", "1h", "completions: 6\n  parallelism: 6"));
    cluster.until("kubectl get job long -o jsonpath='{.status.active}'", "6");
    cluster.ok("kubectl delete job long --cascade=foreground --wait=false");
    cluster.kill_and_restart();
    cluster.until(
        "kubectl get jobs,pods -l app=long -o name; kubectl get job long -o name --ignore-not-found",
        "",
    );
}

#[test]
fn a_cron_job_starts_each_job_once() {
    let mut cluster = nodes(1);
    cluster.ok("kubectl create cronjob tick --image=busybox --schedule='* * * * *'");
    cluster.ok("kubectl patch cronjob tick -p '{\"spec\":{\"concurrencyPolicy\":\"Forbid\"}}'");
    for _ in 0..3 {
        cluster.ok("kubectl patch cronjob tick --subresource=status --type=merge -p '{\"status\":{\"lastScheduleTime\":\"2026-01-01T00:00:00Z\"}}'");
        cluster.kill_and_restart();
    }
    cluster.until_that("kubectl get jobs -o name", |names| names.starts_with("job.batch/tick-"));
    cluster.until("kubectl get cronjob tick -o jsonpath='{.status.active[*].kind}'", "Job");
    // No pod of it ends, so nothing further may start.
    cluster.says("kubectl get jobs -o name | wc -l", "1");
    let job = cluster.ok("kubectl get jobs -o jsonpath='{.items[0].metadata.name}'");
    cluster.says("kubectl get cronjob tick -o jsonpath='{.status.active[*].name}'", &job);
    cluster.ok("kubectl delete cronjob tick");
    cluster.until("kubectl get jobs,pods -o name", "");
}

#[test]
fn a_namespace_is_emptied_to_the_end() {
    let mut cluster = nodes(2);
    let there = cluster.in_namespace("doomed");
    there.apply(&workload("Deployment", "web", "replicas: 6"));
    there.apply(&workload("StatefulSet", "db", "replicas: 2\n  serviceName: db"));
    there.apply(&job("long", "1h", "completions: 3\n  parallelism: 3"));
    there.ok("kubectl expose deployment web --port=80");
    let many: String = (0..60)
        .map(|n| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c-{n}}}\n"))
        .collect();
    there.apply(&many);
    there.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}");
    there.ok("kubectl wait deployment/web --for=condition=Available --timeout=100s");
    cluster.ok("kubectl delete namespace doomed --wait=false");
    cluster.kill_and_restart();
    let conditions = r#"kubectl get namespace doomed -o jsonpath='{range .status.conditions[?(@.status=="True")]}{.type} {.reason} {.message}{"\n"}{end}'"#;
    cluster.until_that(conditions, |text| {
        text.contains("NamespaceContentRemaining SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances")
            && text.contains("NamespaceFinalizersRemaining SomeFinalizersRemain Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances")
    });
    there.refuses(
        "kubectl create configmap late",
        "error: failed to create configmap: configmaps \"late\" is forbidden: unable to create new content in namespace doomed because it is being terminated",
    );
    cluster.kill_and_restart();
    there.ok("kubectl patch configmap held --type=json -p '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'");
    cluster.until("kubectl get namespace doomed -o name --ignore-not-found", "");
    cluster.until("kubectl get all,configmaps,endpointslices,events,serviceaccounts -n doomed -o name", "");
    cluster.ok("kubectl create namespace doomed");
    cluster.until(
        "kubectl get serviceaccounts,configmaps -n doomed -o name",
        "serviceaccount/default\nconfigmap/kube-root-ca.crt",
    );
}

/// The names of what hangs on the Deployment `web`.
fn dependents(shell: &Shell) -> usize {
    set(shell, "kubectl get deployments,replicasets,pods -o name").len()
}

#[test]
fn deletion_in_the_foreground_ends() {
    let mut cluster = nodes(2);
    cluster.apply(&workload("Deployment", "web", "replicas: 20"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.ok("kubectl delete deployment web --cascade=foreground --wait=false");
    cluster.kill_and_restart();
    cluster.until("kubectl get deployments,replicasets,pods -o name", "");
    // Left alone where asked, and taken up again by the next of its name.
    cluster.apply(&workload("Deployment", "web", "replicas: 3"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    let before = uids(&cluster, "web");
    cluster.ok("kubectl delete deployment web --cascade=orphan --wait=false");
    cluster.kill_and_restart();
    cluster.until("kubectl get deployments -o name", "");
    cluster.until("kubectl get replicasets -o jsonpath='{.items[*].metadata.ownerReferences}{.items[*].metadata.finalizers}'", "");
    assert_eq!((dependents(&cluster), uids(&cluster, "web")), (4, before.clone()));
    cluster.apply(&workload("Deployment", "web", "replicas: 3"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster
        .until("kubectl get replicasets -o jsonpath='{.items[*].metadata.ownerReferences[*].name}'", "web");
    assert_eq!(uids(&cluster, "web"), before, "the same pods serve on");
    // A ReplicaSet that is left alone deletes nothing, and says of nothing that it did.
    cluster.until("kubectl get events -A --field-selector reason=SuccessfulDelete -o name", "");
}

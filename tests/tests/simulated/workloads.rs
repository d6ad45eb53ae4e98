//! Jobs, CronJobs, StatefulSets, DaemonSets and disruption budgets, as kubectl shows them.

use coracle_tests::Cluster;

/// Pods that end by themselves after a second.
const JOB: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 4
  parallelism: 2
  completionMode: Indexed
  template:
    metadata: {annotations: {simulate.coracle.local/duration: 1s}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox}]
"#;

const ORDERED: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: "db:1"}]}
"#;

const DAEMON: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log}
spec:
  selector: {matchLabels: {app: log}}
  template:
    metadata: {labels: {app: log}}
    spec: {containers: [{name: c, image: "log:1"}]}
"#;

#[test]
fn a_job_completes_and_is_counted() {
    let cluster = Cluster::simulated();
    cluster.apply(JOB);
    cluster
        .says("kubectl wait job/sum --for=condition=complete --timeout=100s", "job.batch/sum condition met");
    cluster.says("kubectl get job sum --no-headers | awk '{print $2, $3}'", "Complete 4/4");
    cluster.says("kubectl get job sum -o jsonpath='{.status.completedIndexes} {.status.succeeded}'", "0-3 4");
    cluster.says(
        "kubectl get pods -l job-name=sum -o jsonpath='{.items[*].metadata.finalizers}{.items[*].spec.hostname}' | tr ' ' '\\n' | sort | tr '\\n' ' '",
        "sum-0 sum-1 sum-2 sum-3 ",
    );
    cluster.shows(
        "kubectl describe job sum",
        &[
            "Completed Indexes:  0-3",
            "Normal  SuccessfulCreate",
            "Created pod: sum-0-",
            "Normal  Completed",
            "Job completed",
        ],
    );
    cluster.says("kubectl delete job sum", "job.batch \"sum\" deleted");
    cluster.until("kubectl get pods -o name", "");
    cluster.refuses(
        "kubectl create cronjob c --image=i --schedule='61 * * * *'",
        r#"error: failed to create cronjob: CronJob.batch "c" is invalid: spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61"#,
    );
}

#[test]
fn a_cron_job_is_started_by_hand_and_by_the_clock() {
    let cluster = Cluster::simulated();
    // Not due by the clock before the test is over.
    let minute = cluster.ok("echo $(( ($(date -u +%-M) + 30) % 60 ))");
    cluster.says(
        &format!("kubectl create cronjob tick --image=busybox --schedule='{} * * * *'", minute.trim()),
        "cronjob.batch/tick created",
    );
    cluster.says("kubectl create job now --from=cronjob/tick", "job.batch/now created");
    cluster.says("kubectl get job now -o jsonpath='{.metadata.ownerReferences[0].name}'", "tick");
    // As if the last start had been long ago.
    cluster.ok("kubectl patch cronjob tick --subresource=status --type=merge -p '{\"status\":{\"lastScheduleTime\":\"2026-01-01T00:00:00Z\"}}'");
    cluster.until("kubectl get jobs -o name | grep -c ^job.batch/tick-", "1");
    cluster.shows(
        "kubectl describe cronjob tick",
        &["TooManyMissedTimes", "SuccessfulCreate", "Created job tick-"],
    );
    cluster
        .says("kubectl patch cronjob tick -p '{\"spec\":{\"suspend\":true}}'", "cronjob.batch/tick patched");
    cluster.until("kubectl get cronjob tick --no-headers | awk '{print $8, $9}'", "True 1");
}

#[test]
fn a_stateful_set_rolls_in_order_and_back() {
    let cluster = Cluster::simulated();
    cluster.apply(ORDERED);
    cluster.shows(
        "kubectl rollout status statefulset/db --timeout=100s",
        &["partitioned roll out complete: 3 new pods have been updated..."],
    );
    cluster.says("kubectl get pods -l app=db -o name", "pod/db-0\npod/db-1\npod/db-2");
    cluster.says("kubectl set image statefulset/db c=db:2", "statefulset.apps/db image updated");
    cluster.ok("kubectl rollout status statefulset/db --timeout=100s");
    let images = "kubectl get pods -l app=db -o jsonpath='{.items[*].spec.containers[0].image}'";
    cluster.says(images, "db:2 db:2 db:2");
    cluster.says("kubectl rollout undo statefulset/db", "statefulset.apps/db rolled back");
    cluster.ok("kubectl rollout status statefulset/db --timeout=100s");
    cluster.says(images, "db:1 db:1 db:1");
    cluster.shows("kubectl rollout history statefulset/db", &["REVISION", "2", "3"]);
    cluster.says("kubectl scale statefulset db --replicas=1", "statefulset.apps/db scaled");
    cluster.until("kubectl get pods -l app=db -o name", "pod/db-0");
    cluster.says("kubectl get statefulset db --no-headers | awk '{print $2}'", "1/1");
}

#[test]
fn a_daemon_set_is_on_every_node() {
    let cluster = Cluster::simulated();
    let nodes = cluster.ok("kubectl get nodes -o name | wc -l");
    cluster.apply(DAEMON);
    cluster.shows(
        "kubectl rollout status daemonset/log --timeout=100s",
        &["daemon set \"log\" successfully rolled out"],
    );
    cluster.says("kubectl get pods -l app=log -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\\n' | sort -u | wc -l", nodes.trim());
    cluster.says("kubectl set image daemonset/log c=log:2", "daemonset.apps/log image updated");
    cluster.ok("kubectl rollout status daemonset/log --timeout=100s");
    cluster.says("kubectl get pods -l app=log -o jsonpath='{.items[*].spec.containers[0].image}' | tr ' ' '\\n' | sort -u", "log:2");
    cluster.says("kubectl rollout undo daemonset/log", "daemonset.apps/log rolled back");
    cluster.ok("kubectl rollout status daemonset/log --timeout=100s");
    cluster.ok("kubectl cordon sim-0");
    cluster.ok("kubectl delete pods -l app=log --field-selector spec.nodeName=sim-0 --wait=false");
    cluster.ok("kubectl rollout status daemonset/log --timeout=100s");
}

#[test]
fn a_budget_is_kept_by_evictions() {
    let cluster = super::with_web();
    cluster.says(
        "kubectl create poddisruptionbudget web --selector=app=web --min-available=2",
        "poddisruptionbudget.policy/web created",
    );
    cluster.until("kubectl get pdb web --no-headers | awk '{print $2, $3, $4}'", "2 N/A 1");
    cluster.says("kubectl get pdb web -o jsonpath='{.status.currentHealthy} {.status.expectedPods}'", "3 3");
    cluster.ok("kubectl patch pdb web -p '{\"spec\":{\"minAvailable\":3}}'");
    cluster.until("kubectl get pdb web -o jsonpath='{.status.disruptionsAllowed}'", "0");
    let drained = cluster.run("kubectl drain sim-0 --ignore-daemonsets --force --timeout=3s");
    assert_ne!(drained.code, 0, "{drained}");
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert!(
        drained.stderr.contains(why) && drained.stderr.contains("global timeout reached: 3s"),
        "{drained}"
    );
    cluster.ok("kubectl patch pdb web -p '{\"spec\":{\"minAvailable\":2}}'");
    cluster.ok("kubectl drain sim-0 --ignore-daemonsets --force --timeout=100s");
}

#[test]
fn a_killed_server_loses_and_doubles_no_pod_of_a_job() {
    let mut cluster = Cluster::simulated();
    cluster
        .apply(&JOB.replace("completions: 4", "completions: 30").replace("parallelism: 2", "parallelism: 5"));
    cluster.until(
        "kubectl get job sum -o jsonpath='{.status.succeeded}' | grep -cE '^([5-9]|[1-3][0-9])$'",
        "1",
    );
    cluster.kill();
    cluster.restart();
    cluster.ok("kubectl wait job/sum --for=condition=complete --timeout=100s");
    cluster.says(
        "kubectl get job sum -o jsonpath='{.status.completedIndexes} {.status.succeeded} {.status.failed}'",
        "0-29 30 ",
    );
    cluster.says("kubectl get pods -l job-name=sum -o jsonpath='{.items[*].metadata.finalizers}'", "");
    cluster.says("kubectl get pods -l job-name=sum -o name | wc -l", "30");
}

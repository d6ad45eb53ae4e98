//! The example of the owner's documents with real containers: three pods of low priority fill the node, one of high
//! priority arrives, one of the three gets SIGTERM and its grace, and everybody is told.

use crate::node::Steps;
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;

pub fn steps(steps: &mut Steps<'_>) {
    steps.alone("preemption", preemption);
}

/// Traps SIGTERM and takes a second to end, so that a graceful end can be told from a kill.
fn pod(name: &str, class: &str, millis: u64) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  priorityClassName: {class}
  terminationGracePeriodSeconds: 20
  containers:
  - name: app
    image: "{BUSYBOX}"
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"]
    resources: {{requests: {{cpu: {millis}m}}}}
---
"#
    )
}

/// A pod's share: three fit beside what the node runs anyway, a fourth does not.
fn share(shell: &Shell) -> u64 {
    let cpu = shell.ok("kubectl get nodes -o jsonpath='{.items[0].status.allocatable.cpu}'");
    let cpu = cpu.trim();
    let millis = cpu.strip_suffix('m').map_or_else(|| cpu.parse::<u64>().map(|n| n * 1000), str::parse);
    millis.expect("an amount of CPU") * 28 / 100
}

fn preemption(shell: &Shell) {
    let millis = share(shell);
    shell.apply(
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high-priority}\nvalue: 1000000\n---\n\
         apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: low-priority}\nvalue: 1000\n",
    );
    let low: String =
        (1..=3).map(|n| pod(&format!("low-priority-pod-{n}"), "low-priority", millis)).collect();
    shell.apply(&low);
    shell.ok("kubectl wait pod --all --for=condition=Ready --timeout=100s");
    shell.apply(&pod("high-priority-pod", "high-priority", millis));
    shell.until_that(
        "kubectl get pod high-priority-pod -o jsonpath='{.status.nominatedNodeName}{.spec.nodeName}'",
        |node| !node.is_empty(),
    );
    shell.ok("kubectl wait pod/high-priority-pod --for=condition=Ready --timeout=100s");
    shell.until("kubectl get pods --no-headers | grep -c '^low-priority-pod.*Running'", "2");
    let told = shell.until_that(
        "kubectl get events -o jsonpath='{range .items[*]}{.involvedObject.name} {.type} {.reason} {.message}{\"\\n\"}{end}'",
        |text| text.contains(" Preempted ") && text.contains(" SuccessfulPreemption "),
    );
    let victim = told.lines().find(|l| l.contains(" Normal Preempted ")).and_then(|l| l.split(' ').next());
    let victim = victim.expect("a victim").to_owned();
    // Every step has a namespace of its own name.
    let namespace = "preemption";
    let uid = shell.ok("kubectl get pod high-priority-pod -o jsonpath='{.metadata.uid}'");
    for wanted in [
        format!("{victim} Normal Preempted Preempted by pod {} on node ", uid.trim()),
        "high-priority-pod Normal SuccessfulPreemption Preempted pod ".to_owned(),
        format!("high-priority-pod Normal Scheduled Successfully assigned {namespace}/high-priority-pod to "),
        format!("{victim} Normal Killing Stopping container app"),
    ] {
        assert!(told.lines().any(|line| line.starts_with(&wanted)), "{wanted:?} is missing from\n{told}");
    }
    shell.ok("kubectl delete pod --all --grace-period=0 --force && kubectl delete priorityclass high-priority low-priority");
}

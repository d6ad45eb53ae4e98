//! Pods that go past the scheduler, and what the node lets them do.

use crate::node::{Steps, pod};
use coracle_tests::Shell;
use serde_json::json;

pub fn steps(steps: &mut Steps<'_>) {
    let name = steps.node.name.clone();
    steps.run("node-admission", move |shell| node_admission(shell, name.trim()));
    steps.run("sysctls", sysctls);
    steps.run("size-limit", size_limit);
}

/// Puts a pod on the node without asking the scheduler. `more` are further fields of the pod's spec, one a line.
fn put(shell: &Shell, node: &str, name: &str, resources: &str, more: &str) {
    let more: String = more.lines().map(|line| format!("  {line}\n")).collect();
    let spec = format!("  nodeName: {node}\n{more}  containers:");
    shell.apply(&pod(name, "sleep 3600", resources).replace("  containers:", &spec));
}

const STATUS: &str = "{.status.phase} {.status.reason} {.status.message}";

fn patch_node(shell: &Shell, node: &str, amount: &str) {
    let patch = json!({ "status": { "capacity": { "example.com/foo": if amount.is_empty() { None } else { Some(amount) } } } });
    shell.ok(&format!("kubectl patch node {node} --subresource status --type merge --patch '{patch}'"));
}

fn node_admission(shell: &Shell, node: &str) {
    patch_node(shell, node, "3");
    shell.until(
        &format!("kubectl get node {node} -o jsonpath='{{.status.allocatable.example\\.com/foo}}'"),
        "3",
    );
    let two = "resources: {requests: {example.com/foo: 2}, limits: {example.com/foo: 2}}";
    shell.apply(&pod("first", "sleep 3600", two));
    shell.ok("kubectl wait pod/first --for=condition=Ready --timeout=100s");
    put(shell, node, "second", two, "");
    put(shell, node, "huge", "resources: {requests: {cpu: 900}}", "");
    put(shell, node, "choosy", "", "nodeSelector: {no-such-label: x}");
    for (name, expected) in [
        (
            "second",
            "Failed OutOfexample.com/foo Pod was rejected: Node didn't have enough resource: example.com/foo, requested: 2, used: 2, capacity: 3",
        ),
        (
            "choosy",
            "Failed NodeAffinity Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
    ] {
        shell.until(&format!("kubectl get pod {name} -o jsonpath='{STATUS}'"), expected);
    }
    shell.until_that(&format!("kubectl get pod huge -o jsonpath='{STATUS}'"), |status| {
        status.starts_with("Failed OutOfcpu Pod was rejected: Node didn't have enough resource: cpu, requested: 900000, used: ")
    });
    put(shell, node, "critical", two, "priorityClassName: system-node-critical");
    shell.ok("kubectl wait pod/critical --for=condition=Ready --timeout=100s");
    shell.until(
        &format!("kubectl get pod first -o jsonpath='{STATUS}'"),
        "Failed Preempting Preempted in order to admit critical pod",
    );
    patch_node(shell, node, "");
    shell.until(
        &format!("kubectl get node {node} -o jsonpath='{{.status.allocatable.example\\.com/foo}}'"),
        "",
    );
}

fn sysctls(shell: &Shell) {
    let with = |name: &str, sysctl: &str| {
        let context =
            format!("  securityContext: {{sysctls: [{{name: {sysctl}, value: \"1\"}}]}}\n  containers:");
        pod(name, "sleep 3600", "").replace("  containers:", &context)
    };
    shell.apply(&with("safe", "kernel.shm_rmid_forced"));
    shell.ok("kubectl wait pod/safe --for=condition=Ready --timeout=100s");
    shell.says("kubectl exec safe -- cat /proc/sys/kernel/shm_rmid_forced", "1");
    shell.apply(&with("unsafe", "kernel.msgmax"));
    shell.until(
        &format!("kubectl get pod unsafe -o jsonpath='{STATUS}'"),
        "Failed SysctlForbidden Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted",
    );
    shell.until(
        "kubectl get events --field-selector reason=SysctlForbidden -o jsonpath='{.items[0].message}'",
        "forbidden sysctl: \"kernel.msgmax\" not allowlisted",
    );
}

/// A pod that writes more than its volume may hold is evicted.
fn size_limit(shell: &Shell) {
    let volume = "  volumes: [{name: scratch, emptyDir: {sizeLimit: 1Mi}}]\n  containers:";
    let script = "head -c 5000000 /dev/zero >/scratch/f; sleep 3600";
    let greedy = pod("greedy", script, "volumeMounts: [{name: scratch, mountPath: /scratch}]");
    shell.apply(&greedy.replace("  containers:", volume));
    shell.until(
        &format!("kubectl get pod greedy -o jsonpath='{STATUS}'"),
        "Failed Evicted Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\".",
    );
}

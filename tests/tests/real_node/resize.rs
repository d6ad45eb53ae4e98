//! CPU and memory of running pods.

use crate::node::{Steps, pod};
use coracle_tests::Shell;
use serde_json::{Value, json};

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("resize", resize);
    steps.run("runtime-class", runtime_class);
}

const MEMORY: &str =
    "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max";
const QUOTA: &str =
    "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max";

/// Limits and as much requested.
fn amounts(cpu: &str, memory: &str) -> Value {
    let amounts = json!({ "cpu": cpu, "memory": memory });
    json!({ "requests": amounts, "limits": amounts })
}

fn resize_to(name: &str, cpu: &str, memory: &str) -> String {
    let spec = json!({ "spec": { "containers": [{ "name": "main", "resources": amounts(cpu, memory) }] } });
    format!("kubectl patch pod {name} --subresource resize --patch '{spec}'")
}

fn resize(shell: &Shell) {
    let resources = format!("resources: {}", amounts("20m", "35Mi"));
    shell.apply(&pod("grown", "sleep 3600", &resources));
    let anew =
        format!("{resources}\nresizePolicy: [{{resourceName: memory, restartPolicy: RestartContainer}}]");
    shell.apply(&pod("anew", "sleep 3600", &anew));
    shell.ok("kubectl wait pod/grown pod/anew --for=condition=Ready --timeout=100s");

    shell.ok(&resize_to("grown", "25m", "40Mi"));
    let shown = "kubectl get pod grown -o jsonpath='{.status.containerStatuses[0].resources.limits}'";
    shell.until(shown, r#"{"cpu":"25m","memory":"40Mi"}"#);
    shell.says(&format!("kubectl exec grown -- sh -c \"{MEMORY}\""), "41943040");
    shell.says(&format!("kubectl exec grown -- sh -c \"{QUOTA}\""), "2500");
    shell.says("kubectl get pod grown -o jsonpath='{.status.containerStatuses[0].restartCount}'", "0");

    let pending =
        "kubectl get pod grown -o jsonpath='{.status.conditions[?(@.type==\"PodResizePending\")].reason}'";
    shell.ok(&resize_to("grown", "9000", "40Mi"));
    shell.until(pending, "Infeasible");
    shell.says(shown, r#"{"cpu":"25m","memory":"40Mi"}"#);
    shell.ok(&resize_to("grown", "20m", "35Mi"));
    shell.until(shown, r#"{"cpu":"20m","memory":"35Mi"}"#);
    shell.until(
        "kubectl get pod grown -o jsonpath='{.status.conditions[*].type}' | tr ' ' '\\n' | grep -c PodResize || true",
        "0",
    );

    shell.ok(&resize_to("anew", "20m", "50Mi"));
    let state = "kubectl get pod anew -o jsonpath='{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].resources.limits.memory}'";
    shell.until(state, "1 true 50Mi");
    shell.says(&format!("kubectl exec anew -- sh -c \"{MEMORY}\""), "52428800");
}

fn runtime_class(shell: &Shell) {
    for (class, handler) in [("good", "runc"), ("bad", "no-such-handler")] {
        shell.apply(&format!(
            "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {{name: real-node-{class}}}\nhandler: {handler}\n"
        ));
        let of_class = format!("  runtimeClassName: real-node-{class}\n  containers:");
        shell.apply(&pod(class, "sleep 3600", "").replace("  containers:", &of_class));
    }
    shell.ok("kubectl wait pod/good --for=condition=Ready --timeout=100s");
    shell.until_that(
        "kubectl get events --field-selector reason=FailedCreatePodSandBox -o jsonpath='{.items[0].message}'",
        |out| out.contains("no-such-handler"),
    );
    shell.ok("kubectl delete pod bad --timeout=100s");
    shell.ok("kubectl delete runtimeclass real-node-good real-node-bad");
}

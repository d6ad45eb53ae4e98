//! What must survive: the server's sudden end, and the runtime's.

use crate::node::{Node, Steps, running_pod};
use coracle_tests::{Shell, wait_for};
use serde_json::Value;
use std::time::Duration;

pub fn steps(steps: &mut Steps<'_>) {
    let node = steps.node;
    steps.alone("kill-9", move |shell| kill_9(shell, node));
    steps.alone("no-runtime", no_runtime);
}

const CONTAINERS: &str = "kubectl get pods -o jsonpath='{range .items[*]}{.metadata.uid} {.status.podIP} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}'";

fn kill_9(shell: &Shell, node: &Node) {
    shell.ok("kubectl create configmap page --from-literal=index.html=answer");
    running_pod(shell, "web", "mkdir /w; echo answer >/w/index.html; exec httpd -f -p 8080 -h /w", "");
    running_pod(shell, "counter", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done", "");
    shell.ok("kubectl expose pod web --port=80 --target-port=8080");
    let address = shell.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
    shell.until(&format!("curl -s --max-time 10 http://{address}/"), "answer");
    let before = shell.ok(CONTAINERS);
    let version =
        shell.ok("kubectl get --raw /api/v1/namespaces/kill-9/configmaps | jq -r .metadata.resourceVersion");
    shell.ok("kubectl create configmap before");
    shell.ok(&format!("kill -9 {}", node.server_pid()));
    shell.says(&format!("curl -s --max-time 10 http://{address}/"), "answer");
    node.start_server_again();
    shell.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    assert_eq!(shell.ok(CONTAINERS), before, "the same containers with the same restart counts");
    shell.ok("kubectl create configmap after");
    let path = format!(
        "/api/v1/namespaces/kill-9/configmaps?watch=true&timeoutSeconds=2&resourceVersion={}",
        version.trim()
    );
    let stream = shell.ok(&format!("kubectl get --raw '{path}'"));
    let events = stream.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let names: Vec<String> = events
        .filter(|e| e["type"] == "ADDED")
        .map(|e| e["object"]["metadata"]["name"].as_str().unwrap_or("?").to_owned())
        .collect();
    assert_eq!(names, ["before", "after"], "{stream}");
    shell.says(&format!("curl -s --max-time 10 http://{address}/"), "answer");
    shell.says("kubectl exec web -- cat /w/index.html", "answer");
    let lines = shell.ok("kubectl logs counter");
    let numbers: Vec<u32> = lines.lines().filter_map(|l| l.parse().ok()).collect();
    assert!(
        numbers.first() == Some(&1) && numbers.windows(2).all(|w| w[1] == w[0] + 1),
        "log lines were lost"
    );
    // By when another pod has run and gone, the kubelet has looked at these as well.
    running_pod(shell, "later", "sleep 3600", "");
    shell.ok("kubectl delete pod later --timeout=100s");
    assert_eq!(shell.ok(CONTAINERS), before, "and they stay");
    shell.ok("kubectl delete pods --all --timeout=100s");
}

fn no_runtime(shell: &Shell) {
    running_pod(shell, "box", "sleep 3600", "");
    let before = shell.ok(CONTAINERS);
    let pid = shell
        .ok("cat /run/coracle/containerd.pid 2>/dev/null || systemctl show -p MainPID --value containerd");
    // Stopped, not ended: this is what a hung runtime looks like, and nothing has to be started again afterwards.
    shell.ok(&format!("kill -STOP {}", pid.trim()));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // Half a minute of patience, and a look that the hung runtime holds up.
        wait_for("a NotReady node with the reason", Duration::from_secs(60), || {
            let output = shell.run("kubectl get nodes -o json | jq -r '.items[0].status.conditions[] | select(.type==\"Ready\") | .status + \" \" + .reason + \" \" + .message'");
            let well =
                output.stdout.starts_with("False KubeletNotReady ") && output.stdout.contains("runtime");
            if well { Ok(()) } else { Err(output.to_string()) }
        });
        shell.says("kubectl create configmap usable", "configmap/usable created");
        shell.says("kubectl get --raw /livez", "ok");
    }));
    shell.ok(&format!("kill -CONT {}", pid.trim()));
    if let Err(failure) = outcome {
        std::panic::resume_unwind(failure);
    }
    shell.ok("kubectl wait node --all --for=condition=Ready --timeout=120s");
    running_pod(shell, "after", "sleep 3600", "");
    assert!(shell.ok(CONTAINERS).contains(before.trim()), "the pod from before is as it was");
}

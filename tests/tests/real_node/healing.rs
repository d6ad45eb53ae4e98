//! What is declared comes back on a machine too: killed containers, a killed sandbox, and a size that follows use.

use crate::node::{Steps, pod, running_pod};
use coracle_tests::{Shell, wait_for};
use std::time::Duration;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("autoscaling", autoscaling);
    steps.run("killed-container", killed_container);
    steps.run("killed-sandbox", killed_sandbox);
}

const STATE: &str = "kubectl get pod victim -o jsonpath='{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].lastState.terminated.exitCode} {.status.containerStatuses[0].lastState.terminated.reason}'";

/// kill -9 of the one process on the machine with these arguments.
fn kill(shell: &Shell, arguments: &str) {
    let pid = shell.until_that(&format!("pgrep -fx '{arguments}'"), |pids| pids.lines().count() == 1);
    shell.ok(&format!("kill -9 {}", pid.trim()));
}

fn waiting(shell: &Shell, back_off: &str) {
    let fields = "{.status.containerStatuses[0].state.waiting.reason} {.status.containerStatuses[0].state.waiting.message}";
    let wanted = format!(
        "CrashLoopBackOff back-off {back_off} restarting failed container=main pod=victim_killed-container("
    );
    shell.until_that(&format!("kubectl get pod victim -o jsonpath='{fields}'"), |text| {
        text.starts_with(&wanted)
    });
}

/// At once the first time, after 10 s the second, after 20 s the third.
fn killed_container(shell: &Shell) {
    let arguments = "sleep 7654321";
    running_pod(shell, "victim", &format!("exec {arguments}"), "");
    let uid = shell.ok("kubectl get pod victim -o jsonpath='{.metadata.uid} {.status.podIP}'");
    kill(shell, arguments);
    shell.until(STATE, "1 true 137 Error");
    kill(shell, arguments);
    waiting(shell, "10s");
    shell.until(STATE, "2 true 137 Error");
    kill(shell, arguments);
    waiting(shell, "20s");
    shell.says("kubectl get pod victim -o jsonpath='{.metadata.uid} {.status.podIP}'", &uid);
    shell.says("kubectl get pod victim -o jsonpath='{.status.phase} {.status.conditions[?(@.type==\"Ready\")].status}'", "Running False");
    let events = "kubectl get events --field-selector involvedObject.name=victim -o jsonpath='{range .items[*]}{.type} {.reason} {.message} {.count}{\"\\n\"}{end}'";
    let all = shell.until_that(events, |text| text.contains("Warning BackOff"));
    for line in [
        "Normal Created Container created 3",
        "Normal Started Container started 3",
        "Warning BackOff Back-off restarting failed container main in pod victim_killed-container(",
    ] {
        assert!(all.lines().any(|event| event.starts_with(line)), "no {line:?} in\n{all}");
    }
}

/// The pod's network goes with its sandbox, so everything of it begins anew under a new address.
fn killed_sandbox(shell: &Shell) {
    let arguments = "sleep 7654322";
    running_pod(shell, "victim", &format!("exec {arguments}"), "");
    let uid = shell.ok("kubectl get pod victim -o jsonpath='{.metadata.uid}'");
    let main = shell.ok(&format!("pgrep -fx '{arguments}'"));
    // Whoever shares the container's network and is not it is the sandbox.
    let line = format!(
        "net=$(readlink /proc/{0}/ns/net); for p in /proc/[0-9]*; do [ \"$(readlink $p/ns/net)\" = \"$net\" ] && [ $p != /proc/{0} ] && echo ${{p#/proc/}}; done; true",
        main.trim()
    );
    let pause = shell.ok(&line);
    assert_eq!(pause.lines().count(), 1, "{pause}");
    shell.ok(&format!("kill -9 {}", pause.trim()));
    shell.until_that(STATE, |state| state.starts_with("1 true "));
    shell.says("kubectl get pod victim -o jsonpath='{.metadata.uid}'", &uid);
    shell.until_that(
        "kubectl get events --field-selector involvedObject.name=victim,reason=SandboxChanged -o jsonpath='{.items[0].message}'",
        |text| text == "Pod sandbox changed, it will be killed and re-created.",
    );
    let ip = shell.ok("kubectl get pod victim -o jsonpath='{.status.podIP}'");
    shell.says("kubectl exec victim -- hostname -i", &ip);
}

/// Burns processor time until somebody makes /tmp/rest.
const BURN: &str = "while :; do [ -e /tmp/rest ] && sleep 1; done";

fn burner() -> String {
    let pod = pod("burner", BURN, "resources: {requests: {cpu: 20m}, limits: {cpu: 150m}}");
    let spec: Vec<&str> = pod.lines().skip_while(|line| *line != "spec:").skip(1).collect();
    let spec: String = spec.iter().map(|line| format!("    {line}\n")).collect();
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: burner}}\nspec:\n  replicas: 1\n  selector: {{matchLabels: {{app: burner}}}}\n  template:\n    metadata: {{labels: {{app: burner}}}}\n    spec:\n{spec}"
    )
}

const AUTOSCALER: &str = r#"
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: burner}
spec:
  minReplicas: 1
  maxReplicas: 3
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: burner}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 0, policies: [{type: Percent, value: 100, periodSeconds: 15}]}}
"#;

/// Autoscalers look every 15 s, at samples that must be younger than the pod's readiness.
const LOOK: Duration = Duration::from_secs(150);

fn autoscaling(shell: &Shell) {
    shell.apply(&burner());
    shell.ok("kubectl rollout status deployment/burner --timeout=100s");
    shell.apply(AUTOSCALER);
    let size = "kubectl get deployment burner -o jsonpath='{.spec.replicas}'";
    shell.within(LOOK, size, |n| n == "3");
    shell.ok("kubectl rollout status deployment/burner --timeout=100s");
    let event = "kubectl get events --field-selector involvedObject.name=burner,reason=SuccessfulRescale -o jsonpath='{range .items[*]}{.message}{\"\\n\"}{end}'";
    shell.until_that(event, |text| {
        text.lines().any(|m| {
            m.starts_with("New size: ")
                && m.ends_with("; reason: cpu resource utilization (percentage of request) above target")
        })
    });
    shell.until_that("kubectl top pods -l app=burner --no-headers", |out| {
        out.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|cpu| cpu != "0m")).count() == 3
    });
    let names = shell.ok("kubectl get pods -l app=burner -o name");
    for name in names.lines() {
        shell.ok(&format!("kubectl exec {name} -- touch /tmp/rest"));
    }
    shell.within(LOOK, size, |n| n == "1");
    shell.until("kubectl get pods -l app=burner -o name | wc -l", "1");
    shell
        .until_that(event, |text| text.lines().any(|m| m == "New size: 1; reason: All metrics below target"));
    wait_for("the autoscaler's own account", LOOK, || {
        let found = shell.ok("kubectl get hpa burner -o jsonpath='{.status.currentReplicas} {.status.desiredReplicas} {.status.conditions[?(@.type==\"ScalingActive\")].reason}'");
        if found == "1 1 ValidMetricFound" { Ok(()) } else { Err(found) }
    });
}

//! Starts, ends and restarts of containers.

use crate::node::{Steps, pod, running_pod};
use coracle_tests::Shell;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("crash-loop", crash_loop);
    steps.run("restart-policies", restart_policies);
    steps.run("termination", termination);
    steps.run("probes", probes);
}

fn never(manifest: &str) -> String {
    manifest.replace("  containers:", "  restartPolicy: Never\n  containers:")
}

fn crash_loop(shell: &Shell) {
    shell.apply(&pod("doomed", "echo last words; exit 7", ""));
    shell.until("kubectl get pod doomed --no-headers | awk '{print $3}'", "CrashLoopBackOff");
    let message =
        shell.ok("kubectl get pod doomed -o jsonpath='{.status.containerStatuses[0].state.waiting.message}'");
    assert!(
        message.starts_with("back-off ")
            && message.contains("restarting failed container=main pod=doomed_crash-loop("),
        "{message}"
    );
    shell.says("kubectl get pod doomed -o jsonpath='{.status.phase} {.status.containerStatuses[0].lastState.terminated.exitCode} {.status.containerStatuses[0].lastState.terminated.reason}'", "Running 7 Error");
    shell.until_that(
        "kubectl get pod doomed -o jsonpath='{.status.containerStatuses[0].restartCount}'",
        |n| n.parse::<u32>().is_ok_and(|n| n >= 2),
    );
    shell.until("kubectl logs doomed --previous", "last words");
    shell.until_that(
        "kubectl get events --field-selector reason=BackOff -o jsonpath='{.items[0].message}'",
        |out| out.starts_with("Back-off restarting failed container main in pod doomed_crash-loop("),
    );
}

fn restart_policies(shell: &Shell) {
    shell.apply(&never(&pod("good", "true", "")));
    shell.apply(&never(&pod("bad", "exit 3", "")));
    shell.apply(
        &pod(
            "again",
            "test -e /tmp/x/f && sleep 3600; touch /tmp/x/f; exit 1",
            "volumeMounts: [{name: x, mountPath: /tmp/x}]",
        )
        .replace(
            "  containers:",
            "  restartPolicy: OnFailure\n  volumes: [{name: x, emptyDir: {}}]\n  containers:",
        ),
    );
    shell.until("kubectl get pod good --no-headers | awk '{print $2, $3, $4}'", "0/1 Completed 0");
    shell.until("kubectl get pod bad --no-headers | awk '{print $2, $3, $4}'", "0/1 Error 0");
    shell.says("kubectl get pod good bad -o jsonpath='{.items[*].status.phase}'", "Succeeded Failed");
    shell.until("kubectl get pod again -o jsonpath='{.status.phase} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}'", "Running 1 true");
}

fn termination(shell: &Shell) {
    let dir = shell.home().join("notes");
    std::fs::create_dir(&dir).expect("a directory");
    let volumes = format!(
        "  terminationGracePeriodSeconds: 20\n  volumes: [{{name: notes, hostPath: {{path: {}}}}}]\n  containers:",
        dir.display()
    );
    let polite = pod(
        "polite",
        "trap 'echo term >>/n/log; exit 0' TERM; while :; do sleep 0.1; done",
        "volumeMounts: [{name: notes, mountPath: /n}]\nlifecycle: {preStop: {exec: {command: [sh, -c, 'echo before >>/n/log; sleep 1']}}, postStart: {exec: {command: [sh, -c, 'echo after >>/n/log']}}}",
    );
    shell.apply(
        &polite.replace("  terminationGracePeriodSeconds: 1\n", "").replace("  containers:", &volumes),
    );
    shell.ok("kubectl wait pod/polite --for=condition=Ready --timeout=100s");
    shell.until("cat notes/log", "after");
    shell.ok("kubectl delete pod polite --timeout=100s");
    shell.says("cat notes/log", "after\nbefore\nterm");
    running_pod(shell, "deaf", "trap '' TERM; while :; do sleep 0.1; done", "");
    let began = std::time::Instant::now();
    shell.ok("kubectl delete pod deaf --grace-period=3 --timeout=100s");
    let took = began.elapsed().as_secs_f64();
    assert!((2.5..30.0).contains(&took), "the grace period was 3 s, the end took {took} s");
    shell.until("kubectl get pods -o name", "");
}

fn probes(shell: &Shell) {
    running_pod(
        shell,
        "moody",
        "touch /tmp/ready; while :; do sleep 0.1; done",
        "ports: [{containerPort: 80}]\nreadinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}",
    );
    shell.ok("kubectl expose pod moody --port=80");
    let addresses = "kubectl get endpoints moody -o jsonpath='{.subsets[*].addresses[*].targetRef.name}'";
    shell.until(addresses, "moody");
    shell.ok("kubectl exec moody -- rm /tmp/ready && kubectl wait pod/moody --for=condition=Ready=false --timeout=100s");
    shell.until(addresses, "");
    shell.says("kubectl get pod moody --no-headers | awk '{print $2, $3}'", "0/1 Running");
    shell.ok("kubectl exec moody -- touch /tmp/ready && kubectl wait pod/moody --for=condition=Ready --timeout=100s");
    shell.until(addresses, "moody");
    shell.until_that(
        "kubectl get events --field-selector reason=Unhealthy -o jsonpath='{.items[*].message}'",
        |out| out.contains("Readiness probe failed:"),
    );
    shell.apply(&pod("dying", "mkdir /w; echo fine >/w/health; httpd -p 8080 -h /w; sleep 4; rm /w/health; sleep 3600",
        "livenessProbe: {httpGet: {port: 8080, path: /health}, periodSeconds: 1, failureThreshold: 2}\nstartupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 30}"));
    shell
        .until_that("kubectl get pod dying -o jsonpath='{.status.containerStatuses[0].restartCount}'", |n| {
            n == "1"
        });
    let events = "kubectl get events --field-selector involvedObject.name=dying -o jsonpath='{range .items[*]}{.reason}: {.message}{\"\\n\"}{end}'";
    let text = shell.until_that(events, |out| out.contains("Killing"));
    assert!(
        text.contains("Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 404"),
        "{text}"
    );
    assert!(text.contains("Killing: Container main failed liveness probe, will be restarted"), "{text}");
}

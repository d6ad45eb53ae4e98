//! What upstream's own tests of nodes look at beyond starts and ends, with real containers.

use crate::node::{Steps, pod, running_pod};
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("env-files", env_files);
    steps.run("hooks-answered", hooks);
    steps.run("ready-to-the-end", ready_to_the_end);
    steps.run("replaced-file", replaced_file);
    steps.run("own-group", own_group);
    steps.run("restart-all", restart_all);
}

fn env_files(shell: &Shell) {
    let manifest = |name: &str, key: &str| {
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  volumes: [{{name: config, emptyDir: {{}}}}]
  initContainers:
  - {{name: writes, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo A=\\'one\\' >/d/a.env"], volumeMounts: [{{name: config, mountPath: /d}}]}}
  containers:
  - name: reads
    image: "{BUSYBOX}"
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "env | grep ^FROM_FILE"]
    env: [{{name: FROM_FILE, valueFrom: {{fileKeyRef: {{volumeName: config, path: a.env, key: {key}}}}}}}]
"#
        )
    };
    shell.apply(&manifest("found", "A"));
    shell.until("kubectl logs found -c reads", "FROM_FILE=one");
    shell.apply(&manifest("lost", "B"));
    shell.until("kubectl get pod lost --no-headers | awk '{print $3}'", "CreateContainerConfigError");
    shell.shows(
        "kubectl get pod lost -o jsonpath='{.status.containerStatuses[0].state.waiting.message}'",
        &["environment variable key \"B\" not found in file"],
    );
    let elsewhere = manifest("elsewhere", "A").replace("emptyDir: {}", "hostPath: {path: /tmp}");
    let refused = shell.run(&format!("kubectl apply -f - <<'END'\n{elsewhere}\nEND"));
    assert!(refused.stderr.contains("referenced volume must be of type emptyDir"), "{refused}");
}

fn hooks(shell: &Shell) {
    let serves = "mkdir -p /w; httpd -p 8080 -h /w; sleep 3600";
    running_pod(
        shell,
        "heard",
        serves,
        "readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}\nlifecycle: {preStop: {httpGet: {port: 8080, path: /nowhere}}}",
    );
    shell.ok("kubectl delete pod heard --grace-period=5 --timeout=100s");
    let reasons =
        "kubectl get events --field-selector involvedObject.name=heard -o jsonpath='{.items[*].reason}'";
    let told = shell.ok(reasons);
    assert!(told.contains("Killing") && !told.contains("FailedPreStopHook"), "{told}");
    shell.apply(&pod(
        "refused",
        "sleep 3600",
        "lifecycle: {postStart: {exec: {command: [sh, -c, 'echo no; exit 3']}}}",
    ));
    let reasons = reasons.replace("=heard", "=refused");
    shell.until_that(&reasons, |told| told.contains("FailedPostStartHook") && told.contains("Killing"));
    shell.until_that(
        "kubectl get pod refused -o jsonpath='{.status.containerStatuses[0].restartCount}'",
        |count| count.parse::<u32>().is_ok_and(|count| count > 0),
    );
    shell.ok("kubectl delete pod refused --timeout=100s");
    running_pod(shell, "drowsy", "sleep 3600", "lifecycle: {preStop: {sleep: {seconds: 1}}}");
    let began = std::time::Instant::now();
    shell.ok("kubectl delete pod drowsy --grace-period=30 --timeout=100s");
    let took = began.elapsed().as_secs_f64();
    assert!(took >= 1.0, "it sleeps a second before its end, which took {took} s");
}

fn ready_to_the_end(shell: &Shell) {
    running_pod(
        shell,
        "leaving",
        "touch /tmp/ready; trap 'rm /tmp/ready; sleep 60' TERM; while :; do sleep 0.1; done",
        "readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}\nlivenessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, failureThreshold: 1}",
    );
    shell.ok("kubectl delete pod leaving --grace-period=60 --wait=false");
    shell.until(
        "kubectl get pod leaving -o jsonpath='{.status.conditions[?(@.type==\"Ready\")].status} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}'",
        "False false 0",
    );
    shell.ok("kubectl delete pod leaving --grace-period=0 --force --timeout=100s");
}

/// Of a volume that changed its files since the container before this one was made.
fn replaced_file(shell: &Shell) {
    shell.ok("kubectl create configmap words --from-literal=word=one");
    let mount = "volumeMounts: [{name: c, mountPath: /word, subPath: word}, {name: c, mountPath: /c}]";
    let script = "until test -e /tmp/go; do sleep 0.1; done";
    let manifest = pod("reader", script, mount);
    shell.apply(
        &manifest.replace("  containers:", "  volumes: [{name: c, configMap: {name: words}}]\n  containers:"),
    );
    shell.ok("kubectl wait pod/reader --for=condition=Ready --timeout=100s");
    shell.says("kubectl exec reader -- cat /word", "one");
    shell.ok("kubectl patch configmap words -p '{\"data\":{\"word\":\"two\"}}'");
    shell.until("kubectl exec reader -- cat /c/word", "two");
    shell.ok("kubectl exec reader -- touch /tmp/go");
    shell.until(
        "kubectl get pod reader -o jsonpath='{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}'",
        "1 true",
    );
    shell.says("kubectl exec reader -- cat /word", "two");
}

fn own_group(shell: &Shell) {
    running_pod(shell, "grouped", "sleep 3600", "securityContext: {runAsGroup: 2000}");
    shell.says("kubectl exec grouped -- sh -c 'id -u; id -g'", "0\n2000");
    let mounts = "kubectl get pod grouped -o jsonpath='{.status.containerStatuses[0].volumeMounts[0].recursiveReadOnly}'";
    shell.says(mounts, "Disabled");
}

/// All containers start anew in their place when one of them asks for it by its exit, init containers too.
fn restart_all(shell: &Shell) {
    let common = format!(
        r#"image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, volumeMounts: [{{name: s, mountPath: /s}}]"#
    );
    let rules = "[{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let asks = "until test -e /s/go; do sleep 0.1; done; code=$(cat /s/go); rm /s/go; exit $code";
    shell.apply(&format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: together}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  volumes: [{{name: s, emptyDir: {{}}}}]
  initContainers:
  - {{name: first, command: [sh, -c, "echo round >>/s/rounds"], {common}}}
  - {{name: beside, restartPolicy: Always, command: [sleep, "3600"], {common}}}
  containers:
  - {{name: source, restartPolicy: Never, restartPolicyRules: {rules}, command: [sh, -c, "{asks}"], {common}}}
  - {{name: regular, command: [sleep, "3600"], {common}}}
"#
    ));
    let status = |path: &str| format!("kubectl get pod together -o jsonpath='{{.status.{path}}}'");
    let all = |path: &str| {
        format!(
            "echo $({}) $({})",
            status(&format!("initContainerStatuses[*].{path}")),
            status(&format!("containerStatuses[*].{path}"))
        )
    };
    let restarting = status("conditions[?(@.type==\"AllContainersRestarting\")].status");
    shell.ok("kubectl wait pod/together --for=condition=Ready --timeout=100s");
    shell.says(&restarting, "False");
    let before = shell.ok(&status("podIP"));
    shell.ok("kubectl exec together -c regular -- sh -c 'echo 42 >/s/go.new; mv /s/go.new /s/go'");
    shell.until(&all("restartCount"), "1 1 1 1");
    shell.ok("kubectl wait pod/together --for=condition=Ready --timeout=100s");
    shell.says(&status("podIP"), &before);
    shell.says(&restarting, "False");
    shell.says("kubectl exec together -c regular -- sh -c 'grep -c round /s/rounds'", "2");
    shell.says(&all("lastState.terminated.exitCode"), "0 137 42 137");
    // Another end is the container's own business.
    shell.ok("kubectl exec together -c regular -- sh -c 'echo 3 >/s/go.new; mv /s/go.new /s/go'");
    shell.until(&status("containerStatuses[?(@.name==\"source\")].state.terminated.exitCode"), "3");
    shell.says(&all("restartCount"), "1 1 1 1");
}

//! How containers run: init containers, users, limits, networks, static pods.

use crate::node::{Steps, pod, running_pod};
use coracle_tests::Shell;
use coracle_tests::image::BUSYBOX;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("events-of-a-start", events);
    steps.run("init-containers", init_containers);
    steps.run("limits", limits);
    steps.run("security-context", security_context);
    steps.run("host-network", host_network);
    let name = steps.node.name.clone();
    steps.run("static-pod", move |shell| static_pod(shell, &name));
}

fn events(shell: &Shell) {
    running_pod(shell, "box", "sleep 3600", "");
    let messages = shell.until_that("kubectl get events --field-selector involvedObject.name=box -o jsonpath='{range .items[*]}{.reason}: {.message}{\"\\n\"}{end}'", |out| out.contains("Started"));
    for wanted in [
        "Scheduled: Successfully assigned events-of-a-start/box to ",
        "Pulled: Container image \"docker.io/library/busybox:1.36\" already present on machine and can be accessed by the pod",
        "Created: ",
        "Started: ",
    ] {
        assert!(
            messages.lines().any(|line| line.starts_with(wanted)),
            "{wanted:?} is missing from\n{messages}"
        );
    }
    shell.shows(
        "kubectl describe pod box",
        &[
            "Status:           Running",
            "Container ID:  containerd://",
            "Image ID:",
            "State:          Running",
            "Ready:          True",
            "Restart Count:  0",
            "Events:",
        ],
    );
}

fn init_containers(shell: &Shell) {
    let manifest = format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: staged}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{{name: shared, emptyDir: {{}}}}]
  initContainers:
  - {{name: first, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo first >/s/order"], volumeMounts: [{{name: shared, mountPath: /s}}]}}
  - {{name: second, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "sleep 1; echo second >>/s/order"], volumeMounts: [{{name: shared, mountPath: /s}}]}}
  containers:
  - {{name: main, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo main >>/s/order; sleep 3600"], volumeMounts: [{{name: shared, mountPath: /s}}]}}
"#
    );
    shell.apply(&manifest);
    shell.until_that("kubectl get pod staged --no-headers | awk '{print $3}'", |status| {
        status.starts_with("Init:") || status.trim() == "Running"
    });
    shell.ok("kubectl wait pod/staged --for=condition=Ready --timeout=100s");
    shell.says("kubectl exec staged -c main -- cat /s/order", "first\nsecond\nmain");
    shell.says(
        "kubectl get pod staged -o jsonpath='{.status.initContainerStatuses[*].state.terminated.reason}'",
        "Completed Completed",
    );
    shell.apply(&manifest.replace("name: staged", "name: stuck").replace("echo first >/s/order", "exit 3"));
    shell.until(
        "kubectl get pod stuck --no-headers | awk '{print $3}' | cut -d: -f1,2",
        "Init:CrashLoopBackOff",
    );
    shell.says("kubectl get pod stuck -o jsonpath='{.status.containerStatuses[0].state.waiting.reason} {.status.initContainerStatuses[0].lastState.terminated.exitCode}'", "PodInitializing 3");
}

fn limits(shell: &Shell) {
    running_pod(
        shell,
        "small",
        "sleep 3600",
        "resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}",
    );
    let id = shell.ok("kubectl get pod small -o jsonpath='{.metadata.uid} {.status.qosClass}'");
    assert!(id.ends_with("Burstable"), "{id}");
    let memory = "kubectl exec small -- sh -c 'cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes'";
    shell.says(memory, "67108864");
    let cpu = "kubectl exec small -- sh -c 'cat /sys/fs/cgroup/cpu.max 2>/dev/null || echo $(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us) $(cat /sys/fs/cgroup/cpu/cpu.cfs_period_us)'";
    shell.says(cpu, "50000 100000");
    shell.apply(&pod(
        "greedy",
        "sleep 1; head -c 200000000 /dev/zero | tail -c 200000000 | wc -c",
        "resources: {limits: {memory: 32Mi}}",
    ));
    shell.until(
        "kubectl get pod greedy -o jsonpath='{.status.containerStatuses[0].lastState.terminated.reason}'",
        "OOMKilled",
    );
}

fn security_context(shell: &Shell) {
    running_pod(
        shell,
        "modest",
        "sleep 3600",
        "securityContext: {runAsUser: 1234, runAsGroup: 5678, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}",
    );
    shell.says("kubectl exec modest -- id -u", "1234");
    shell.says("kubectl exec modest -- id -g", "5678");
    shell.says(
        "kubectl exec modest -- awk '/CapEff|NoNewPrivs/{print $2}' /proc/self/status",
        "0000000000000000\n1",
    );
    let write = shell.run("kubectl exec modest -- touch /x");
    assert!(write.stderr.contains("Read-only file system"), "{write}");
    shell.apply(&pod("refused", "true", "securityContext: {runAsNonRoot: true}"));
    shell.until("kubectl get pod refused --no-headers | awk '{print $3}'", "CreateContainerConfigError");
    shell.shows(
        "kubectl get pod refused -o jsonpath='{.status.containerStatuses[0].state.waiting.message}'",
        &["container has runAsNonRoot and image will run as root"],
    );
}

fn host_network(shell: &Shell) {
    let manifest = pod("near", "sleep 3600", "")
        .replace("  containers:", "  hostNetwork: true\n  dnsPolicy: Default\n  containers:");
    shell.apply(&manifest);
    shell.ok("kubectl wait pod/near --for=condition=Ready --timeout=100s");
    shell.says(
        "kubectl get pod near -o jsonpath='{.status.podIP}'",
        &shell.ok("kubectl get pod near -o jsonpath='{.status.hostIP}'"),
    );
    shell.says(
        "kubectl exec near -- readlink /proc/self/ns/net",
        shell.ok("readlink /proc/self/ns/net").trim(),
    );
}

fn static_pod(shell: &Shell, node: &str) {
    std::fs::create_dir_all("/var/lib/coracle/static-pods").expect("the directory of static pods");
    let file = "/var/lib/coracle/static-pods/e2e-static.yaml";
    std::fs::write(
        file,
        pod("fixed", "sleep 3600", "").replace("metadata: {name", "metadata: {namespace: static-pod, name"),
    )
    .expect("a static pod");
    let name = format!("fixed-{node}");
    shell.until(
        &format!(
            "kubectl get pod {name} -o jsonpath='{{.status.phase}} {{.metadata.ownerReferences[0].kind}}'"
        ),
        "Running Node",
    );
    shell.shows(
        &format!("kubectl get pod {name} -o jsonpath='{{.metadata.annotations}}'"),
        &["kubernetes.io/config.mirror"],
    );
    shell.until_that(&format!("kubectl exec {name} -- echo here"), |out| out == "here\n");
    ends_in_its_own_time(shell, file, &name);
}

/// The object that shows a static pod stays as long as the pod has its grace period, and who comes in its place waits so long.
fn ends_in_its_own_time(shell: &Shell, file: &str, name: &str) {
    let manifest = |word: &str| {
        pod("fixed", &format!("trap '' TERM; while :; do sleep 0.1; done # {word}"), "")
            .replace("metadata: {name", "metadata: {namespace: static-pod, name")
            .replace("GracePeriodSeconds: 1", "GracePeriodSeconds: 6")
    };
    let shown = format!(
        "kubectl get pod {name} --ignore-not-found -o jsonpath='{{.metadata.uid}} {{.status.containerStatuses[0].state.running.startedAt}}'"
    );
    let shows = |word: &str| {
        shell.until_that(
            &format!("kubectl get pod {name} -o jsonpath='{{.spec.containers[0].command}} {{.status.containerStatuses[0].ready}}'"),
            |out| out.contains(&format!("# {word}\"")) && out.ends_with("true"),
        );
    };
    let killing = |count: usize| {
        let events = format!(
            "kubectl get events --field-selector involvedObject.name={name},reason=Killing -o jsonpath='{{range .items[*]}}x{{.count}}{{end}}'"
        );
        shell.until_that(&events, |out| {
            out.split('x').filter_map(|n| n.parse::<usize>().ok()).sum::<usize>() >= count
        });
    };
    std::fs::write(file, manifest("one")).expect("a static pod");
    shows("one");
    let before = shell.ok(&shown);
    killing(1);
    // Gone and back, as an editor does it, while the pod ends.
    std::fs::remove_file(file).expect("the static pod's file");
    killing(2);
    std::fs::write(file, manifest("one")).expect("a static pod");
    shell.says(&shown, &before);
    shell.until_that(&shown, |now| now.trim().contains(' ') && now != before);
    shows("one");
    // Changed twice meanwhile: the last word counts, and the first pod has its time.
    let before = shell.ok(&shown);
    std::fs::write(file, manifest("two")).expect("a static pod");
    killing(3);
    std::fs::write(file, manifest("three")).expect("a static pod");
    shell.says(&shown, &before);
    shows("three");
    std::fs::remove_file(file).expect("the static pod's file");
    shell.until("kubectl get pods -o name", "");
}

//! Namespaces that are deleted with pods in every state of their lives. Within their grace and some seconds more nothing is
//! left of them: in the API, in the runtime, in control groups, mounts and network namespaces, on the disk.
//!
//! `CORACLE_ENDINGS=200x10` does it with two hundred pods ten times over; `scripts/endings` is the way to call it so.

use crate::node::{Steps, pod};
use coracle_tests::image::BUSYBOX;
use coracle_tests::shell::Background;
use coracle_tests::{Shell, wait_for};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The longest grace period of these pods, in seconds.
const GRACE: u64 = 6;
/// What may come on top.
const MORE: Duration = Duration::from_secs(15);
/// Longest wait for the states that pods are to be deleted in. A machine of two cores starts two pods a second.
const BEGUN_WITHIN: Duration = Duration::from_secs(400);

pub fn steps(steps: &mut Steps<'_>) {
    steps.alone("endings", endings);
}

/// Pods, and how often; one pod of each state unless told otherwise.
fn extent() -> (usize, usize) {
    let told = std::env::var("CORACLE_ENDINGS").unwrap_or_else(|_| "1x1".to_owned());
    let read =
        told.split_once('x').and_then(|(pods, rounds)| Some((pods.parse().ok()?, rounds.parse().ok()?)));
    read.expect("CORACLE_ENDINGS is PODSxROUNDS, for example 200x10")
}

fn endings(shell: &Shell) {
    let (pods, rounds) = extent();
    let copies = pods.div_ceil(PODS_OF_A_SET).max(1);
    let before = held(shell);
    for round in 1..=rounds {
        let namespace = format!("endings-{round}");
        let began = Instant::now();
        let sessions = begin(shell, &namespace, copies);
        let begun = began.elapsed().as_secs_f64();
        let began = Instant::now();
        end(shell, &namespace, copies);
        let last = wait_for("nothing of the namespace being left", allowed(copies), || {
            let left = left_behind(shell, &namespace, &before);
            if left.is_empty() { Ok(began.elapsed()) } else { Err(left) }
        });
        drop(sessions);
        println!(
            "round {round}: {} pods, {begun:.1} s to begin, {:.1} s to end",
            copies * PODS_OF_A_SET,
            last.as_secs_f64()
        );
    }
}

/// The runtime ends so many pods a second on two cores, whatever it is told; a node with few pods has no such excuse.
fn allowed(copies: usize) -> Duration {
    let runtime = if copies == 1 { Duration::ZERO } else { Duration::from_millis(300) };
    Duration::from_secs(GRACE)
        + MORE
        + runtime * u32::try_from(copies * PODS_OF_A_SET).expect("a small number")
}

/// Pods that [`set`] makes.
const PODS_OF_A_SET: usize = 20;

/// One pod of each state, or several where they come so, all with `n` behind their names.
fn set(n: usize) -> String {
    let mut all = String::new();
    let mut add = |manifest: String| writeln!(all, "{manifest}\n---").expect("writing to a string");
    let spec = |manifest: String, fields: &str| {
        manifest.replace("  containers:", &format!("  {fields}\n  containers:"))
    };
    let sleeping = |name: &str, more: &str| pod(&format!("{name}-{n}"), "exec sleep 3600", more);
    add(spec(sleeping("unscheduled", ""), "nodeSelector: {nowhere: x}"));
    add(sleeping("absent", "").replace(BUSYBOX, "localhost:9/absent:1"));
    let never = sleeping("never", "").replace(BUSYBOX, "localhost:9/absent:1");
    add(never.replace("IfNotPresent", "Never"));
    let init = |script: &str| {
        format!(
            "initContainers: [{{name: init, image: {BUSYBOX}, imagePullPolicy: IfNotPresent, command: [sh, -c, \"{script}\"]}}]"
        )
    };
    add(spec(sleeping("init", ""), &init("exec sleep 3600")));
    add(spec(sleeping("init-crashing", ""), &init("exit 1")));
    add(sleeping("running", ""));
    add(sleeping("attached", ""));
    add(sleeping("debugged", ""));
    // It takes no SIGTERM, so it is killed at the end of its grace period.
    add(pod(&format!("deaf-{n}"), "trap '' TERM; while :; do sleep 1; done", ""));
    add(pod(&format!("crashing-{n}"), "exit 1", ""));
    add(spec(pod(&format!("completed-{n}"), "true", ""), "restartPolicy: Never"));
    add(spec(pod(&format!("failed-{n}"), "exit 3", ""), "restartPolicy: Never"));
    let hook = "lifecycle: {preStop: {exec: {command: [sleep, '3']}}}";
    let slow = sleeping("terminating", hook);
    add(slow.replace("GracePeriodSeconds: 1", &format!("GracePeriodSeconds: {GRACE}")));
    let volumes = "volumes: [{name: disk, emptyDir: {}}, {name: ram, emptyDir: {medium: Memory}}, {name: map, configMap: {name: kube-root-ca.crt}}, {name: claim, persistentVolumeClaim: {claimName: CLAIM}}]";
    let mounts = "volumeMounts: [{name: disk, mountPath: /disk}, {name: ram, mountPath: /ram}, {name: map, mountPath: /map}, {name: claim, mountPath: /claim}]";
    add(spec(sleeping("volumes", mounts), &volumes.replace("CLAIM", &format!("claim-{n}"))));
    add(format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: claim-{n}}}\nspec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}"
    ));
    // These wait for the last word of their pods.
    for (name, image, selector) in [
        ("running", BUSYBOX, "{}"),
        ("absent", "localhost:9/absent:1", "{}"),
        ("unscheduled", BUSYBOX, "{nowhere: x}"),
    ] {
        add(format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: job-{name}-{n}}}\nspec:\n  podReplacementPolicy: Failed\n  template:\n    spec:\n      restartPolicy: Never\n      terminationGracePeriodSeconds: 1\n      nodeSelector: {selector}\n      containers: [{{name: main, image: \"{image}\", imagePullPolicy: IfNotPresent, command: [sleep, '3600']}}]"
        ));
    }
    add(format!(
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: set-{n}}}\nspec:\n  serviceName: set\n  replicas: 2\n  podManagementPolicy: Parallel\n  selector: {{matchLabels: {{set: s{n}}}}}\n  template:\n    metadata: {{labels: {{set: s{n}}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      containers: [{{name: main, image: \"{BUSYBOX}\", imagePullPolicy: IfNotPresent, command: [sleep, '3600']}}]"
    ));
    all
}

/// Made when all others are in their states, and deleted at once.
fn newborn(n: usize) -> String {
    pod(&format!("newborn-{n}"), "exec sleep 3600", "") + "\n---\n"
}

/// Brings the pods into their states; sessions go on as long as what is returned.
fn begin(shell: &Shell, namespace: &str, copies: usize) -> Vec<Background> {
    shell.ok(&format!("kubectl create namespace {namespace}"));
    let within = format!("-n {namespace}");
    shell.until(&format!("kubectl get serviceaccount default {within} -o name"), "serviceaccount/default");
    (1..=copies).for_each(|n| apply(shell, &within, &set(n)));
    let mut sessions = Vec::new();
    let kubectl = |line: String| format!("kubectl {within} {line}");
    for n in 1..=copies {
        for pod in ["running", "attached", "debugged", "deaf", "terminating", "volumes"] {
            let ready = kubectl(format!(
                "get pod {pod}-{n} -o jsonpath='{{.status.conditions[?(@.type==\"Ready\")].status}}'"
            ));
            shell.within(BEGUN_WITHIN, &ready, |text| text == "True");
        }
        sessions.push(
            shell.start(&kubectl(format!("exec attached-{n} -- sleep 3600")), &format!("exec-{n}.log")),
        );
        shell.ok(&kubectl(format!(
            "debug debugged-{n} --image={BUSYBOX} --image-pull-policy=IfNotPresent -c late -- sleep 3600"
        )));
        for (pod, reason) in [
            ("absent", "ImagePullBackOff"),
            ("never", "ErrImageNeverPull"),
            ("crashing", "CrashLoopBackOff"),
            ("completed", "Completed"),
            ("failed", "Error"),
            ("init", "Init:0/1"),
            ("init-crashing", "Init:CrashLoopBackOff"),
            ("unscheduled", "Pending"),
        ] {
            let state = kubectl(format!("get pod {pod}-{n} --no-headers | awk '{{print $3}}'"));
            // A crash loop is often between two attempts, and a pull between two failures.
            let alike = |text: &str| match reason {
                "CrashLoopBackOff" => ["CrashLoopBackOff", "Error"].contains(&text),
                "Init:CrashLoopBackOff" => text.starts_with("Init:"),
                "ImagePullBackOff" => ["ImagePullBackOff", "ErrImagePull"].contains(&text),
                other => text == other,
            };
            shell.within(BEGUN_WITHIN, &state, |text| alike(text.trim()));
        }
    }
    sessions
}

fn apply(shell: &Shell, within: &str, manifest: &str) {
    let output = shell.run_with(&format!("kubectl apply {within} -f -"), manifest);
    assert_eq!(output.code, 0, "{output}");
}

/// Some are on their way out already, and others have only just come, when the namespace is deleted.
fn end(shell: &Shell, namespace: &str, copies: usize) {
    let leaving: Vec<String> = (1..=copies).map(|n| format!("terminating-{n}")).collect();
    let newborns: String = (1..=copies).map(newborn).collect();
    apply(shell, &format!("-n {namespace}"), &newborns);
    shell.ok(&format!("kubectl delete pod -n {namespace} --wait=false {}", leaving.join(" ")));
    shell.ok(&format!("kubectl delete namespace {namespace} --wait=false"));
}

/// What pods hold on the machine: one line each, sorted.
fn held(shell: &Shell) -> Vec<String> {
    let lines = [
        "ctr -n k8s.io containers ls -q",
        "ctr -n k8s.io tasks ls -q",
        "pgrep -a containerd-shim | grep -v defunct | cut -d' ' -f2- || true",
        "find /sys/fs/cgroup -type d -path '*kubepods*' -name 'pod*' 2>/dev/null || true",
        "awk '$5 ~ \"^/(var/lib/coracle|run/containerd|run/netns)\" {print $5}' /proc/self/mountinfo",
        "ls /run/netns /var/lib/coracle/kubelet/pods /var/log/pods 2>/dev/null || true",
    ];
    let mut all: Vec<String> =
        lines.iter().flat_map(|line| shell.ok(line).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    all.sort();
    all
}

/// What is there that was not before, and what the API still has.
fn left_behind(shell: &Shell, namespace: &str, before: &[String]) -> String {
    let api = shell.run(&format!(
        "kubectl get namespace {namespace} -o jsonpath='{{.status.conditions}}' --ignore-not-found; kubectl get pods -n {namespace} --no-headers --ignore-not-found 2>&1 | grep -v 'No resources found' || true"
    ));
    let named = shell.ok(&format!("kubectl get namespace {namespace} -o name --ignore-not-found"));
    let more = held(shell).into_iter().filter(|line| !before.contains(line));
    let machine: String = more.map(|line| format!("{line}\n")).collect();
    if named.trim().is_empty() && machine.is_empty() {
        String::new()
    } else {
        format!("{}{machine}", api.stdout)
    }
}

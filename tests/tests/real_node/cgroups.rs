//! The cgroups of pods, the cluster's configuration of kubelets, and a node whose pods take all that they can.

use crate::node::{Steps, running_pod};
use coracle_tests::Shell;
use std::path::Path;

/// Gets that are timed while pods take what they can.
const GETS: usize = 300;
const P99_MILLIS: f64 = 100.0;

pub fn steps(steps: &mut Steps<'_>) {
    steps.run("pod-cgroups", pod_cgroups);
    steps.alone("kubelet-config", kubelet_config);
    steps.alone("full-node", full_node);
}

pub fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// A file of a cgroup in either version: `(controller, version 1's file, version 2's)`.
pub fn file(group: &str, controller: &str, one: &str, two: &str) -> String {
    match is_v2() {
        true => format!("cat /sys/fs/cgroup/{group}/{two}"),
        false => format!("cat /sys/fs/cgroup/{controller}/{group}/{one}"),
    }
}

fn uid(shell: &Shell, pod: &str) -> String {
    shell.ok(&format!("kubectl get pod {pod} -o jsonpath='{{.metadata.uid}}'"))
}

fn pod_cgroups(shell: &Shell) {
    let limits = "resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 250m, memory: 64Mi}}";
    running_pod(shell, "burst", "sleep 3600", limits);
    running_pod(shell, "whole", "sleep 3600", "resources: {limits: {cpu: 200m, memory: 32Mi}}");
    let burst = format!("kubepods/burstable/pod{}", uid(shell, "burst"));
    let whole = format!("kubepods/pod{}", uid(shell, "whole"));
    let (none, shares, quota) = if is_v2() { ("max", "4", "25000 100000") } else { ("-1", "102", "25000") };
    let says = |group: &str, controller: &str, one: &str, two: &str, value: &str| {
        shell.says(&file(group, controller, one, two), value);
    };
    says(&burst, "cpu", "cpu.shares", "cpu.weight", shares);
    says(&burst, "cpu", "cpu.cfs_quota_us", "cpu.max", quota);
    says(&burst, "memory", "memory.limit_in_bytes", "memory.max", &(64 << 20).to_string());
    says(&whole, "memory", "memory.limit_in_bytes", "memory.max", &(32 << 20).to_string());
    let limit = shell.ok(&file(&whole, "pids", "pids.max", "pids.max"));
    assert!(limit.trim().parse::<u64>().is_ok(), "{limit}");
    says("kubepods/besteffort", "cpu", "cpu.shares", "cpu.weight", if is_v2() { "1" } else { "2" });
    let memory = shell.ok(&file("kubepods", "memory", "memory.limit_in_bytes", "memory.max"));
    let machine = shell.ok("kubectl get node -o jsonpath='{.items[0].status.capacity.memory}'");
    let bytes: u64 = memory.trim().parse().expect("a limit");
    let kib: u64 = machine.trim_end_matches("Ki").parse().expect("KiB");
    assert_eq!(bytes / 4096, kib / 4, "pods get what is not reserved: {none} would be no limit");
    let pids = shell.ok(&file("kubepods", "pids", "pids.max", "pids.max"));
    assert!(pids.trim().parse::<u64>().is_ok(), "{pids}");

    let resize =
        r#"{"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":"96Mi","cpu":"250m"}}}]}}"#;
    shell.ok(&format!("kubectl patch pod burst --subresource resize --patch '{resize}'"));
    let limit = file(&burst, "memory", "memory.limit_in_bytes", "memory.max");
    shell.until(&limit, &(96 << 20).to_string());
    let link =
        "/var/log/containers/burst_$(kubectl config view --minify -o jsonpath='{..namespace}')_main-*.log";
    shell.says(&format!("readlink -e {link} | wc -l"), "1");
    shell.ok("kubectl delete pod burst whole --timeout=100s");
    shell.says(&format!("ls {link} 2>/dev/null | wc -l"), "0");
    let any = if is_v2() { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/memory" };
    shell.says(&format!("ls -d {any}/{burst} {any}/{whole} 2>/dev/null | wc -l"), "0");
}

/// Says something of kubelets in the cluster's ConfigMap.
fn configure(shell: &Shell, fields: &str) {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let map = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "kubelet-config", "namespace": "kube-system" }, "data": { "kubelet": format!("{head}{fields}") } });
    shell.apply(&map.to_string());
}

fn kubelet_config(shell: &Shell) {
    running_pod(shell, "stays", "sleep 3600", "");
    let id = "kubectl get pod stays -o jsonpath='{.status.containerStatuses[0].containerID}'";
    let before = shell.ok(id);
    let node = shell.ok("kubectl get node -o jsonpath='{.items[0].metadata.name}'");
    let shown = |field: &str| {
        format!(
            "kubectl get --raw /api/v1/nodes/{node}/proxy/configz | sed -n 's/.*\"{field}\":\"\\{{0,1\\}}\\([^,\"}}]*\\).*/\\1/p'"
        )
    };
    let events = |reason: &str| {
        format!(
            "kubectl get events -n default --field-selector involvedObject.name=kubelet-config,reason={reason} -o jsonpath='{{.items[*].message}}'; kubectl get events -n kube-system --field-selector involvedObject.name=kubelet-config,reason={reason} -o jsonpath='{{.items[*].message}}'"
        )
    };
    configure(shell, "containerLogMaxFiles: 3\n");
    shell.until(&shown("containerLogMaxFiles"), "3");
    let pods = "kubectl get node -o jsonpath='{.items[0].status.allocatable.pods}'";
    let (most, cpus) = (shell.ok(pods), std::thread::available_parallelism().map_or(1, usize::from));
    // The node's own flag says how many pods it takes, and wins.
    configure(shell, "containerLogMaxFiles: 3\nmaxPods: 7\npodsPerCore: 40\nsystemReserved: {cpu: 100m}\n");
    let per_core = (40 * cpus).to_string();
    shell.until(pods, &per_core);
    let cpu = shell.ok("kubectl get node -o jsonpath='{.items[0].status.allocatable.cpu}'");
    assert!(cpu.ends_with("900m"), "{cpu}");
    configure(shell, "podsPerCore: 1\nqosReserved: {memory: 50%}\n");
    shell.until_that(&events("ConfigurationRefused"), |text| {
        text.contains("qosReserved: ") && text.contains("cannot be had")
    });
    shell.says(pods, &per_core);
    shell.ok("kubectl delete configmap -n kube-system kubelet-config");
    shell.until(pods, most.trim());
    shell.says(id, &before);
    shell.until(&shown("containerLogMaxFiles"), "5");
    shell.ok("kubectl exec stays -- true");
    shell.ok("curl -sf http://127.0.0.1:10248/healthz");
}

/// Milliseconds that gets of a small object take, over one connection.
fn gets(shell: &Shell) -> Vec<f64> {
    let part = |path: &str, file: &str| {
        format!("kubectl config view --raw -o jsonpath='{{{path}}}' | base64 -d >{file}; ")
    };
    let prepare = part(".clusters[0].cluster.certificate-authority-data", "ca.pem")
        + &part(".users[0].user.client-certificate-data", "cert.pem")
        + &part(".users[0].user.client-key-data", "key.pem");
    shell.ok(&prepare);
    let server = shell.ok("kubectl config view -o jsonpath='{.clusters[0].cluster.server}'");
    let url = format!("{server}/api/v1/namespaces/default?n=[1-{GETS}]");
    let times = shell.ok(&format!(
        "curl -sf --cacert ca.pem --cert cert.pem --key key.pem -o /dev/null -w '%{{time_total}}\\n' '{url}'"
    ));
    times.lines().map(|seconds| seconds.trim().parse::<f64>().expect("seconds") * 1000.0).collect()
}

/// Pods that never stop computing, that use all memory they may, and that fork until they may no more.
fn full_node(shell: &Shell) {
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    for hog in 0..2 * cpus {
        running_pod(shell, &format!("cpu-{hog}"), "while :; do :; done", "");
    }
    running_pod(shell, "memory", "while :; do tail /dev/zero; done", "resources: {limits: {memory: 256Mi}}");
    running_pod(shell, "forks", "sleep 3600", "");
    let uid = uid(shell, "forks");
    let bomb = shell.start("kubectl exec forks -- sh -c 'b() { b | b & }; b; sleep 3600'", "forks.log");
    let now = file(&format!("kubepods/besteffort/pod{uid}"), "pids", "pids.current", "pids.current");
    let limit = file(&format!("kubepods/besteffort/pod{uid}"), "pids", "pids.max", "pids.max");
    let limit: u64 = shell.ok(&limit).trim().parse().expect("a limit");
    shell.until_that(&now, |now| now.trim().parse::<u64>().is_ok_and(|now| now * 10 >= limit * 9));
    let mut times = gets(shell);
    times.sort_by(f64::total_cmp);
    let p99 = times[times.len() * 99 / 100 - 1];
    println!("full node: {GETS} gets, p50 {:.1} ms, p99 {p99:.1} ms", times[times.len() / 2]);
    assert!(p99 <= P99_MILLIS, "p99 is {p99} ms; the slowest are {:?}", &times[times.len() - 5..]);
    shell.ok("kubectl delete pod --all --grace-period=1 --timeout=200s");
    drop(bomb);
    shell.says("kubectl get node --no-headers | awk '{print $2}'", "Ready");
}

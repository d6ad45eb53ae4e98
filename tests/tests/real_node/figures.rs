//! What dashboards and upstream's own tests of nodes look for on the kubelet's pages, of one pod from its start to its end.

use crate::node::{Steps, pod};
use coracle_tests::Shell;

pub fn steps(steps: &mut Steps<'_>) {
    let name = steps.node.name.trim().to_owned();
    steps.run("figures", move |shell| figures(shell, &name));
    let name = steps.node.name.trim().to_owned();
    steps.alone("node-labels", move |shell| node_labels(shell, &name));
}

fn figures(shell: &Shell, node: &str) {
    let script = "echo words >/disk/f; sleep 3600 & nc -l -p 5000 & nc -l -p 5001 & dd if=/dev/zero of=/x bs=64k count=16 conv=fsync; until test -e /ram/go; do sleep 0.1; done";
    let more = "resources: {limits: {memory: 80M}}\nvolumeMounts: [{name: disk, mountPath: /disk}, {name: ram, mountPath: /ram}]";
    let volumes = "restartPolicy: Never\n  volumes: [{name: disk, emptyDir: {}}, {name: ram, emptyDir: {medium: Memory}}]\n  containers:";
    shell.apply(&pod("counted", script, more).replace("containers:", volumes));
    shell.ok("kubectl wait pod/counted --for=condition=Ready --timeout=100s");
    let page = |path: &str| format!("kubectl get --raw /api/v1/nodes/{node}:10250/proxy/{path}");
    containers(shell, &page("metrics/cadvisor"));
    summary(shell, &page("stats/summary"));
    kubelet(shell, &page("metrics"));
    ended(shell, &page("metrics"));
}

/// Every family of upstream's test of container metrics that containerd's pods have there, too.
const OF_CONTAINERS: [&str; 29] = [
    "container_cpu_system_seconds_total",
    "container_cpu_usage_seconds_total",
    "container_cpu_user_seconds_total",
    "container_file_descriptors",
    "container_fs_reads_bytes_total",
    "container_fs_reads_total",
    "container_fs_usage_bytes",
    "container_fs_writes_bytes_total",
    "container_fs_writes_total",
    "container_last_seen",
    "container_memory_cache",
    "container_memory_failcnt",
    "container_memory_failures_total",
    "container_memory_mapped_file",
    "container_memory_max_usage_bytes",
    "container_memory_rss",
    "container_memory_swap",
    "container_memory_usage_bytes",
    "container_memory_working_set_bytes",
    "container_oom_events_total",
    "container_processes",
    "container_sockets",
    "container_spec_cpu_period",
    "container_spec_cpu_shares",
    "container_spec_memory_limit_bytes",
    "container_spec_memory_reservation_limit_bytes",
    "container_spec_memory_swap_limit_bytes",
    "container_start_time_seconds",
    "container_threads",
];

fn containers(shell: &Shell, page: &str) {
    let text = shell.until_that(page, |text| text.contains("pod=\"counted\""));
    let of = |family: &str, labels: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
        let found = lines.find(|line| labels.split(' ').all(|label| line.contains(label)));
        found.unwrap_or_else(|| panic!("{family} of {labels} is missing")).to_owned()
    };
    let number = |line: &str| -> f64 {
        let value = line.rsplit("} ").next().and_then(|rest| rest.split(' ').next());
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no number in {line}"))
    };
    for family in OF_CONTAINERS {
        assert!(number(&of(family, "container=\"main\" pod=\"counted\"")) >= 0.0);
    }
    let of_main = |family: &str| number(&of(family, "container=\"main\" pod=\"counted\""));
    assert!(
        (of_main("container_sockets") - 2.0).abs() < 0.1,
        "two listeners: {}",
        of_main("container_sockets")
    );
    assert!(of_main("container_processes") >= 2.0 && of_main("container_ulimits_soft") > 0.0);
    let most = of("container_threads_max", "container=\"\" id=\"/kubepods pod=\"counted\"");
    assert!(number(&most) > 0.0, "{most}");
    for direction in ["receive", "transmit"] {
        for what in ["bytes", "errors", "packets", "packets_dropped"] {
            let family = format!("container_network_{direction}_{what}_total");
            of(&family, "interface=\"eth0\" pod=\"counted\" image=\"");
        }
    }
    of("container_memory_working_set_bytes", "container=\"\" id=\"/kubepods pod=\"counted\"");
    of("container_cpu_usage_seconds_total", "container=\"\" id=\"/\"");
}

/// The fields that upstream's test of the summary asks for.
fn summary(shell: &Shell, page: &str) {
    let of = |path: &str, from: &str| shell.ok(&format!("{page} | jq -e '{from} | {path}'"));
    let counted = ".pods[] | select(.podRef.name == \"counted\")";
    for path in [
        ".memory.availableBytes",
        ".memory.majorPageFaults",
        ".[\"ephemeral-storage\"].inodesUsed",
        ".containers[0].memory.availableBytes",
        ".containers[0].rootfs.inodesUsed",
        ".containers[0].logs.inodesUsed",
        ".process_stats.process_count",
        ".network.interfaces[0].rxBytes",
    ] {
        of(path, counted);
    }
    let pods = ".node.systemContainers[] | select(.name == \"pods\")";
    for path in [".startTime", ".cpu.usageNanoCores", ".memory.availableBytes", ".memory.workingSetBytes"] {
        of(path, pods);
    }
}

fn kubelet(shell: &Shell, page: &str) {
    let empty_dirs = "volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\"";
    let text = shell.until_that(page, |text| {
        text.contains(&format!("{empty_dirs},state=\"actual_state_of_world\"}}"))
            && text.contains(&format!("{empty_dirs},state=\"desired_state_of_world\"}}"))
    });
    for line in [
        // The server's own kubelet needs no certificate towards it.
        "kubelet_certificate_manager_client_ttl_seconds +Inf",
        "kubelet_certificate_manager_server_ttl_seconds ",
        "kubelet_certificate_manager_client_expiration_renew_errors 0",
        "kubelet_server_expiration_renew_errors 0",
        "kubelet_container_log_filesystem_used_bytes{",
        "kubelet_desired_pods{static=\"\"} ",
        "kubelet_http_inflight_requests{",
        "kubelet_pod_start_sli_duration_seconds_count ",
        "kubelet_pod_start_total_duration_seconds_count ",
        "kubelet_pod_status_sync_duration_seconds_count ",
        "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} ",
        "kubelet_node_startup_duration_seconds ",
        "kubelet_node_startup_pre_kubelet_duration_seconds ",
        "kubelet_node_startup_pre_registration_duration_seconds ",
        "kubelet_node_startup_registration_duration_seconds ",
        "kubelet_node_startup_post_registration_duration_seconds ",
        "kubelet_image_manager_ensure_image_requests_total{pull_policy=\"ifnotpresent\",present_locally=\"true\",pull_required=\"false\"} ",
        "kubelet_imagemanager_image_mustpull_checks_total{result=\"credentialPolicyAllowed\"} ",
        "kubelet_imagemanager_ondisk_pulledrecords ",
        "kubelet_volume_metric_collection_duration_seconds_count{metric_source=\"du\"} ",
        "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"\"} ",
    ] {
        assert!(text.lines().any(|written| written.starts_with(line)), "{line} is missing");
    }
}

/// What a pod had in memory and on the disk is not kept until somebody deletes it; its words are.
fn ended(shell: &Shell, page: &str) {
    let uid = shell.ok("kubectl get pod counted -o jsonpath='{.metadata.uid}'");
    shell.ok("kubectl exec counted -- touch /ram/go");
    shell.until("kubectl get pod counted -o jsonpath='{.status.phase}'", "Succeeded");
    let volumes = format!("/var/lib/coracle/kubelet/pods/{uid}/volumes");
    shell.until(&format!("ls -d {volumes} 2>/dev/null; grep -c {uid} /proc/self/mountinfo || true"), "0");
    shell.shows("kubectl logs counted", &["records"]);
    let unmounts = "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_unmount\",status=\"success\",volume_plugin=\"kubernetes.io/empty-dir\"}";
    shell.until_that(page, |text| text.contains(unmounts));
}

/// Whoever says that the machine is another one is corrected.
fn node_labels(shell: &Shell, node: &str) {
    let labels = format!(
        "kubectl get node {node} -o jsonpath='{{.metadata.labels.kubernetes\\.io/os}} {{.metadata.labels.kubernetes\\.io/arch}}'"
    );
    let before = shell.ok(&labels);
    shell.ok(&format!(
        "kubectl label node {node} --overwrite kubernetes.io/os=dummy kubernetes.io/arch=dummy"
    ));
    shell.until(&labels, before.trim());
}

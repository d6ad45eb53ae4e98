//! `kubectl top`, with a kubelet that says what it is told to.

use coracle_tests::hook::Told;
use coracle_tests::{Cluster, Hook};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};

/// Ten seconds pass between two answers: the node uses half a core, `web` 20m and 1m, `idle` nothing.
fn summary(n: i64) -> Value {
    let stats = |nano_cores: i64, memory: i64| {
        let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", n / 360 % 24, n / 6 % 60, n % 6 * 10);
        json!({ "cpu": { "time": time, "usageCoreNanoSeconds": 7_000_000_000 + nano_cores * 10 * n },
            "memory": { "time": time, "workingSetBytes": memory } })
    };
    let container = |name: &str, nano_cores: i64, mebibytes: i64| {
        let mut container = stats(nano_cores, mebibytes << 20);
        container["name"] = name.into();
        container
    };
    let pod = |namespace: &str, name: &str, containers: &[Value]| json!({ "podRef": { "namespace": namespace, "name": name, "uid": "u" }, "containers": containers });
    json!({ "node": stats(500_000_000, 1 << 30), "pods": [
        pod("default", "web", &[container("main", 20_000_000, 30), container("side", 1_000_000, 4)]),
        pod("default", "idle", &[container("main", 0, 64)]),
        pod("other", "far", &[container("main", 3_000_000, 1)]),
    ] })
}

fn pod(namespace: &str, name: &str, containers: &[&str]) -> String {
    let containers: Vec<Value> = containers.iter().map(|c| json!({ "name": c, "image": "nginx" })).collect();
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "spec": { "nodeName": "measured", "containers": containers } })
    .to_string()
}

/// A node whose kubelet is the hook, with three pods.
fn measured() -> (Cluster, Hook) {
    // The kubelet of the server's own node may listen on loopback.
    let cluster = Cluster::start(&["--node-name", "measured"]);
    let pki = cluster.data_dir().join("pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).expect("a file of the cluster's");
    let asked = AtomicI64::new(0);
    let kubelet =
        Hook::identified(&read("kubelet.crt"), &read("kubelet.key"), move |call| match call.route() {
            "/stats/summary" => Told::json(200, &summary(asked.fetch_add(1, Ordering::SeqCst))),
            "/metrics" => Told::text(200, "some_metric 1\n"),
            other => Told::text(404, other),
        });
    cluster.apply(r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "measured", "labels": {"size": "small"}}}"#);
    let status = json!({ "status": {
        "allocatable": { "cpu": "2", "memory": "2Gi", "pods": "10" }, "capacity": { "cpu": "2", "memory": "2Gi", "pods": "10" },
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.port() } } } });
    cluster.ok(&format!("kubectl patch node measured --subresource=status --type=merge -p '{status}'"));
    cluster.ok("kubectl create namespace other");
    cluster.until("kubectl get serviceaccount default -n other -o name", "serviceaccount/default");
    for (namespace, name, containers) in [
        ("default", "web", &["main", "side"][..]),
        ("default", "idle", &["main"]),
        ("other", "far", &["main"]),
    ] {
        cluster.apply(&pod(namespace, name, containers));
    }
    (cluster, kubelet)
}

/// The words of each line.
fn words(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn nodes_and_pods_are_measured_as_kubectl_shows_them() {
    let (cluster, _kubelet) = measured();
    cluster.provide("kubectl-1.37", &coracle_tests::clients::newer_kubectl());
    for kubectl in ["kubectl", "kubectl-1.37"] {
        let shows = |line: &str, expected: &[&str]| {
            let found = words(&cluster.ok(&format!("{kubectl} top {line}")));
            assert_eq!(found, expected, "{kubectl} top {line}");
        };
        shows("node --no-headers", &["measured 500m 25% 1024Mi 50%"]);
        shows("node measured --no-headers", &["measured 500m 25% 1024Mi 50%"]);
        shows("nodes -l size=small --no-headers --sort-by=cpu", &["measured 500m 25% 1024Mi 50%"]);
        shows("pod", &["NAME CPU(cores) MEMORY(bytes)", "idle 0m 64Mi", "web 21m 34Mi"]);
        shows("pods --sort-by=cpu --no-headers", &["web 21m 34Mi", "idle 0m 64Mi"]);
        shows("pods --sort-by=memory --no-headers", &["idle 0m 64Mi", "web 21m 34Mi"]);
        shows(
            "pod web --containers",
            &["POD NAME CPU(cores) MEMORY(bytes)", "web main 20m 30Mi", "web side 1m 4Mi"],
        );
        shows("pod -l app=web --no-headers", &["web 21m 34Mi"]);
        shows("pod --field-selector=metadata.name=idle --no-headers", &["idle 0m 64Mi"]);
        shows(
            "pod -A",
            &[
                "NAMESPACE NAME CPU(cores) MEMORY(bytes)",
                "default idle 0m 64Mi",
                "default web 21m 34Mi",
                "other far 3m 1Mi",
            ],
        );
        shows(
            "pod -A --sum --no-headers",
            &[
                "default idle 0m 64Mi",
                "default web 21m 34Mi",
                "other far 3m 1Mi",
                "________ ________",
                "24m 99Mi",
            ],
        );
        cluster.refuses(
            &format!("{kubectl} top pod nobody"),
            "Error from server (NotFound): podmetrics.metrics.k8s.io \"default/nobody\" not found\n",
        );
        cluster.refuses(
            &format!("{kubectl} top node nobody"),
            "Error from server (NotFound): nodemetrics.metrics.k8s.io \"nobody\" not found\n",
        );
    }
    cluster.says("kubectl get --raw /api/v1/nodes/measured/proxy/metrics", "some_metric 1");
}

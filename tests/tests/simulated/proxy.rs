//! The proxy's configuration as users change it: by the ConfigMap `kube-proxy`, on a running server, in a network of its
//! own.

use coracle_tests::{Cluster, skipped};
use nix::sched::{CloneFlags, unshare};

/// Runs a test on a thread with a network of its own: its servers, commands and packet rules are nobody else's.
pub fn in_a_network_of_its_own(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        return skipped("a network namespace needs root");
    }
    let test = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("iproute2").success());
        test();
    });
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Writes the whole document, as the documents for users do it.
fn configure(cluster: &Cluster, text: &str) {
    let patch = serde_json::json!({"data": {"config.conf": text}});
    cluster.ok(&format!("kubectl patch configmap -n kube-system kube-proxy --patch '{patch}'"));
}

fn works_in(cluster: &Cluster, mode: &str) {
    cluster.until("curl -s http://127.0.0.1:10249/proxyMode", mode);
}

/// Whether this kernel has IPVS, or a module of it to load.
fn has_ipvs() -> bool {
    let dry = std::process::Command::new("modprobe").args(["--dry-run", "--quiet", "ip_vs"]).status();
    std::path::Path::new("/proc/net/ip_vs").exists() || dry.is_ok_and(|status| status.success())
}

/// The node's, from the first refusal on.
const CONDITION: &str = "kubectl get node sim-0 -o jsonpath='{range .status.conditions[?(@.type==\"ProxyConfigurationRefused\")]}{.status} {.reason} {.message}{end}'";

const EVENTS: &str = "kubectl get events -n kube-system --field-selector involvedObject.name=kube-proxy -o jsonpath='{range .items[*]}{.type} {.reason} {.message}{\"\\n\"}{end}'";

#[test]
fn modes_are_switched_by_the_config_map() {
    in_a_network_of_its_own(|| {
        let mut cluster = Cluster::start(&[
            "--node-ip",
            "127.0.0.1",
            "--disable",
            "kubelet,dns,network",
            "--simulate-nodes",
            "1",
            "--node-name",
            "sim-0",
        ]);
        works_in(&cluster, "iptables");
        cluster.until("iptables-save -t nat | grep -c '^-A PREROUTING .*-j KUBE-SERVICES'", "1");
        configure(&cluster, "mode: nftables");
        works_in(&cluster, "nftables");
        cluster.until("iptables-save | grep -c KUBE- || true", "0");
        let refused = "no rule of the Service is there";
        cluster.ok("kubectl create service clusterip web --tcp=80:80");
        let address = cluster.ok("kubectl get service web -o jsonpath='{.spec.clusterIP}'");
        let entry =
            format!("nft list map ip kube-proxy no-endpoint-services | grep -c '{address} . tcp . 80'");
        cluster.until(&entry, "1");
        // What cannot be done is told, and what was before stays.
        let mut refusals = vec![
            ("mode: ipvs\nipvs: {scheduler: best}", "InvalidConfiguration", "ipvs.scheduler"),
            ("mode: [", "InvalidConfiguration", "line"),
            ("portRange: 1-2", "InvalidConfiguration", "portRange"),
        ];
        if !has_ipvs() {
            refusals.push(("mode: ipvs", "ModeRefused", "ip_vs"));
        }
        for (document, reason, word) in refusals {
            configure(&cluster, document);
            cluster.until_that(EVENTS, |events| {
                let warning = format!("Warning {reason} ");
                events.lines().any(|e| e.starts_with(&warning) && e.contains(word))
            });
            cluster.until_that("curl -s http://127.0.0.1:10256/healthz", |said| {
                said.contains("configurationRefused") && said.contains(word)
            });
            cluster.until_that(CONDITION, |said| {
                said.starts_with(&format!("True {reason} ")) && said.contains(word)
            });
            works_in(&cluster, "nftables");
            assert_eq!(cluster.ok(&entry).trim(), "1", "{refused}");
        }
        // Nobody rewrites what somebody has written.
        configure(&cluster, "mode: nftables");
        cluster.until_that("curl -s http://127.0.0.1:10256/healthz", |said| {
            said.contains("lastUpdatedMillis") && !said.contains("configurationRefused")
        });
        cluster.until_that(CONDITION, |said| said.starts_with("False ConfigurationInForce "));
        cluster.kill_and_restart();
        works_in(&cluster, "nftables");
        cluster.says(
            "kubectl get configmap -n kube-system kube-proxy -o jsonpath='{.data.config\\.conf}'",
            "mode: nftables",
        );
        cluster.ok("nft flush ruleset");
        cluster.until(&entry, "1");
        cluster.until_that("curl -s http://127.0.0.1:10249/metrics", |page| {
            page.contains("kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"}")
                && page.contains("kubeproxy_repairs_total 1")
        });
        cluster.apply("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: shut}\nspec: {podSelector: {}}\n");
        configure(&cluster, "mode: userspace");
        works_in(&cluster, "userspace");
        let told = "kubectl get events --field-selector involvedObject.name=shut -o jsonpath='{.items[*].reason} {.items[*].message}'";
        cluster.until_that(told, |said| {
            said.starts_with("PolicyNotEnforced node sim-0: the proxy's mode userspace")
        });
        cluster.until("nft list tables | grep -c 'table ip kube-proxy$' || true", "0");
        cluster.until(&format!("ip -o address show dev kube-user4 | grep -c ' {address}/32'"), "1");
        configure(&cluster, "mode: iptables");
        works_in(&cluster, "iptables");
        cluster.until("ip -o link show | grep -c kube-user || true", "0");
        cluster.kill();
        let data = cluster.data_dir();
        // There is no runtime to take pods away from, which is told; the rules go all the same.
        cluster.run(&format!(
            "coracle reset --yes --data-dir {} --container-runtime-endpoint unix:///nowhere.sock",
            data.display()
        ));
        cluster.says("nft list ruleset | grep -c -e KUBE- -e kube-proxy || true", "0");
    });
}

//! NetworkPolicies between pods that talk for real.

use crate::node::{Steps, running_pod};
use coracle_tests::Shell;

const DENY: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
";

const ALLOW: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: friend}}}]
    ports: [{port: http}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out}
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: web}}}]
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}]
    ports: [{port: 53, protocol: UDP}, {port: 53}]
";

pub fn steps(steps: &mut Steps<'_>) {
    // While there is any policy, pods of all steps are looked at.
    steps.alone("network-policy", network_policy);
}

fn network_policy(shell: &Shell) {
    let web = "mkdir /w; hostname >/w/index.html; exec httpd -f -p 8080 -h /w";
    running_pod(shell, "web", web, "ports: [{name: http, containerPort: 8080}]");
    running_pod(shell, "friend", "exec sleep 1000", "");
    running_pod(shell, "stranger", "exec sleep 1000", "");
    shell.ok("kubectl expose pod web --port=80 --target-port=http");
    let pod = shell.ok("kubectl get pod web -o jsonpath='{.status.podIP}'");
    let direct = format!("http://{}:8080/", pod.trim());
    // By way of its name, so of DNS and of the Service.
    let ways = [direct.as_str(), "http://web/"];
    let ask = |from: &str, url: &str| {
        format!("kubectl exec {from} -- sh -c 'timeout 2 wget -qO- {url} 2>/dev/null || echo nothing'")
    };
    let reaches = |from: &str| ways.iter().for_each(|url| shell.until(&ask(from, url), "web"));
    let is_kept_away = |from: &str| ways.iter().for_each(|url| shell.until(&ask(from, url), "nothing"));
    let tables = "nft list tables | grep -c coracle-policy || true";
    shell.until(tables, "0");
    reaches("friend");
    reaches("stranger");
    shell.apply(DENY);
    is_kept_away("friend");
    is_kept_away("stranger");
    shell.apply(ALLOW);
    reaches("friend");
    is_kept_away("stranger");
    // Its node reaches a pod whatever policies say, or no probe would.
    shell.until(&format!("curl -s --max-time 5 {direct}"), "web");
    // A pod that comes later is judged as well.
    running_pod(shell, "late", "exec sleep 1000", "");
    is_kept_away("late");
    shell.ok("kubectl label pod late app=friend --overwrite");
    reaches("late");
    shell.ok("nft delete table ip coracle-policy");
    shell.until("nft list table ip coracle-policy | grep -c 'jump gate'", "1");
    is_kept_away("stranger");
    reaches("friend");
    shell.ok("kubectl delete networkpolicy --all");
    shell.until(tables, "0");
    reaches("stranger");
}

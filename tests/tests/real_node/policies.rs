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
    steps.alone("admin-network-policy", admin_network_policy);
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

/// As far as upstream's definitions matter here.
fn definition(kind: &str, plural: &str, version: &str) -> String {
    let object = "type: object, x-kubernetes-preserve-unknown-fields: true";
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.policy.networking.k8s.io
  annotations: {{api-approved.kubernetes.io: https://github.com/kubernetes-sigs/network-policy-api/pull/30}}
spec:
  group: policy.networking.k8s.io
  scope: Cluster
  names: {{kind: {kind}, plural: {plural}, singular: {}}}
  versions:
  - name: {version}
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{{object}}}, status: {{{object}}}}}}}}}
",
        kind.to_lowercase()
    )
}

const ADMIN: &str = r"
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard}
spec:
  priority: 5
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}
  ingress:
  - {name: friends, action: Allow, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: friend}}}}]}
  - {action: Deny, from: [{namespaces: {}}]}
";

const CLUSTER: &str = r"
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: names}
spec:
  tier: Baseline
  priority: 5
  subject: {namespaces: {}}
  ingress:
  - {action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: friend}}}}]}
  egress:
  - {action: Accept, to: [{domainNames: [example.org]}]}
";

/// Definitions come and go while pods talk.
fn admin_network_policy(shell: &Shell) {
    let web = "mkdir /w; hostname >/w/index.html; exec httpd -f -p 8080 -h /w";
    running_pod(shell, "web", web, "ports: [{name: http, containerPort: 8080}]");
    running_pod(shell, "friend", "exec sleep 1000", "");
    running_pod(shell, "stranger", "exec sleep 1000", "");
    let pod = shell.ok("kubectl get pod web -o jsonpath='{.status.podIP}'");
    let url = format!("http://{}:8080/", pod.trim());
    let ask = |from: &str| {
        format!("kubectl exec {from} -- sh -c 'timeout 2 wget -qO- {url} 2>/dev/null || echo nothing'")
    };
    let reaches = |from: &str| shell.until(&ask(from), "web");
    let is_kept_away = |from: &str| shell.until(&ask(from), "nothing");
    let accepted = |what: &str, path: &str| {
        format!("kubectl get {what} -o jsonpath='{{.status.conditions[?(@.type==\"Accepted\")].{path}}}'")
    };
    let tables = "nft list tables | grep -c coracle-policy || true";
    reaches("stranger");
    shell.apply(&definition("AdminNetworkPolicy", "adminnetworkpolicies", "v1alpha1"));
    shell.ok("kubectl wait crd/adminnetworkpolicies.policy.networking.k8s.io --for=condition=Established");
    shell.apply(ADMIN);
    is_kept_away("stranger");
    reaches("friend");
    shell.until(&accepted("adminnetworkpolicy guard", "status"), "True");
    // What an administrator denies, nobody allows.
    shell.apply(&ALLOW.replace("app: friend", "app: stranger"));
    is_kept_away("stranger");
    reaches("friend");
    shell.ok("kubectl delete networkpolicy --all");
    // A definition takes its policies along.
    shell.ok("kubectl delete crd adminnetworkpolicies.policy.networking.k8s.io");
    reaches("stranger");
    shell.until(tables, "0");
    shell.apply(&definition("ClusterNetworkPolicy", "clusternetworkpolicies", "v1alpha2"));
    shell.ok("kubectl wait crd/clusternetworkpolicies.policy.networking.k8s.io --for=condition=Established");
    shell.apply(CLUSTER);
    is_kept_away("friend");
    reaches("stranger");
    shell.until(&accepted("clusternetworkpolicy names", "reason"), "PartiallySupported");
    let said = shell.ok(&accepted("clusternetworkpolicy names", "message"));
    assert!(said.contains("spec.egress[0]: domainNames are not supported"), "{said}");
    // The last tier is not asked where a NetworkPolicy is.
    shell.apply(ALLOW);
    reaches("friend");
    is_kept_away("stranger");
    shell.ok("kubectl delete networkpolicy --all");
    shell.ok("kubectl delete crd clusternetworkpolicies.policy.networking.k8s.io");
    reaches("friend");
    shell.until(tables, "0");
}

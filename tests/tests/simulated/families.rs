//! Clusters of two families of addresses, and of IPv6 alone.

use coracle_tests::Cluster;

const BOTH: &[&str] = &[
    "--simulate-nodes",
    "2",
    "--cluster-cidr",
    "10.42.0.0/16,fd42::/56",
    "--service-cidr",
    "10.43.0.0/16,fd43::/112",
];

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: plain}
spec: {selector: {app: web}, ports: [{port: 80}]}
"#;

/// Prints each slice's family and how many endpoints it has.
const SLICES: &str = "kubectl get endpointslices -l kubernetes.io/service-name=web -o json \
     | jq -r '[.items[] | \"\\(.addressType) \\([.endpoints[]?.addresses[]] | sort | join(\" \"))\"] | sort | .[]'";

fn families(cluster: &Cluster, service: &str, wanted: &str) {
    let path = "{.spec.ipFamilyPolicy} {.spec.ipFamilies}";
    cluster.says(&format!("kubectl get service {service} -o jsonpath='{path}'"), wanted);
}

/// The command fails and says this among other things.
fn refused(cluster: &Cluster, line: &str, part: &str) {
    let output = cluster.run(line);
    assert!(output.code != 0 && output.stderr.contains(part), "{line}: {output}");
}

#[test]
fn services_of_two_families() {
    let cluster = Cluster::start(BOTH);
    let ranges = "kubectl get node sim-0 sim-1 -o json | jq -r '[.items[].spec | .podCIDR == .podCIDRs[0], .podCIDRs[]] | sort | .[]'";
    cluster.until(ranges, "true\ntrue\n10.42.0.0/24\n10.42.1.0/24\nfd42:0:0:1::/64\nfd42::/64");
    cluster.says(
        "kubectl get servicecidr kubernetes -o jsonpath='{.spec.cidrs}'",
        r#"["10.43.0.0/16","fd43::/112"]"#,
    );
    families(&cluster, "kubernetes", r#"SingleStack ["IPv4"]"#);
    cluster.apply(WEB);
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    families(&cluster, "plain", r#"SingleStack ["IPv4"]"#);
    families(&cluster, "web", r#"PreferDualStack ["IPv4","IPv6"]"#);
    let second = cluster.ok("kubectl get service web -o jsonpath='{.spec.clusterIPs[1]}'");
    assert!(second.starts_with("fd43::"), "{second}");
    cluster.shows(&format!("kubectl get ipaddress {second}"), &["services/default/web"]);
    cluster.until_that(SLICES, |text| {
        let lines: Vec<&str> = text.trim().lines().collect();
        matches!(lines[..], [v4, v6] if v4.matches(" 10.42.").count() == 2 && v6.starts_with("IPv6 ") && v6.matches(" fd42::").count() == 2)
    });
    cluster.shows(
        "kubectl describe service web",
        &["IP Family Policy:", "PreferDualStack", "IPv4,IPv6", &second],
    );
    refused(
        &cluster,
        "kubectl patch service web --type=merge -p '{\"spec\":{\"ipFamilies\":[\"IPv4\"]}}'",
        "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary IP family",
    );
    refused(
        &cluster,
        "kubectl create service clusterip clash --tcp=80 --clusterip=fd99::7",
        "failed to allocate IP fd99::7: the provided IP (fd99::7) is not in the valid range. The range of valid IPs is fd43::/112",
    );
    cluster.ok("kubectl patch service web --type=merge -p '{\"spec\":{\"ipFamilyPolicy\":\"SingleStack\"}}'");
    families(&cluster, "web", r#"SingleStack ["IPv4"]"#);
    refused(&cluster, &format!("kubectl get ipaddress {second}"), "not found");
    cluster.until_that(SLICES, |text| text.starts_with("IPv4 10.42.") && !text.contains("IPv6"));
    cluster.ok(
        "kubectl patch service plain --type=merge -p '{\"spec\":{\"ipFamilyPolicy\":\"RequireDualStack\"}}'",
    );
    families(&cluster, "plain", r#"RequireDualStack ["IPv4","IPv6"]"#);
}

/// Nothing of what is there changes, and what comes may have both.
#[test]
fn a_cluster_gets_a_second_family() {
    let mut cluster = Cluster::start(&["--simulate-nodes", "1"]);
    cluster.apply(WEB);
    families(&cluster, "web", r#"PreferDualStack ["IPv4"]"#);
    refused(
        &cluster,
        "kubectl patch service plain --type=merge -p '{\"spec\":{\"ipFamilyPolicy\":\"RequireDualStack\"}}'",
        "this cluster is not configured for dual-stack services",
    );
    cluster.kill();
    cluster.restart_with(BOTH);
    cluster.until(
        "kubectl get servicecidr kubernetes -o jsonpath='{.spec.cidrs}'",
        r#"["10.43.0.0/16","fd43::/112"]"#,
    );
    cluster.ok("kubectl label service web a=b");
    families(&cluster, "web", r#"PreferDualStack ["IPv4"]"#);
    cluster.ok(
        "kubectl patch service web --type=merge -p '{\"spec\":{\"ipFamilyPolicy\":\"RequireDualStack\"}}'",
    );
    families(&cluster, "web", r#"RequireDualStack ["IPv4","IPv6"]"#);
}

#[test]
fn a_cluster_of_ipv6_alone() {
    let arguments = [
        "--simulate-nodes",
        "1",
        "--cluster-cidr",
        "fd42::/56",
        "--service-cidr",
        "fd43::/112",
        "--node-ip",
        "::1",
    ];
    let cluster = Cluster::start(&arguments);
    cluster.until("kubectl get node sim-0 -o jsonpath='{.spec.podCIDRs}'", r#"["fd42::/64"]"#);
    cluster.says("kubectl get service kubernetes -o jsonpath='{.spec.clusterIP}'", "fd43::1");
    cluster.apply(WEB);
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    families(&cluster, "web", r#"PreferDualStack ["IPv6"]"#);
    cluster.until_that(SLICES, |text| text.starts_with("IPv6 fd42::") && !text.contains("IPv4"));
    refused(
        &cluster,
        "kubectl create service clusterip four --tcp=80 --clusterip=10.43.0.7",
        "spec.clusterIPs[0]: Invalid value: [\"10.43.0.7\"]: IPv4 is not configured on this cluster",
    );
}

use super::*;
use crate::model::{Endpoint, PortName, ServicePort};

fn port(endpoints: &[(&str, bool)]) -> ServicePort {
    ServicePort {
        name: PortName {
            namespace: "default".to_owned(),
            service: "web".to_owned(),
            port: "http".to_owned(),
            protocol: "tcp".to_owned(),
        },
        cluster_ip: "10.43.0.9".parse().expect("address"),
        port: 80,
        node_port: 0,
        external_ips: Vec::new(),
        guarded_ips: Vec::new(),
        sources: Vec::new(),
        affinity_seconds: 0,
        internal_local: false,
        external_local: false,
        endpoints: endpoints
            .iter()
            .map(|(ip, local)| Endpoint {
                ip: ip.parse().expect("address"),
                port: 8080,
                local: *local,
                near: true,
            })
            .collect(),
    }
}

const NETWORKS: Networks<'static> =
    Networks { cluster_cidr: "10.42.0.0/16", masquerade_pods: false, service_cidrs: &[] };

fn rules(port: ServicePort) -> (String, String) {
    let set = render(&[port], NETWORKS);
    let own = |text: &str| {
        let lines = text.lines().filter(|l| l.contains("default/web") || l.contains("KUBE-EXT-"));
        lines.map(|l| format!("{l}\n")).collect::<String>()
    };
    (own(&set.nat.rules), own(&set.filter.rules))
}

#[test]
fn names_of_chains_are_upstreams() {
    // kube-proxy names the chain of default/kubernetes:https so on every cluster.
    let name = PortName {
        namespace: "default".to_owned(),
        service: "kubernetes".to_owned(),
        port: "https".to_owned(),
        protocol: "tcp".to_owned(),
    };
    assert_eq!(chain("SVC", &name), "KUBE-SVC-NPX46M4PTMTKRN6Y");
}

#[test]
fn pods_are_masqueraded_only_where_that_is_asked_for() {
    let rule = "-A KUBE-POSTROUTING -s 10.42.0.0/16 ! -d 10.42.0.0/16 -m comment --comment \"pods to elsewhere\" -j MASQUERADE";
    assert!(render(&[], Networks { masquerade_pods: true, ..NETWORKS }).nat.rules.contains(rule));
    assert!(!render(&[], NETWORKS).nat.rules.contains("pods to elsewhere"));
}

#[test]
fn traffic_is_spread_evenly() {
    let (nat, filter) = rules(port(&[("10.42.0.2", true), ("10.42.0.3", true), ("10.42.0.4", false)]));
    assert_eq!(filter, "");
    let shares: Vec<&str> = nat.lines().filter_map(|l| l.split("--probability ").nth(1)).collect();
    let shares: Vec<&str> = shares.iter().filter_map(|s| s.split(' ').next()).collect();
    assert_eq!(shares, ["0.3333333333", "0.5000000000"]);
    assert_eq!(nat.matches("-j DNAT --to-destination").count(), 3);
    assert!(nat.contains("! -s 10.42.0.0/16 -d 10.43.0.9/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ"));
}

#[test]
fn a_service_without_endpoints_refuses() {
    let mut empty = port(&[]);
    empty.node_port = 30080;
    let (nat, filter) = rules(empty);
    assert_eq!(nat, "");
    assert_eq!(filter.matches("has no endpoints").count(), 2);
    assert_eq!(filter.matches("-j REJECT").count(), 2);
}

#[test]
fn local_policy_without_local_endpoints_is_silent_outside_and_open_inside() {
    let mut far = port(&[("10.42.1.2", false)]);
    far.node_port = 30080;
    far.external_local = true;
    let (nat, _) = rules(far);
    assert!(nat.contains("--dst-type LOCAL") || nat.contains("--dport 30080 -j KUBE-EXT-"));
    assert!(nat.contains("-s 10.42.0.0/16 -j KUBE-SVC-"));
    assert!(!nat.contains("-j KUBE-SVL-"));
}

#[test]
fn affinity_tries_the_remembered_endpoint_first() {
    let mut sticky = port(&[("10.42.0.2", true), ("10.42.0.3", true)]);
    sticky.affinity_seconds = 60;
    let (nat, _) = rules(sticky);
    let first = nat.find("--rcheck --seconds 60 --reap").expect("a check");
    let spread = nat.find("--mode random").expect("a spread");
    assert!(first < spread);
    assert_eq!(nat.matches("--set -p tcp").count(), 2);
}

#[test]
fn equal_models_render_equally() {
    let once = render(&[port(&[("10.42.0.2", true)])], NETWORKS);
    assert_eq!(once, render(&[port(&[("10.42.0.2", true)])], NETWORKS));
}

#[test]
fn only_source_ranges_reach_a_guarded_address() {
    let mut guarded = port(&[("10.42.0.2", true)]);
    guarded.guarded_ips = vec!["192.0.2.1".parse().expect("address")];
    guarded.sources = vec!["198.51.100.0/24".to_owned(), "203.0.113.7/32".to_owned()];
    let set = render(&[guarded.clone()], NETWORKS);
    let (wall, to) = (chain("FW", &guarded.name), chain("EXT", &guarded.name));
    let rule = format!("-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j {wall}");
    assert!(set.nat.rules.contains(&rule), "{}", set.nat.rules);
    for source in &guarded.sources {
        assert!(set.nat.rules.contains(&format!("-s {source} -j {to}")), "{}", set.nat.rules);
    }
    assert!(set.nat.chains.contains(&wall) && set.nat.chains.contains(&to));
    assert!(!set.nat.rules.contains(&format!("-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j {to}")));
    let dropped = "-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DROP";
    let walls = set.filter.rules.lines().filter(|l| l.starts_with("-A KUBE-PROXY-FIREWALL "));
    assert_eq!(walls.filter(|l| l.ends_with(dropped)).count(), 1);
    guarded.endpoints.clear();
    let refused = render(&[guarded], NETWORKS).filter.rules;
    assert!(refused.contains("has no endpoints\" -d 192.0.2.1/32"), "{refused}");
    assert!(render(&[port(&[("10.42.0.2", true)])], NETWORKS).filter.chains.contains(FIREWALL));
}

#[test]
fn what_no_port_took_does_not_leave() {
    let mut other = port(&[]);
    other.name.service = "other".to_owned();
    other.cluster_ip = "10.43.0.7".parse().expect("address");
    let ranges = ["10.43.0.0/16".to_owned(), "10.44.0.0/24".to_owned()];
    let networks = Networks { service_cidrs: &ranges, ..NETWORKS };
    let set = render(&[port(&[("10.42.0.2", true)]), port(&[]), other], networks);
    let of = |chain: &str| -> Vec<String> {
        let own = set.filter.rules.lines().filter(|l| l.starts_with(&format!("-A {chain} ")));
        own.map(|l| l.rsplit("-d ").next().unwrap_or_default().to_owned()).collect()
    };
    let unclaimed = of("KUBE-CLUSTER-IPS");
    assert_eq!(
        unclaimed,
        ["10.43.0.7/32 -j REJECT", "10.43.0.9/32 -j REJECT", "10.43.0.0/16 -j DROP", "10.44.0.0/24 -j DROP"]
    );
    let jumps = ["10.43.0.0/16 -j KUBE-CLUSTER-IPS", "10.44.0.0/24 -j KUBE-CLUSTER-IPS"];
    assert!(of("KUBE-SERVICES").ends_with(&jumps.map(str::to_owned)), "{}", set.filter.rules);
    assert!(set.filter.chains.contains("KUBE-CLUSTER-IPS"));
    assert!(!render(&[], NETWORKS).filter.rules.contains("KUBE-CLUSTER-IPS"), "no range is known yet");
}

use super::*;
use crate::model::{Endpoint, PortName, ServicePort};
use coracle_client::ObjectKey;
use std::sync::Arc;

pub fn port(endpoints: &[(&str, bool)]) -> ServicePort {
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

pub fn networks() -> Settings {
    Settings {
        local: LocalDetector::Cidr("10.42.0.0/16".to_owned()),
        localhost_node_ports: true,
        ..(*Plan::empty(Family::V4).settings).clone()
    }
}

/// The rules as one text a table.
struct Texts {
    nat: String,
    filter: String,
    set: RuleSet,
}

fn texts(ports: &[ServicePort], settings: Settings) -> Texts {
    let mut plan = Plan { settings: Arc::new(settings), ..Plan::empty(Family::V4) };
    for (at, port) in ports.iter().enumerate() {
        let key = ObjectKey::new("default", format!("{}-{at}", port.name.service));
        plan.services.insert(key, Arc::new(vec![port.clone()]));
    }
    let set = render(&plan);
    let text = |table: &Table| table.chains.values().map(String::as_str).collect();
    Texts { nat: text(&set.nat), filter: text(&set.filter), set }
}

fn rules(port: ServicePort) -> (String, String) {
    let set = texts(&[port], networks());
    let own = |text: &str| {
        let lines = text.lines().filter(|l| l.contains("default/web") || l.contains("KUBE-EXT-"));
        lines.map(|l| format!("{l}\n")).collect::<String>()
    };
    (own(&set.nat), own(&set.filter))
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
    let with = Settings { masquerade_pods: Some("10.42.0.0/16".to_owned()), ..networks() };
    assert!(texts(&[], with).nat.contains(rule));
    assert!(!texts(&[], networks()).nat.contains("pods to elsewhere"));
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
fn only_source_ranges_reach_a_guarded_address() {
    let mut guarded = port(&[("10.42.0.2", true)]);
    guarded.guarded_ips = vec!["192.0.2.1".parse().expect("address")];
    guarded.sources = vec!["198.51.100.0/24".to_owned(), "203.0.113.7/32".to_owned()];
    let set = texts(&[guarded.clone()], networks());
    let (wall, to) = (chain("FW", &guarded.name), chain("EXT", &guarded.name));
    let rule = format!("-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j {wall}");
    assert!(set.nat.contains(&rule), "{}", set.nat);
    for source in &guarded.sources {
        assert!(set.nat.contains(&format!("-s {source} -j {to}")), "{}", set.nat);
    }
    assert!(set.set.nat.chains.contains_key(&wall) && set.set.nat.chains.contains_key(&to));
    assert!(!set.nat.contains(&format!("-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j {to}")));
    let dropped = "-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DROP";
    let walls = set.filter.lines().filter(|l| l.starts_with("-A KUBE-PROXY-FIREWALL "));
    assert_eq!(walls.filter(|l| l.ends_with(dropped)).count(), 1);
    guarded.endpoints.clear();
    let refused = texts(&[guarded], networks()).filter;
    assert!(refused.contains("has no endpoints\" -d 192.0.2.1/32"), "{refused}");
    assert!(texts(&[port(&[("10.42.0.2", true)])], networks()).set.filter.chains.contains_key(FIREWALL));
}

#[test]
fn what_no_port_took_does_not_leave() {
    let mut other = port(&[]);
    other.name.service = "other".to_owned();
    other.cluster_ip = "10.43.0.7".parse().expect("address");
    let ranges = ["10.43.0.0/16".to_owned(), "10.44.0.0/24".to_owned()];
    let settings = Settings { service_cidrs: ranges.to_vec(), ..networks() };
    let set = texts(&[other, port(&[("10.42.0.2", true)])], settings);
    let of = |chain: &str| -> Vec<String> {
        let own = set.filter.lines().filter(|l| l.starts_with(&format!("-A {chain} ")));
        own.map(|l| l.rsplit("-d ").next().unwrap_or_default().to_owned()).collect()
    };
    let unclaimed = of("KUBE-CLUSTER-IPS");
    assert_eq!(
        unclaimed,
        ["10.43.0.7/32 -j REJECT", "10.43.0.9/32 -j REJECT", "10.43.0.0/16 -j DROP", "10.44.0.0/24 -j DROP"]
    );
    let jumps = ["10.43.0.0/16 -j KUBE-CLUSTER-IPS", "10.44.0.0/24 -j KUBE-CLUSTER-IPS"];
    assert!(of("KUBE-SERVICES").ends_with(&jumps.map(str::to_owned)), "{}", set.filter);
    assert!(set.set.filter.chains.contains_key("KUBE-CLUSTER-IPS"));
    assert!(!texts(&[], networks()).filter.contains("KUBE-CLUSTER-IPS"), "no range is known yet");
}

#[test]
fn both_families_are_written_by_the_same_rules() {
    let mut six = port(&[]);
    six.cluster_ip = "fd00::9".parse().expect("address");
    six.node_port = 30080;
    let ip = "fd01::2".parse().expect("address");
    six.endpoints = vec![Endpoint { ip, port: 8080, local: true, near: true }];
    let settings = Settings { local: LocalDetector::Cidr("fd01::/64".to_owned()), ..networks() };
    let mut plan = Plan { settings: Arc::new(settings), ..Plan::empty(Family::V6) };
    plan.services.insert(ObjectKey::new("default", "web"), Arc::new(vec![six]));
    let set = render(&plan);
    let nat: String = set.nat.chains.values().map(String::as_str).collect();
    assert!(nat.contains("-d fd00::9/128 -p tcp -m tcp --dport 80 -j KUBE-SVC-"), "{nat}");
    assert!(nat.contains("-j DNAT --to-destination [fd01::2]:8080"), "{nat}");
    assert!(nat.contains("! -s fd01::/64 -d fd00::9/128"), "{nat}");
    assert!(set.filter.chains["KUBE-FIREWALL"].is_empty(), "route_localnet is of IPv4");
}

#[test]
fn pods_are_known_in_each_way() {
    let mut outside = port(&[("10.42.0.2", true)]);
    outside.node_port = 30080;
    outside.external_local = true;
    let ask = |local: LocalDetector| texts(&[outside.clone()], Settings { local, ..networks() }).nat;
    let none = ask(LocalDetector::None);
    assert!(!none.contains("cluster IP\" !") && !none.contains("pod traffic"), "{none}");
    let bridge = ask(LocalDetector::BridgeInterface("br0".to_owned()));
    assert!(
        bridge.contains("! -i br0 -d 10.43.0.9/32") && bridge.contains(" -i br0 -j KUBE-SVC-"),
        "{bridge}"
    );
    assert!(ask(LocalDetector::InterfaceNamePrefix("veth".to_owned())).contains("! -i veth+ -d"));
    let all = texts(&[outside], Settings { masquerade_all: true, ..networks() }).nat;
    assert!(all.contains("cluster IP\" -d 10.43.0.9/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ"), "{all}");
}

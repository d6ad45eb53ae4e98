//! The rule set for a model, in `iptables-restore` form. Chains and their order are kube-proxy's, so that people and
//! tools find what they know: KUBE-SERVICES, KUBE-NODEPORTS, KUBE-SVC-*, KUBE-SVL-*, KUBE-EXT-*, KUBE-FW-*, KUBE-SEP-*,
//! KUBE-MARK-MASQ, KUBE-POSTROUTING, KUBE-FORWARD, KUBE-PROXY-FIREWALL; KUBE-CLUSTER-IPS is what
//! kube-proxy's nftables mode calls `cluster-ips-check`.

use crate::family::{Family, socket};
use crate::model::{Endpoint, PortName, ServicePort};
use crate::plan::{LocalDetector, Plan, Settings};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The characters of RFC 4648 base32; chain names are cut to what iptables allows (28 characters).
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Where traffic ends that a load balancer's source ranges leave out.
const FIREWALL: &str = "KUBE-PROXY-FIREWALL";

/// Where traffic ends that is still addressed to a Service when all of them had their chance.
const UNCLAIMED: &str = "KUBE-CLUSTER-IPS";

/// Rules by table and chain, as `iptables-restore` reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    pub filter: Table,
    pub nat: Table,
}

/// The chains of one table with their rules, a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub chains: BTreeMap<String, String>,
}

impl Table {
    fn chain(&mut self, name: &str) {
        self.chains.entry(name.to_owned()).or_default();
    }

    fn rule(&mut self, chain: &str, rule: std::fmt::Arguments<'_>) {
        let rules = self.chains.entry(chain.to_owned()).or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(rules, "-A {chain} {rule}");
    }

    /// Puts another's rules behind one's own, chain by chain.
    fn append(&mut self, other: &Self) {
        for (chain, rules) in &other.chains {
            self.chains.entry(chain.clone()).or_default().push_str(rules);
        }
    }
}

impl RuleSet {
    /// The chains of a table, in the order of [`TABLES`](super::written::TABLES).
    pub fn chains(&self, at: usize) -> &BTreeMap<String, String> {
        if at == 0 { &self.filter.chains } else { &self.nat.chains }
    }

    pub fn chains_mut(&mut self, at: usize) -> &mut BTreeMap<String, String> {
        if at == 0 { &mut self.filter.chains } else { &mut self.nat.chains }
    }

    pub fn append(&mut self, other: &Self) {
        self.filter.append(&other.filter);
        self.nat.append(&other.nat);
    }
}

/// Chains of a Service or endpoint, which come and go.
pub fn is_dynamic(chain: &str) -> bool {
    ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"].iter().any(|p| chain.starts_with(p))
}

fn hash16(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    // Sixteen base32 characters are the first ten bytes.
    let bits = digest.iter().take(10).flat_map(|byte| (0..8).rev().map(move |i| (byte >> i) & 1));
    let bits: Vec<u8> = bits.collect();
    bits.chunks(5)
        .map(|five| char::from(BASE32[usize::from(five.iter().fold(0u8, |n, b| n << 1 | b))]))
        .collect()
}

fn chain(prefix: &str, name: &PortName) -> String {
    format!("KUBE-{prefix}-{}", hash16(&format!("{}{}", name.label(), name.protocol)))
}

fn endpoint_chain(name: &PortName, endpoint: &Endpoint) -> String {
    let key = format!("{}{}{}:{}", name.label(), name.protocol, endpoint.ip, endpoint.port);
    format!("KUBE-SEP-{}", hash16(&key))
}

/// Everything, as it is when nothing was there before.
#[cfg(test)]
pub fn render(plan: &Plan) -> RuleSet {
    let mut set = first(plan);
    for ports in plan.services.values() {
        set.append(&service(ports, &plan.settings));
    }
    set.append(&last(plan));
    set
}

/// What stands before the rules of Services.
pub fn first(plan: &Plan) -> RuleSet {
    let mut set = RuleSet::default();
    fixed(&mut set, plan.family, &plan.settings);
    set
}

/// The rules of one Service: its own chains, and its lines in the chains of all.
pub fn service(ports: &[ServicePort], settings: &Settings) -> RuleSet {
    let mut set = RuleSet::default();
    for port in ports {
        service_port(&mut set, port, settings);
    }
    let addresses: BTreeSet<std::net::IpAddr> = ports.iter().map(|port| port.cluster_ip).collect();
    for ip in addresses {
        let comment = "-m comment --comment \"reject traffic to invalid ports of cluster IPs\"";
        set.filter.rule(UNCLAIMED, format_args!("{comment} -d {ip}/{} -j REJECT", Family::of(ip).bits()));
    }
    set
}

/// What stands behind the rules of Services.
pub fn last(plan: &Plan) -> RuleSet {
    let mut set = RuleSet::default();
    refuse_rest(&mut set.filter, &plan.settings.service_cidrs);
    node_ports(&mut set.nat, plan.family, &plan.settings);
    set
}

/// Node ports come last: a Service's own address wins over a node port.
fn node_ports(nat: &mut Table, family: Family, settings: &Settings) {
    let comment = "-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\"";
    let no_loopback = match family {
        Family::V4 if settings.localhost_node_ports => String::new(),
        _ => format!("! -d {} ", family.loopback()),
    };
    if settings.node_port_networks.is_empty() {
        let rule = format_args!("{comment} {no_loopback}-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS");
        return nat.rule("KUBE-SERVICES", rule);
    }
    for network in &settings.node_port_networks {
        let rule = format_args!("{comment} -d {network} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS");
        nat.rule("KUBE-SERVICES", rule);
    }
}

/// How rules match traffic of pods, and (`is` false) of anybody else; `None` where there is no telling.
fn of_pods(settings: &Settings, is: bool) -> Option<String> {
    let not = if is { "" } else { "! " };
    match &settings.local {
        LocalDetector::None => None,
        LocalDetector::Cidr(cidr) => Some(format!("{not}-s {cidr}")),
        LocalDetector::BridgeInterface(name) => Some(format!("{not}-i {name}")),
        LocalDetector::InterfaceNamePrefix(prefix) => Some(format!("{not}-i {prefix}+")),
    }
}

/// Chains and rules that are there without any Service.
fn fixed(set: &mut RuleSet, family: Family, settings: &Settings) {
    for name in ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"] {
        set.nat.chain(name);
    }
    for name in [
        "KUBE-SERVICES",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-FORWARD",
        "KUBE-NODEPORTS",
        "KUBE-FIREWALL",
        FIREWALL,
        UNCLAIMED,
    ] {
        set.filter.chain(name);
    }
    masquerading(&mut set.nat, family, settings);
    forwarding(&mut set.filter, family, settings);
}

/// Which traffic leaves under this machine's address.
fn masquerading(nat: &mut Table, family: Family, settings: &Settings) {
    let mark = format!("{:#x}", settings.mark);
    if let Some(pods) = &settings.masquerade_pods {
        let multicast = family.multicast();
        nat.rule("KUBE-POSTROUTING", format_args!("-s {pods} -d {multicast} -j RETURN"));
        nat.rule(
            "KUBE-POSTROUTING",
            format_args!(
                "-s {pods} ! -d {pods} -m comment --comment \"pods to elsewhere\" -j MASQUERADE --random-fully"
            ),
        );
    }
    nat.rule("KUBE-POSTROUTING", format_args!("-m mark ! --mark {mark}/{mark} -j RETURN"));
    nat.rule("KUBE-POSTROUTING", format_args!("-j MARK --xor-mark {mark}"));
    nat.rule(
        "KUBE-POSTROUTING",
        format_args!(
            "-m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully"
        ),
    );
    nat.rule("KUBE-MARK-MASQ", format_args!("-j MARK --or-mark {mark}"));
}

/// What this machine lets through, and what it keeps from loopback.
fn forwarding(filter: &mut Table, family: Family, settings: &Settings) {
    let mark = format!("{:#x}", settings.mark);
    if settings.drop_invalid {
        filter.rule("KUBE-FORWARD", format_args!("-m conntrack --ctstate INVALID -j DROP"));
    }
    filter.rule(
        "KUBE-FORWARD",
        format_args!(
            "-m comment --comment \"kubernetes forwarding rules\" -m mark --mark {mark}/{mark} -j ACCEPT"
        ),
    );
    filter.rule(
        "KUBE-FORWARD",
        format_args!(
            "-m comment --comment \"kubernetes forwarding conntrack rule\" \
             -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        ),
    );
    // Node ports answer on 127.0.0.1 too, which needs route_localnet; nobody else may use that to reach
    // what listens on loopback. IPv6 has no such setting.
    if family == Family::V6 {
        return;
    }
    filter.rule(
        "KUBE-FIREWALL",
        format_args!(
            "-m comment --comment \"block incoming localnet connections\" ! -s 127.0.0.0/8 -d 127.0.0.0/8 \
             -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
        ),
    );
}

/// The endpoints that each kind of traffic goes to.
struct Targets<'a> {
    cluster: Vec<&'a Endpoint>,
    local: Vec<&'a Endpoint>,
}

fn service_port(set: &mut RuleSet, port: &ServicePort, settings: &Settings) {
    let targets = Targets { cluster: port.cluster_endpoints(), local: port.local_endpoints() };
    let internal = if port.internal_local { &targets.local } else { &targets.cluster };
    let external = if port.external_local { &targets.local } else { &targets.cluster };
    let has_external = port.has_external();
    if internal.is_empty() {
        refuse_internal(&mut set.filter, port, targets.cluster.is_empty());
    } else {
        let to = chain(if port.internal_local { "SVL" } else { "SVC" }, &port.name);
        capture_internal(&mut set.nat, port, &to, settings);
    }
    // Endpoints on other nodes only: pods and the node itself may still use them, others meet silence.
    let only_elsewhere = port.external_local && !targets.cluster.is_empty();
    if has_external && external.is_empty() {
        refuse_external(&mut set.filter, port, targets.cluster.is_empty());
    }
    if has_external && (!external.is_empty() || only_elsewhere) {
        capture_external(&mut set.nat, port, &targets, settings);
        restrict_sources(set, port);
    }
    let nat = &mut set.nat;
    let uses_cluster = !port.internal_local || has_external;
    if uses_cluster && !targets.cluster.is_empty() {
        balance(nat, port, "SVC", &targets.cluster);
    }
    let uses_local = port.internal_local || (has_external && port.external_local);
    if uses_local && !targets.local.is_empty() {
        balance(nat, port, "SVL", &targets.local);
    }
    let used = port.endpoints.iter().filter(|e| e.near || (uses_local && e.local));
    let used: BTreeSet<&Endpoint> = used.collect();
    for endpoint in used {
        dnat(nat, port, endpoint);
    }
}

fn matches(port: &ServicePort, ip: &std::net::IpAddr) -> String {
    let (protocol, bits) = (&port.name.protocol, Family::of(*ip).bits());
    format!("-d {ip}/{bits} -p {protocol} -m {protocol} --dport {}", port.port)
}

fn capture_internal(nat: &mut Table, port: &ServicePort, to: &str, settings: &Settings) {
    let label = port.name.label();
    let what = matches(port, &port.cluster_ip);
    nat.chain(to);
    nat.rule("KUBE-SERVICES", format_args!("-m comment --comment \"{label} cluster IP\" {what} -j {to}"));
    let masqueraded = match of_pods(settings, false) {
        _ if settings.masquerade_all => String::new(),
        Some(others) => others + " ",
        None => return,
    };
    nat.rule(
        to,
        format_args!("-m comment --comment \"{label} cluster IP\" {masqueraded}{what} -j KUBE-MARK-MASQ"),
    );
}

fn capture_external(nat: &mut Table, port: &ServicePort, targets: &Targets<'_>, settings: &Settings) {
    let (label, protocol) = (port.name.label(), &port.name.protocol);
    let to = chain("EXT", &port.name);
    nat.chain(&to);
    for ip in &port.external_ips {
        let what = matches(port, ip);
        nat.rule(
            "KUBE-SERVICES",
            format_args!("-m comment --comment \"{label} external IP\" {what} -j {to}"),
        );
    }
    if port.node_port != 0 {
        nat.rule(
            "KUBE-NODEPORTS",
            format_args!(
                "-m comment --comment \"{label}\" -p {protocol} -m {protocol} --dport {} -j {to}",
                port.node_port
            ),
        );
    }
    let cluster = chain("SVC", &port.name);
    if !port.external_local {
        nat.rule(
            &to,
            format_args!(
                "-m comment --comment \"masquerade traffic for {label} external destinations\" -j KUBE-MARK-MASQ"
            ),
        );
        nat.rule(&to, format_args!("-j {cluster}"));
        return;
    }
    // Pods and the node itself may use any endpoint; traffic from outside keeps its source and stays here.
    if let Some(pods) = of_pods(settings, true) {
        let comment = format!("-m comment --comment \"pod traffic for {label} external destinations\"");
        nat.rule(&to, format_args!("{comment} {pods} -j {cluster}"));
    }
    nat.rule(&to, format_args!("-m comment --comment \"masquerade LOCAL traffic for {label} external destinations\" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ"));
    nat.rule(&to, format_args!("-m comment --comment \"route LOCAL traffic for {label} external destinations\" -m addrtype --src-type LOCAL -j {cluster}"));
    if !targets.local.is_empty() {
        nat.rule(&to, format_args!("-j {}", chain("SVL", &port.name)));
    }
}

/// Lets only the Service's source ranges through to its load balancer's addresses; what else arrives is dropped.
fn restrict_sources(set: &mut RuleSet, port: &ServicePort) {
    if port.guarded_ips.is_empty() {
        return;
    }
    let (label, wall, to) = (port.name.label(), chain("FW", &port.name), chain("EXT", &port.name));
    set.nat.chain(&wall);
    for ip in &port.guarded_ips {
        let what = matches(port, ip);
        let comment = format!("-m comment --comment \"{label} loadbalancer IP\"");
        set.nat.rule("KUBE-SERVICES", format_args!("{comment} {what} -j {wall}"));
        let comment = format!("-m comment --comment \"{label} traffic not accepted by {wall}\"");
        set.filter.rule(FIREWALL, format_args!("{comment} {what} -j DROP"));
    }
    for source in &port.sources {
        set.nat.rule(
            &wall,
            format_args!("-m comment --comment \"{label} loadbalancer IP\" -s {source} -j {to}"),
        );
    }
    set.nat.rule(
        &wall,
        format_args!("-m comment --comment \"other traffic to {label} will be dropped by {FIREWALL}\""),
    );
}

/// What no port of a Service took must not leave by the default route: ports that a Service does not have are refused,
/// addresses that nobody has are silent, as in upstream's nftables mode. Behind the refusals of single ports. Only what is
/// addressed to `ranges` pays for the look.
fn refuse_rest(filter: &mut Table, ranges: &[String]) {
    for range in ranges {
        filter.rule("KUBE-SERVICES", format_args!("-d {range} -j {UNCLAIMED}"));
        filter.rule(
            UNCLAIMED,
            format_args!(
                "-m comment --comment \"drop traffic to unallocated cluster IPs\" -d {range} -j DROP"
            ),
        );
    }
}

/// Nothing is behind the Service: say so instead of letting the client wait. Nothing here but elsewhere (`none`
/// false) is silence, as upstream.
fn refuse_internal(filter: &mut Table, port: &ServicePort, none: bool) {
    let what = matches(port, &port.cluster_ip);
    filter.rule("KUBE-SERVICES", format_args!("{}", refusal(&port.name.label(), &what, none)));
}

fn refuse_external(filter: &mut Table, port: &ServicePort, none: bool) {
    let (label, protocol) = (port.name.label(), &port.name.protocol);
    for ip in port.external_ips.iter().chain(&port.guarded_ips) {
        filter.rule("KUBE-EXTERNAL-SERVICES", format_args!("{}", refusal(&label, &matches(port, ip), none)));
    }
    if port.node_port != 0 {
        let what =
            format!("-m addrtype --dst-type LOCAL -p {protocol} -m {protocol} --dport {}", port.node_port);
        filter.rule("KUBE-EXTERNAL-SERVICES", format_args!("{}", refusal(&label, &what, none)));
    }
}

fn refusal(label: &str, what: &str, none: bool) -> String {
    if none {
        format!("-m comment --comment \"{label} has no endpoints\" {what} -j REJECT")
    } else {
        format!("-m comment --comment \"{label} has no local endpoints\" {what} -j DROP")
    }
}

/// Spreads over the endpoints: each gets its share of what those before it left. With affinity a client's last
/// endpoint is tried first.
fn balance(nat: &mut Table, port: &ServicePort, kind: &str, endpoints: &[&Endpoint]) {
    let (name, label) = (chain(kind, &port.name), port.name.label());
    nat.chain(&name);
    if port.affinity_seconds > 0 {
        for endpoint in endpoints {
            let to = endpoint_chain(&port.name, endpoint);
            nat.rule(
                &name,
                format_args!(
                    "-m comment --comment \"{label} -> {}:{}\" -m recent --name {to} --rcheck --seconds {} --reap -j {to}",
                    endpoint.ip, endpoint.port, port.affinity_seconds
                ),
            );
        }
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let left = endpoints.len() - index;
        let to = endpoint_chain(&port.name, endpoint);
        let comment = format!("-m comment --comment \"{label} -> {}\"", socket(endpoint.ip, endpoint.port));
        if left == 1 {
            nat.rule(&name, format_args!("{comment} -j {to}"));
        } else {
            let share = probability(left);
            nat.rule(
                &name,
                format_args!("{comment} -m statistic --mode random --probability {share} -j {to}"),
            );
        }
    }
}

/// One in `left`, with the ten digits that iptables prints; integers only, so that equal models render equally.
fn probability(left: usize) -> String {
    let scaled = 10_000_000_000u64 / u64::try_from(left).unwrap_or(u64::MAX).max(1);
    format!("0.{scaled:010}")
}

fn dnat(nat: &mut Table, port: &ServicePort, endpoint: &Endpoint) {
    let (name, label) = (endpoint_chain(&port.name, endpoint), port.name.label());
    let (protocol, bits) = (&port.name.protocol, Family::of(endpoint.ip).bits());
    nat.chain(&name);
    // A pod that reaches itself through its Service must see another source.
    nat.rule(
        &name,
        format_args!("-m comment --comment \"{label}\" -s {}/{bits} -j KUBE-MARK-MASQ", endpoint.ip),
    );
    let remember =
        if port.affinity_seconds > 0 { format!("-m recent --name {name} --set ") } else { String::new() };
    nat.rule(
        &name,
        format_args!(
            "-m comment --comment \"{label}\" {remember}-p {protocol} -m {protocol} -j DNAT --to-destination {}",
            socket(endpoint.ip, endpoint.port)
        ),
    );
}

#[cfg(test)]
pub(crate) mod tests;

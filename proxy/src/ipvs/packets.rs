//! The packet rules of the mode: a table of nftables that masquerades, guards and refuses around the balancer.
//!
//! The balancer takes what this machine sends behind translation (-98) and what it receives at 99, each of which is a hook
//! of its own here: guards and silences stand before it, refusals behind what it took.

use super::wanted::{
    CLUSTER_IP, EXTERNAL, EXTERNAL_LOCAL, EXTERNAL_NO_LOCAL, GUARDED, IPS, LOOP_BACK, NO_LOCAL, SOURCES, Sets,
};
use crate::family::Family;
use crate::nftables::{family_word, of_pods};
use crate::plan::{LocalDetector, Settings};
use std::collections::BTreeSet;
use std::fmt::Write;

pub const TABLE: &str = "kube-proxy-ipvs";

/// Chains with the kernel's hooks that lead to them.
pub const CHAINS: [(&str, &str); 13] = [
    ("KUBE-SERVICES", ""),
    ("KUBE-MARK-MASQ", ""),
    ("KUBE-POSTROUTING", ""),
    ("KUBE-PROXY-FIREWALL", ""),
    ("KUBE-IPVS-FILTER", ""),
    ("filter-input", "filter hook input priority -110"),
    ("filter-forward", "filter hook forward priority -110"),
    ("filter-output", "filter hook output priority -110"),
    ("filter-input-claimed", "filter hook input priority 0"),
    ("filter-output-claimed", "filter hook output priority 0"),
    ("nat-prerouting", "nat hook prerouting priority -100"),
    ("nat-output", "nat hook output priority -100"),
    ("nat-postrouting", "nat hook postrouting priority 100"),
];

/// The whole table, in the place of whatever it holds: one transaction.
pub fn whole(family: Family, settings: &Settings, sets: &Sets) -> String {
    let ip = family_word(family);
    let mut text = format!("add table {ip} {TABLE}\ndelete table {ip} {TABLE}\nadd table {ip} {TABLE}\n");
    let mut line = |words: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{words}");
    };
    for (name, of) in declarations(family) {
        line(format_args!("add set {ip} {TABLE} {name} {{ {of} }}"));
    }
    for (chain, hook) in CHAINS {
        let hook = if hook.is_empty() { String::new() } else { format!(" {{ type {hook}; }}") };
        line(format_args!("add chain {ip} {TABLE} {chain}{hook}"));
    }
    let masquerading = masquerading(family, settings);
    for (chain, rule) in masquerading.into_iter().chain(guards(family, settings)) {
        line(format_args!("add rule {ip} {TABLE} {chain} {rule}"));
    }
    text + &step(family, &Sets::new(), sets)
}

/// From some elements to others.
pub fn step(family: Family, was: &Sets, is: &Sets) -> String {
    let (ip, none, mut text) = (family_word(family), BTreeSet::new(), String::new());
    let names: BTreeSet<&str> = was.keys().chain(is.keys()).copied().collect();
    for name in names {
        let (was, is) = (was.get(name).unwrap_or(&none), is.get(name).unwrap_or(&none));
        for (verb, elements) in [("delete", was.difference(is)), ("add", is.difference(was))] {
            let elements: Vec<&str> = elements.map(String::as_str).collect();
            if !elements.is_empty() {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{verb} element {ip} {TABLE} {name} {{ {} }}", elements.join(", "));
            }
        }
    }
    text
}

fn declarations(family: Family) -> Vec<(&'static str, String)> {
    let address = match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    };
    let entrance = format!("type {address} . inet_proto . inet_service");
    let mut all: Vec<(&'static str, String)> = [CLUSTER_IP, GUARDED, NO_LOCAL, EXTERNAL_NO_LOCAL]
        .into_iter()
        .chain(EXTERNAL)
        .chain(EXTERNAL_LOCAL)
        .map(|name| (name, format!("{entrance};")))
        .collect();
    all.push((LOOP_BACK, format!("{entrance} . {address};")));
    all.push((SOURCES, format!("{entrance} . {address}; flags interval;")));
    all.push((IPS, format!("type {address};")));
    all
}

type Rules = Vec<(&'static str, String)>;

/// Which traffic leaves under this machine's address.
fn masquerading(family: Family, settings: &Settings) -> Rules {
    let (ip, mark) = (family_word(family), settings.mark);
    let entrance = format!("{ip} daddr . meta l4proto . th dport");
    let others = match of_pods(family, settings, false) {
        _ if settings.masquerade_all => String::new(),
        Some(others) => others,
        // What this machine sends to a Service has that Service's address as its source.
        None => format!("{ip} saddr . meta l4proto . th dport @{CLUSTER_IP}"),
    };
    let mut rules = vec![
        ("nat-prerouting", "jump KUBE-SERVICES".to_owned()),
        ("nat-output", "jump KUBE-SERVICES".to_owned()),
        ("nat-postrouting", "jump KUBE-POSTROUTING".to_owned()),
        ("KUBE-SERVICES", format!("{entrance} @{CLUSTER_IP} {others} jump KUBE-MARK-MASQ")),
        ("KUBE-MARK-MASQ", format!("meta mark set meta mark or {mark:#x}")),
    ];
    for set in EXTERNAL {
        rules.push(("KUBE-SERVICES", format!("{entrance} @{set} jump KUBE-MARK-MASQ")));
    }
    for set in EXTERNAL_LOCAL {
        rules.push(("KUBE-SERVICES", format!("{entrance} @{set} fib saddr type local jump KUBE-MARK-MASQ")));
    }
    let mut leaving = |rule: String| rules.push(("KUBE-POSTROUTING", rule));
    if let Some(pods) = &settings.masquerade_pods {
        let multicast = family.multicast();
        leaving(format!(
            "{ip} saddr {pods} {ip} daddr != {pods} {ip} daddr != {multicast} masquerade fully-random"
        ));
    }
    // A pod that reaches itself through its Service must see another source.
    leaving(format!("{entrance} . {ip} saddr @{LOOP_BACK} masquerade fully-random"));
    leaving(format!("meta mark and {mark:#x} == 0 return"));
    leaving(format!("meta mark set meta mark and {:#x}", !mark));
    leaving("masquerade fully-random".to_owned());
    rules
}

/// Which traffic goes nowhere.
fn guards(family: Family, settings: &Settings) -> Rules {
    let ip = family_word(family);
    let entrance = format!("{ip} daddr . meta l4proto . th dport");
    let from_outside = match (&settings.local, of_pods(family, settings, false)) {
        (LocalDetector::None, _) | (_, None) => String::new(),
        (_, Some(others)) => others,
    };
    let mut rules: Rules = vec![
        ("KUBE-PROXY-FIREWALL", format!("{entrance} @{GUARDED} {entrance} . {ip} saddr != @{SOURCES} drop")),
        ("KUBE-PROXY-FIREWALL", format!("{entrance} @{NO_LOCAL} drop")),
        ("filter-input", "ct state new jump KUBE-PROXY-FIREWALL".to_owned()),
        (
            "filter-input",
            format!(
                "ct state new {entrance} @{EXTERNAL_NO_LOCAL} {from_outside} fib saddr type != local drop"
            ),
        ),
        ("filter-output", "ct state new jump KUBE-PROXY-FIREWALL".to_owned()),
    ];
    // Ports that a Service does not have are refused, whatever else listens on this machine.
    for set in [CLUSTER_IP].into_iter().chain(EXTERNAL).chain(EXTERNAL_LOCAL) {
        rules.push(("KUBE-IPVS-FILTER", format!("{entrance} @{set} return")));
    }
    rules.push(("KUBE-IPVS-FILTER", "meta l4proto tcp reject with tcp reset".to_owned()));
    rules.push(("KUBE-IPVS-FILTER", "meta l4proto { udp, sctp } reject".to_owned()));
    for chain in ["filter-input-claimed", "filter-output-claimed"] {
        rules.push((chain, format!("ct state new {ip} daddr @{IPS} jump KUBE-IPVS-FILTER")));
    }
    if !settings.service_cidrs.is_empty() {
        let ranges = settings.service_cidrs.join(", ");
        for chain in ["filter-forward", "filter-output-claimed"] {
            let rule = format!("ct state new {ip} daddr {{ {ranges} }} {ip} daddr != @{IPS} counter drop");
            rules.push((chain, rule));
        }
    }
    rules
}

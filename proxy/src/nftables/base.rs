//! What the table holds without any Service: its maps, and the chains that the kernel leads packets through.

use crate::family::Family;
use crate::plan::{LocalDetector, Settings};

/// What Services are of.
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// How nft names a family.
pub const fn family_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// How rules match traffic of pods, and (`is` false) of anybody else; `None` where there is no telling.
pub fn of_pods(family: Family, settings: &Settings, is: bool) -> Option<String> {
    let (ip, not) = (family_word(family), if is { "" } else { "!= " });
    match &settings.local {
        LocalDetector::None => None,
        LocalDetector::Cidr(cidr) => Some(format!("{ip} saddr {not}{cidr}")),
        LocalDetector::BridgeInterface(name) => Some(format!("iifname {not}\"{name}\"")),
        LocalDetector::InterfaceNamePrefix(prefix) => Some(format!("iifname {not}\"{prefix}*\"")),
    }
}

/// The declaration of everything that is there from the start, for a table that is empty.
pub fn script(table: &str, family: Family, settings: &Settings) -> String {
    let ip = family_word(family);
    let address = match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    };
    let entrance = format!("{ip} daddr . meta l4proto . th dport");
    let mark = settings.mark;
    let mut text = String::new();
    let maps = [
        format!("set cluster-ips {{ type {address}; }}"),
        format!("set hairpin {{ type {address} . {address}; }}"),
        format!("map service-ips {{ type {address} . inet_proto . inet_service : verdict; }}"),
        "map service-nodeports { type inet_proto . inet_service : verdict; }".to_owned(),
        format!("map no-endpoint-services {{ type {address} . inet_proto . inet_service : verdict; }}"),
        "map no-endpoint-nodeports { type inet_proto . inet_service : verdict; }".to_owned(),
        format!("set guarded-ips {{ type {address} . inet_proto . inet_service; }}"),
        format!(
            "set allowed-sources {{ type {address} . inet_proto . inet_service . {address}; flags interval; }}"
        ),
    ];
    for map in maps {
        let (kind, rest) = map.split_once(' ').unwrap_or_default();
        text.push_str(&format!("add {kind} {ip} {table} {rest}\n"));
    }
    // By protocol: nft 1.0 cannot read maps again whose values are typed by `th dport`.
    for protocol in PROTOCOLS {
        let (port, number) = (format!("{protocol} dport"), "numgen random mod 65536");
        for (map, entrance) in
            [("endpoints", format!("{ip} daddr . {port}")), ("nodeport-endpoints", port.clone())]
        {
            for local in ["", "local-"] {
                text.push_str(&format!(
                    "add map {ip} {table} {local}{map}-{protocol} {{ typeof {entrance} . {number} : {ip} daddr . {port}; }}\n"
                ));
            }
        }
    }
    for (chain, hook) in CHAINS {
        let hook = if hook.is_empty() { String::new() } else { format!(" {{ type {hook}; }}") };
        text.push_str(&format!("add chain {ip} {table} {chain}{hook}\n"));
    }
    for (chain, rule) in rules(family, settings, &entrance, mark) {
        text.push_str(&format!("add rule {ip} {table} {chain} {rule}\n"));
    }
    text
}

/// Chains with the kernel's hooks that lead to them. Refusals come behind translation (the kernel's own order for input
/// and forward): what has been sent on to an endpoint is no longer addressed to a Service.
const CHAINS: [(&str, &str); 16] = [
    ("services", ""),
    ("mark-for-masquerade", ""),
    ("masquerading", ""),
    ("reject-chain", ""),
    ("service-endpoints-check", ""),
    ("nodeport-endpoints-check", ""),
    ("cluster-ips-check", ""),
    ("firewall-check", ""),
    ("filter-prerouting", "filter hook prerouting priority -110"),
    ("filter-input", "filter hook input priority -110"),
    ("filter-forward", "filter hook forward priority -110"),
    ("filter-output", "filter hook output priority -110"),
    ("filter-output-post-dnat", "filter hook output priority -90"),
    ("nat-prerouting", "nat hook prerouting priority -100"),
    ("nat-output", "nat hook output priority -100"),
    ("nat-postrouting", "nat hook postrouting priority 100"),
];

type Rules = Vec<(&'static str, String)>;

fn rules(family: Family, settings: &Settings, entrance: &str, mark: u32) -> Rules {
    let mut rules = translating(family, settings, entrance);
    rules.extend(masquerading(family, settings, mark));
    rules.extend(filtering(family, settings, entrance));
    for (chain, to) in
        [("nat-prerouting", "services"), ("nat-output", "services"), ("nat-postrouting", "masquerading")]
    {
        rules.push((chain, format!("jump {to}")));
    }
    rules
}

/// Where traffic to Services goes.
fn translating(family: Family, settings: &Settings, entrance: &str) -> Rules {
    let ip = family_word(family);
    let mut rules = Vec::new();
    let mut add = |chain, rule: String| rules.push((chain, rule));
    let masqueraded =
        if settings.masquerade_all { Some(String::new()) } else { of_pods(family, settings, false) };
    if let Some(others) = masqueraded {
        add("services", format!("{ip} daddr @cluster-ips {others} jump mark-for-masquerade"));
    }
    add("services", format!("{entrance} vmap @service-ips"));
    for network in node_port_networks(family, settings) {
        add(
            "services",
            format!("{network} fib daddr type local meta l4proto . th dport vmap @service-nodeports"),
        );
        add(
            "nodeport-endpoints-check",
            format!("{network} fib daddr type local meta l4proto . th dport vmap @no-endpoint-nodeports"),
        );
    }
    rules
}

/// Which traffic leaves under this machine's address.
fn masquerading(family: Family, settings: &Settings, mark: u32) -> Rules {
    let ip = family_word(family);
    let mut rules = Vec::new();
    let mut add = |chain, rule: String| rules.push((chain, rule));
    add("mark-for-masquerade", format!("meta mark set meta mark or {mark:#x}"));
    if let Some(pods) = &settings.masquerade_pods {
        let multicast = family.multicast();
        add(
            "masquerading",
            format!(
                "{ip} saddr {pods} {ip} daddr != {pods} {ip} daddr != {multicast} masquerade fully-random"
            ),
        );
    }
    // A pod that reaches itself through its Service must see another source.
    add("masquerading", format!("ct status dnat {ip} saddr . {ip} daddr @hairpin masquerade fully-random"));
    add("masquerading", format!("meta mark and {mark:#x} == 0 return"));
    add("masquerading", format!("meta mark set meta mark and {:#x}", !mark));
    add("masquerading", "masquerade fully-random".to_owned());
    rules
}

/// Which traffic is refused, and which meets silence.
fn filtering(family: Family, settings: &Settings, entrance: &str) -> Rules {
    let ip = family_word(family);
    let mut rules = Vec::new();
    let mut add = |chain, rule: String| rules.push((chain, rule));
    add("reject-chain", "meta l4proto tcp reject with tcp reset".to_owned());
    add("reject-chain", "reject".to_owned());
    add("service-endpoints-check", format!("{entrance} vmap @no-endpoint-services"));
    add("cluster-ips-check", format!("{ip} daddr @cluster-ips jump reject-chain"));
    if !settings.service_cidrs.is_empty() {
        let ranges = settings.service_cidrs.join(", ");
        add("cluster-ips-check", format!("{ip} daddr {{ {ranges} }} counter drop"));
    }
    add(
        "firewall-check",
        format!("{entrance} @guarded-ips {entrance} . {ip} saddr != @allowed-sources drop"),
    );
    add("filter-prerouting", "ct state new jump firewall-check".to_owned());
    add("filter-input", "ct state new jump nodeport-endpoints-check".to_owned());
    add("filter-input", "ct state new jump service-endpoints-check".to_owned());
    if settings.drop_invalid {
        add("filter-forward", "ct state invalid drop".to_owned());
    }
    add("filter-forward", "ct state new jump service-endpoints-check".to_owned());
    add("filter-forward", "ct state new jump cluster-ips-check".to_owned());
    add("filter-output", "ct state new jump firewall-check".to_owned());
    add("filter-output-post-dnat", "ct state new jump service-endpoints-check".to_owned());
    add("filter-output-post-dnat", "ct state new jump cluster-ips-check".to_owned());
    rules
}

/// Which of this machine's addresses node ports answer on, as rules' first words. Never loopback: that would need
/// route_localnet, by which neighbours could send to it.
fn node_port_networks(family: Family, settings: &Settings) -> Vec<String> {
    let ip = family_word(family);
    if settings.node_port_networks.is_empty() {
        return vec![format!("{ip} daddr != {}", family.loopback())];
    }
    settings.node_port_networks.iter().map(|network| format!("{ip} daddr {network}")).collect()
}

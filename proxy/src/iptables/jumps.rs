//! Where the kernel's own chains send packets to ours.

/// Table, chain and rule, as iptables-save prints it. They go in front, as kube-proxy's do; the first of a chain here is
/// the first there.
pub const JUMPS: &[(&str, &str, &str)] = &[
    ("nat", "PREROUTING", "-m comment --comment kubernetes-service-portals -j KUBE-SERVICES"),
    ("nat", "OUTPUT", "-m comment --comment kubernetes-service-portals -j KUBE-SERVICES"),
    ("nat", "POSTROUTING", "-m comment --comment kubernetes-postrouting-rules -j KUBE-POSTROUTING"),
    (
        "filter",
        "INPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-externally-visible-service-portals -j KUBE-EXTERNAL-SERVICES",
    ),
    ("filter", "INPUT", "-m comment --comment kubernetes-health-check-service-ports -j KUBE-NODEPORTS"),
    ("filter", "INPUT", "-j KUBE-FIREWALL"),
    ("filter", "FORWARD", "-m comment --comment kubernetes-forwarding-rules -j KUBE-FORWARD"),
    (
        "filter",
        "FORWARD",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-service-portals -j KUBE-SERVICES",
    ),
    (
        "filter",
        "FORWARD",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-externally-visible-service-portals -j KUBE-EXTERNAL-SERVICES",
    ),
    (
        "filter",
        "OUTPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-service-portals -j KUBE-SERVICES",
    ),
    ("filter", "OUTPUT", "-j KUBE-FIREWALL"),
    (
        "filter",
        "INPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-load-balancer-firewall -j KUBE-PROXY-FIREWALL",
    ),
    (
        "filter",
        "FORWARD",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-load-balancer-firewall -j KUBE-PROXY-FIREWALL",
    ),
    (
        "filter",
        "OUTPUT",
        "-m conntrack --ctstate NEW -m comment --comment kubernetes-load-balancer-firewall -j KUBE-PROXY-FIREWALL",
    ),
];

/// Whether a rule of a table as it was saved is this jump: its chain and its target are, and the comment that tells jumps
/// to the same chain apart. Programs of different ages write the rest in different ways.
fn is_jump(line: &str, chain: &str, rule: &str) -> bool {
    let target = rule.rsplit(' ').next().unwrap_or_default();
    let comment = rule.split_once("--comment ").map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
    let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('"')).collect();
    let after = |flag: &str| words.iter().position(|w| *w == flag).and_then(|at| words.get(at + 1)).copied();
    after("-A") == Some(chain) && after("-j") == Some(target) && after("--comment") == comment
}

/// The jumps of a table that are missing from it, as it was saved; such that inserting them in order at the front of their
/// chains puts them in their order.
pub fn missing(table: &str, saved: &str) -> Vec<(&'static str, &'static str)> {
    let of_table = JUMPS.iter().filter(|(of, ..)| *of == table);
    let missing = of_table.filter(|(_, chain, rule)| !saved.lines().any(|line| is_jump(line, chain, rule)));
    missing.rev().map(|(_, chain, rule)| (*chain, *rule)).collect()
}

/// The rules of a saved table that are jumps of ours, as they must be written to delete them.
pub fn present(table: &str, saved: &str) -> Vec<String> {
    let is_ours =
        |line: &&str| JUMPS.iter().any(|(of, chain, rule)| *of == table && is_jump(line, chain, rule));
    saved.lines().filter(is_ours).map(|line| line.replacen("-A ", "-D ", 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_known_again() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m comment --comment \"kubernetes-service-portals\" -j KUBE-SERVICES\n\
                     -A PREROUTING -j DOCKER\n-A OUTPUT -m comment --comment kubernetes-service-portals -j KUBE-SERVICES\nCOMMIT\n";
        let chains: Vec<&str> = missing("nat", saved).iter().map(|(chain, _)| *chain).collect();
        assert_eq!(chains, ["POSTROUTING"]);
        assert_eq!(present("nat", saved).len(), 2);
        assert!(present("nat", saved)[0].starts_with("-D PREROUTING "));
        assert_eq!(missing("filter", "").len(), 11);
    }
}

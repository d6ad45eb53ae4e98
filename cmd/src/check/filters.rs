//! Whether two packet filters are in each other's way.

use super::machine::Machine;
use super::step::{Step, is_of_cluster};
use super::{Finding, Remedy};

pub fn look(machine: &Machine) -> Option<Finding> {
    let version = machine.run("iptables", &["--version"], None).ok()?;
    let old = machine.text("/proc/net/ip_tables_names");
    if !version.contains("nf_tables") || old.trim().is_empty() {
        return Some(Finding::good(format!("one packet filter ({})", version.trim())));
    }
    let rules = machine.run("iptables-legacy-save", &[], None);
    Some(mixed(rules.as_deref().ok()))
}

/// The kernel asks both, in an order that nobody chose: what one lets through the other may drop. `rules` are those of the
/// old tables, in the form of iptables-save.
fn mixed(rules: Option<&str>) -> Finding {
    let Some(rules) = rules else {
        return Finding::poor_unless(
            false,
            "one packet filter: tables of iptables-legacy are there too",
            || Remedy::by_hand("see what is in them with iptables-legacy-save, and keep one of the two"),
        );
    };
    let weighty = |line: &&str| line.starts_with("-A") || (line.starts_with(':') && line.contains(" DROP "));
    let (of_clusters, others): (Vec<&str>, Vec<&str>) =
        rules.lines().filter(weighty).partition(|line| is_of_cluster(line));
    let what = format!(
        "one packet filter: iptables writes nftables, and iptables-legacy has {} rules",
        of_clusters.len() + others.len()
    );
    Finding::poor_unless(of_clusters.is_empty() && others.is_empty(), what, || {
        if others.is_empty() {
            return Remedy::by(
                "a cluster of before left them: iptables-legacy-save | grep -vE 'KUBE-|CNI-' | iptables-legacy-restore",
                [Step::DropClusterRules],
            );
        }
        Remedy::by_hand(format!(
            "{} of them are no cluster's, the first is \"{}\": write them with iptables, then iptables-legacy -F",
            others.len(),
            others[0]
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_cluster_left_is_taken_away() {
        let left = mixed(Some("*nat\n:KUBE-SVC - [0:0]\n-A PREROUTING -j KUBE-SVC\nCOMMIT\n"));
        assert_eq!(left.remedy().map(|remedy| remedy.steps.clone()), Some(vec![Step::DropClusterRules]));
        let others = mixed(Some("*filter\n-A INPUT -s 192.0.2.1/32 -j DROP\n-A INPUT -j KUBE-FW\nCOMMIT\n"));
        let remedy = others.remedy().expect("mixed");
        assert!(remedy.steps.is_empty() && remedy.say.contains("192.0.2.1"), "{others:?}");
        assert!(mixed(Some("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n")).remedy().is_none(), "empty tables");
        assert!(mixed(Some("*filter\n:INPUT DROP [0:0]\nCOMMIT\n")).remedy().is_some());
        assert!(mixed(None).remedy().is_some_and(|remedy| remedy.steps.is_empty()));
    }
}

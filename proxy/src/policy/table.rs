//! The table in nft's words: whole, or the step from one plan to the next, each one transaction.
//!
//! Packets are judged behind translation of their destination and before that of their source, so by pods' own
//! addresses; also those that the kernel's balancer sends on from the node itself. What the node sends is not judged. What
//! pods send to it is, by administrators' policies alone.

use super::plan::{Direction, Plan};
use crate::family::Family;
use crate::nftables::family_word;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub const TABLE: &str = "coracle-policy";

const ADDRESS: [&str; 2] = ["ipv4_addr", "ipv6_addr"];

fn address(family: Family) -> &'static str {
    ADDRESS[usize::from(family == Family::V6)]
}

/// What is there without any pod. Sources are translated at 100.
fn base(family: Family) -> String {
    let (ip, address) = (family_word(family), address(family));
    let mut text = format!("add table {ip} {TABLE}\n");
    let mut line = |words: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{words}");
    };
    for direction in Direction::ALL {
        line(format!("add map {ip} {TABLE} {} {{ type {address} : verdict; }}", direction.name()));
    }
    line(format!("add map {ip} {TABLE} tonode {{ type {address} : verdict; }}"));
    line(format!("add set {ip} {TABLE} itself {{ type {address} . {address}; }}"));
    line(format!("add set {ip} {TABLE} judged {{ type {address}; }}"));
    line(format!("add chain {ip} {TABLE} gate"));
    line(format!(
        "add chain {ip} {TABLE} judge {{ type filter hook postrouting priority 99; policy accept; }}"
    ));
    line(format!("add chain {ip} {TABLE} own {{ type filter hook input priority 99; policy accept; }}"));
    let mut begun = vec!["ct state established,related accept".to_owned()];
    if family == Family::V6 {
        // Neighbours on a bridge find each other, whatever policies say.
        begun.push("icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept".to_owned());
    }
    let own = [begun.clone(), vec![format!("{ip} saddr vmap @tonode")]].concat();
    own.iter().for_each(|rule| line(format!("add rule {ip} {TABLE} own {rule}")));
    let judged = vec![
        "fib saddr type local accept".to_owned(),
        format!("{ip} saddr . {ip} daddr @itself accept"),
        "jump gate".to_owned(),
        format!("{ip} saddr vmap @egress"),
        format!("{ip} daddr vmap @ingress"),
    ];
    [begun, judged].concat().iter().for_each(|rule| line(format!("add rule {ip} {TABLE} judge {rule}")));
    text
}

/// Everything, in the place of whatever the table holds.
pub fn whole(family: Family, plan: &Plan) -> String {
    let ip = family_word(family);
    let fresh = format!("add table {ip} {TABLE}\ndelete table {ip} {TABLE}\n");
    fresh + &base(family) + &step(family, &Plan::default(), plan)
}

/// What of [`base`] has no name to be found by: where the kernel enters the table, and how it goes on from there.
const ENTRANCES: [&str; 4] = ["hook postrouting", "hook input", "@tonode", "jump gate"];

/// Whether the table, as `nft -t list table` prints it, has all that was written for this plan: somebody who deletes a part of it
/// leaves the rest.
pub fn is_whole(listed: &str, plan: &Plan) -> bool {
    let named: BTreeSet<&str> = listed.lines().filter_map(|line| line.trim().split(' ').nth(1)).collect();
    let mut names = plan.chains.keys().chain(plan.peers.keys()).chain(plan.ports.keys());
    names.all(|name| named.contains(name.as_str())) && ENTRANCES.iter().all(|words| listed.contains(words))
}

/// The elements of sets and maps, by their names.
type Elements = BTreeMap<String, BTreeSet<(String, String)>>;

fn elements(plan: &Plan) -> Elements {
    let mut all = Elements::new();
    let plain = |key: String| (key, String::new());
    for (name, ips) in &plan.peers {
        all.insert(name.clone(), ips.iter().map(|ip| plain(ip.to_string())).collect());
    }
    for (name, sockets) in &plan.ports {
        let keys = sockets.iter().map(|(ip, port)| plain(format!("{ip} . {port}")));
        all.insert(name.clone(), keys.collect());
    }
    all.insert("judged".to_owned(), plan.judged.iter().map(|ip| plain(ip.to_string())).collect());
    for ((direction, ip), chain) in &plan.isolated {
        let verdict = (ip.to_string(), format!(" : jump {chain}"));
        all.entry(direction.name().to_owned()).or_default().insert(verdict);
        all.entry("itself".to_owned()).or_default().insert(plain(format!("{ip} . {ip}")));
    }
    let to_node = plan.to_node.iter().map(|(ip, chain)| (ip.to_string(), format!(" : jump {chain}")));
    all.entry("tonode".to_owned()).or_default().extend(to_node);
    all
}

/// The script that leads from one plan to another; empty where they are the same.
pub fn step(family: Family, was: &Plan, is: &Plan) -> String {
    let (ip, address) = (family_word(family), address(family));
    let mut text = String::new();
    let mut line = |words: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{words}");
    };
    for name in is.peers.keys().filter(|name| !was.peers.contains_key(*name)) {
        line(format!("add set {ip} {TABLE} {name} {{ type {address}; }}"));
    }
    for name in is.ports.keys().filter(|name| !was.ports.contains_key(*name)) {
        line(format!("add set {ip} {TABLE} {name} {{ type {address} . inet_service; }}"));
    }
    let new = is.chains.iter().filter(|(name, _)| !was.chains.contains_key(*name));
    // One may lead to another.
    new.clone().for_each(|(name, _)| line(format!("add chain {ip} {TABLE} {name}")));
    for (name, rules) in new {
        rules.iter().for_each(|rule| line(format!("add rule {ip} {TABLE} {name} {rule}")));
    }
    let (before, now) = (elements(was), elements(is));
    let none = BTreeSet::new();
    for (name, had) in &before {
        let gone: Vec<&str> =
            had.difference(now.get(name).unwrap_or(&none)).map(|(key, _)| key.as_str()).collect();
        // A set that goes takes its elements along.
        let stays = is.peers.contains_key(name) || is.ports.contains_key(name) || !name.contains('-');
        if stays && !gone.is_empty() {
            line(format!("delete element {ip} {TABLE} {name} {{ {} }}", gone.join(", ")));
        }
    }
    for (name, has) in &now {
        let new = has.difference(before.get(name).unwrap_or(&none));
        let new: Vec<String> = new.map(|(key, verdict)| format!("{key}{verdict}")).collect();
        if !new.is_empty() {
            line(format!("add element {ip} {TABLE} {name} {{ {} }}", new.join(", ")));
        }
    }
    if was.gate != is.gate {
        line(format!("flush chain {ip} {TABLE} gate"));
        is.gate.iter().for_each(|rule| line(format!("add rule {ip} {TABLE} gate {rule}")));
    }
    let gone: Vec<&String> = was.chains.keys().filter(|name| !is.chains.contains_key(*name)).collect();
    gone.iter().for_each(|name| line(format!("flush chain {ip} {TABLE} {name}")));
    gone.iter().for_each(|name| line(format!("delete chain {ip} {TABLE} {name}")));
    let sets =
        |plan: &Plan| -> BTreeSet<String> { plan.peers.keys().chain(plan.ports.keys()).cloned().collect() };
    sets(was).difference(&sets(is)).for_each(|name| line(format!("delete set {ip} {TABLE} {name}")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_whole_with_its_entrances_and_all_that_is_named() {
        let plan = Plan { chains: [("pod-1".to_owned(), Vec::new())].into(), ..Plan::default() };
        for family in Family::ALL {
            let listed = format!("{}\tchain pod-1 {{\n\t}}\n", base(family));
            assert!(is_whole(&listed, &plan));
            assert!(!is_whole(&base(family), &plan), "a chain is gone");
            for entrance in ENTRANCES {
                assert!(!is_whole(&listed.replace(entrance, ""), &plan), "{entrance}");
            }
        }
    }
}

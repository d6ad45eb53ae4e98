//! Administrators' policies of both generations: what is read, and in which order it counts.

use super::admin;
use super::model::{AdminKind, AdminPolicy};
use super::plan::{Direction, DnsProtocol, Plan, Resolver, World, plan};
use super::table::{step, whole};
use super::tests::{load, namespaces, of, pods, read, world};
use crate::family::Family;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use std::sync::Arc;

fn policy(kind: AdminKind, name: &str, spec: &Value) -> Arc<AdminPolicy> {
    let object = json!({ "metadata": { "name": name, "uid": "u", "generation": 2 }, "spec": spec });
    Arc::new(admin::read(kind, "policy.networking.k8s.io/v1alpha1", &object).expect("a policy"))
}

fn admin(name: &str, priority: i32, rules: Value) -> Arc<AdminPolicy> {
    let mut spec =
        json!({ "priority": priority, "subject": { "namespaces": { "matchLabels": { "ns": "x" } } } });
    spec.as_object_mut().expect("an object").extend(rules.as_object().expect("rules").clone());
    policy(AdminKind::Admin, name, &spec)
}

fn baseline(rules: Value) -> Arc<AdminPolicy> {
    let mut spec = json!({ "subject": { "namespaces": {} } });
    spec.as_object_mut().expect("an object").extend(rules.as_object().expect("rules").clone());
    policy(AdminKind::Baseline, "default", &spec)
}

fn planned(spec: Option<Value>, admin: &[Arc<AdminPolicy>]) -> Plan {
    let mut admin = admin.to_vec();
    admin.sort_by(|a, b| a.order().cmp(&b.order()));
    let nodes: Vec<Arc<Node>> = [("n", "192.0.2.1"), ("m", "192.0.2.2")]
        .map(|(name, ip)| {
            read(json!({ "metadata": { "name": name, "labels": { "node": name } },
                "status": { "addresses": [{ "type": "Hostname", "address": name }, { "type": "InternalIP", "address": ip }] } }))
        })
        .to_vec();
    let (pods, namespaces) = (pods(), namespaces());
    let policies: Vec<_> = spec.map(of).into_iter().collect();
    let resolvers = [Resolver { ip: [192, 0, 2, 1].into(), port: 10_053, protocol: DnsProtocol::Udp }];
    let given = World {
        namespaces: &namespaces,
        nodes: &nodes,
        admin: &admin,
        resolvers: &resolvers,
        ..world(&pods, &policies)
    };
    plan(given, Family::V4)
}

/// A chain's rules with what they lead to behind them, and sets replaced by what they hold.
fn shown(plan: &Plan, chain: &str) -> Vec<String> {
    let mut all = Vec::new();
    for rule in &plan.chains[chain] {
        let mut text = rule.clone();
        for (name, ips) in &plan.peers {
            let ips: Vec<String> = ips.iter().map(|ip| ip.to_string().replace("10.42.", "")).collect();
            text = text.replace(&format!("@{name}"), &ips.join(","));
        }
        for (name, sockets) in &plan.ports {
            text = text.replace(&format!("@{name}"), &format!("{} sockets", sockets.len()));
        }
        match text.rsplit_once("goto ") {
            Some((what, next)) => {
                all.push(format!("{what}goto"));
                if what.is_empty() {
                    all.extend(shown(plan, next));
                }
            }
            None => all.push(text),
        }
    }
    all
}

/// What is said of `x/a`; nothing where no policy selects it.
fn rules(plan: &Plan, direction: Direction) -> Vec<String> {
    let chain = plan.isolated.get(&(direction, [10, 42, 0, 0].into()));
    chain.map(|chain| shown(plan, chain)).unwrap_or_default()
}

fn to_node(plan: &Plan) -> Vec<String> {
    plan.to_node.get(&[10, 42, 0, 0].into()).map(|chain| shown(plan, chain)).unwrap_or_default()
}

fn from(namespace: &str, action: &str) -> Value {
    json!({ "action": action, "from": [{ "namespaces": { "matchLabels": { "ns": namespace } } }] })
}

const X: &str = "ip saddr 0.0,0.1,0.2 ";
const Y: &str = "ip saddr 1.0,1.1,1.2 ";
const Z: &str = "ip saddr 2.0,2.1,2.2 ";

#[test]
fn the_lowest_priority_comes_first_and_the_tiers_behind_one_another() {
    let first = admin("z", 1, json!({ "ingress": [from("x", "Deny"), from("y", "Pass")] }));
    let second = admin("a", 7, json!({ "ingress": [from("y", "Allow")] }));
    let namesake = admin("b", 7, json!({ "ingress": [from("z", "Deny")] }));
    let last = baseline(json!({ "ingress": [from("z", "Allow"), from("y", "Deny")] }));
    let all = [last, namesake, second, first];
    let before =
        [format!("{X}drop"), format!("{Y}goto"), format!("{Y}return"), format!("{Z}drop"), "goto".into()];
    let isolated =
        planned(Some(json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 80 }] }] })), &all);
    let behind = ["tcp dport { 80 } return".to_owned(), "drop".to_owned()];
    assert_eq!(rules(&isolated, Direction::Ingress), [&before[..], &behind].concat());
    let free = planned(None, &all);
    let behind = [format!("{Z}return"), format!("{Y}drop")];
    assert_eq!(rules(&free, Direction::Ingress), [&before[..], &behind].concat());
    assert_eq!(free.isolated.len(), 9, "the last tier is about all pods");
    assert_eq!(free.chains.len(), 2, "those of x, which leads to that of all");
    assert!(rules(&free, Direction::Egress).is_empty() && free.to_node.is_empty());
    assert_eq!(free.gate, ["ip daddr 10.42.0.0/24 ip daddr != @judged drop"]);
}

#[test]
fn what_is_passed_on_to_nobody_passes() {
    let plan = planned(None, &[admin("a", 1, json!({ "ingress": [from("y", "Pass"), from("y", "Deny")] }))]);
    assert_eq!(rules(&plan, Direction::Ingress), [format!("{Y}return"), format!("{Y}drop")]);
}

#[test]
fn a_pods_own_node_is_judged_by_administrators_alone() {
    let nodes = json!({ "action": "Deny", "to": [{ "nodes": {} }, { "networks": ["192.0.2.9/32", "fd00::/8"] }],
        "ports": [{ "portNumber": { "port": 22 } }, { "portRange": { "protocol": "UDP", "start": 5, "end": 9 } }] });
    let first = admin("a", 1, json!({ "egress": [nodes] }));
    let pass =
        admin("b", 2, json!({ "egress": [{ "action": "Pass", "to": [{ "networks": ["0.0.0.0/0"] }] }] }));
    let last =
        baseline(json!({ "egress": [{ "action": "Deny", "to": [{ "networks": ["192.0.2.7/24"] }] }] }));
    let all = [first, pass, last];
    let denied = [
        "ip daddr 192.0.2.1,192.0.2.2 tcp dport { 22 } drop",
        "ip daddr 192.0.2.1,192.0.2.2 udp dport { 5-9 } drop",
        "ip daddr 192.0.2.9/32 tcp dport { 22 } drop",
        "ip daddr 192.0.2.9/32 udp dport { 5-9 } drop",
    ];
    let isolated = planned(Some(json!({ "podSelector": {}, "policyTypes": ["Egress"] })), &all);
    // The cluster's DNS answers at a node's address, and not at port 53.
    let passed = ["ip daddr 0.0.0.0/0 ip daddr . udp dport 1 sockets return", "ip daddr 0.0.0.0/0 return"];
    assert_eq!(to_node(&isolated), [&denied[..], &passed].concat());
    let dns = "ip daddr 192.0.2.0/24 ip daddr . udp dport 1 sockets drop";
    let free = to_node(&planned(None, &all));
    assert_eq!(free[..4], denied);
    assert!(
        free.contains(&dns.to_owned()) && free.contains(&"ip daddr 192.0.2.0/24 drop".to_owned()),
        "{free:?}"
    );
}

#[test]
fn ports_of_both_generations() {
    let destination = |port: Value| json!({ "destinationPort": port });
    let rule = |fields: Value| {
        let mut rule =
            json!({ "action": "Deny", "from": [{ "namespaces": { "matchLabels": { "ns": "y" } } }] });
        rule.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
        json!({ "ingress": [rule] })
    };
    let cases: [(Value, &[&str]); 5] = [
        (
            json!({ "ports": [{ "namedPort": "serve-80-tcp" }] }),
            &[
                "ip daddr . tcp dport 9 sockets drop",
                "ip daddr . udp dport 0 sockets drop",
                "ip daddr . sctp dport 0 sockets drop",
            ],
        ),
        (
            json!({ "ports": [{ "portNumber": { "protocol": "SCTP", "port": 7 } }, { "portRange": { "start": 8, "end": 9 } }] }),
            &["sctp dport { 7 } drop", "tcp dport { 8-9 } drop"],
        ),
        (
            json!({ "protocols": [{ "tcp": destination(json!({ "number": 7 })) }, { "udp": destination(json!({ "range": { "start": 8, "end": 9 } })) }] }),
            &["tcp dport { 7 } drop", "udp dport { 8-9 } drop"],
        ),
        (json!({ "protocols": [{ "sctp": {} }] }), &["meta l4proto sctp drop"]),
        (json!({}), &["drop"]),
    ];
    for (fields, wanted) in cases {
        let plan = planned(None, &[admin("a", 1, rule(fields.clone()))]);
        let wanted: Vec<String> = wanted.iter().map(|line| format!("{Y}{line}")).collect();
        assert_eq!(rules(&plan, Direction::Ingress), wanted, "{fields}");
    }
}

#[test]
fn what_is_not_known_fails_closed_and_is_said() {
    let ns = json!({ "namespaces": {} });
    let cases = [
        (
            json!({ "action": "Allow", "to": [{ "cars": {} }, ns] }),
            None,
            "a peer that is not known, so that it is about nothing",
        ),
        (
            json!({ "action": "Deny", "to": [{ "cars": {} }] }),
            Some("drop"),
            "a peer that is not known, so that it denies everything",
        ),
        (json!({ "action": "Pass", "to": [{ "cars": {} }] }), Some("drop"), "it denies everything"),
        (json!({ "action": "Ask", "to": [ns] }), Some("drop"), "an action that is not known"),
        (
            json!({ "action": "Deny", "to": [ns], "ports": [{ "color": 1 }] }),
            Some("drop"),
            "a port that is not known",
        ),
        (
            json!({ "action": "Allow", "to": [ns], "protocols": [{ "quic": {} }] }),
            None,
            "a protocol that is not known",
        ),
        (
            json!({ "action": "Deny", "to": [{ "domainNames": ["a.test"] }] }),
            Some("drop"),
            "a peer that is not known",
        ),
        (
            json!({ "action": "Allow", "to": [{ "domainNames": ["a.test"] }], "name": "out" }),
            None,
            "spec.egress[0] (out): domainNames are not supported",
        ),
    ];
    for (rule, wanted, said) in cases {
        let policy = admin("a", 1, json!({ "egress": [rule] }));
        assert!(policy.unsupported[0].contains(said), "{rule}: {:?}", policy.unsupported);
        let plan = planned(None, std::slice::from_ref(&policy));
        let lines = rules(&plan, Direction::Egress);
        assert_eq!(lines.last().map(String::as_str), wanted, "{rule}: {lines:?}");
    }
    let object = |spec: Value| json!({ "metadata": { "name": "a" }, "spec": spec });
    let of = |spec| admin::read(AdminKind::Cluster, "v", &object(spec));
    assert!(of(json!({ "tier": "Middle", "priority": 1, "subject": { "namespaces": {} } })).is_err());
    let all = of(json!({ "tier": "Admin", "priority": 1, "subject": { "cars": {} } })).expect("a policy");
    assert_eq!(all.unsupported, ["spec.subject: of no known kind, all pods are taken"]);
}

/// Needs root and nft, in a network namespace of its own.
#[test]
fn the_kernel_takes_chains_that_lead_to_others() {
    if !nix::unistd::geteuid().is_root() || !crate::command::exists("nft") {
        return println!("skipped: needs root and nft");
    }
    let nodes = json!({ "action": "Deny", "to": [{ "nodes": {} }, { "networks": ["192.0.2.9/32", "198.51.100.0/24"] }] });
    let first =
        admin("a", 1, json!({ "ingress": [from("x", "Deny"), from("y", "Pass")], "egress": [nodes] }));
    let last = baseline(json!({ "ingress": [from("z", "Allow"), from("y", "Deny")] }));
    let deny = || Some(json!({ "podSelector": {} }));
    let plans = [
        planned(None, std::slice::from_ref(&first)),
        planned(deny(), &[first.clone(), last.clone()]),
        planned(None, &[first, last.clone()]),
        planned(deny(), &[last]),
        Plan::default(),
    ];
    std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let mut was = &plans[4];
        load(&whole(Family::V4, was));
        for is in plans.iter().chain(plans.iter().rev()) {
            load(&step(Family::V4, was, is));
            was = is;
        }
        plans.iter().for_each(|plan| load(&whole(Family::V4, plan)));
    })
    .join()
    .expect("the kernel takes it");
}

use super::plan::{Direction, DnsProtocol, Plan, Resolver, World, plan};
use super::table::{step, whole};
use crate::family::Family;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};
use std::sync::Arc;

pub fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

/// Pods a, b, c in namespaces x, y, z: `10.42.<namespace>.<pod>`, all here, serving 80 and 81.
pub fn pods() -> Vec<Arc<Pod>> {
    let mut pods = Vec::new();
    for (n, namespace) in ["x", "y", "z"].iter().enumerate() {
        for (p, name) in ["a", "b", "c"].iter().enumerate() {
            pods.push(pod(namespace, name, &format!("10.42.{n}.{p}")));
        }
    }
    pods
}

pub fn pod(namespace: &str, name: &str, ip: &str) -> Arc<Pod> {
    let port = |number: u16| json!({ "name": format!("serve-{number}-tcp"), "containerPort": number });
    read(json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "pod": name } },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "ports": [port(80), port(81)] }] },
        "status": { "phase": "Running", "podIPs": [{ "ip": ip }] },
    }))
}

pub fn namespaces() -> Vec<Arc<Namespace>> {
    ["x", "y", "z"]
        .map(|name| read(json!({ "metadata": { "name": name, "labels": { "ns": name } } })))
        .to_vec()
}

pub fn of(spec: Value) -> Arc<NetworkPolicy> {
    read(json!({ "metadata": { "name": "p", "namespace": "x" }, "spec": spec }))
}

pub fn world<'a>(pods: &'a [Arc<Pod>], policies: &'a [Arc<NetworkPolicy>]) -> World<'a> {
    let range = "10.42.0.0/24".parse().expect("a range");
    World {
        node: "n",
        pods,
        namespaces: &[],
        nodes: &[],
        policies,
        admin: &[],
        resolvers: &[],
        ranges: [Some(range), None],
    }
}

fn planned(pods: &[Arc<Pod>], policies: &[Arc<NetworkPolicy>]) -> Plan {
    plan(World { namespaces: &namespaces(), ..world(pods, policies) }, Family::V4)
}

/// The rules of `x/a` in a direction, with sets replaced by what they hold; `None` where it is not isolated.
fn rules(spec: Value, direction: Direction) -> Option<Vec<String>> {
    let plan = planned(&pods(), &[of(spec)]);
    let chain = plan.isolated.get(&(direction, [10, 42, 0, 0].into()))?;
    let show = |rule: &String| {
        let mut rule = rule.clone();
        for (name, ips) in &plan.peers {
            let ips: Vec<String> = ips.iter().map(|ip| ip.to_string().replace("10.42.", "")).collect();
            rule = rule.replace(&format!("@{name}"), &ips.join(","));
        }
        for (name, sockets) in &plan.ports {
            rule = rule.replace(&format!("@{name}"), &format!("{} sockets", sockets.len()));
        }
        rule
    };
    Some(plan.chains[chain].iter().map(show).collect())
}

#[test]
fn rules_say_who_passes() {
    use Direction::{Egress, Ingress};
    let ns = |name: &str| json!({ "matchLabels": { "ns": name } });
    let label = |name: &str| json!({ "matchLabels": { "pod": name } });
    let from = |peers: Value| json!({ "podSelector": {}, "ingress": [{ "from": peers }] });
    let port = |ports: Value| json!({ "podSelector": {}, "ingress": [{ "ports": ports }] });
    let cases: [(&str, Value, Direction, Option<&[&str]>); 22] = [
        ("default deny", json!({ "podSelector": {} }), Ingress, Some(&["drop"])),
        ("default deny is of one direction", json!({ "podSelector": {} }), Egress, None),
        ("deny egress", json!({ "podSelector": {}, "policyTypes": ["Egress"] }), Egress, Some(&["drop"])),
        ("deny egress alone", json!({ "podSelector": {}, "policyTypes": ["Egress"] }), Ingress, None),
        ("types by rules", json!({ "podSelector": {}, "egress": [{}] }), Egress, Some(&["return", "drop"])),
        ("types by rules, both", json!({ "podSelector": {}, "egress": [{}] }), Ingress, Some(&["drop"])),
        ("other pods", json!({ "podSelector": label("b") }), Ingress, None),
        ("allow all", json!({ "podSelector": {}, "ingress": [{}] }), Ingress, Some(&["return", "drop"])),
        ("empty from", from(json!([])), Ingress, Some(&["return", "drop"])),
        (
            "own namespace",
            from(json!([{ "podSelector": {} }])),
            Ingress,
            Some(&["ip saddr 0.0,0.1,0.2 return", "drop"]),
        ),
        (
            "a pod",
            from(json!([{ "podSelector": label("b") }])),
            Ingress,
            Some(&["ip saddr 0.1 return", "drop"]),
        ),
        (
            "a namespace",
            from(json!([{ "namespaceSelector": ns("y") }])),
            Ingress,
            Some(&["ip saddr 1.0,1.1,1.2 return", "drop"]),
        ),
        (
            "all namespaces",
            from(json!([{ "namespaceSelector": {}, "podSelector": label("c") }])),
            Ingress,
            Some(&["ip saddr 0.2,1.2,2.2 return", "drop"]),
        ),
        (
            "both",
            from(json!([{ "namespaceSelector": ns("z"), "podSelector": label("a") }])),
            Ingress,
            Some(&["ip saddr 2.0 return", "drop"]),
        ),
        (
            "expression",
            from(
                json!([{ "namespaceSelector": { "matchExpressions": [{ "key": "ns", "operator": "NotIn", "values": ["x", "y"] }] }, "podSelector": label("a") }]),
            ),
            Ingress,
            Some(&["ip saddr 2.0 return", "drop"]),
        ),
        (
            "block",
            from(
                json!([{ "ipBlock": { "cidr": "10.42.1.9/24", "except": ["10.42.1.0/32", "10.42.1.1/32"] } }]),
            ),
            Ingress,
            Some(&["ip saddr 10.42.1.0/24 ip saddr != { 10.42.1.0/31 } return", "drop"]),
        ),
        (
            "block of the other family",
            from(json!([{ "ipBlock": { "cidr": "fd00::/8" } }])),
            Ingress,
            Some(&["drop"]),
        ),
        (
            "ports",
            port(
                json!([{ "port": 80 }, { "port": 81 }, { "port": 90, "endPort": 99 }, { "protocol": "UDP", "port": 53 }]),
            ),
            Ingress,
            Some(&["tcp dport { 80-81, 90-99 } return", "udp dport { 53 } return", "drop"]),
        ),
        (
            "a protocol",
            port(json!([{ "protocol": "SCTP" }])),
            Ingress,
            Some(&["meta l4proto sctp return", "drop"]),
        ),
        (
            "a name",
            port(json!([{ "port": "serve-81-tcp" }])),
            Ingress,
            Some(&["ip daddr . tcp dport 9 sockets return", "drop"]),
        ),
        (
            "a name of another protocol",
            port(json!([{ "protocol": "UDP", "port": "serve-81-tcp" }])),
            Ingress,
            Some(&["ip daddr . udp dport 0 sockets return", "drop"]),
        ),
        (
            "egress",
            json!({ "podSelector": label("a"), "policyTypes": ["Egress"], "egress": [{ "to": [{ "podSelector": label("c") }], "ports": [{ "port": 80 }] }] }),
            Egress,
            Some(&["ip daddr 0.2 tcp dport { 80 } return", "drop"]),
        ),
    ];
    for (what, spec, direction, wanted) in cases {
        let found = rules(spec, direction);
        let found = found.as_ref().map(|rules| rules.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), wanted, "{what}");
    }
}

#[test]
fn policies_add_up() {
    let only = |port: u16| of(json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": port }] }] }));
    let plan = planned(&pods(), &[only(80), only(81)]);
    let wanted = ["tcp dport { 80 } return", "tcp dport { 81 } return", "drop"];
    assert_eq!(plan.chains.values().collect::<Vec<_>>(), [&wanted], "one chain for all pods alike");
    assert_eq!(plan.isolated.len(), 3);
}

#[test]
fn pods_of_the_nodes_network_ended_ones_and_others_nodes_are_not_isolated() {
    let deny = [of(json!({ "podSelector": {} }))];
    for (path, value) in [
        ("/spec/hostNetwork", json!(true)),
        ("/status/phase", json!("Failed")),
        ("/spec/nodeName", json!("o")),
    ] {
        let mut object = serde_json::to_value(&*pods()[0]).expect("JSON");
        let (parent, field) = path.rsplit_once('/').expect("a path");
        object.pointer_mut(parent).expect("there")[field] = value;
        assert_eq!(planned(&[read(object)], &deny).isolated.len(), 0, "{path}");
    }
}

#[test]
fn a_pod_that_comes_is_an_element_of_sets() {
    let deny = [of(json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": {} }] }] }))];
    let before = planned(&pods(), &deny);
    let more = [pods(), vec![pod("x", "d", "10.42.0.9")]].concat();
    let script = step(Family::V4, &before, &planned(&more, &deny));
    assert!(script.lines().all(|line| line.starts_with("add element ip coracle-policy ")), "{script}");
    assert_eq!(script.lines().count(), 4, "{script}");
    assert_eq!(step(Family::V4, &before, &before), "");
    let away = step(Family::V4, &before, &Plan::default());
    assert!(away.contains("delete chain") && away.contains("delete set"), "{away}");
    assert!(whole(Family::V4, &before).contains("hook postrouting priority 99"));
}

/// Cluster DNS answers at a machine's address and port, on whichever node one asks from.
#[test]
fn dns_is_a_pod_of_kube_system() {
    let resolver = |protocol| Resolver { ip: [192, 0, 2, 1].into(), port: 10_053, protocol };
    let resolvers = [resolver(DnsProtocol::Udp), resolver(DnsProtocol::Tcp)];
    let mut namespaces = namespaces();
    namespaces.push(read(json!({ "metadata": { "name": "kube-system", "labels": { "kubernetes.io/metadata.name": "kube-system" } } })));
    let system = json!({ "matchLabels": { "kubernetes.io/metadata.name": "kube-system" } });
    let dns = json!({ "matchLabels": { "k8s-app": "kube-dns" } });
    let udp = json!([{ "protocol": "UDP", "port": 53 }]);
    let cases = [
        (
            "its pod",
            json!({ "to": [{ "namespaceSelector": system, "podSelector": dns }], "ports": udp }),
            1,
            0,
        ),
        ("its namespace", json!({ "to": [{ "namespaceSelector": system }] }), 1, 1),
        ("everybody", json!({ "to": [{ "namespaceSelector": {} }], "ports": [{ "port": 53 }] }), 0, 1),
        ("only ports", json!({ "ports": [{ "protocol": "UDP", "port": 50, "endPort": 60 }] }), 1, 0),
        ("a name", json!({ "ports": [{ "protocol": "TCP", "port": "dns-tcp" }] }), 0, 1),
        ("a block", json!({ "to": [{ "ipBlock": { "cidr": "192.0.2.0/24" } }], "ports": udp }), 1, 0),
        (
            "another port",
            json!({ "to": [{ "namespaceSelector": system }], "ports": [{ "port": 10_053 }] }),
            0,
            0,
        ),
        ("own namespace", json!({ "to": [{ "podSelector": {} }] }), 0, 0),
        (
            "another pod",
            json!({ "to": [{ "namespaceSelector": system, "podSelector": { "matchLabels": { "k8s-app": "x" } } }] }),
            0,
            0,
        ),
    ];
    for (what, rule, udp, tcp) in cases {
        let policies = [of(json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [rule] }))];
        let pods = pods();
        let world = World { namespaces: &namespaces, resolvers: &resolvers, ..world(&pods, &policies) };
        let plan = plan(world, Family::V4);
        let rules: Vec<&String> = plan.chains.values().flatten().collect();
        let of = |protocol: &str| {
            let lines =
                rules.iter().filter(|rule| rule.contains(&format!("ip daddr . {protocol} dport @port-")));
            let sets = lines.filter(|rule| {
                plan.ports.iter().any(|(set, sockets)| {
                    rule.contains(set.as_str()) && sockets.contains(&([192, 0, 2, 1].into(), 10_053))
                })
            });
            sets.count()
        };
        assert_eq!((of("udp"), of("tcp")), (udp, tcp), "{what}: {rules:?}");
    }
}

#[test]
fn the_gate_is_closed_for_directions_that_policies_are_about() {
    let gate = |spec: Value| planned(&pods(), &[of(spec)]).gate;
    let ingress = "ip daddr 10.42.0.0/24 ip daddr != @judged drop";
    let egress = "ip saddr 10.42.0.0/24 ip saddr != @judged drop";
    assert_eq!(gate(json!({ "podSelector": {} })), [ingress]);
    assert_eq!(gate(json!({ "podSelector": {}, "policyTypes": ["Egress"] })), [egress]);
    assert_eq!(gate(json!({ "podSelector": {}, "egress": [{}] })), [ingress, egress]);
    assert_eq!(planned(&pods(), &[of(json!({ "podSelector": {} }))]).judged.len(), 9);
}

/// Needs root and nft, in a network namespace of its own.
#[test]
fn the_kernel_takes_every_step() {
    if !nix::unistd::geteuid().is_root() || !crate::command::exists("nft") {
        return println!("skipped: needs root and nft");
    }
    let all = json!({ "podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [
        { "from": [{ "podSelector": {} }, { "ipBlock": { "cidr": "0.0.0.0/0" } }, { "ipBlock": { "cidr": "::/0" } }, { "ipBlock": { "cidr": "10.9.0.0/16", "except": ["10.9.1.0/24"] } },
                   { "ipBlock": { "cidr": "fd00::/8", "except": ["fd09::/16"] } }],
          "ports": [{ "port": "serve-80-tcp" }, { "port": 80, "endPort": 90 }, { "protocol": "SCTP" }] }],
        "egress": [{ "to": [{ "namespaceSelector": {} }], "ports": [{ "protocol": "UDP", "port": 53 }] }, {}] });
    let both = |last: u8| {
        let mut object = serde_json::to_value(&*pod("x", &format!("d{last}"), "10.42.0.9")).expect("JSON");
        object["status"]["podIPs"] =
            json!([{ "ip": format!("10.42.0.{last}") }, { "ip": format!("fd01::{last}") }]);
        read::<Pod>(object)
    };
    let few = [both(1)];
    let many = [pods(), vec![both(11), both(12)]].concat();
    let (policy, namespaces) = ([of(all)], namespaces());
    let deny = [of(json!({ "podSelector": {} }))];
    std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
        for family in Family::ALL {
            let plan = |pods: &[Arc<Pod>], policies| {
                plan(World { namespaces: &namespaces, ..world(pods, policies) }, family)
            };
            let mut was = plan(&few, &policy);
            load(&whole(family, &was));
            for is in [
                plan(&many, &policy),
                plan(&many, &deny),
                plan(&few, &deny),
                plan(&few, &policy),
                Plan::default(),
            ] {
                load(&step(family, &was, &is));
                was = is;
            }
            load(&whole(family, &plan(&many, &policy)));
        }
    })
    .join()
    .expect("the kernel takes it");
}

pub fn load(script: &str) {
    use std::io::Write as _;
    let mut nft = std::process::Command::new("nft")
        .args(["-f", "-"])
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("nft");
    nft.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("written");
    let output = nft.wait_with_output().expect("nft ended");
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
}

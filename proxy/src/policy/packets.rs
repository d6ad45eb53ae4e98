//! Policies judged by real packets, in network namespaces: three pods with point-to-point links, and who is outside.

use super::admin;
use super::model::{AdminKind, AdminPolicy};
use super::plan::{DnsProtocol, Resolver, World as Asked, plan};
use super::run::Tables;
use crate::family::Family;
use crate::notices::Told;
use crate::suite::world::{From, World, on_a_node, outside, pod, service, shell};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

/// Namespace x has a (2) and b (3), y has c (4). They serve 8080, which they call web.
fn object(name: &str, namespace: &str, ip: IpAddr) -> Arc<Pod> {
    read(json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "pod": name } },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] }] },
        "status": { "phase": "Running", "podIPs": [{ "ip": ip.to_string() }] },
    }))
}

struct Bench {
    world: World,
    family: Family,
    tables: Tables,
    runtime: Runtime,
    pods: Vec<Arc<Pod>>,
}

impl Bench {
    fn new(world: World, family: Family) -> Self {
        let pods = [("a", "x", 2), ("b", "x", 3), ("c", "y", 4)];
        let pods = pods.map(|(name, namespace, last)| object(name, namespace, pod(family, last))).to_vec();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { world, family, tables: Tables::default(), runtime, pods }
    }

    /// Brings policies of x into force.
    fn put(&mut self, specs: &[Value]) {
        self.put_all(specs, &[]);
    }

    /// The same with ClusterNetworkPolicies.
    fn put_all(&mut self, specs: &[Value], admin: &[Value]) {
        let node = json!({ "metadata": { "name": "n", "labels": { "node": "n" } },
            "status": { "addresses": [{ "type": "InternalIP", "address": outside(self.family, 1).to_string() }] } });
        let mut admin: Vec<_> = admin.iter().map(cluster_policy).collect();
        admin.sort_by(|a, b| a.order().cmp(&b.order()));
        let policies: Vec<Arc<NetworkPolicy>> = specs
            .iter()
            .map(|spec| read(json!({ "metadata": { "name": "p", "namespace": "x" }, "spec": spec })))
            .collect();
        let namespace = |name: &str| read(json!({ "metadata": { "name": name, "labels": { "ns": name } } }));
        let namespaces: Vec<Arc<Namespace>> = ["x", "y", "kube-system"].map(namespace).to_vec();
        let range = if self.family == Family::V4 { "10.42.0.0/24" } else { "fd01::/64" };
        // The third pod stands for the cluster's DNS.
        let resolver = Resolver { ip: pod(self.family, 4), port: 8080, protocol: DnsProtocol::Tcp };
        let plan = plan(
            Asked {
                node: "n",
                pods: &self.pods,
                namespaces: &namespaces,
                nodes: &[read(node)],
                policies: &policies,
                admin: &admin,
                resolvers: &[resolver],
                ranges: [Some(range.parse().expect("a range")), None],
            },
            self.family,
        );
        self.runtime.block_on(self.tables.put(self.family, plan)).expect("in force");
    }

    fn passes(&self, what: &str, from: From, to: IpAddr, port: u16) {
        let answer = self.world.ask(from, None, "tcp", SocketAddr::new(to, port));
        assert!(answer.server().is_some(), "{what}: {from:?} to {to} {port}: {answer:?}");
    }

    fn is_kept_away(&self, what: &str, from: From, to: IpAddr, port: u16) {
        let answer = self.world.ask_briefly(from, None, SocketAddr::new(to, port));
        assert_eq!(answer.server(), None, "{what}: {from:?} to {to} {port}");
    }

    /// Who reaches what under a policy.
    fn case(&mut self, what: &str, spec: Value, passing: &[(From, IpAddr)], kept: &[(From, IpAddr)]) {
        self.put(&[spec]);
        passing.iter().for_each(|(from, to)| self.passes(what, *from, *to, 8080));
        kept.iter().for_each(|(from, to)| self.is_kept_away(what, *from, *to, 8080));
    }
}

const A: From = From::Pod(2);
const B: From = From::Pod(3);
const C: From = From::Pod(4);

fn ingress(rules: Value) -> Value {
    json!({ "podSelector": { "matchLabels": { "pod": "a" } }, "ingress": rules })
}

fn egress(rules: Value) -> Value {
    json!({ "podSelector": { "matchLabels": { "pod": "a" } }, "policyTypes": ["Egress"], "egress": rules })
}

fn label(name: &str) -> Value {
    json!({ "podSelector": { "matchLabels": { "pod": name } } })
}

fn judged(world: World, family: Family) {
    let mut bench = Bench::new(world, family);
    let [a, b, c] = [2, 3, 4].map(|last| pod(family, last));
    let (node, bits) = (outside(family, 1), family.bits());
    let pods = if family == Family::V4 { "10.42.0.0/24" } else { "fd01::/64" };
    let clients = if family == Family::V4 { "192.0.2.0/24" } else { "fd02::/64" };
    // What a pod asks for, it is answered, whoever may not ask it.
    bench.case(
        "deny ingress",
        ingress(json!([])),
        &[(From::Node, a), (A, b), (A, node)],
        &[(B, a), (From::Outside, a)],
    );
    bench.case("a label", ingress(json!([{ "from": [label("b")] }])), &[(B, a)], &[(C, a)]);
    let of_y = json!({ "namespaceSelector": { "matchLabels": { "ns": "y" } } });
    bench.case("a namespace", ingress(json!([{ "from": [of_y] }])), &[(C, a)], &[(B, a)]);
    let block = json!({ "ipBlock": { "cidr": pods, "except": [format!("{c}/{bits}")] } });
    bench.case("a block", ingress(json!([{ "from": [block] }])), &[(B, a)], &[(C, a), (From::Outside, a)]);
    let block = json!({ "ipBlock": { "cidr": clients } });
    bench.case("clients outside", ingress(json!([{ "from": [block] }])), &[(From::Outside, a)], &[(B, a)]);
    bench.case("a port's name", ingress(json!([{ "ports": [{ "port": "web" }] }])), &[(B, a), (C, a)], &[]);
    bench.case(
        "another port",
        ingress(json!([{ "ports": [{ "port": 81 }, { "port": "x" }] }])),
        &[],
        &[(B, a)],
    );
    bench.case("deny egress", egress(json!([])), &[(B, a), (A, node)], &[(A, b), (A, outside(family, 2))]);
    bench.case(
        "egress",
        egress(json!([{ "to": [label("b")], "ports": [{ "port": 8080 }] }])),
        &[(A, b)],
        &[(A, c)],
    );
    let dns = json!([{ "to": [{ "namespaceSelector": {}, "podSelector": { "matchLabels": { "k8s-app": "kube-dns" } } }], "ports": [{ "port": 53 }] }]);
    bench.case("DNS alone", egress(dns), &[(A, c)], &[(A, b)]);
    let datagrams = ingress(json!([{ "ports": [{ "protocol": "UDP", "port": 8080 }] }]));
    bench.case("another protocol", datagrams, &[], &[(B, a)]);
    let answer = bench.world.ask(B, None, "udp", SocketAddr::new(a, 8080));
    assert!(answer.server().is_some(), "its own protocol passes");
    tiers(&mut bench);
    through_a_service(&mut bench);
    unknown_pods(&mut bench);
    mended(&mut bench);
}

/// Whoever an administrator lets through or keeps away, NetworkPolicies are not asked about; and what he passes on, and
/// what nobody says, is decided by what comes behind.
fn tiers(bench: &mut Bench) {
    let family = bench.family;
    let [a, b, c] = [2, 3, 4].map(|last| pod(family, last));
    let node = outside(family, 1);
    let policy = |tier: &str, priority: u16, rules: Value| {
        let subject =
            json!({ "pods": { "namespaceSelector": {}, "podSelector": { "matchLabels": { "pod": "a" } } } });
        let mut spec = json!({ "tier": tier, "priority": priority, "subject": subject });
        spec.as_object_mut().expect("an object").extend(rules.as_object().expect("rules").clone());
        spec
    };
    let from = |name: &str, action: &str| {
        let pods = json!({ "namespaceSelector": {}, "podSelector": { "matchLabels": { "pod": name } } });
        json!({ "action": action, "from": [{ "pods": pods }] })
    };
    let all = |action: &str| json!({ "action": action, "from": [{ "namespaces": {} }] });
    let reach = |bench: &Bench, what: &str, passing: &[(From, IpAddr)], kept: &[(From, IpAddr)]| {
        passing.iter().for_each(|(from, to)| bench.passes(what, *from, *to, 8080));
        kept.iter().for_each(|(from, to)| bench.is_kept_away(what, *from, *to, 8080));
    };
    let deny = policy("Admin", 9, json!({ "ingress": [all("Deny")] }));
    bench.put_all(&[ingress(json!([{}]))], std::slice::from_ref(&deny));
    reach(bench, "denied, whoever allows it", &[(From::Node, a), (A, b)], &[(B, a), (C, a)]);
    let accept = policy("Admin", 3, json!({ "ingress": [from("b", "Accept")] }));
    bench.put_all(&[ingress(json!([]))], &[deny.clone(), accept]);
    reach(bench, "accepted before it is denied", &[(B, a)], &[(C, a)]);
    let pass = policy("Admin", 3, json!({ "ingress": [all("Pass")] }));
    bench.put_all(&[ingress(json!([{ "from": [label("b")] }]))], &[deny.clone(), pass.clone()]);
    reach(bench, "passed on", &[(B, a)], &[(C, a)]);
    let baseline = policy("Baseline", 0, json!({ "ingress": [from("c", "Accept"), all("Deny")] }));
    bench.put_all(&[], &[baseline.clone(), deny.clone(), pass]);
    reach(bench, "passed on to the last tier", &[(C, a)], &[(B, a)]);
    bench.put_all(&[ingress(json!([{ "from": [label("b")] }]))], &[baseline]);
    reach(bench, "NetworkPolicies are before the last tier", &[(B, a)], &[(C, a)]);
    let to = |peer: Value, rest: Value| {
        let mut rule = json!({ "action": "Deny", "to": [peer] });
        rule.as_object_mut().expect("an object").extend(rest.as_object().expect("fields").clone());
        policy("Admin", 1, json!({ "egress": [rule] }))
    };
    let nodes = json!({ "nodes": { "matchLabels": { "node": "n" } } });
    bench.put_all(&[], &[to(nodes, json!({}))]);
    reach(bench, "not to nodes", &[(A, b), (B, node)], &[(A, node)]);
    let nets = [c, b].map(|ip| format!("{ip}/{}", family.bits()));
    bench.put_all(&[], &[to(json!({ "networks": nets }), json!({}))]);
    reach(bench, "not to networks", &[(A, node), (C, a)], &[(A, c), (A, b)]);
    let ports = |port: Value| json!({ "protocols": [port] });
    let web = to(json!({ "namespaces": {} }), ports(json!({ "destinationNamedPort": "web" })));
    bench.put_all(&[], &[web]);
    reach(bench, "not to a port's name", &[(A, node)], &[(A, b)]);
    let others = json!({ "tcp": { "destinationPort": { "range": { "start": 1, "end": 8079 } } } });
    bench.put_all(&[], &[to(json!({ "namespaces": {} }), ports(others))]);
    reach(bench, "another port", &[(A, b)], &[]);
    bench.put_all(&[], &[]);
    reach(bench, "without any", &[(A, b), (B, a), (C, a)], &[]);
}

fn cluster_policy(spec: &Value) -> Arc<AdminPolicy> {
    let object = json!({ "metadata": { "name": "p" }, "spec": spec });
    let policy = admin::read(AdminKind::Cluster, "policy.networking.k8s.io/v1alpha2", &object);
    let policy = policy.expect("a policy");
    assert_eq!(policy.unsupported, Vec::<String>::new());
    Arc::new(policy)
}

/// Translated packets are judged by who sent them and who gets them.
fn through_a_service(bench: &mut Bench) {
    let (family, a) = (bench.family, pod(bench.family, 2));
    let (ip, to) = (crate::nftables::family_word(family), service(family, 1));
    shell(&format!(
        "nft 'add table {ip} services; add chain {ip} services in {{ type nat hook prerouting priority -100; }}
              add chain {ip} services out {{ type nat hook postrouting priority 100; }}'
         nft 'add rule {ip} services in {ip} daddr {to} tcp dport 80 dnat to {}'
         nft 'add rule {ip} services out {ip} saddr {a} {ip} daddr {a} masquerade'",
        SocketAddr::new(a, 8080)
    ));
    bench.put(&[ingress(json!([{ "from": [label("b")] }])), egress(json!([]))]);
    bench.passes("through a Service", B, to, 80);
    bench.passes("to itself through its Service", A, to, 80);
    bench.is_kept_away("through a Service", C, to, 80);
}

/// A pod is reached by its node alone until it is known what it is.
fn unknown_pods(bench: &mut Bench) {
    let known = bench.pods.clone();
    let c = pod(bench.family, 4);
    bench.pods.pop();
    bench.put(&[ingress(json!([]))]);
    bench.passes("its node", From::Node, c, 8080);
    bench.passes("no policy is about what it sends", C, pod(bench.family, 3), 8080);
    bench.is_kept_away("unknown", B, c, 8080);
    bench.put(&[ingress(json!([])), egress(json!([]))]);
    bench.is_kept_away("unknown", C, pod(bench.family, 3), 8080);
    bench.pods = known;
    bench.put(&[ingress(json!([])), egress(json!([]))]);
    bench.passes("known", B, c, 8080);
    bench.passes("known", C, pod(bench.family, 3), 8080);
}

/// What somebody took away is missed and written again; without policies nothing is left.
fn mended(bench: &mut Bench) {
    let a = pod(bench.family, 2);
    let ip = crate::nftables::family_word(bench.family);
    let broken = |bench: &mut Bench| bench.runtime.block_on(bench.tables.forget_broken(&Told::Lost));
    assert!(!broken(bench), "it is whole");
    shell(&format!("nft flush chain {ip} coracle-policy judge"));
    bench.passes("nothing judges", B, a, 8080);
    assert!(broken(bench), "its rules are missed");
    bench.put(&[ingress(json!([]))]);
    bench.is_kept_away("mended", B, a, 8080);
    // A step that has nothing to stand on is followed by the whole.
    shell(&format!("nft delete table {ip} coracle-policy"));
    bench.put(&[ingress(json!([{ "from": [label("c")] }]))]);
    bench.is_kept_away("written whole", B, a, 8080);
    bench.runtime.block_on(super::clean_up()).expect("gone");
    assert!(!shell("nft list tables").contains("coracle-policy"));
    assert!(broken(bench), "the table is missed");
}

#[test]
fn packets_of_ipv4_are_judged() {
    on_a_node(|world| judged(world, Family::V4));
}

#[test]
fn packets_of_ipv6_are_judged() {
    on_a_node(|world| judged(world, Family::V6));
}

/// `cargo test --release -p coracle-proxy policies_of_a_thousand_pods -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn policies_of_a_thousand_pods() {
    on_a_node(|world| {
        let mut bench = Bench::new(world, Family::V4);
        let pod = |n: u16| {
            let [high, low] = n.to_be_bytes();
            object(&format!("p{}", n % 50), "x", [10, 42, 1 + high, low].into())
        };
        bench.pods.extend((0..1000).map(pod));
        let allow = |n: u16| {
            json!({ "podSelector": { "matchLabels": { "pod": format!("p{}", n % 50) } },
                "ingress": [{ "from": [label(&format!("p{}", (n + 1) % 50))], "ports": [{ "port": 8080 }] }] })
        };
        let mut policies: Vec<Value> = (0..50).map(allow).collect();
        policies.push(json!({ "podSelector": {} }));
        let timed = |what: &str, bench: &mut Bench, policies: &[Value]| {
            let began = Instant::now();
            bench.put(policies);
            println!("{what}: {:?}", began.elapsed());
        };
        timed("all at once", &mut bench, &policies);
        policies.push(ingress(json!([{ "from": [label("b")] }])));
        timed("one more policy", &mut bench, &policies);
        bench.pods.push(pod(1000));
        timed("one more pod", &mut bench, &policies);
    });
}

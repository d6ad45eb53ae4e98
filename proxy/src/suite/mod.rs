//! The suite that every backend passes, with real packets, in both families.

mod balanced;
mod figures;
mod modes;
mod rolling;
pub(crate) mod world;

use crate::backend::Backend;
use crate::family::Family;
use crate::model::{Endpoint, PortName, ServicePort};
use crate::plan::{LocalDetector, Plan, Settings};
use coracle_client::ObjectKey;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::runtime::Runtime;
use world::{Answer, From, World, outside, pod, service, shell};

/// What backends may differ in.
#[derive(Clone, Copy)]
struct Traits {
    /// Endpoints see who their client is.
    keeps_source: bool,
    /// An address that nobody has is met by silence; otherwise its packets fail at once.
    drops: bool,
    /// A client's endpoint is forgotten at its time, also while closed connections to it are remembered.
    forgets: bool,
}

const KERNEL: Traits = Traits { keeps_source: true, drops: true, forgets: true };
const BALANCED: Traits = Traits { keeps_source: true, drops: true, forgets: false };
const RELAYED: Traits = Traits { keeps_source: false, drops: false, forgets: true };

/// A backend under test, with a plan that grows and shrinks.
struct Suite {
    world: World,
    backend: Box<dyn Backend>,
    plan: Plan,
    runtime: Runtime,
    traits: Traits,
}

impl Suite {
    fn new(world: World, backend: Box<dyn Backend>, family: Family, traits: Traits) -> Self {
        // Relays run beside the thread that asks, in the same namespace.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let settings = Settings {
            local: LocalDetector::Cidr(network(pod(family, 0), family)),
            service_cidrs: vec![network(service(family, 0), family)],
            ..(*Plan::empty(family).settings).clone()
        };
        let plan = Plan { settings: Arc::new(settings), ..Plan::empty(family) };
        let mut suite = Self { world, backend, plan, runtime: runtime.expect("a runtime"), traits };
        suite.runtime.block_on(suite.backend.adopt()).expect("adopted");
        suite.sync();
        suite
    }

    fn sync(&mut self) {
        self.runtime.block_on(self.backend.sync(&self.plan)).expect("in force");
    }

    fn has(&mut self, ports: &[ServicePort]) {
        self.plan.services.clear();
        for port in ports {
            let key = ObjectKey::new("d", port.name.service.clone());
            self.plan.services.insert(key, Arc::new(vec![port.clone()]));
        }
        self.sync();
    }

    fn family(&self) -> Family {
        self.plan.family
    }

    fn ask(&self, from: From, ip: IpAddr, port: u16) -> Answer {
        self.world.ask(from, None, "tcp", SocketAddr::new(ip, port))
    }

    fn ask_briefly(&self, from: From, ip: IpAddr, port: u16) -> Answer {
        self.world.ask_briefly(from, None, SocketAddr::new(ip, port))
    }

    /// How often each endpoint answers.
    fn answers(&self, from: From, ip: IpAddr, port: u16, times: usize) -> BTreeMap<Option<IpAddr>, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..times {
            let server = self.ask(from, ip, port).server();
            *counts.entry(server).or_default() += 1;
            if server.is_none() {
                break;
            }
        }
        counts
    }

    fn servers(&self, from: From, ip: IpAddr, port: u16) -> Vec<Option<IpAddr>> {
        self.answers(from, ip, port, 25).into_keys().collect()
    }

    /// Nobody answers, and nobody says that there is nobody.
    fn is_silent(&self, from: From, ip: IpAddr, port: u16) {
        assert_eq!(self.ask_briefly(from, ip, port), Answer::Nothing, "{from:?} to {ip} {port}");
    }
}

fn network(ip: IpAddr, family: Family) -> String {
    format!("{ip}/{}", if family == Family::V4 { 24 } else { 64 })
}

/// A Service of the world with these pods; local ones are marked.
fn web(family: Family, name: &str, last: u8, endpoints: &[(u8, bool)]) -> ServicePort {
    let endpoint =
        |(ip, local): &(u8, bool)| Endpoint { ip: pod(family, *ip), port: 8080, local: *local, near: true };
    ServicePort {
        name: PortName {
            namespace: "d".to_owned(),
            service: name.to_owned(),
            port: String::new(),
            protocol: "tcp".to_owned(),
        },
        cluster_ip: service(family, last),
        port: 80,
        node_port: 0,
        external_ips: Vec::new(),
        guarded_ips: Vec::new(),
        sources: Vec::new(),
        affinity_seconds: 0,
        internal_local: false,
        external_local: false,
        endpoints: endpoints.iter().map(endpoint).collect(),
    }
}

/// Everything that is asked of a backend.
fn passes(suite: &mut Suite) {
    spreads(suite);
    reaches_itself(suite);
    reaches_this_machine(suite);
    refuses_and_drops(suite);
    follows_changes(suite);
    opens_node_ports(suite);
    stays_local(suite);
    guards(suite);
    remembers(suite);
    carries_udp(suite);
    takes_claims_of_two(suite);
    rolling::rolls_under_load(suite);
}

fn spreads(suite: &mut Suite) {
    let family = suite.family();
    suite.has(&[web(family, "web", 9, &[(2, true), (3, true), (4, true)])]);
    for from in [From::Node, From::Pod(4), From::Outside] {
        // Each of three is chosen 30 times of 90 at random; fewer than 10 come once in 100,000 runs.
        let counts = suite.answers(from, service(family, 9), 80, 90);
        assert!(counts.len() == 3 && counts.values().all(|count| *count >= 10), "{from:?}: {counts:?}");
    }
}

/// A pod that asks its own Service is answered by itself, and sees another client than itself.
fn reaches_itself(suite: &mut Suite) {
    let family = suite.family();
    suite.has(&[web(family, "web", 9, &[(2, true)])]);
    let to = SocketAddr::new(service(family, 9), 80);
    let answer = suite.world.ask(From::Pod(2), None, "tcp", to);
    let Answer::From { server, client } = answer else { panic!("{answer:?}") };
    assert!(server == pod(family, 2) && client != server, "{answer:?}");
    if suite.traits.keeps_source {
        // Another pod is seen as itself.
        let answer = suite.world.ask(From::Pod(3), None, "tcp", to);
        assert_eq!(answer, Answer::From { server: pod(family, 2), client: pod(family, 3) });
    }
}

/// What runs in the node's own network is an endpoint like others, as the API server is.
fn reaches_this_machine(suite: &mut Suite) {
    let family = suite.family();
    let mut api = web(family, "api", 9, &[(2, true)]);
    (api.endpoints[0].ip, api.node_port) = (outside(family, 1), 30081);
    suite.has(&[api]);
    for from in [From::Node, From::Pod(4), From::Outside] {
        for (ip, port) in [(service(family, 9), 80), (outside(family, 1), 30081)] {
            let server = suite.ask(from, ip, port).server();
            assert_eq!(server, Some(outside(family, 1)), "{from:?} to {ip} {port}");
        }
    }
}

fn refuses_and_drops(suite: &mut Suite) {
    let family = suite.family();
    suite.has(&[web(family, "web", 9, &[(2, true)]), web(family, "empty", 8, &[])]);
    for from in [From::Node, From::Pod(4)] {
        assert_eq!(suite.ask(from, service(family, 8), 80), Answer::Refused, "no endpoint, {from:?}");
        assert_eq!(suite.ask(from, service(family, 9), 81), Answer::Refused, "no such port, {from:?}");
        let nobody = suite.ask_briefly(from, service(family, 77), 80);
        assert_eq!(nobody.server(), None, "no Service, {from:?}");
        if suite.traits.drops {
            assert_eq!(nobody, Answer::Nothing, "no Service, {from:?}");
        }
    }
}

fn follows_changes(suite: &mut Suite) {
    let family = suite.family();
    let other = web(family, "other", 7, &[(3, true)]);
    suite.has(&[web(family, "web", 9, &[(2, true), (3, true)]), other.clone()]);
    suite.has(&[web(family, "web", 9, &[(4, true)]), other.clone()]);
    assert_eq!(suite.servers(From::Pod(4), service(family, 9), 80), [Some(pod(family, 4))]);
    assert_eq!(suite.servers(From::Pod(4), service(family, 7), 80), [Some(pod(family, 3))]);
    suite.has(&[other]);
    assert_eq!(suite.ask_briefly(From::Pod(4), service(family, 9), 80).server(), None, "the Service is gone");
    assert_eq!(suite.servers(From::Node, service(family, 7), 80), [Some(pod(family, 3))]);
    assert!(suite.runtime.block_on(suite.backend.is_intact()).expect("looked"));
}

fn opens_node_ports(suite: &mut Suite) {
    let family = suite.family();
    let mut open = web(family, "web", 9, &[(2, true), (3, false)]);
    (open.node_port, open.external_ips) = (30080, vec![outside(family, 200)]);
    suite.has(&[open.clone()]);
    let both = [Some(pod(family, 2)), Some(pod(family, 3))];
    assert_eq!(suite.servers(From::Outside, outside(family, 1), 30080), both);
    assert_eq!(suite.servers(From::Node, outside(family, 1), 30080), both);
    assert_eq!(suite.servers(From::Pod(4), pod(family, 1), 30080), both);
    assert_eq!(suite.servers(From::Pod(4), outside(family, 200), 80), both, "an external IP");
    let Answer::From { client, .. } = suite.ask(From::Outside, outside(family, 1), 30080) else {
        panic!("no answer")
    };
    assert_eq!(client, pod(family, 1), "masqueraded, so that answers come back this way");
    open.endpoints.clear();
    suite.has(&[open.clone()]);
    assert_eq!(suite.ask(From::Outside, outside(family, 1), 30080), Answer::Refused, "nobody is behind it");
    open.node_port = 0;
    suite.has(&[open]);
    assert_eq!(suite.ask(From::Outside, outside(family, 1), 30080), Answer::Refused, "it is no node port");
}

fn stays_local(suite: &mut Suite) {
    let family = suite.family();
    let mut local = web(family, "web", 9, &[(2, true), (3, false)]);
    (local.node_port, local.external_local, local.internal_local) = (30080, true, true);
    suite.has(&[local.clone()]);
    assert_eq!(suite.servers(From::Pod(4), service(family, 9), 80), [Some(pod(family, 2))]);
    assert_eq!(suite.servers(From::Outside, outside(family, 1), 30080), [Some(pod(family, 2))]);
    if suite.traits.keeps_source {
        let Answer::From { client, .. } = suite.ask(From::Outside, outside(family, 1), 30080) else {
            panic!("no answer")
        };
        assert_eq!(client, outside(family, 2), "who asks is seen");
    }
    local.endpoints.retain(|endpoint| !endpoint.local);
    suite.has(&[local.clone()]);
    if suite.traits.keeps_source {
        suite.is_silent(From::Outside, outside(family, 1), 30080);
        suite.is_silent(From::Pod(4), service(family, 9), 80);
        assert_eq!(
            suite.servers(From::Pod(4), pod(family, 1), 30080),
            [Some(pod(family, 3))],
            "pods may go on"
        );
        assert_eq!(
            suite.servers(From::Node, pod(family, 1), 30080),
            [Some(pod(family, 3))],
            "so may the node"
        );
    } else {
        assert_eq!(suite.ask_briefly(From::Outside, outside(family, 1), 30080).server(), None);
    }
}

/// Source ranges let in whom they name, also where one lies in another.
fn guards(suite: &mut Suite) {
    let family = suite.family();
    let mut guarded = web(family, "web", 9, &[(2, true)]);
    guarded.guarded_ips = vec![outside(family, 201)];
    let bits = family.bits();
    guarded.sources = vec![format!("{}/{bits}", outside(family, 2))];
    suite.has(&[guarded.clone()]);
    // The outside reaches the address by way of the node.
    let route = format!("ip route replace {}/{bits} via {}", outside(family, 201), outside(family, 1));
    suite.world.outside.run(move || drop(shell(&route)));
    let to = SocketAddr::new(outside(family, 201), 80);
    let ask =
        |suite: &Suite, last| suite.world.ask(From::Outside, Some(outside(family, last)), "tcp", to).server();
    assert_eq!(ask(suite, 2), Some(pod(family, 2)));
    let other = suite.world.ask_briefly(From::Outside, Some(outside(family, 3)), to);
    assert_eq!(other.server(), None);
    guarded.sources = vec![network(outside(family, 0), family), format!("{}/{bits}", outside(family, 3))];
    suite.has(&[guarded]);
    assert_eq!(ask(suite, 3), Some(pod(family, 2)));
}

fn remembers(suite: &mut Suite) {
    let family = suite.family();
    let mut sticky = web(family, "web", 9, &[(2, true), (3, true), (4, true)]);
    sticky.affinity_seconds = 1;
    suite.has(&[sticky.clone()]);
    let to = service(family, 9);
    let kept = suite.servers(From::Pod(4), to, 80);
    assert!(kept.len() == 1 && kept[0].is_some(), "{kept:?}");
    // Once its time is over another one has its turn: with three, twenty times the same come once in a milliard.
    let another = !suite.traits.forgets
        || (0..20).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1050));
            suite.ask(From::Pod(4), to, 80).server() != kept[0]
        });
    assert!(another, "affinity has an end");
    sticky.affinity_seconds = 600;
    suite.has(&[sticky.clone()]);
    let kept = suite.ask(From::Pod(4), to, 80).server();
    sticky.endpoints.retain(|endpoint| Some(endpoint.ip) != kept);
    suite.has(&[sticky]);
    let moved = suite.servers(From::Pod(4), to, 80);
    assert!(moved.len() == 1 && moved[0].is_some() && moved[0] != kept, "{kept:?} is gone: {moved:?}");
}

fn carries_udp(suite: &mut Suite) {
    let family = suite.family();
    let mut dns = web(family, "dns", 10, &[(2, true)]);
    (dns.name.protocol, dns.port, dns.node_port) = ("udp".to_owned(), 53, 30053);
    suite.has(&[dns]);
    let ask = |from, ip, port| suite.world.ask(from, None, "udp", SocketAddr::new(ip, port)).server();
    assert_eq!(ask(From::Pod(4), service(family, 10), 53), Some(pod(family, 2)));
    assert_eq!(ask(From::Node, service(family, 10), 53), Some(pod(family, 2)));
    assert_eq!(ask(From::Outside, outside(family, 1), 30053), Some(pod(family, 2)));
}

/// Two Services with the same external IP and port: one of them has it, and nothing else suffers.
fn takes_claims_of_two(suite: &mut Suite) {
    let family = suite.family();
    let mut one = web(family, "one", 9, &[(2, true)]);
    let mut two = web(family, "two", 8, &[(3, true)]);
    (one.external_ips, two.external_ips) = (vec![outside(family, 200)], vec![outside(family, 200)]);
    suite.has(&[one.clone(), two.clone()]);
    assert_eq!(suite.servers(From::Pod(4), service(family, 9), 80), [Some(pod(family, 2))]);
    assert_eq!(suite.servers(From::Pod(4), service(family, 8), 80), [Some(pod(family, 3))]);
    assert!(suite.ask(From::Pod(4), outside(family, 200), 80).server().is_some());
    suite.has(&[two]);
    assert_eq!(suite.servers(From::Pod(4), outside(family, 200), 80), [Some(pod(family, 3))]);
}

/// What somebody else has in the kernel.
fn somebodys() -> &'static str {
    "iptables -t nat -N DOCKER; iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
     iptables -t filter -N ufw-user; iptables -A INPUT -j ufw-user; iptables -A ufw-user -s 198.51.100.7 -j ACCEPT
     ip6tables -t filter -N ufw6-user; ip6tables -A INPUT -j ufw6-user
     nft add table inet firewalld; nft add chain inet firewalld zone '{ type filter hook input priority 10; }'
     nft add rule inet firewalld zone ip saddr 198.51.100.8 accept; nft add table ip others"
}

/// All packet rules, interfaces, addresses and routes.
fn everything() -> String {
    shell(
        "nft list ruleset | sed 's/counter packets [0-9]* bytes [0-9]*/counter/'
         (ip -o link show | cut -d: -f2; ip -o address show | sed 's/valid_lft.*//; s/ tentative//'
          ip route show table all) | grep -v fe80
         (iptables-save; ip6tables-save) | grep -v '^[#:]' || true",
    )
}

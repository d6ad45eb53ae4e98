//! Two nodes on networks of their own with a router between that knows no pod, and real packets between their pods.

use super::kernel::{Kernel, Wrapping};
use super::plan::{self, Routes, Site};
use super::{routes, vxlan};
use crate::family::Family;
use crate::suite::world::{Answer, Place, ask_briefly, ask_patiently, can_be_made, serve, shell};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const NAMES: [&str; 2] = ["one", "two"];
/// By node and family.
const MACHINES: [[&str; 2]; 2] = [["192.0.2.1", "fd02::1"], ["198.51.100.1", "fd03::1"]];
const RANGES: [[&str; 2]; 2] = [["10.42.0.0/24", "fd42::/64"], ["10.42.1.0/24", "fd42:0:0:1::/64"]];
const PODS: [[&str; 2]; 2] = [["10.42.0.2", "fd42::2"], ["10.42.1.2", "fd42:0:0:1::2"]];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The nodes, where the first says how it wants to be reached; `outer` is the family of their first addresses.
fn nodes(mode: &str, outer: Family) -> Vec<Arc<Node>> {
    let node = |at: usize| {
        let mut addresses = MACHINES[at].map(|ip| json!({ "type": "InternalIP", "address": ip }));
        if outer == Family::V6 {
            addresses.reverse();
        }
        let annotations = if at == 0 { json!({ plan::ANNOTATION: mode }) } else { json!({}) };
        let node = json!({ "metadata": { "name": NAMES[at], "annotations": annotations },
            "spec": { "podCIDR": RANGES[at][0], "podCIDRs": RANGES[at] },
            "status": { "addresses": addresses, "daemonEndpoints": { "kubeletEndpoint": { "Port": 1 } } } });
        Arc::new(serde_json::from_value(node).expect("a node"))
    };
    (0..2).map(node).collect()
}

/// What a node does about the nodes, as one that has just been started; then what the kernel has of it.
fn follow(own: usize, nodes: &[Arc<Node>]) -> (Wrapping, Routes) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let site = Site {
            node_name: NAMES[own].to_owned(),
            pods: ["10.42.0.0/16", "fd42::/56"].map(|range| range.parse().expect("a range")).to_vec(),
            services: Vec::new(),
            networks: vxlan::networks().await.expect("networks"),
            kept: MACHINES[own].map(ip).to_vec(),
        };
        let plan = plan::plan(nodes, &site);
        assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        let mut kernel = Kernel::default();
        kernel.look().await.expect("read");
        let wrapping = kernel.wrap(plan.tunnel.as_ref()).await.expect("a device");
        kernel.lead(plan.routes.clone()).await.expect("routes");
        (wrapping, routes::present().await.expect("read"))
    })
}

/// An interface of a node, or of the router, and its other end.
fn link(place: &Place, name: &str, ours: [&str; 2], theirs: [&str; 2], bits: [u8; 2]) {
    let of = |addresses: [&str; 2], device: &str| {
        let [four, six] = addresses;
        format!(
            "ip address add {four}/{} dev {device}; ip -6 address add {six}/{} dev {device} nodad; ip link set {device} up",
            bits[0], bits[1]
        )
    };
    shell(&format!(
        "ip link add name {name} type veth peer name inner netns {}\n{}",
        place.path(),
        of(ours, name)
    ));
    let inner = of(theirs, "inner");
    let [four, six] = ours.map(str::to_owned);
    place.run(move || {
        shell(&format!(
            "ip link set lo up\n{inner}\nip route add {four}/32 dev inner 2>/dev/null || true
             ip -6 route add {six}/128 dev inner 2>/dev/null || true
             ip route add default via {four}; ip -6 route add default via {six}"
        ));
    });
}

/// A node's pod; runs in the node's namespace.
fn pod(place: &Place, at: usize) {
    let gateway = [["10.42.0.1", "fd42::1"], ["10.42.1.1", "fd42:0:0:1::1"]][at];
    link(place, "pod", gateway, PODS[at], [32, 128]);
    shell(&format!("ip route add {}/32 dev pod; ip -6 route add {}/128 dev pod", PODS[at][0], PODS[at][1]));
    place.run(move || PODS[at].map(ip).into_iter().for_each(serve));
}

const FORWARDS: &str = "ip link set lo up; sysctl -q net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1";

/// The router is the test's own thread; the nodes and their pods are places.
struct World {
    nodes: [Arc<Place>; 2],
    pods: [Arc<Place>; 2],
}

impl World {
    fn new() -> Self {
        let places = || [(); 2].map(|()| Arc::new(Place::new()));
        let world = Self { nodes: places(), pods: places() };
        shell(FORWARDS);
        let routers = [["192.0.2.254", "fd02::254"], ["198.51.100.254", "fd03::254"]];
        for at in 0..2 {
            link(&world.nodes[at], NAMES[at], routers[at], MACHINES[at], [24, 64]);
            let place = world.pods[at].clone();
            world.nodes[at].run(move || {
                shell(FORWARDS);
                pod(&place, at);
            });
        }
        world
    }

    fn follow(&self, nodes: &[Arc<Node>]) -> [(Wrapping, Routes); 2] {
        [0, 1].map(|own| {
            let nodes = nodes.to_vec();
            self.nodes[own].run(move || follow(own, &nodes))
        })
    }

    fn is_cut(&self) {
        for to in PODS[1].map(ip) {
            let answer = self.pods[0].run(move || ask_briefly(SocketAddr::new(to, 8080)));
            assert_eq!(answer.server(), None, "{to}");
        }
    }

    /// Pods see each other's own addresses, and a node is seen by one of its range.
    fn is_whole(&self) {
        for family in 0..2 {
            for (place, from, to) in [
                (&self.pods[0], ip(PODS[0][family]), ip(PODS[1][family])),
                (&self.pods[1], ip(PODS[1][family]), ip(PODS[0][family])),
            ] {
                let answer = place.run(move || ask_patiently(SocketAddr::new(to, 8080)));
                assert_eq!(answer, Answer::From { server: to, client: from });
            }
            let to = ip(PODS[1][family]);
            let answer = self.nodes[0].run(move || ask_patiently(SocketAddr::new(to, 8080)));
            let own: IpNet = RANGES[0][family].parse().expect("a range");
            assert!(matches!(answer, Answer::From { client, .. } if own.contains(&client)), "{answer:?}");
            self.pods[0].run(move || ask_much(SocketAddr::new(to, 8080)));
        }
    }

    fn device(&self, at: usize) -> String {
        self.nodes[at]
            .run(|| shell("ip -o link; ip neighbour show nud permanent; ip -6 neighbour show nud permanent"))
    }
}

/// More than goes into one packet of the pod's own link, which is wider than what is wrapped.
fn ask_much(to: SocketAddr) {
    const QUESTIONS: usize = 5000;
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    stream.write_all(&[b'?'; QUESTIONS]).expect("asked");
    let (mut answers, mut buffer) = (0, [0; 4096]);
    while answers < QUESTIONS {
        let read = stream.read(&mut buffer).expect("answers");
        assert!(read > 0, "{answers} answers, and no more");
        answers += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
    }
}

fn wrapped(outer: Family, mtu: u32) {
    let world = World::new();
    // Somebody else's, on the machine before us.
    world.nodes[0].run(|| shell("ip link add flannel.1 type vxlan id 1 local 192.0.2.1 dstport 8472 nolearning; ip link set flannel.1 up"));
    world.follow(&nodes("routes", outer));
    world.is_cut();
    for mode in ["auto", "vxlan"] {
        let nodes = nodes(mode, outer);
        let first = world.follow(&nodes);
        world.is_whole();
        for (wrapping, routes) in &first {
            assert_eq!(*wrapping, Wrapping::Mtu(mtu));
            assert_eq!(routes.len(), 2, "{routes:?}");
        }
        assert_eq!(world.follow(&nodes), first, "a process that is started again finds what there is");
        world.is_whole();
    }
    // Somebody takes the device away, and changes the way to the other end.
    world.nodes[0].run(|| shell(&format!("ip link del {}", vxlan::DEVICE)));
    world.nodes[1].run(|| {
        shell(&format!(
            "ip neighbour flush dev {0} nud permanent; bridge fdb flush dev {0} 2>/dev/null || true",
            vxlan::DEVICE
        ))
    });
    world.is_cut();
    world.follow(&nodes("vxlan", outer));
    world.is_whole();
    // A node that goes leaves nothing behind.
    let alone: Vec<Arc<Node>> = nodes("vxlan", outer).into_iter().take(1).collect();
    let own = alone.clone();
    world.nodes[0].run(move || follow(0, &own));
    let left = world.device(0);
    assert!(!left.contains(vxlan::DEVICE) && left.contains("flannel.1"), "{left}");
    world.follow(&nodes("vxlan", outer));
    world.is_whole();
    let [(ended, _), _] = world.follow(&nodes("routes", outer));
    assert_eq!(ended, Wrapping::Ended(mtu));
    world.is_cut();
    world.follow(&nodes("auto", outer));
    world.is_whole();
    // And so does whoever is reset.
    for at in 0..2 {
        world.nodes[at].run(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(routes::clean_up()).expect("gone");
            assert!(!shell("ip route; ip -6 route").contains("proto 143"));
        });
        assert!(!world.device(at).contains(vxlan::DEVICE));
    }
    assert!(world.device(0).contains("flannel.1"), "somebody else's is left alone");
}

fn in_a_namespace(test: impl FnOnce() + Send + 'static) {
    if !can_be_made() {
        return;
    }
    let router = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
        test();
    });
    if let Err(panic) = router.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn pods_of_other_networks_are_reached_over_ipv4() {
    in_a_namespace(|| wrapped(Family::V4, 1450));
}

#[test]
fn pods_of_other_networks_are_reached_over_ipv6() {
    in_a_namespace(|| wrapped(Family::V6, 1430));
}

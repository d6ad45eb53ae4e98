//! The cluster's DNS as users change it: by the ConfigMap `coredns`, on a running server, in a network of its own.

use crate::proxy::in_a_network_of_its_own;
use coracle_tests::Cluster;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::Duration;

const NODE: &str = "192.0.2.1";
/// Where a question's name begins in a message.
const HEADER_BYTES: usize = 12;

/// A question for the address of a name, as a message.
fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).expect("a short label"));
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// The last four bytes of an answer with one address, or nothing where it has none.
fn ask(name: &str) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((NODE, 0)).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
    socket.send_to(&question(name), (NODE, 10_053)).ok()?;
    let mut answer = [0; 1500];
    let length = socket.recv(&mut answer).ok()?;
    let last: [u8; 4] = answer[length - 4..length].try_into().expect("four bytes");
    (answer[7] == 1).then(|| Ipv4Addr::from(last))
}

/// A resolver outside, which knows every name.
fn resolver(address: Ipv4Addr) -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a resolver");
    let port = socket.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let mut answer = buffer[..length].to_vec();
            (answer[2], answer[7]) = (0x81, 1);
            answer[8..HEADER_BYTES].fill(0);
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4]);
            answer.extend_from_slice(&address.octets());
            if socket.send_to(&answer, from).is_err() {
                return;
            }
        }
    });
    port
}

fn configure(cluster: &Cluster, corefile: &str) {
    let patch = serde_json::json!({"data": {"Corefile": corefile}});
    cluster.ok(&format!("kubectl patch configmap -n kube-system coredns --patch '{patch}'"));
}

fn until_resolved(name: &str, address: Ipv4Addr) {
    let begun = std::time::Instant::now();
    while ask(name) != Some(address) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{name} is not {address}: {:?}", ask(name));
        std::thread::sleep(Duration::from_millis(50));
    }
}

const EVENTS: &str = "kubectl get events -n kube-system --field-selector involvedObject.name=coredns -o jsonpath='{range .items[*]}{.type} {.reason} {.message}{\"\\n\"}{end}'";

#[test]
fn the_corefile_is_followed() {
    in_a_network_of_its_own(|| {
        let node = Command::new("ip").args(["address", "add", "192.0.2.1/32", "dev", "lo"]).status();
        assert!(node.expect("iproute2").success());
        let cluster = Cluster::start(&["--node-ip", NODE, "--disable", "kubelet,proxy,network"]);
        let map = "kubectl get configmap -n kube-system coredns -o jsonpath='{.data.Corefile}'";
        assert!(cluster.ok(map).contains("forward . /etc/resolv.conf"));
        until_resolved("kubernetes.default.svc.cluster.local", [10, 43, 0, 1].into());
        let outside = resolver([198, 51, 100, 7].into());
        let whole = format!(
            ".:53 {{\n kubernetes cluster.local\n hosts {{\n  10.9.9.9 printer.home\n  fallthrough\n }}\n prometheus :9153\n}}\n\
             corp.example {{\n forward . 127.0.0.1:{outside}\n cache 30\n}}\n"
        );
        configure(&cluster, &whole);
        until_resolved("printer.home", [10, 9, 9, 9].into());
        until_resolved("www.corp.example", [198, 51, 100, 7].into());
        assert_eq!(ask("www.example.org"), None, "nobody is asked for it any more");
        // What cannot be done is told by its line, and what was before stays.
        configure(&cluster, &whole.replace("kubernetes cluster.local", "rewrite name a b"));
        cluster.until_that(EVENTS, |events| {
            events.lines().any(|event| {
                event.starts_with("Warning ConfigurationRefused ") && event.contains("line 2: rewrite:")
            })
        });
        until_resolved("kubernetes.default.svc.cluster.local", [10, 43, 0, 1].into());
        cluster.until_that(&format!("curl -s http://{NODE}:9153/metrics"), |page| {
            page.contains("coredns_reload_failed_total 1")
                && page.contains("coredns_hosts_entries 1")
                && page.contains("rcode=\"NOERROR\",plugin=\"forward\"} 1")
        });
        // Without the map it does what it does by default, and nothing of the other stays.
        cluster.ok("kubectl delete configmap -n kube-system coredns");
        let begun = std::time::Instant::now();
        while ask("printer.home").is_some() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the map is gone");
            std::thread::sleep(Duration::from_millis(50));
        }
        until_resolved("kubernetes.default.svc.cluster.local", [10, 43, 0, 1].into());
    });
}

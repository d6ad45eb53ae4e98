//! The machine's address changes under a running server, in a network of the test's own. What the kubelet writes outside of
//! its data directory goes to directories of the test's own, and no container runtime is there.

use crate::told;
use coracle_tests::cluster::FOUND;
use coracle_tests::http::Caller;
use coracle_tests::{Cluster, skipped};
use nix::sched::{CloneFlags, unshare};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two looks of two seconds, one that confirms, and a start of the kubelet, on a busy machine.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);
/// The longest for which nobody may be answered.
const AWAY: Duration = Duration::from_secs(3);

/// Runs a test on a thread with a network and mounts of its own; both are gone with it and its server.
fn on_a_machine_of_its_own(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        return skipped("a network namespace needs root");
    }
    let test = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces");
        run("mount --make-rprivate /");
        run("mount -t tmpfs none /run && mount -t tmpfs none /var/log");
        run("ip link set lo up && ip link add eth0 type veth peer name far");
        run("ip link set eth0 up && ip link set far up");
        test();
    });
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}

fn run(line: &str) {
    assert!(Command::new("sh").args(["-c", line]).status().expect("a shell").success(), "{line}");
}

/// As DHCP does in another network.
fn move_to(address: &str) {
    run("ip address flush dev eth0");
    run(&format!("ip address add {address}/24 dev eth0 && ip route add default via 192.0.2.1"));
}

fn node(node_ip: &str) -> Cluster {
    Cluster::start(&[
        "--node-ip",
        node_ip,
        "--bind-address",
        "0.0.0.0",
        "--node-name",
        "box",
        "--disable",
        "network,component-pods",
    ])
}

/// The serving certificate of a kubelet's port is of an authority of its own.
fn kubelet_answers(cluster: &Cluster, address: &str) {
    let ca = cluster.data_dir().join("pki/kubelet-serving-ca.crt");
    let line = format!(
        "curl -sS -o /dev/null -w '%{{http_code}}' --cacert {} https://{address}:10250/healthz",
        ca.display()
    );
    cluster.until(&line, "401");
}

const ADDRESS: &str =
    "kubectl get node box -o jsonpath='{.status.addresses[?(@.type==\"InternalIP\")].address}'";
/// Of every move, each once.
const EVENTS: &str = "kubectl get events --field-selector involvedObject.name=box,reason=NodeAddressChanged -o jsonpath='{range .items[*]}{.message}{\"\\n\"}{end}'";

fn has(cluster: &Cluster, address: &str) {
    cluster.within(FOLLOWED_WITHIN, ADDRESS, |shown| shown == address);
    let endpoints = "kubectl get endpoints kubernetes -o jsonpath='{.subsets[*].addresses[*].ip}'";
    cluster.until(endpoints, address);
    let slice = "kubectl get endpointslices kubernetes -o jsonpath='{.endpoints[*].addresses[*]}'";
    cluster.until(slice, address);
    let names =
        "kubectl get endpointslices -n kube-system kube-dns-box -o jsonpath='{.endpoints[*].addresses[*]}'";
    cluster.until(names, address);
    // Certificates that name it, of the API and of the kubelet.
    let (pki, port) = (cluster.data_dir().join("pki"), cluster.port());
    cluster
        .until(&format!("curl -sS --cacert {}/ca.crt https://{address}:{port}/livez", pki.display()), "ok");
    kubelet_answers(cluster, address);
    cluster.until(&format!("iptables-save -t nat | grep -c 'to-destination {address}:{port}'"), "1");
    cluster.shows("kubectl get --raw /api", &[&format!("\"serverAddress\":\"{address}:{port}\"")]);
    let issuer = format!("\"jwks_uri\":\"https://{address}:{port}/openid/v1/jwks\"");
    cluster.shows("kubectl get --raw /.well-known/openid-configuration", &[&issuer]);
}

/// The kubelet renews its Lease every ten seconds; the address is looked at five times meanwhile.
fn until_looked_at(cluster: &Cluster) {
    let renewed = "kubectl get lease -n kube-node-lease box -o jsonpath='{.spec.renewTime}'";
    let first = cluster.ok(renewed);
    let second = cluster.within(FOLLOWED_WITHIN, renewed, |time| time != first);
    cluster.within(FOLLOWED_WITHIN, renewed, |time| time != second);
}

/// Asks by loopback until `work` is done; the longest time between two answers.
fn longest_silence(cluster: &Cluster, work: impl FnOnce()) -> Duration {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut answered, mut longest) = (Instant::now(), Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                if cluster.http(&Caller::Nobody, "GET", "/livez", "").code == 200 {
                    longest = longest.max(answered.elapsed());
                    answered = Instant::now();
                }
            }
            longest.max(answered.elapsed())
        });
        work();
        done.store(true, Ordering::Relaxed);
        asking.join().expect("who asks")
    })
}

#[test]
fn another_address_is_followed_live() {
    on_a_machine_of_its_own(|| {
        // Switched on before the network is there.
        let cluster = node(FOUND);
        cluster.until(ADDRESS, "127.0.0.1");
        let pid = cluster.pid();
        move_to("192.0.2.7");
        has(&cluster, "192.0.2.7");
        // Nothing of this is another address.
        run("ip address add 192.0.2.8/24 dev eth0 && ip address add 198.51.100.8/24 dev far");
        run("ip address add 2001:db8::8/64 dev eth0");
        until_looked_at(&cluster);
        assert_eq!(cluster.ok(ADDRESS), "192.0.2.7");
        let began = Instant::now();
        let silence = longest_silence(&cluster, || {
            move_to("192.0.2.9");
            has(&cluster, "192.0.2.9");
        });
        println!("followed in {:?}, silent for {silence:?} at most", began.elapsed());
        assert!(silence < AWAY, "nobody answered for {silence:?}");
        cluster.until("iptables-save | grep -c 192.0.2.7 || true", "0");
        told(
            &cluster,
            "Node",
            "box",
            "Normal NodeAddressChanged the node's address is 192.0.2.9 now; it was 192.0.2.7",
        );
        let moves = ["192.0.2.7 now; it was 127.0.0.1\n", "192.0.2.9 now; it was 192.0.2.7\n"];
        let moves = moves.map(|to| format!("the node's address is {to}")).concat();
        cluster.until(EVENTS, moves.trim_end());
        assert_eq!(cluster.log().matches("the node has another address").count(), 2);
        assert_eq!(cluster.pid(), pid);
        cluster.assert_alive();
    });
}

#[test]
fn an_address_that_somebody_says_stays() {
    on_a_machine_of_its_own(|| {
        move_to("192.0.2.7");
        let cluster = node("192.0.2.7");
        cluster.until(ADDRESS, "192.0.2.7");
        move_to("192.0.2.9");
        until_looked_at(&cluster);
        assert_eq!(cluster.ok(ADDRESS), "192.0.2.7");
        assert_eq!(cluster.ok(EVENTS), "");
    });
}

/// A second machine, which joins over the wire between both.
const TWO: &str = "ip netns exec two";

fn move_two_to(address: &str) {
    run(&format!("{TWO} ip address flush dev far"));
    run(&format!("{TWO} ip address add {address}/24 dev far"));
    run(&format!("{TWO} ip route add default via 192.0.2.1"));
}

/// The API's way to its kubelet, who is believed by a certificate that names the address.
fn two_has(cluster: &Cluster, address: &str) {
    cluster.within(FOLLOWED_WITHIN, &ADDRESS.replace("box", "two"), |shown| shown == address);
    let names =
        "kubectl get endpointslices -n kube-system kube-dns-two -o jsonpath='{.endpoints[*].addresses[*]}'";
    cluster.until(names, address);
    kubelet_answers(cluster, address);
    cluster.until("kubectl get --raw /api/v1/nodes/two/proxy/healthz", "ok");
}

#[test]
fn another_address_of_a_joined_machine_is_followed_live() {
    on_a_machine_of_its_own(|| {
        run("ip netns add two && ip link set far netns two");
        run(&format!("{TWO} ip link set lo up && {TWO} ip link set far up"));
        run("ip address add 192.0.2.1/24 dev eth0");
        move_two_to("192.0.2.7");
        let cluster = Cluster::start(&[
            "--node-ip",
            "192.0.2.1",
            "--bind-address",
            "0.0.0.0",
            "--disable",
            "kubelet,proxy,network",
        ]);
        let join = cluster.ok("coracle token create --print-join-command");
        let flags = "--node-name two --data-dir $PWD/two --disable network";
        let agent = cluster.start(&format!("{TWO} {} {flags}", join.trim()), "agent");
        two_has(&cluster, "192.0.2.7");
        move_two_to("192.0.2.9");
        two_has(&cluster, "192.0.2.9");
        told(
            &cluster,
            "Node",
            "two",
            "Normal NodeAddressChanged the node's address is 192.0.2.9 now; it was 192.0.2.7",
        );
        cluster.until(&format!("{TWO} iptables-save | grep -c 192.0.2.7 || true"), "0");
        cluster.says("kubectl get node two -o jsonpath='{.metadata.name}'", "two");
        drop(agent);
    });
}

//! Several servers on one etcd. Needs Debian's etcd-server.

use coracle_tests::Cluster;
use coracle_tests::etcd::Etcd;
use coracle_tests::http::{Caller, request};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Each server makes so many.
const EACH: usize = 60;

fn listed(server: &Cluster) -> Vec<String> {
    let slice =
        server.raw("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", "");
    let slice: Value = slice.json();
    let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
    endpoints.iter().filter_map(|endpoint| Some(endpoint["addresses"][0].as_str()?.to_owned())).collect()
}

#[test]
fn three_servers_share_addresses_ports_and_who_lives() {
    let etcd = Etcd::start();
    let one = Cluster::start(&etcd.arguments("192.0.2.1"));
    let mut two = one.start_beside(&etcd.arguments("192.0.2.2"));
    let three = one.start_beside(&etcd.arguments("192.0.2.3"));
    let made: Vec<Value> = std::thread::scope(|scope| {
        let makers: Vec<_> = [&one, &two, &three]
            .iter()
            .enumerate()
            .map(|(server, cluster)| {
                let (port, pki) = (cluster.port(), cluster.data_dir().join("pki"));
                scope.spawn(move || (0..EACH).map(|n| make(port, &pki, server, n)).collect::<Vec<_>>())
            })
            .collect();
        makers.into_iter().flat_map(|maker| maker.join().expect("services")).collect()
    });
    let ips: BTreeSet<&str> =
        made.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    assert_eq!(ips.len(), 3 * EACH, "an address was given twice");
    let ports: BTreeSet<u64> =
        made.iter().filter_map(|service| service["spec"]["ports"][0]["nodePort"].as_u64()).collect();
    assert_eq!(ports.len(), 3 * EACH, "a node port was given twice");
    // What the last wrote is what the first reads at once.
    for cluster in [&one, &two, &three] {
        let all = cluster.raw("GET", SERVICES, "").json();
        assert_eq!(all["items"].as_array().map(Vec::len), Some(3 * EACH + 1));
    }
    let wait = |expected: &[&str]| {
        coracle_tests::wait_for("the living servers", Duration::from_secs(30), || {
            let found = listed(&one);
            if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
        });
    };
    wait(&["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    two.kill();
    wait(&["192.0.2.1", "192.0.2.3"]);
}

fn make(port: u16, pki: &std::path::Path, server: usize, n: usize) -> Value {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s-{server}-{n}"}},"spec":{{"type":"NodePort","ports":[{{"port":80}}]}}}}"#
    );
    let answer = request(port, pki, &Caller::Admin, "POST", SERVICES, &body);
    assert_eq!(answer.code, 201, "{answer:?}");
    answer.json()
}

#[test]
fn a_dead_leader_is_followed_and_a_server_that_is_told_to_end_hands_over() {
    let etcd = Etcd::start();
    let mut one = Cluster::start(&etcd.arguments("192.0.2.1"));
    let mut two = one.start_beside(&etcd.arguments("192.0.2.2"));
    one.kill();
    two.ok("kubectl create deployment after-a-kill --image=busybox");
    two.within(Duration::from_secs(20), "kubectl get replicasets -o name", |found| {
        found.contains("after-a-kill")
    });
    one.restart();
    assert_eq!(two.terminate(), 0);
    one.ok("kubectl create deployment after-an-end --image=busybox");
    one.within(Duration::from_secs(5), "kubectl get replicasets -o name", |found| {
        found.contains("after-an-end")
    });
}

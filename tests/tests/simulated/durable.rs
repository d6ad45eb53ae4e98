//! kill -9 and what must still be there.

use super::with_web;
use coracle_tests::Cluster;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Acknowledged writes that a round must have to say anything.
const ENOUGH: usize = 10;

fn names(cluster: &Cluster) -> BTreeSet<String> {
    let list = cluster.raw("GET", "/api/v1/namespaces/default/configmaps", "").json();
    let items = list["items"].as_array().expect("items");
    items
        .iter()
        .filter_map(|i| i["metadata"]["name"].as_str())
        .filter(|n| n.starts_with("w-"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_acknowledged_write_survives_kill_9() {
    let mut cluster = Cluster::start(&[]);
    for round in 0..3 {
        let acknowledged = Mutex::new(BTreeSet::new());
        let dead = AtomicBool::new(false);
        let (port, pki) = (cluster.port(), cluster.data_dir().join("pki"));
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (acknowledged, dead, pki) = (&acknowledged, &dead, &pki);
                scope.spawn(move || {
                    for n in 0.. {
                        let name = format!("w-{round}-{writer}-{n}");
                        let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"n":"{n}"}}}}"#);
                        let caller = coracle_tests::http::Caller::Admin;
                        let path = "/api/v1/namespaces/default/configmaps";
                        let answer = coracle_tests::http::request(port, pki, &caller, "POST", path, &body);
                        if answer.code == 201 {
                            acknowledged.lock().expect("no writer panics").insert(name);
                        } else if dead.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(700 + 300 * round));
            // On a busy machine the first writes take long.
            let patience = Instant::now() + Duration::from_secs(20);
            while acknowledged.lock().expect("no writer panics").len() <= ENOUGH && Instant::now() < patience
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            dead.store(true, Ordering::Relaxed);
            cluster.kill();
        });
        cluster.restart();
        let (acknowledged, found) = (acknowledged.into_inner().expect("no writer panics"), names(&cluster));
        assert!(acknowledged.len() > ENOUGH, "too few writes to mean anything: {}", acknowledged.len());
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        assert!(
            lost.is_empty(),
            "round {round}: of {} acknowledged writes these are lost: {lost:?}",
            acknowledged.len()
        );
    }
}

#[test]
fn kill_9_in_the_middle_of_a_rollout() {
    let mut cluster = with_web();
    cluster.ok(
        "kubectl scale deployment web --replicas=12 && kubectl rollout status deployment/web --timeout=100s",
    );
    cluster.ok("kubectl set image deployment/web web=nginx:1.28");
    cluster.kill();
    cluster.restart();
    cluster.shows("kubectl rollout status deployment/web --timeout=100s", &["successfully rolled out"]);
    cluster.until("kubectl get pods -l app=web -o name | wc -l", "12");
    cluster.says("kubectl get pods -l app=web -o jsonpath='{.items[*].spec.containers[0].image}' | tr ' ' '\\n' | sort | uniq -c | tr -s ' '", " 12 nginx:1.28");
    cluster.says("kubectl get replicasets -l app=web -o name | wc -l", "2");
    cluster.says("kubectl get endpointslices -l kubernetes.io/service-name=web -o name | wc -l", "1");
    cluster.says("kubectl get deployment web --no-headers | awk '{print $2, $3, $4}'", "12/12 12 12");
    let addresses = cluster.ok(
        "kubectl get pods -l app=web -o jsonpath='{.items[*].status.podIP}' | tr ' ' '\\n' | sort -u | wc -l",
    );
    assert_eq!(addresses.trim(), "12", "every pod has an address of its own");
}

#[test]
fn a_restart_changes_nothing_that_runs() {
    let mut cluster = with_web();
    let state = "kubectl get pods -l app=web -o jsonpath='{range .items[*]}{.metadata.uid} {.spec.nodeName} {.status.podIP} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}'";
    let identity = "kubectl get service,serviceaccount,secret,configmap -A -o jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.spec.clusterIP}{\"\\n\"}{end}' | sort";
    let (pods, objects) = (cluster.ok(state), cluster.ok(identity));
    let token =
        coracle_tests::http::Caller::Token(cluster.ok("kubectl create token default").trim().to_owned());
    cluster.kill();
    cluster.restart();
    cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    assert_eq!(cluster.ok(state), pods);
    assert_eq!(cluster.ok(identity), objects);
    assert_eq!(
        cluster.http(&token, "GET", "/api/v1/namespaces/default/pods", "").code,
        403,
        "tokens outlive the server"
    );
    assert_eq!(cluster.terminate(), 0, "SIGTERM ends the server in order");
    cluster.restart();
    assert_eq!(cluster.ok(state), pods);
    assert_eq!(cluster.ok(identity), objects);
}

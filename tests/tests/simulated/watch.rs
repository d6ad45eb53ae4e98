//! Watches, also across a server's sudden end.

use coracle_tests::{Cluster, wait_for};
use serde_json::Value;
use std::time::Duration;

fn watch(cluster: &Cluster, query: &str, file: &str) -> coracle_tests::shell::Background {
    let pki = cluster.data_dir().join("pki");
    let line = format!(
        "curl -sN --cacert {0}/ca.crt --cert {0}/admin.crt --key {0}/admin.key 'https://127.0.0.1:{1}/api/v1/namespaces/default/configmaps?watch=true&{query}'",
        pki.display(),
        cluster.port()
    );
    cluster.start(&line, file)
}

/// `TYPE name` of every complete event, bookmarks aside.
fn events(printed: &str) -> Vec<String> {
    let parsed = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let real = parsed.filter(|e| e["type"] != "BOOKMARK");
    real.map(|e| {
        format!(
            "{} {}",
            e["type"].as_str().unwrap_or("?"),
            e["object"]["metadata"]["name"].as_str().unwrap_or("?")
        )
    })
    .collect()
}

fn version(cluster: &Cluster) -> String {
    cluster.raw("GET", "/api/v1/namespaces/default/configmaps", "").json()["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned()
}

#[test]
fn a_watch_resumes_where_it_was_after_kill_9() {
    let mut cluster = Cluster::simulated();
    let start = version(&cluster);
    let before = watch(&cluster, &format!("resourceVersion={start}"), "before");
    cluster.ok("kubectl create configmap one && kubectl create configmap two");
    let printed = before.until_that("two events", |text| events(text).len() == 2);
    assert_eq!(events(&printed), ["ADDED one", "ADDED two"]);
    let first: Value = serde_json::from_str(printed.lines().next().expect("a line")).expect("JSON");
    let seen = first["object"]["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    cluster.ok("kubectl label configmap one seen=late && kubectl delete configmap two && kubectl create configmap three");
    cluster.kill();
    assert_ne!(before.wait(), 0, "curl notices the end of the server");
    cluster.restart();
    cluster.ok("kubectl create configmap four");
    let after = watch(&cluster, &format!("resourceVersion={seen}"), "after");
    let wanted = ["ADDED two", "MODIFIED one", "DELETED two", "ADDED three", "ADDED four"];
    let printed =
        after.until_that("everything since the first event", |text| events(text).len() >= wanted.len());
    assert_eq!(events(&printed), wanted);
}

#[test]
fn kubectls_own_watch_goes_on_showing_what_comes() {
    let cluster = Cluster::simulated();
    let watching = cluster.start("kubectl get pods --watch --output-watch-events", "pods");
    cluster.ok("kubectl run one --image=nginx && kubectl wait pod/one --for=condition=Ready --timeout=100s");
    cluster.ok("kubectl delete pod one --timeout=100s");
    let printed = watching.until_that("the pod's whole life", |text| text.contains("DELETED"));
    let seen: Vec<&str> = printed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!((seen.first(), seen.last()), (Some(&"ADDED"), Some(&"DELETED")), "{printed}");
}

#[test]
fn a_version_from_the_future_or_from_nowhere() {
    let cluster = Cluster::simulated();
    let bad = cluster.raw("GET", "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=abc", "");
    assert!(bad.status(422, "Invalid").contains("resourceVersion: Invalid value: \"abc\""), "{bad:?}");
    let number = |text: &str| text.parse::<u64>().expect("a version is a number");
    let before = number(&version(&cluster));
    let future = cluster.raw(
        "GET",
        "/api/v1/namespaces/default/configmaps?resourceVersion=99999999&resourceVersionMatch=NotOlderThan",
        "",
    );
    // Controllers and nodes write meanwhile.
    let after = number(&version(&cluster));
    let message = future.status(504, "Timeout");
    let current = message.strip_prefix("Timeout: Too large resource version: 99999999, current: ");
    let current = number(current.unwrap_or_else(|| panic!("{message}")));
    assert!((before..=after).contains(&current), "{before} <= {current} <= {after}");
    cluster.assert_alive();
}

#[test]
fn bookmarks_and_initial_events() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create configmap one");
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let stream = watch(&cluster, query, "stream");
    let printed = stream.until_that("the mark after the initial events", |text| text.contains("BOOKMARK"));
    let last: Value = serde_json::from_str(printed.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{printed}");
    assert_eq!(events(&printed), ["ADDED kube-root-ca.crt", "ADDED one"]);
}

#[test]
fn many_watchers_all_see_everything_in_order() {
    let cluster = Cluster::simulated();
    let start = version(&cluster);
    let watchers: Vec<_> = (0..20)
        .map(|i| watch(&cluster, &format!("resourceVersion={start}"), &format!("watcher-{i}")))
        .collect();
    let body = |n: u32| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c-{n}"}}}}"#);
    for n in 0..30 {
        assert_eq!(cluster.raw("POST", "/api/v1/namespaces/default/configmaps", &body(n)).code, 201);
    }
    let wanted: Vec<String> = (0..30).map(|n| format!("ADDED c-{n}")).collect();
    for watcher in &watchers {
        let printed = wait_for("thirty events", Duration::from_secs(30), || {
            let printed = watcher.printed();
            if events(&printed).len() >= 30 { Ok(printed) } else { Err(printed) }
        });
        assert_eq!(events(&printed), wanted);
    }
}

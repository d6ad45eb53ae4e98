//! What is declared comes back: pods deleted, nodes lost or refused, the server killed in the middle, controllers that disagree,
//! clocks that jump. Against the real binary with simulated nodes; needs kubectl, and no root but for a network of a test's own.

mod address;
mod autoscale;
mod clock;
mod daemons;
mod disagree;
mod drain;
mod hung;
mod joining;
mod killed;
mod nodes;
mod partition;
mod pods;
mod power;
mod servers;
mod storms;
mod volumes;

use coracle_tests::{Cluster, Shell};
use serde_json::Value;
use std::collections::BTreeSet;

/// One workload of every kind. Their pods carry the label `app` with the workload's name.
fn workload(kind: &str, name: &str, spec: &str) -> String {
    let version = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
    let selector = match kind {
        "ReplicationController" => format!("{{app: {name}}}"),
        _ => format!("{{matchLabels: {{app: {name}}}}}"),
    };
    format!(
        r#"
---
apiVersion: {version}
kind: {kind}
metadata: {{name: {name}}}
spec:
  selector: {selector}
  {spec}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      tolerations:
      - {{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 2}}
      - {{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 2}}
      containers: [{{name: c, image: "app:1"}}]
"#
    )
}

/// A Job whose pods run as long as `run` says (a duration), and end well.
fn job(name: &str, run: &str, spec: &str) -> String {
    format!(
        r#"
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  {spec}
  template:
    metadata: {{labels: {{app: {name}}}, annotations: {{simulate.coracle.local/duration: {run}}}}}
    spec:
      restartPolicy: Never
      tolerations:
      - {{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 2}}
      containers: [{{name: c, image: busybox}}]
"#
    )
}

/// Some simulated nodes, Ready.
fn nodes(count: usize) -> Cluster {
    let cluster = Cluster::start(&["--simulate-nodes", &count.to_string()]);
    cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    cluster
}

/// As upstream has it, but for how soon a node that is silent counts as lost, and how fast those that are lost give up their
/// pods: two renewals of a Lease, and one a second.
const SOON_LOST: [&str; 4] = ["--node-monitor-grace-period", "20s", "--node-eviction-rate", "1"];

/// Likewise, and a node that falls silent is lost soon.
fn nodes_soon_lost(count: usize) -> Cluster {
    let count = count.to_string();
    let cluster = Cluster::start(&[&["--simulate-nodes", &*count], &SOON_LOST[..]].concat());
    cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    cluster
}

/// The simulated node's kubelet does nothing any more, or everything again.
fn silence(cluster: &Cluster, node: &str, silent: bool) {
    cluster.ok(&format!("kubectl annotate node {node} --overwrite simulate.coracle.local/silent={silent}"));
}

/// The pods of the namespace `default`, as they are, and the revision of that.
fn pods_now(cluster: &Cluster) -> (String, Vec<Value>) {
    let list = cluster.raw("GET", "/api/v1/namespaces/default/pods", "").json();
    let revision = list["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    (revision, list["items"].as_array().cloned().unwrap_or_default())
}

/// What a watch from this revision on tells of pods, up to now: type and object.
fn pods_since(cluster: &Cluster, revision: &str) -> Vec<(String, Value)> {
    let (until, pods) = pods_now(cluster);
    let [from, until] = [revision, &until].map(|text| text.parse::<u64>().expect("a number"));
    let revision_of =
        |pod: &Value| pod["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
    let newest = pods.iter().filter_map(revision_of).max().unwrap_or_default();
    let path = format!("/api/v1/namespaces/default/pods?watch=1&resourceVersion={revision}&timeoutSeconds=2");
    let told = cluster.raw("GET", &path, "").text;
    let events = told.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    let seen =
        events.map(|event| (event["type"].as_str().unwrap_or_default().to_owned(), event["object"].clone()));
    let seen: Vec<(String, Value)> = seen.collect();
    let is_pod = |(kind, _): &(String, Value)| ["ADDED", "MODIFIED", "DELETED"].contains(&&**kind);
    assert!(seen.iter().all(is_pod), "the watch was cut short: {seen:?}");
    let is_newest = |(_, pod): &(String, Value)| revision_of(pod) == Some(newest);
    assert!(
        newest <= from || seen.iter().any(is_newest),
        "the watch was cut short before {newest}: {seen:?}"
    );
    seen.into_iter().filter(|(_, pod)| revision_of(pod).is_some_and(|at| at <= until)).collect()
}

/// Lines of a command that must succeed, sorted.
#[track_caller]
fn set(shell: &Shell, line: &str) -> BTreeSet<String> {
    shell.ok(line).lines().map(str::to_owned).collect()
}

/// UIDs of the pods of a workload that are not being deleted.
#[track_caller]
fn uids(shell: &Shell, app: &str) -> BTreeSet<String> {
    let fields = r#"{range .items[*]}{.metadata.deletionTimestamp}/{.metadata.uid}{"\n"}{end}"#;
    let all = set(shell, &format!("kubectl get pods -l app={app} -o jsonpath='{fields}'"));
    all.into_iter().filter_map(|line| line.strip_prefix('/').map(str::to_owned)).collect()
}

/// `Type Reason message` of the events of one object, each once.
#[track_caller]
fn events(shell: &Shell, kind: &str, name: &str) -> BTreeSet<String> {
    let fields = r#"{range .items[*]}{.type} {.reason} {.message}{"\n"}{end}"#;
    let select = format!("involvedObject.kind={kind},involvedObject.name={name}");
    set(shell, &format!("kubectl get events -A --field-selector {select} -o jsonpath='{fields}'"))
}

/// Waits until an object has an event of these words; `*` stands for a word whose end nobody can foresee.
#[track_caller]
fn told(shell: &Shell, kind: &str, name: &str, expected: &str) {
    let what = format!("the event {expected:?} of {kind} {name}");
    coracle_tests::wait_for(&what, std::time::Duration::from_secs(60), || {
        let all = events(shell, kind, name);
        if all.iter().any(|text| like(text, expected)) { Ok(()) } else { Err(format!("{all:#?}")) }
    });
}

fn like(text: &str, pattern: &str) -> bool {
    let (mut words, mut wanted) = (text.split(' '), pattern.split(' '));
    loop {
        match (words.next(), wanted.next()) {
            (None, None) => return true,
            (Some(word), Some(want)) => match want.strip_suffix('*') {
                Some(start) if word.starts_with(start) => {}
                None if word == want => {}
                _ => return false,
            },
            _ => return false,
        }
    }
}

#[test]
fn patterns_of_words() {
    assert!(like(
        "Normal SuccessfulCreate Created pod: web-x1-y2",
        "Normal SuccessfulCreate Created pod: web-*"
    ));
    assert!(!like("Normal SuccessfulCreate Created pod: db-0", "Normal SuccessfulCreate Created pod: web-*"));
    assert!(!like("Normal A b", "Normal A") && !like("Normal A", "Normal A b"));
}

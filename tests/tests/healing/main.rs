//! What is declared comes back: pods deleted, nodes lost or refused, the server killed in the middle, controllers that disagree,
//! clocks that jump. Against the real binary with simulated nodes; needs kubectl, and no root but for a network of a test's own.

mod address;
mod autoscale;
mod clock;
mod disagree;
mod hung;
mod joining;
mod killed;
mod nodes;
mod pods;
mod power;
mod servers;
mod storms;

use coracle_tests::{Cluster, Shell};
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

//! New authorities for a running cluster: who knew the old ones is served until they are dropped, and not afterwards.

use coracle_tests::rest::Rest;
use coracle_tests::{Cluster, Output};
use serde_json::json;
use std::path::{Path, PathBuf};

fn rotate(cluster: &Cluster, flags: &str) -> String {
    cluster.ok(&format!("coracle cert rotate-ca --data-dir {} {flags}", cluster.data_dir().display()))
}

fn refused(cluster: &Cluster, flags: &str, words: &str) {
    let data = cluster.data_dir();
    let output = cluster.run(&format!("coracle cert rotate-ca --data-dir {} {flags}", data.display()));
    assert!(output.code == 1 && output.stderr.contains(words), "{flags}: {output}");
}

fn with(cluster: &Cluster, kubeconfig: &Path, line: &str) -> Output {
    cluster.run(&format!("kubectl --kubeconfig {} {line}", kubeconfig.display()))
}

/// How many authorities each of those is told who reads them somewhere.
fn told(cluster: &Cluster) -> Vec<usize> {
    let count = |text: &str| text.matches("BEGIN CERTIFICATE").count();
    let map = |namespace: &str, name: &str, key: &str| {
        cluster.ok(&format!("kubectl get configmap -n {namespace} {name} -o jsonpath='{{.data.{key}}}'"))
    };
    let decoded = |command: &str| {
        cluster.ok(&format!(
            "{command} | sed -n 's/.*certificate-authority-data: *//p' | tr -d '\"' | base64 -d"
        ))
    };
    vec![
        count(&map("default", "kube-root-ca.crt", "ca\\.crt")),
        count(&map("kube-system", "extension-apiserver-authentication", "client-ca-file")),
        count(&map("kube-system", "extension-apiserver-authentication", "requestheader-client-ca-file")),
        count(&decoded("kubectl get configmap -n kube-public cluster-info -o jsonpath='{.data.kubeconfig}'")),
        count(&decoded(&format!("cat {}", cluster.kubeconfig().display()))),
    ]
}

fn until_told(cluster: &Cluster, wanted: usize) {
    // Only the ConfigMaps of namespaces are somebody else's work.
    cluster.until_that(
        "kubectl get configmap -A --field-selector metadata.name=kube-root-ca.crt -o jsonpath='{range .items[*]}{.data.ca\\.crt}|{end}'",
        |all| {
            let maps: Vec<_> = all.split('|').filter(|map| map.contains("BEGIN")).collect();
            !all.is_empty() && maps.iter().all(|map| map.matches("BEGIN CERTIFICATE").count() == wanted)
        },
    );
    assert_eq!(told(cluster), [wanted; 5]);
}

fn copy(cluster: &Cluster, name: &str) -> PathBuf {
    let path = cluster.home().join(name);
    std::fs::copy(cluster.kubeconfig(), &path).expect("a copy of the kubeconfig");
    path
}

#[test]
fn authorities_are_replaced_without_a_restart() {
    let mut cluster = Cluster::start(&["--simulate-nodes", "1"]);
    let old = copy(&cluster, "old.conf");
    let version = |cluster: &Cluster, kubeconfig: &Path| with(cluster, kubeconfig, "get --raw /version");
    assert!(rotate(&cluster, "--status").starts_with("kubernetes-ca signs and is trusted, and no other"));
    refused(&cluster, "--issue", "no new authority was made; begin without a flag");
    refused(&cluster, "--force", "--force goes with --issue or --finish");
    let text = rotate(&cluster, "");
    assert!(
        text.starts_with("kubernetes-ca@") && text.contains(" is trusted beside kubernetes-ca, which signs")
    );
    assert!(text.contains("left to do") && text.contains("--issue"), "{text}");
    until_told(&cluster, 2);
    refused(&cluster, "--finish", "the old authorities sign yet; --issue comes first");
    let pins = cluster.ok("coracle token create --print-join-command");
    assert_eq!(pins.matches("sha256:").count(), 2, "{pins}");
    // A node that nobody hears of.
    Rest::new(cluster.kubeconfig()).create("/api/v1/nodes", &json!({ "metadata": { "name": "away" } }));
    refused(&cluster, "--issue", "these nodes do not say that they trust the new authority: away;");
    cluster.ok("kubectl delete node away");
    let both = copy(&cluster, "both.conf");
    let watch = cluster
        .start(&format!("kubectl --kubeconfig {} get configmaps --watch -o name", old.display()), "watched");
    watch.until_that("the watch of the old kubeconfig", |text| text.contains("kube-root-ca.crt"));

    let text = rotate(&cluster, "--issue");
    assert!(text.contains(" signs, kubernetes-ca is trusted yet") && text.contains("--finish"), "{text}");
    until_told(&cluster, 2);
    for kubeconfig in [&old, &both, &cluster.kubeconfig().to_owned()] {
        let answer = version(&cluster, kubeconfig);
        assert_eq!(answer.code, 0, "{}: {answer}", kubeconfig.display());
    }
    let shown = cluster.ok(&format!("coracle cert check --data-dir {}", cluster.data_dir().display()));
    let issuers: Vec<_> = shown.lines().filter(|line| line.contains("/apiserver.crt ")).collect();
    assert!(issuers.len() == 1 && issuers[0].contains("CN=kubernetes-ca@"), "{shown}");
    cluster.ok("kubectl create configmap seen");
    watch.until_that("the watch goes on", |text| text.contains("configmap/seen"));
    cluster.kill_and_restart();
    assert_eq!(version(&cluster, &old).code, 0, "also after a start");

    let watch = cluster.start(
        &format!("kubectl --kubeconfig {} get configmaps --watch -o name", old.display()),
        "watched-again",
    );
    watch.until_that("the watch of the old kubeconfig", |text| text.contains("kube-root-ca.crt"));
    let new = copy(&cluster, "new.conf");
    let text = rotate(&cluster, "--finish");
    assert!(text.contains(" alone is trusted; the old one is gone"), "{text}");
    watch.wait();
    until_told(&cluster, 1);
    assert_eq!((version(&cluster, &new).code, version(&cluster, cluster.kubeconfig()).code), (0, 0));
    let answer = version(&cluster, &old);
    assert!(answer.stderr.contains("certificate signed by unknown authority"), "{answer}");
    let part = |name: &str| {
        format!(
            "kubectl --kubeconfig {} config view --raw -o jsonpath='{{.users[0].user.{name}}}' | base64 -d",
            old.display()
        )
    };
    cluster.ok(&format!(
        "{} > old.pem; {} >> old.pem",
        part("client-certificate-data"),
        part("client-key-data")
    ));
    let line = "curl -sk -o /dev/null -w '%{http_code}' --cert old.pem --key old.pem";
    cluster.says(&format!("{line} https://127.0.0.1:{}/api", cluster.port()), "401");
    rotate(&cluster, "");
    assert!(rotate(&cluster, "--abandon").contains("the new authority is gone; kubernetes-ca@"));
    until_told(&cluster, 1);
    assert!(cluster.terminate() == 0);
    refused(&cluster, "", "no server runs here");
}

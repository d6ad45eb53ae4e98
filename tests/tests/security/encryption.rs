//! Who reads the disk learns no Secret: not from the journal, the checkpoint or the snapshot, neither after the encryption
//! is turned on, nor after a change of keys, nor when the server is killed while it rewrites.

use coracle_tests::Cluster;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// In base64, as a Secret's `data` is stored.
pub const MARKER: &str = "bWFyay1vZi1hLXNlY3JldC1vbi1kaXNr";
const KEY_1: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const KEY_2: &str = "//79/Pv6+fj39vX08/Lx8O/u7ezr6uno5+bl5OPi4eA=";

/// Files below a directory whose bytes hold these.
pub fn holders(dir: &Path, part: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holders(&path, part));
            continue;
        }
        // A file may go while it is looked at.
        let bytes = std::fs::read(&path).unwrap_or_default();
        if bytes.windows(part.len()).any(|window| window == part) {
            found.push(path.display().to_string());
        }
    }
    found
}

pub fn create(cluster: &Cluster, count: usize) {
    for number in 0..count {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"s{number}"}},"data":{{"pw":"{MARKER}","pad":"{}"}}}}"#,
            "QUFB".repeat(200)
        );
        let answer = cluster.raw("POST", "/api/v1/namespaces/default/secrets", &body);
        assert_eq!(answer.code, 201, "{answer:?}");
    }
}

pub fn assert_readable(cluster: &Cluster, count: usize) {
    let list = cluster.raw("GET", "/api/v1/namespaces/default/secrets", "").json();
    let items = list["items"].as_array().expect("items");
    let whole = items.iter().filter(|item| item["data"]["pw"] == MARKER).count();
    assert_eq!(whole, count, "every Secret is there, with its text");
}

pub fn until_rewritten(cluster: &Cluster, scrubs: usize) {
    let line = "kubectl get --raw /metrics | grep -E '^coracle_encryption_(scrubs_total|stale_objects) '";
    cluster.until_that(line, |shown| {
        shown.contains("coracle_encryption_stale_objects 0")
            && shown.lines().any(|line| {
                let total = line.strip_prefix("coracle_encryption_scrubs_total ");
                total.is_some_and(|total| total.parse::<usize>().is_ok_and(|total| total >= scrubs))
            })
    });
}

fn configuration(providers: &str) -> String {
    format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  \
         providers: [{providers}]\n"
    )
}

fn keys(provider: &str, name: &str, secret: &str) -> String {
    format!("{{{provider}: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
}

#[test]
fn turned_on_later_nothing_plain_is_left() {
    let mut cluster = Cluster::start(&[]);
    create(&cluster, 100);
    cluster.ok("kubectl delete secret s0");
    assert!(
        !holders(&cluster.data_dir(), MARKER.as_bytes()).is_empty(),
        "without encryption the text stands on the disk"
    );
    cluster.terminate();
    cluster.restart_with(&["--secrets-encryption"]);
    until_rewritten(&cluster, 1);
    assert_eq!(holders(&cluster.data_dir(), MARKER.as_bytes()), Vec::<String>::new());
    assert_readable(&cluster, 99);
    let file = cluster.data_dir().join("pki/encryption-config.yaml");
    assert_eq!(file.metadata().expect("the file").permissions().mode() & 0o777, 0o600);

    // Another key, taken up live; then the old one goes.
    let verb = |verb: &str| {
        let run = std::process::Command::new(coracle_tests::coracle());
        let output = { run }.args(["secrets", verb, "--data-dir"]).arg(cluster.data_dir()).output();
        let output = output.expect("the binary runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    assert!(verb("rotate").0);
    until_rewritten(&cluster, 2);
    let (_, status) = verb("status");
    assert_eq!(status.lines().count(), 3, "{status}");
    assert_eq!(verb("prune"), (true, "1 old keys are gone\n".to_owned()));
    // The flag need not be given again, and the new key alone reads everything.
    cluster.kill();
    cluster.restart_with(&[]);
    assert_readable(&cluster, 99);
    create_one_more(&cluster);
    assert_eq!(holders(&cluster.data_dir(), MARKER.as_bytes()), Vec::<String>::new());
    cluster.terminate();
    assert_eq!(holders(&cluster.data_dir(), MARKER.as_bytes()), Vec::<String>::new());
    // Off again, which has to be said.
    cluster.restart_with(&["--secrets-encryption=false"]);
    until_rewritten(&cluster, 1);
    assert_readable(&cluster, 100);
    assert!(!holders(&cluster.data_dir(), MARKER.as_bytes()).is_empty());
}

pub fn create_one_more(cluster: &Cluster) {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"later"}},"data":{{"pw":"{MARKER}"}}}}"#
    );
    assert_eq!(cluster.raw("POST", "/api/v1/namespaces/default/secrets", &body).code, 201);
}

#[test]
fn killed_while_it_rewrites() {
    let mut cluster = Cluster::start(&[]);
    create(&cluster, 300);
    for round in 0..4u32 {
        cluster.kill();
        cluster.restart_with(&["--secrets-encryption"]);
        // The rewriting is paced: some hundred milliseconds for so many.
        std::thread::sleep(std::time::Duration::from_millis(u64::from(round) * 120));
    }
    cluster.kill();
    cluster.restart();
    let mark = cluster.data_dir().join("db/scrubbed");
    coracle_tests::wait_for("the end of the rewriting", std::time::Duration::from_secs(60), || {
        let left = holders(&cluster.data_dir(), MARKER.as_bytes());
        if left.is_empty() && mark.exists() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert_readable(&cluster, 300);
}

#[test]
fn a_configuration_is_followed_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("encryption.yaml");
    std::fs::write(&path, configuration(&format!("{}, {{identity: {{}}}}", keys("aescbc", "a", KEY_1))))
        .expect("write");
    let file = path.display().to_string();
    let flags = ["--encryption-provider-config", &file, "--encryption-provider-config-automatic-reload"];
    let mut cluster = Cluster::start(&flags);
    create(&cluster, 20);
    let data = cluster.data_dir();
    assert_eq!(holders(&data, MARKER.as_bytes()), Vec::<String>::new());
    assert!(!holders(&data, b"k8s:enc:aescbc:v1:a:").is_empty());

    std::fs::write(&path, configuration(&keys("aesgcm", "''", KEY_2))).expect("write");
    let reloads = "kubectl get --raw /metrics | grep automatic_reloads_total";
    cluster.until_that(reloads, |text| text.contains("status=\"failure\"} 1"));
    cluster.until_that("kubectl get events -n default", |text| text.contains("ConfigurationRefused"));
    assert!(cluster.log().contains("resources[0].providers[0].aesgcm.keys[0].name: Required value"));
    assert!(!cluster.log().contains(KEY_2), "keys stand in no log");
    assert_readable(&cluster, 20);

    let both = format!("{}, {}", keys("aesgcm", "b", KEY_2), keys("aescbc", "a", KEY_1));
    std::fs::write(&path, configuration(&both)).expect("write");
    cluster.until_that(reloads, |text| text.contains("status=\"success\"} 1"));
    cluster.until_that("kubectl get events -n default", |text| text.contains("ConfigurationInForce"));
    until_rewritten(&cluster, 1);
    coracle_tests::wait_for("no value under the old key", std::time::Duration::from_secs(30), || {
        let left = holders(&data, b"k8s:enc:aescbc:v1:a:");
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    // As upstream's page says it.
    cluster.ok("kubectl get secrets -A -o json | kubectl replace -f -");
    assert_readable(&cluster, 20);

    // The key is lost: each is told by name, and the rest goes on.
    cluster.terminate();
    std::fs::write(&path, configuration(&keys("aesgcm", "b", KEY_1))).expect("write");
    cluster.restart();
    let get = cluster.raw("GET", "/api/v1/namespaces/default/secrets/s1", "");
    let told = "Internal error occurred: unable to transform key \"/registry/secrets/default/s1\": message authentication failed";
    assert!(get.code == 500 && get.text.contains(&told.replace('"', "\\\"")), "{get:?}");
    assert_eq!(cluster.raw("GET", "/api/v1/secrets", "").code, 500, "no list shows less than there is");
    assert_eq!(cluster.raw("GET", "/api/v1/namespaces/kube-system/secrets", "").code, 200);
    cluster.ok("kubectl create configmap c --from-literal=a=b");
    let metrics = cluster.ok("kubectl get --raw /metrics | grep '^coracle_encryption_unreadable_objects '");
    assert_eq!(metrics.trim(), "coracle_encryption_unreadable_objects 20");
    // It is found again.
    std::fs::write(&path, configuration(&keys("aesgcm", "b", KEY_2))).expect("write");
    cluster.until_that("kubectl get secret s1 -o jsonpath='{.data.pw}' 2>&1", |text| text == MARKER);
    cluster.until_that("kubectl get secrets --no-headers 2>&1 | wc -l", |text| text.trim() == "20");
    assert_readable(&cluster, 20);
}

#[test]
fn a_broken_configuration_is_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("encryption.yaml");
    let broken = format!("{}, {{}}", keys("secretbox", "''", "c2hvcnQ="));
    std::fs::write(&path, configuration(&broken)).expect("write");
    let output = std::process::Command::new(coracle_tests::coracle())
        .args(["server", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg("--encryption-provider-config")
        .arg(&path)
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in [
        "encryption.yaml: resources[0].providers[0].secretbox.keys[0].name: Required value",
        "keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 5, expected one of [32]",
        "resources[0].providers[1]: Invalid value: provider does not contain any of the expected providers",
    ] {
        assert!(text.contains(part), "{part} is missing from {text}");
    }
}

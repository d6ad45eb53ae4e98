//! `scripts/cis` says of a server that follows the benchmark that it does, and of a worse one which points it fails.

use coracle_tests::Cluster;
use coracle_tests::binary::repository;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  resources:\n  \
                      - {group: '', resources: [secrets, configmaps]}\n  - {group: authentication.k8s.io, resources: [tokenreviews]}\n";

/// What a server is started with that leaves as little as possible to be said.
fn careful(dir: &Path) -> Vec<String> {
    let file = |name: &str| dir.join(name).display().to_string();
    std::fs::write(dir.join("policy.yaml"), POLICY).expect("written");
    let (policy, log) = (file("policy.yaml"), file("audit.log"));
    let flags = [
        "--disable",
        "kubelet,proxy,network,dns",
        "--enable-admission-plugins",
        "AlwaysPullImages,DenyServiceExternalIPs",
        "--audit-policy-file",
        &policy,
        "--audit-log-path",
        &log,
    ];
    flags.map(str::to_owned).to_vec()
}

fn start(arguments: &[String]) -> Cluster {
    Cluster::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Exit code, states by points, and everything that was said.
fn look(cluster: &Cluster) -> (i32, BTreeMap<String, String>, Value) {
    let output = Command::new(repository().join("scripts/cis"))
        .args(["--json", "--pid", &cluster.pid().to_string(), "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .output()
        .expect("python3 is there");
    let said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let text = |point: &Value, field: &str| point[field].as_str().unwrap_or_default().to_owned();
    let points = said["points"].as_array().expect("points").iter();
    let states = points.map(|point| (text(point, "number"), text(point, "state"))).collect();
    (output.status.code().unwrap_or(-1), states, said)
}

fn failing(states: &BTreeMap<String, String>) -> BTreeSet<&str> {
    states.iter().filter(|(_, state)| *state == "FAIL").map(|(number, _)| number.as_str()).collect()
}

#[test]
fn a_careful_server_passes_and_a_worse_one_fails_where_it_is_worse() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let cluster = start(&careful(dir.path()));
    let (_, before, said) = look(&cluster);
    // Whether tokens are extended is a flag that not every version has.
    let allowed = BTreeSet::from(["1.2.30"]);
    assert!(failing(&before).is_subset(&allowed), "{said:#}");
    for passed in [
        "1.1.11", "1.1.13", "1.1.21", "1.2.3", "1.2.7", "1.2.14", "1.2.16", "1.2.24", "1.2.25", "1.2.29",
        "3.2.1", "5.1.5",
    ] {
        assert_eq!(before[passed], "PASS", "{passed}: {said:#}");
    }
    assert!(before.iter().filter(|(n, _)| n.starts_with('4')).all(|(_, state)| state == "INFO"), "{said:#}");
    // The key is for all to read, and a default service account is somebody.
    let key = std::fs::read_dir(cluster.data_dir().join("pki")).expect("keys").flatten();
    let key = key
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "key"))
        .expect("a key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("changed");
    cluster.ok("kubectl create clusterrolebinding bad --clusterrole=view --serviceaccount=default:default");
    let (code, after, said) = look(&cluster);
    let worse: BTreeSet<&str> = failing(&after).difference(&failing(&before)).copied().collect();
    assert_eq!((code, worse), (1, BTreeSet::from(["1.1.21", "5.1.5"])), "{said:#}");
}

#[test]
fn a_server_that_was_started_worse_fails_those_points() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut flags: Vec<String> = careful(dir.path()).into_iter().take(2).collect();
    flags.extend(["--disable-admission-plugins", "NodeRestriction,PodSecurity"].map(str::to_owned));
    let cluster = start(&flags);
    let (code, states, said) = look(&cluster);
    for number in ["1.2.14", "1.2.16", "3.2.1", "5.2.1"] {
        assert_eq!(states[number], "FAIL", "{number}: {said:#}");
    }
    assert_eq!(code, 1);
    let totals: u64 = said["totals"].as_object().expect("totals").values().filter_map(Value::as_u64).sum();
    assert_eq!(totals, u64::try_from(states.len()).expect("few"));
    // The document has every point, by the same title.
    let document = std::fs::read_to_string(repository().join("docs/security.md")).expect("the document");
    for point in said["points"].as_array().expect("points") {
        let (number, title) =
            (point["number"].as_str().expect("text"), point["title"].as_str().expect("text"));
        assert!(
            document.contains(&format!("| {number} | {title} |")),
            "{number}: {title} is not in docs/security.md"
        );
    }
    let rows =
        document.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit()).count();
    assert_eq!(rows, states.len(), "rows of docs/security.md");
}

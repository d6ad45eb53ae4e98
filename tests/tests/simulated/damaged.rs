//! A disk that lost something: what the server says, what `coracle db` does about it, and what is left afterwards.

use coracle_tests::{Cluster, Output, skipped};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

fn segment(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("db/journal-000000000001")
}

/// Changes a byte in the last place where the journal names this.
fn damage(cluster: &Cluster, name: &str) {
    let path = segment(cluster);
    let mut bytes = std::fs::read(&path).expect("the journal");
    let found = bytes.windows(name.len()).rposition(|window| window == name.as_bytes());
    let at = found.unwrap_or_else(|| panic!("the journal does not name {name}"));
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).expect("the journal");
}

fn db(cluster: &Cluster, line: &str) -> Output {
    cluster.run(&format!("coracle db {line} --data-dir {}", cluster.data_dir().display()))
}

/// The number behind a word of a text.
fn number_after(text: &str, word: &str) -> u64 {
    let rest = text.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {text}")).1;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|e| panic!("{e} behind {word:?} in {text}"))
}

#[test]
fn a_store_that_is_well_is_checked_only_while_no_server_runs() {
    let mut cluster = Cluster::start(&[]);
    for line in ["check", "repair --accept-loss-after 0"] {
        let refused = db(&cluster, line);
        assert_eq!(refused.code, 1, "{refused}");
        assert!(refused.stderr.contains("another process has this store open"), "{refused}");
    }
    cluster.ok("kubectl create configmap kept");
    assert_eq!(cluster.terminate(), 0);
    let well = db(&cluster, "check");
    assert_eq!(well.code, 0, "{well}");
    assert!(well.stdout.contains("ok       sled: ") && well.stdout.contains("A start comes to"), "{well}");
    assert!(!well.stdout.contains("DAMAGED"), "{well}");
    let elsewhere = cluster.run("coracle db check --data-dir ./nowhere");
    assert_eq!(elsewhere.code, 1, "{elsewhere}");
    assert!(elsewhere.stderr.contains("nowhere/db: No such file"), "{elsewhere}");
    cluster.restart();
    cluster.ok("kubectl get configmap kept");
}

#[test]
fn a_start_that_is_refused_names_the_way_out() {
    let mut cluster = Cluster::start(&[]);
    cluster.ok("kubectl create configmap before");
    cluster.ok("kubectl create configmap hit-by-damage");
    cluster.ok("kubectl create configmap after");
    cluster.kill();
    damage(&cluster, "hit-by-damage");

    let found = db(&cluster, "check");
    assert_eq!(found.code, 1, "{found}");
    assert!(found.stdout.contains("DAMAGED  journal-000000000001: damaged at offset"), "{found}");
    let revision = number_after(&found.stdout, "coracle db repair --accept-loss-after");
    let start = cluster.run(&format!(
        "timeout 60 coracle server --data-dir {} --https-port {} --bind-address 127.0.0.1 --node-ip 127.0.0.1 --disable kubelet,proxy,dns",
        cluster.data_dir().display(),
        cluster.port()
    ));
    assert_eq!(start.code, 1, "{start}");
    let command = format!("coracle db repair --accept-loss-after {revision}`");
    assert!(start.stderr.contains("journal-000000000001") && start.stderr.contains(&command), "{start}");

    let too_little = db(&cluster, &format!("repair --accept-loss-after {}", revision + 1));
    assert_eq!(too_little.code, 1, "{too_little}");
    let repaired = db(&cluster, &format!("repair --accept-loss-after {revision}"));
    assert_eq!(repaired.code, 0, "{repaired}");
    assert!(repaired.stdout.contains("Lost: "), "{repaired}");
    assert_eq!(db(&cluster, "check").code, 0);
    cluster.restart();
    cluster.ok("kubectl get configmap before");
    cluster.says("kubectl get configmap --ignore-not-found hit-by-damage after", "");
    cluster.ok("kubectl create configmap after");
}

/// A record that was being written when the power went.
fn tear(cluster: &Cluster) {
    const MARK: [u8; 4] = *b"oCrJ";
    let path = segment(cluster);
    let mut bytes = std::fs::read(&path).expect("the journal");
    let last = bytes.windows(4).rposition(|window| window == MARK).expect("a record");
    let len = u32::from_le_bytes(bytes[last + 4..last + 8].try_into().expect("four bytes"));
    let end = last + 16 + usize::try_from(len).expect("a length").next_multiple_of(8);
    bytes[end..end + 4].copy_from_slice(&MARK);
    bytes[end + 4..end + 8].copy_from_slice(&500_u32.to_le_bytes());
    std::fs::write(&path, bytes).expect("the journal");
}

#[test]
fn what_was_cut_off_is_told() {
    let mut cluster = Cluster::start(&["--node-name", "here"]);
    cluster.ok("kubectl create configmap kept");
    cluster.kill();
    tear(&cluster);
    cluster.restart();
    let events = "kubectl get events --field-selector involvedObject.kind=Node,involvedObject.name=here,reason=StoreTailCut -o name | wc -l";
    cluster.until(events, "1");
    let metric = "coracle_store_incidents_total{reason=\"StoreTailCut\"}";
    cluster.says(&format!("kubectl get --raw /metrics | grep '{metric}'"), &format!("{metric} 1"));
    let lines = cluster.log().lines().filter(|line| line.contains("cut off a record")).count();
    assert_eq!(lines, 1, "{}", cluster.log());
    cluster.ok("kubectl get configmap kept");
}

/// A small file system of its own, unmounted at the end.
pub struct SmallDisk(pub TempDir);

impl SmallDisk {
    pub fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"]).arg(dir.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(dir))
    }

    /// Leaves no space; returns the file that takes it.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("ballast");
        let mut file = std::fs::File::create(&path).expect("a file");
        while file.write_all(&[1; 64 << 10]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_told_on_the_node() {
    let Some(disk) = SmallDisk::mount() else {
        return skipped("mounting a small file system needs root");
    };
    let cluster = Cluster::start_below(disk.0.path(), &["--node-name", "here"], &[]);
    cluster.apply("apiVersion: v1\nkind: Node\nmetadata: {name: here}\n");
    let ballast = disk.fill();
    let data = "x".repeat(900_000);
    let refused = (0..200).find_map(|n| {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"large-{n}"}},"data":{{"x":"{data}"}}}}"#
        );
        let answer = cluster.raw("POST", "/api/v1/namespaces/default/configmaps", &body);
        (answer.code != 201).then_some(answer)
    });
    let refused = refused.expect("the disk is never full");
    let message = refused.status(503, "ServiceUnavailable");
    assert!(message.contains("is full; free at least 16 MiB there"), "{message}");
    assert_eq!(refused.json()["details"]["retryAfterSeconds"], 1);
    let condition = r#"kubectl get node here -o jsonpath='{range .status.conditions[?(@.type=="StoreReadOnly")]}{.status} {.reason}{end}'"#;
    cluster.until(condition, "True DiskFull");
    cluster.shows("kubectl get componentstatuses etcd-0 2>/dev/null", &["Unhealthy", "is full"]);
    std::fs::remove_file(ballast).expect("the file");
    cluster.until(condition, "False StoreWritable");
    cluster.ok("kubectl create configmap again");
    for reason in ["StoreReadOnly", "StoreWritable"] {
        let events = format!("kubectl get events --field-selector reason={reason} -o name | wc -l");
        cluster.until(&events, "1");
    }
}

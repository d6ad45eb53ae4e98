//! The page of what to do when something is lost: its command lines, in its order, against a server that has been brought into
//! the state that each section is about. A line that is added to the page is run here, or is named below with the reason.

use coracle_tests::{Cluster, Output};

const PAGE: &str = include_str!("../../../docs/recovery.md");

/// Lines that are not run here: how they begin, and why.
const NOT_HERE: &[(&str, &str)] = &[
    ("coracle server", "the test starts its own"),
    ("coracle backup list", "needs a store for S3; the test of backups by schedule has one"),
    ("kubectl describe node", "the full disk has tests of its own"),
    ("du -xh", "the same"),
    ("kubectl delete node n2", "machines that join are the real node's"),
    ("kubectl taint node n2", "the tests of healing lose nodes"),
    ("kubectl drain n2", "the same"),
    (
        "coracle db repair --accept-loss-after 4711",
        "the revision is the damage's; the tests of damage run it",
    ),
    ("etcdctl", "the tests of the etcd backend have one"),
    ("coracle db import /root/snapshot", "the same"),
    ("coracle restore --replace --to-", "the tests of moments between two backups have a journal"),
    ("timedatectl", "the machine's clock is not the test's"),
];

/// Titles with the lines of their blocks.
fn sections() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut all = vec![("Before anything happens", Vec::new())];
    let mut inside = false;
    for line in PAGE.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if let Some(title) = line.strip_prefix("## ") {
            all.push((title, Vec::new()));
        } else if let (true, Some((_, lines))) = (inside, all.last_mut()) {
            lines.push(line);
        }
    }
    all
}

struct Boat {
    cluster: Cluster,
    done: Vec<&'static str>,
}

impl Boat {
    /// With the test's paths in the place of the box's.
    fn run(&self, line: &str) -> Output {
        let data = self.cluster.data_dir().display().to_string();
        let mut line =
            line.replace("/var/lib/coracle", &data).replace("/etc/coracle/backup.key", "backup.key");
        line = line.replace("/root/", "").replace("coracle-boat-20260503T030000Z.backup", "newest");
        let on_data =
            ["cert check", "cert renew", "cert admin", "cert rotate-ca", "backup verify", "db ", "restore "];
        let verb = line.strip_prefix("coracle ").unwrap_or_default().to_owned();
        if on_data.iter().any(|words| verb.starts_with(words)) && !verb.starts_with("backup verify") {
            line += &format!(" --data-dir {data}");
        }
        if verb.starts_with("cert admin") {
            line += " --kubeconfig $KUBECONFIG";
        }
        self.cluster.run(&line)
    }

    /// Those of the section that begin so, each with exit code 0.
    fn does(&mut self, title: &str, beginnings: &[&str]) {
        let sections = sections();
        let (_, lines) = sections.iter().find(|(name, _)| *name == title).expect("a section");
        for beginning in beginnings {
            let found: Vec<&&str> = lines.iter().filter(|line| line.starts_with(beginning)).collect();
            assert!(!found.is_empty(), "{title}: no line begins with {beginning}");
            for line in found {
                let output = self.run(line);
                assert_eq!(output.code, 0, "{title}: {line}\n{output}");
                self.done.push(line);
            }
        }
    }

    fn stop(&mut self) {
        assert_eq!(self.cluster.terminate(), 0);
    }
}

#[test]
fn every_procedure_of_the_recovery_page_is_gone_through() {
    let cluster = Cluster::simulated();
    cluster.ok("kubectl create configmap kept --from-literal=word=coracle");
    let mut this = Boat { cluster, done: Vec::new() };
    let uid = "kubectl get configmap kept -o jsonpath='{.metadata.uid}'";
    let kept = this.cluster.ok(uid);

    this.does("Before anything happens", &["openssl rand"]);
    let data = this.cluster.data_dir().display().to_string();
    this.cluster.ok(&format!(
        "mkdir -p {data}/backups && coracle backup --data-dir {data} --key-file backup.key {data}/backups/newest && cp {data}/backups/newest newest"
    ));
    this.does("Before anything happens", &["coracle backup verify"]);

    this.cluster.within(std::time::Duration::from_secs(60), "kubectl get --raw /readyz", |text| text == "ok");
    let status = this.run("coracle status");
    assert!(status.code < 2 && status.stdout.starts_with("Status"), "{status}");
    this.done.push("coracle status");
    this.does("A component fails", &["kubectl get --raw", "kubectl get events"]);

    certificates(&mut this);

    // Some of the checkpoint is gone when the machine comes back.
    this.stop();
    this.cluster.ok(&format!(
        "dd if=/dev/urandom of={data}/db/sled/db bs=4096 seek=4 count=40 conv=notrunc status=none"
    ));
    let found = this.run("coracle db check");
    assert!(found.code == 1 && found.stdout.contains("DAMAGED"), "{found}");
    this.done.push("coracle db check");
    // Named in the text; the other way is the line below it.
    let salvaged = this.run("coracle db repair --salvage");
    assert_eq!(salvaged.code, 0, "{salvaged}");
    this.cluster.restart();
    assert_eq!(this.cluster.ok(uid), kept);

    // The machine is gone: what is left is the backup.
    this.stop();
    this.cluster.ok(&format!("mv {data} gone"));
    this.does("The server's machine is lost", &["coracle backup verify"]);
    let lost =
        "coracle restore --key-file /etc/coracle/backup.key /root/coracle-boat-20260503T030000Z.backup";
    this.does("The server's machine is lost", &[lost]);
    this.cluster.restart();
    assert_eq!(this.cluster.ok(uid), kept);
    this.does("The server's machine is lost", &["coracle db export"]);
    this.stop();
    this.does("The server's machine is lost", &["coracle restore --replace"]);
    this.cluster.ok(&format!("rm -r {data}/db"));
    this.does("The server's machine is lost", &["coracle db import /root/objects"]);
    this.cluster.restart();
    assert_eq!(this.cluster.ok(uid), kept);
    this.does("The clock was wrong", &["coracle cert"]);

    for (title, lines) in sections() {
        for line in lines.into_iter().filter(|line| !line.is_empty()) {
            let elsewhere = NOT_HERE.iter().any(|(beginning, _)| line.starts_with(beginning));
            assert!(elsewhere || this.done.contains(&line), "{title}: nobody has run {line}");
        }
    }
}

fn certificates(this: &mut Boat) {
    let title = "A certificate is over, or lost";
    this.does(title, &["coracle cert check", "coracle cert renew", "coracle cert admin"]);
    this.cluster.ok("kubectl --kubeconfig admin.conf get configmap kept && cp admin.conf stolen.conf");
    this.does(title, &["coracle cert revoke /root/stolen.conf"]);
    this.cluster.within(
        std::time::Duration::from_secs(30),
        "kubectl --kubeconfig stolen.conf get configmap kept 2>&1 || true",
        |said| said.contains("Unauthorized") || said.contains("must be logged in"),
    );
    this.does(title, &["coracle cert revoke --admin"]);
    this.cluster.within(
        std::time::Duration::from_secs(60),
        "kubectl get configmap kept -o name 2>&1 || true",
        |said| said.trim() == "configmap/kept",
    );
    for step in [
        "coracle cert rotate-ca",
        "coracle cert rotate-ca --status",
        "coracle cert rotate-ca --issue",
        "coracle cert rotate-ca --finish",
    ] {
        let output = this.run(step);
        assert_eq!(output.code, 0, "{step}: {output}");
        this.done.push(step);
    }
    this.cluster.within(
        std::time::Duration::from_secs(60),
        "kubectl get configmap kept -o name 2>&1 || true",
        |said| said.trim() == "configmap/kept",
    );
    this.does(title, &["coracle token create"]);
    // The same lines stand where a machine is lost.
    this.done.push("kubectl get nodes");
    this.cluster.ok("kubectl get nodes");
}

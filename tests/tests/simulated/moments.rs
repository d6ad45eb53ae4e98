//! Restores of a moment between two backups, by the commits that the server archives.

use coracle_tests::Cluster;

const SETTINGS: [&str; 6] =
    ["--node-name", "box", "--backup-schedule", "0 3 1 1 *", "--backup-journal-interval", "1s"];

fn revision(cluster: &Cluster, name: &str) -> u64 {
    let line = format!("kubectl get configmap {name} -o jsonpath={{.metadata.resourceVersion}}");
    cluster.ok(&line).parse().expect("a revision")
}

/// Up to where commits are archived.
fn until_archived(cluster: &Cluster, revision: u64) {
    let line = "kubectl get --raw /metrics | grep '^coracle_backup_journal_revision ' | cut -d' ' -f2";
    cluster.until_that(line, |upto| upto.trim().parse().is_ok_and(|upto: u64| upto >= revision));
}

fn until_a_backup_is_there(cluster: &Cluster, backups: &str) {
    cluster.until_that(&format!("ls {backups}/*.backup 2>/dev/null"), |names| names.contains("coracle-box-"));
}

/// A change of `web`; its revision, and a time after it and before any other.
fn change(cluster: &Cluster, version: &str) -> (u64, String) {
    cluster.ok(&format!(
        "kubectl create configmap web --from-literal=version={version} --dry-run=client -o yaml | kubectl apply -f -"
    ));
    let at = cluster.ok("sleep 0.1; date -u +%FT%T.%NZ; sleep 0.1");
    (revision(cluster, "web"), at.trim().to_owned())
}

#[test]
fn any_revision_and_time_after_a_backup_is_restored() {
    let mut cluster = Cluster::start(&SETTINGS);
    let data = cluster.data_dir().display().to_string();
    let backups = format!("{data}/backups");
    // Nothing is archived from before: a backup is due at once.
    until_a_backup_is_there(&cluster, &backups);
    cluster.until("kubectl get events -A --field-selector reason=BackupJournalBegun -o name | wc -l", "1");
    let (first, _) = change(&cluster, "1");
    let (_, second) = change(&cluster, "2");
    until_archived(&cluster, first);
    // Cut off: what was not archived is archived by the next start.
    cluster.ok("kubectl create configmap late");
    let late = revision(&cluster, "late");
    cluster.kill_and_restart();
    until_archived(&cluster, late);
    cluster.ok("kubectl delete configmap web");
    cluster.ok("kubectl create configmap last");
    let last = revision(&cluster, "last");
    // A clean stop archives what it stops with.
    assert_eq!(cluster.terminate(), 0);
    let list = format!("coracle backup list --data-dir {data}");
    cluster.shows(&list, &["coracle-box-", "box: every commit after revision "]);
    assert_eq!(cluster.ok(&list).lines().count(), 3, "one backup, and no gap");
    cluster.ok(&format!("for file in {backups}/*; do coracle backup verify $file || exit 1; done"));

    let restored = |cluster: &mut Cluster, moment: &str| {
        let said = cluster.ok(&format!("coracle restore --data-dir {data} --replace {moment} {backups}"));
        cluster.restart();
        said
    };
    let names = "kubectl get configmap -o jsonpath='{range .items[*]}{.metadata.name}={.data.version} {end}' | sed 's/kube-root-ca.crt= //'";
    // Kept apart, since servers that start of a restored state archive anew.
    cluster.ok(&format!("cp -r {backups} archive"));
    for (moment, expected) in [
        (format!("--to-revision {first}"), "web=1 "),
        (format!("--to-time {second}"), "web=2 "),
        (format!("--to-revision {late}"), "late= web=2 "),
        ("--to-latest".to_owned(), "last= late= "),
    ] {
        cluster.ok(&format!("rm -rf {backups} && cp -r archive {backups}"));
        let said = restored(&mut cluster, &moment);
        assert!(said.contains("played on to revision "), "{said}");
        cluster.says(names, expected.trim_end());
        cluster.ok("kubectl create configmap again");
        assert!(revision(&cluster, "again") > last, "no revision comes twice");
        assert_eq!(cluster.terminate(), 0);
    }

    moments_that_are_not_there(&cluster, first, last);
    files_that_are_not_well(&cluster);
}

fn moments_that_are_not_there(cluster: &Cluster, first: u64, last: u64) {
    let beyond = last + 100_000_000;
    for (moment, why) in [
        (format!("--to-revision {beyond}"), "the journal ends with revision "),
        ("--to-time 2200-01-01T00:00:00Z".to_owned(), "; --to-latest takes that"),
        ("--to-revision 1".to_owned(), "no backup there is old enough"),
        ("--to-time yesterday".to_owned(), "error: "),
        (format!("--to-latest --to-revision {first}"), "cannot be used with"),
        ("--journal-dir .".to_owned(), "required arguments"),
    ] {
        let refused = cluster.run(&format!("coracle restore --data-dir new {moment} archive"));
        assert!(refused.code != 0 && refused.stderr.contains(why), "{moment}: {refused}");
        cluster.says("ls -d new 2>/dev/null || true", "");
    }
}

fn files_that_are_not_well(cluster: &Cluster) {
    // A file is missing, another is damaged.
    cluster
        .ok("ls archive/*.journal | sort -t- -k5 -n > files && cp -r archive gap && cp -r archive damaged");
    cluster.ok("rm gap/$(basename $(sed -n 2p files)) && f=damaged/$(basename $(sed -n 2p files)) && printf x | dd of=$f bs=1 seek=200 conv=notrunc status=none");
    let gap = cluster.run("coracle restore --data-dir new --to-latest gap");
    assert!(gap.code == 1 && gap.stderr.contains("the journal does not lead to its end"), "{gap}");
    let damaged = cluster.run("coracle restore --data-dir new --to-latest damaged");
    assert!(damaged.code == 1 && damaged.stderr.contains("it is damaged"), "{damaged}");
    cluster.says("ls -d new 2>/dev/null || true", "");
}

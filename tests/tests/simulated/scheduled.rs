//! Backups that the server writes by itself: into a directory, into a bucket, and never too many of them.

use coracle_tests::binary::repository;
use coracle_tests::cluster::free_port;
use coracle_tests::{Cluster, shell::Background, wait_for};
use std::path::{Path, PathBuf};
use std::time::Duration;

struct World {
    dir: tempfile::TempDir,
    port: u16,
}

impl World {
    fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().expect("temporary directory"), port: free_port() };
        std::fs::create_dir(world.bucket()).expect("a bucket");
        std::fs::create_dir(world.backups()).expect("a directory");
        world.credentials("secret/+");
        world
    }

    fn bucket(&self) -> PathBuf {
        self.dir.path().join("bucket")
    }

    fn backups(&self) -> PathBuf {
        self.dir.path().join("backups")
    }

    fn credentials(&self, secret: &str) {
        let text = format!("[default]\naws_access_key_id = boat\naws_secret_access_key = {secret}\n");
        std::fs::write(self.dir.path().join("credentials"), text).expect("written");
    }

    fn flags(&self) -> Vec<String> {
        let dir = self.dir.path().display();
        let flags = format!(
            "--backup-dir {dir}/backups --backup-s3-endpoint http://127.0.0.1:{} --backup-s3-bucket boats --backup-s3-prefix b/ --backup-s3-credentials-file {dir}/credentials",
            self.port
        );
        flags.split(' ').map(str::to_owned).collect()
    }

    fn serve(&self, cluster: &Cluster) -> Background {
        let program = repository().join("tests/clients/python/bucket.py");
        let line =
            format!("python3 {} {} {} boat secret/+", program.display(), self.port, self.bucket().display());
        let served = cluster.start(&line, "bucket");
        wait_for("the bucket", Duration::from_secs(60), || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| error.to_string())
        });
        served
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("readable");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn figure(cluster: &Cluster, name: &str, good: impl Fn(u64) -> bool) {
    let line = format!("kubectl get --raw /metrics | grep '^{name} ' | cut -d' ' -f2");
    cluster.until_that(&line, |value| value.trim().parse().is_ok_and(&good));
}

#[test]
fn backups_are_written_copied_and_taken_away() {
    let world = World::new();
    for day in ["20200101", "20200102"] {
        let name = format!("coracle-box-{day}T030000Z.backup");
        std::fs::write(world.backups().join(&name), "old").expect("written");
        std::fs::write(world.bucket().join(format!("boats|b|{name}")), "old").expect("written");
    }
    for foreign in ["boats|b|mine.txt", "boats|coracle-box-20200101T030000Z.backup"] {
        std::fs::write(world.bucket().join(foreign), "not ours").expect("written");
    }
    let flags = world.flags();
    let mut all: Vec<&str> = flags.iter().map(String::as_str).collect();
    all.extend(["--node-name", "box", "--backup-interval", "1h", "--backup-keep", "2"]);
    // The bucket is away.
    let mut cluster = Cluster::start(&all);
    cluster.until("kubectl get events -A --field-selector reason=BackupFailed -o jsonpath='{.items[0].involvedObject.name}'", "box");
    let why = cluster
        .ok("kubectl get events -A --field-selector reason=BackupFailed -o jsonpath='{.items[0].message}'");
    assert!(why.starts_with("bucket boats at 127.0.0.1: ") && why.contains("refused"), "{why}");
    figure(&cluster, "coracle_backup_failures_total", |count| count > 0);

    let bucket = world.serve(&cluster);
    cluster.kill_and_restart();
    figure(&cluster, "coracle_backup_last_success_timestamp_seconds", |at| at > 1_767_225_600);
    let here = names(&world.backups());
    assert!(here.len() == 2 && here[0] == "coracle-box-20200102T030000Z.backup", "{here:?}");
    let there = names(&world.bucket());
    let expected = [&format!("boats|b|{}", here[0]), &format!("boats|b|{}", here[1]), "boats|b|mine.txt"];
    assert_eq!(there[..3], expected);
    assert_eq!(there[3..], ["boats|coracle-box-20200101T030000Z.backup"]);
    let copy = std::fs::read(world.bucket().join(&there[1])).expect("the copy");
    assert_eq!(copy, std::fs::read(world.backups().join(&here[1])).expect("the backup"));
    cluster.ok(&format!("coracle backup verify {}", world.backups().join(&here[1]).display()));
    let list = format!("coracle backup list {}", flags.join(" "));
    cluster.shows(&list, &["2020-01-02T03:00:00Z", "boats/b/", &here[1]]);
    assert_eq!(cluster.ok(&list).lines().count(), 5);
    world.credentials("another");
    let refused = cluster.run(&list);
    assert!(refused.code == 1 && refused.stderr.contains("403 SignatureDoesNotMatch"), "{refused}");
    drop(bucket);
}

#[test]
fn what_happened_between_two_backups_is_copied_too() {
    let world = World::new();
    let flags = world.flags();
    let mut all: Vec<&str> = flags.iter().map(String::as_str).collect();
    all.extend(["--node-name", "box", "--backup-interval", "1h", "--backup-journal-interval", "1s"]);
    let mut cluster = Cluster::start(&["--node-name", "box"]);
    assert_eq!(cluster.terminate(), 0);
    let bucket = world.serve(&cluster);
    cluster.restart_with(&all);
    let journals = |dir: &Path| -> Vec<String> {
        names(dir).into_iter().filter(|name| name.ends_with(".journal")).collect()
    };
    wait_for("copies of all files", Duration::from_secs(60), || {
        let (here, there) = (journals(&world.backups()), journals(&world.bucket()));
        let is_there = |name: &String| there.contains(&format!("boats|b|{name}"));
        let all = !here.is_empty() && here.iter().all(is_there);
        if all { Ok(()) } else { Err(format!("{here:?} here, {there:?} there")) }
    });
    let name = journals(&world.backups()).remove(0);
    let copy = std::fs::read(world.bucket().join(format!("boats|b|{name}"))).expect("the copy");
    assert_eq!(copy, std::fs::read(world.backups().join(&name)).expect("the file"));
    // A bucket that is away holds up nobody who writes files here.
    drop(bucket);
    let before = journals(&world.backups()).len();
    cluster.ok("kubectl create configmap later");
    figure(&cluster, "coracle_backup_journal_failures_total", |count| count > 0);
    wait_for("a further file", Duration::from_secs(60), || {
        let now = journals(&world.backups()).len();
        if now > before { Ok(()) } else { Err(format!("{now} files")) }
    });
}

//! Data directories of releases, kept as they were left behind, open and serve what was in them; and a store of a version to
//! come is left alone. `kept/` has one archive for each release, named after it: the store (`db`) alone, of a server that was
//! stopped, with what `scripts/keep-store` made in it.

use crate::damaged::SmallDisk;
use coracle_tests::{Cluster, skipped};
use std::path::Path;
use std::process::Command;

fn kept() -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulated/kept");
    let entries = std::fs::read_dir(folder).expect("the folder").flatten().map(|entry| entry.path());
    let mut all: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "gz")).collect();
    all.sort();
    all
}

/// The store of a release in a data directory, which is not there yet.
fn lay(archive: &Path, data: &Path) {
    std::fs::create_dir(data).expect("a data directory");
    let done = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(data).status();
    assert!(done.expect("tar").success(), "{}", archive.display());
}

/// What a store says of its layout.
fn format(db: &Path) -> String {
    std::fs::read_to_string(db.join("format")).unwrap_or_else(|error| panic!("{}: {error}", db.display()))
}

/// The only release's whose layout is an earlier one.
fn earlier() -> std::path::PathBuf {
    kept().into_iter().find(|path| path.ends_with("0.1.0.tar.gz")).expect("the archive of 0.1.0")
}

/// An upgrade that copies the store first, and the way back that docs/operating.md describes.
#[test]
fn a_store_is_copied_before_its_layout_changes_and_the_copy_is_the_way_back() {
    let mut cluster = Cluster::start_on(&[], |data| {
        lay(&earlier(), data);
        assert_eq!(format(&data.join("db")), "2 2\n");
        // Of an upgrade before, and of one that was cut off.
        for left in ["before-format-2", "before-format-3.new"] {
            std::fs::create_dir(data.join("db").join(left)).expect("a directory");
            std::fs::write(data.join("db").join(left).join("snapshot"), "half").expect("a file");
        }
    });
    let db = cluster.data_dir().join("db");
    assert_eq!(format(&db), "3 3\n");
    assert!(!db.join("before-format-2").exists(), "one copy is enough");
    assert!(!db.join("before-format-3.new").exists());
    let before = tempfile::tempdir().expect("temporary directory");
    lay(&earlier(), &before.path().join("data"));
    let (old, copy) = (before.path().join("data/db"), db.join("before-format-3"));
    is_as(&cluster, &old, &copy);
    cluster.ok("kubectl create configmap after");
    assert_eq!(cluster.terminate(), 0);
    // A further start copies nothing.
    cluster.restart();
    is_as(&cluster, &old, &copy);
    assert_eq!(cluster.log().matches("the store of format 2 was copied").count(), 1, "{}", cluster.log());
    assert_eq!(cluster.terminate(), 0);
    let data = cluster.data_dir().display().to_string();
    cluster.shows(
        &format!("coracle db check --data-dir {data}"),
        &["before-format-3: a copy of the store as it was in format 2, "],
    );
    for line in include_str!("../../../docs/operating.md").lines().filter(|line| line.starts_with("mv ")) {
        cluster.ok(&line.replace("/var/lib/coracle", &data));
    }
    is_as(&cluster, &old, &db);
    cluster.restart();
    cluster.says("kubectl get configmap kept -o jsonpath='{.data.word}'", "coracle");
    cluster.refuses(
        "kubectl get configmap after",
        "Error from server (NotFound): configmaps \"after\" not found",
    );
}

fn is_as(cluster: &Cluster, old: &Path, copy: &Path) {
    cluster.ok(&format!("diff -r {} {}", old.display(), copy.display()));
}

#[test]
fn without_room_for_a_copy_the_layout_stays_unless_somebody_says_so() {
    let Some(disk) = SmallDisk::mount() else {
        return skipped("mounting a small file system needs root");
    };
    // The store has 5 MiB, and 64 must be free beside its copy.
    std::fs::write(disk.0.path().join("ballast"), vec![1; 30 << 20]).expect("a file");
    let cluster = Cluster::start_on_below(disk.0.path(), &["--upgrade-store-without-copy"], |data| {
        lay(&earlier(), data);
        let refused = Command::new("timeout")
            .args(["30".as_ref(), coracle_tests::coracle().as_os_str()])
            .args(["server", "--node-ip", "127.0.0.1", "--bind-address", "127.0.0.1", "--https-port", "0"])
            .args(["--disable", "kubelet,proxy,dns", "--data-dir"])
            .arg(data)
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{told}");
        for part in ["there is no room for a copy of it", "MiB must be free", "--upgrade-store-without-copy"]
        {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(format(&data.join("db")), "2 2\n", "as it was");
        assert!(!data.join("db/before-format-3").exists() && !data.join("db/before-format-3.new").exists());
    });
    let db = cluster.data_dir().join("db");
    assert_eq!(format(&db), "3 3\n");
    assert!(!db.join("before-format-3").exists());
    cluster.says("kubectl get configmap kept -o jsonpath='{.data.word}'", "coracle");
}

#[test]
fn the_store_of_every_release_opens() {
    let all = kept();
    assert!(!all.is_empty(), "there is one of the present release");
    for archive in all {
        let cluster = Cluster::start_on(&["--simulate-nodes", "1"], |data| lay(&archive, data));
        cluster.says("kubectl get configmap kept -o jsonpath='{.data.word}'", "coracle");
        cluster.says("kubectl get secret kept -o jsonpath='{.data.word}'", "Y29yYWNsZQ==");
        cluster.until("kubectl get boats.example.com kept -o jsonpath='{.spec.oars}'", "2");
        let large = cluster.ok("kubectl get configmap large -o jsonpath='{.data.text}'");
        assert_eq!(large.trim().len(), 20_000, "a value of several pieces");
        cluster.ok("kubectl rollout status deployment/kept --timeout=100s");
        let before: u64 = cluster
            .ok("kubectl get configmap kept -o jsonpath='{.metadata.resourceVersion}'")
            .trim()
            .parse()
            .expect("a number");
        cluster.ok("kubectl create configmap after --from-literal=a=b");
        let after: u64 = cluster
            .ok("kubectl get configmap after -o jsonpath='{.metadata.resourceVersion}'")
            .trim()
            .parse()
            .expect("a number");
        assert!(after > before, "{before} {after}");
    }
}

#[test]
fn a_store_of_a_version_to_come_is_refused_in_one_line() {
    let mut cluster = Cluster::start(&[]);
    assert_eq!(cluster.terminate(), 0);
    let format = cluster.data_dir().join("db/format");
    let own = std::fs::read_to_string(&format).expect("its layout");
    std::fs::write(&format, "999 999\n").expect("written");
    let line = format!(
        "timeout 20 coracle server --data-dir {} --disable kubelet,proxy,dns --https-port 0",
        cluster.data_dir().display()
    );
    let refused = cluster.run(&line);
    assert_eq!(refused.code, 1, "{refused}");
    let told: Vec<&str> = refused.stderr.lines().filter(|line| line.starts_with("coracle: ")).collect();
    assert_eq!(told.len(), 1, "{refused}");
    assert!(told[0].contains("a later version of coracle made this store (format 999"), "{refused}");
    std::fs::write(&format, own).expect("written");
    cluster.restart();
    cluster.ok("kubectl get namespace kube-system");
}

//! Data directories of releases, kept as they were left behind, open and serve what was in them; and a store of a version to
//! come is left alone. `kept/` has one archive for each release, named after it: the store (`db`) alone, of a server that was
//! stopped, with what `scripts/keep-store` made in it.

use coracle_tests::Cluster;
use std::path::Path;
use std::process::Command;

fn kept() -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulated/kept");
    let entries = std::fs::read_dir(folder).expect("the folder").flatten().map(|entry| entry.path());
    let mut all: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "gz")).collect();
    all.sort();
    all
}

#[test]
fn the_store_of_every_release_opens() {
    let all = kept();
    assert!(!all.is_empty(), "there is one of the present release");
    for archive in all {
        let cluster = Cluster::start_on(&["--simulate-nodes", "1"], |data| {
            std::fs::create_dir(data).expect("a data directory");
            let done = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(data).status();
            assert!(done.expect("tar").success(), "{}", archive.display());
        });
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

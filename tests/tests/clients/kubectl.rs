//! Transcripts of kubectl (`kubectl/*.txt`), each in a namespace of its own on one shared server.

use coracle_tests::{Cluster, clients, transcript};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

fn transcripts() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/kubectl");
    let mut found: Vec<(String, String)> = std::fs::read_dir(&dir)
        .expect("the transcripts")
        .map(|entry| entry.expect("a folder's entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "txt"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("a transcript"))
        })
        .collect();
    assert!(found.len() >= 10, "transcripts are missing in {}", dir.display());
    // One that is named alone, for whoever works on it.
    if let Ok(only) = std::env::var("TRANSCRIPT") {
        found.retain(|(name, _)| *name == only);
    }
    found.sort();
    found
}

/// Transcripts that close nodes, define resources or bind everybody: after the others, which are content with a
/// namespace of their own.
const LATER: &[&str] = &["custom", "nodes", "policies"];

/// How many transcripts go on at once. Half of their time is waiting for the cluster.
const AT_ONCE: usize = 3;

fn play_all(kubectl: &Path) {
    let version = clients::version_of(kubectl);
    let cluster = Cluster::simulated();
    let (later, first): (Vec<_>, Vec<_>) =
        transcripts().into_iter().partition(|(name, _)| LATER.contains(&name.as_str()));
    let mut failures = Vec::new();
    for together in [first, later] {
        failures.extend(play_together(&cluster, kubectl, &version, &together));
    }
    assert!(
        failures.is_empty(),
        "kubectl {version}: {} blocks failed\n\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn play_together(cluster: &Cluster, kubectl: &Path, version: &str, all: &[(String, String)]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let play_some = || {
        let mut failures = Vec::new();
        while let Some((name, text)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begun = Instant::now();
            let shell = cluster.in_namespace(name);
            shell.provide("kubectl", kubectl);
            let failed = transcript::play(&shell, name, text, version);
            println!("{name}: {} s", begun.elapsed().as_secs());
            failed.iter().for_each(|text| println!("{text}"));
            failures.extend(failed);
            cluster.assert_alive();
        }
        failures
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(play_some)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a transcript")).collect()
    })
}

#[test]
fn the_kubectl_of_this_machine() {
    play_all(&clients::kubectl());
}

#[test]
fn kubectl_1_37() {
    play_all(&clients::newer_kubectl());
}

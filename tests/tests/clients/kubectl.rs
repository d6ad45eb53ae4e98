//! Transcripts of kubectl (`kubectl/*.txt`), each in a namespace of its own on one shared server.

use coracle_tests::{Cluster, clients, transcript};
use std::path::Path;

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

fn play_all(kubectl: &Path) {
    let version = clients::version_of(kubectl);
    let cluster = Cluster::simulated();
    let mut failures = Vec::new();
    for (name, text) in transcripts() {
        let shell = cluster.in_namespace(&name);
        shell.provide("kubectl", kubectl);
        let failed = transcript::play(&shell, &name, &text, &version);
        failed.iter().for_each(|text| println!("{text}"));
        failures.extend(failed);
        cluster.assert_alive();
    }
    assert!(
        failures.is_empty(),
        "kubectl {version}: {} blocks failed\n\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn the_kubectl_of_this_machine() {
    play_all(&clients::kubectl());
}

#[test]
fn kubectl_1_37() {
    play_all(&clients::newer_kubectl());
}

//! What the builds of this project optimise.

use crate::repository;
use std::collections::BTreeSet;

/// A profile takes over what the one that it inherits from says of single packages, if it says nothing of them itself.
#[test]
fn the_quick_build_optimises_nothing_as_the_release_does() {
    let manifest =
        std::fs::read_to_string(repository().join("Cargo.toml")).expect("the workspace's manifest");
    let named = |profile: &str| -> BTreeSet<&str> {
        let head = format!("[profile.{profile}.package.");
        manifest.lines().filter_map(|line| line.strip_prefix(&head)?.strip_suffix(']')).collect()
    };
    let (release, quick) = (named("release"), named("quick"));
    assert!(
        release.contains("coracle-api") && quick.is_superset(&release),
        "{:?}",
        release.difference(&quick)
    );
}

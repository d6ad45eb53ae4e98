use super::*;

fn used(uid: &str, hash: &str) -> Used {
    let text = |text: &str| text.to_owned();
    Used { uid: text(uid), namespace: text("n"), name: text("s"), credential_hash: text(hash) }
}

fn image(id: &str, tags: &[&str]) -> api::Image {
    let repo_tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    api::Image { id: id.to_owned(), repo_tags, ..api::Image::default() }
}

fn records(dir: &tempfile::TempDir, policy: VerificationPolicy) -> Records {
    let allowlist = vec!["r.example/base/*".to_owned(), "busybox".to_owned()];
    Records::new(dir.path().to_owned(), Verification { policy, allowlist })
}

const PRIVATE: &str = "r.example/team/app:1";

#[test]
fn a_private_image_is_only_for_those_who_can_pull_it() {
    let dir = tempfile::tempdir().unwrap();
    let found = image("sha256:1", &[PRIVATE]);
    let pulling = records(&dir, VerificationPolicy::default());
    pulling.begin(PRIVATE).unwrap();
    pulling.pulled(PRIVATE, "sha256:1", Some(&used("a", "h1"))).unwrap();
    // Another process of the same node.
    let records = records(&dir, VerificationPolicy::default());
    let admits = |image: &str, used: Option<Used>| records.judge(image, &found).admits(used.as_ref());
    assert!(!admits(PRIVATE, None), "another tenant has no credentials");
    assert!(!admits(PRIVATE, Some(used("b", "h2"))), "or others");
    assert!(admits(PRIVATE, Some(used("a", "h1"))));
    assert!(admits(PRIVATE, Some(used("b", "h1"))), "the same credentials in another Secret");
    assert!(admits(PRIVATE, Some(used("a", "h9"))), "the same Secret with another password");
    assert!(admits("r.example/team/app@sha256:00", Some(used("a", "h1"))), "the same repository");
    for other in ["r.example/other/app:1", "sha256:1", "app:1"] {
        assert!(!admits(other, Some(used("a", "h1"))), "another name for it: {other}");
    }
    records.pulled(PRIVATE, "sha256:1", None).unwrap();
    assert!(admits(PRIVATE, None), "the registry gives it to everybody");
}

/// The owner loaded an image from an archive, and somebody pulls the same one from a registry of his own.
#[test]
fn a_loaded_image_stays_everybodys_when_it_is_pulled_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = image("sha256:1", &["docker.io/library/busybox:1.36", PRIVATE]);
    let records = records(&dir, VerificationPolicy::default());
    records.begin(PRIVATE).unwrap();
    records.pulled(PRIVATE, "sha256:1", Some(&used("a", "h1"))).unwrap();
    assert_eq!(records.judge("busybox:1.36", &loaded), Verdict::Open);
    assert!(!records.judge(PRIVATE, &loaded).admits(None), "the private name stays private");
    for other in ["busybox:2", "r.example/other/app:1", "sha256:1"] {
        assert!(!records.judge(other, &loaded).admits(None), "nobody loaded it as {other}");
    }
}

#[test]
fn what_nobody_pulled_is_everybodys_by_the_policy() {
    let open = |policy, name: &str| {
        let dir = tempfile::tempdir().unwrap();
        records(&dir, policy).judge(name, &image("sha256:2", &[name])) == Verdict::Open
    };
    use VerificationPolicy::{
        AlwaysVerify, NeverVerify, NeverVerifyAllowlistedImages, NeverVerifyPreloadedImages,
    };
    for policy in [NeverVerify, NeverVerifyPreloadedImages] {
        assert!(open(policy, PRIVATE));
    }
    assert!(!open(AlwaysVerify, PRIVATE) && !open(NeverVerifyAllowlistedImages, PRIVATE));
    for listed in ["r.example/base/x/y:3", "docker.io/library/busybox:1.36", "busybox"] {
        assert!(open(NeverVerifyAllowlistedImages, listed), "{listed}");
    }
    assert!(!open(NeverVerifyAllowlistedImages, "r.example/baseless:1"));
}

#[test]
fn an_image_whose_pull_was_cut_off_is_not_taken_for_preloaded() {
    let dir = tempfile::tempdir().unwrap();
    records(&dir, VerificationPolicy::default()).begin("busybox").unwrap();
    let records = records(&dir, VerificationPolicy::default());
    let found = image("sha256:3", &["docker.io/library/busybox:latest"]);
    for name in ["busybox:latest", "docker.io/library/busybox", "docker.io/library/busybox@sha256:3"] {
        assert!(!records.judge(name, &found).admits(None), "{name}");
    }
    records.failed("busybox").unwrap();
    assert_eq!(records.judge("busybox", &found), Verdict::Open);
}

#[test]
fn a_broken_note_opens_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(&dir, VerificationPolicy::default());
    records.pulled(PRIVATE, "sha256:1", Some(&used("a", "h1"))).unwrap();
    let note = dir.path().join("image_manager/pulled").join(file_name("sha256:1"));
    std::fs::write(&note, "{").unwrap();
    assert!(!records.judge(PRIVATE, &image("sha256:1", &[PRIVATE])).admits(None));
    records.pulled(PRIVATE, "sha256:1", Some(&used("a", "h1"))).unwrap();
    assert!(records.judge(PRIVATE, &image("sha256:1", &[])).admits(Some(&used("a", ""))), "made anew");
}

#[test]
fn images_that_are_gone_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(&dir, VerificationPolicy::default());
    for id in ["sha256:1", "sha256:2"] {
        records.pulled(PRIVATE, id, Some(&used("a", "h1"))).unwrap();
    }
    let begun = Timestamp::UNIX_EPOCH;
    records.retain(&HashSet::new(), begun).unwrap();
    assert_ne!(records.judge(PRIVATE, &image("sha256:2", &[])), Verdict::Open, "pulled since");
    records.retain(&HashSet::from(["sha256:1"]), Timestamp::now()).unwrap();
    assert_ne!(records.judge(PRIVATE, &image("sha256:1", &[])), Verdict::Open);
    assert_eq!(records.judge(PRIVATE, &image("sha256:2", &[])), Verdict::Open);
}

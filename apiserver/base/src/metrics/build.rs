//! What runs: the version whose API this is, and its features.

use coracle_metrics::Text;

/// Features of 1.36 that clients look for before they use them, by upstream's gate names; the stage is empty where the
/// gate is locked on.
const FEATURES: &[(&str, &str)] = &[
    ("APIPriorityAndFairness", ""),
    ("APIResponseCompression", "BETA"),
    ("InPlacePodVerticalScaling", ""),
    ("JobManagedBy", ""),
    ("PodLifecycleSleepAction", ""),
    ("ServerSideApply", ""),
    ("ServerSideFieldValidation", ""),
    ("SidecarContainers", ""),
    ("WatchBookmark", ""),
    ("WatchList", "BETA"),
];

pub(super) fn render(text: &mut Text) {
    let version = crate::version::version();
    let part = |name: &str| version[name].as_str().unwrap_or_default();
    let labels = [
        ("build_date", part("buildDate")),
        ("compiler", part("compiler")),
        ("git_commit", part("gitCommit")),
        ("git_tree_state", part("gitTreeState")),
        ("git_version", part("gitVersion")),
        ("go_version", part("goVersion")),
        ("major", part("major")),
        ("minor", part("minor")),
        ("platform", part("platform")),
    ];
    text.head("kubernetes_build_info", "What this server is a build of; always 1.", "gauge");
    text.sample("kubernetes_build_info", &labels, 1);
    text.head("kubernetes_feature_enabled", "Features, 1 where they are on.", "gauge");
    for (name, stage) in FEATURES {
        text.sample("kubernetes_feature_enabled", &[("name", name), ("stage", stage)], 1);
    }
}

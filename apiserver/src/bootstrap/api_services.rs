//! The APIServices of what this server answers itself, so that `kubectl get apiservices` shows everything there is.

use super::{Keep, Wanted};
use coracle_api::catalogue::{catalogue, groups};
use serde_json::json;

/// Upstream's order of groups: the higher, the earlier a client asks. Groups of this server that are not named here
/// come last.
const PRIORITIES: &[(&str, i64)] = &[
    ("", 18_000),
    ("apiregistration.k8s.io", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
];
const LAST: i64 = 15_000;
/// Marks what the server makes at its start (`kube-aggregator`).
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

pub(super) fn objects() -> Vec<Wanted> {
    let mut all = Vec::new();
    for group in groups(catalogue()) {
        let priority = PRIORITIES.iter().find(|(name, _)| *name == group.name).map_or(LAST, |p| p.1);
        // The preferred version has the highest.
        let ranks = (1..).map(|n| 15 * n);
        for (version, rank) in group.versions.iter().rev().zip(ranks) {
            let object = json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": { "name": format!("{version}.{}", group.name), "labels": { MANAGED: "onstart" } },
                "spec": { "group": group.name, "version": version, "groupPriorityMinimum": priority,
                    "versionPriority": if group.name.is_empty() { 1 } else { rank } },
            });
            all.push(Wanted { resource: "apiservices.apiregistration.k8s.io", object, keep: Keep::AsItIs });
        }
    }
    all.push(resource_metrics());
    all
}

/// The metrics of nodes and pods, with the priorities that metrics-server gives itself: whoever installs that one puts
/// its service into this object.
fn resource_metrics() -> Wanted {
    let object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1beta1.metrics.k8s.io", "labels": { MANAGED: "onstart" } },
        "spec": { "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100 },
    });
    Wanted { resource: "apiservices.apiregistration.k8s.io", object, keep: Keep::AsItIs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_ranked() {
        let all = objects();
        for group in groups(catalogue()) {
            assert!(PRIORITIES.iter().any(|(name, _)| *name == group.name), "{}", group.name);
        }
        let of =
            |name: &str| &all.iter().find(|w| w.object["metadata"]["name"] == name).unwrap().object["spec"];
        assert_eq!((&of("v1.")["group"], &of("v1.")["versionPriority"]), (&json!(""), &json!(1)));
        assert_eq!(
            (&of("v2.autoscaling")["versionPriority"], &of("v1.autoscaling")["versionPriority"]),
            (&json!(30), &json!(15))
        );
        assert_eq!(of("v1.apps")["groupPriorityMinimum"], 17_800);
    }
}

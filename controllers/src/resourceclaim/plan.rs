//! What a pod's claims are called, who uses a claim still, and what is to be done with one that nobody uses.

use super::claims::{Claim, ENTRY};
use crate::common::ownership::controller_reference;
use coracle_api::pod::is_terminal;
use coracle_api::well_known;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use kube::ResourceExt;
use serde_json::{Value, json};

/// Keeps an allocated claim from vanishing before its devices are given back.
pub const FINALIZER: &str = well_known::RESOURCE_CLAIM_PROTECTION;
/// Upstream's limit of consumers of one claim.
pub const MOST_CONSUMERS: usize = 256;
/// Names end in a hyphen and five random characters, and have 63 at the most.
const BASE: usize = 57;

pub fn entries(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|s| s.resource_claims.as_deref()).unwrap_or_default()
}

/// Whether the pod uses nothing any more: it ended, or was deleted before it had a node.
pub fn is_done(pod: &Pod) -> bool {
    let placed = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
    is_terminal(pod) || (pod.metadata.deletion_timestamp.is_some() && !placed)
}

/// What the pod's status says of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Named<'p> {
    /// The claim to use; `true` when it must be the pod's own.
    Is(&'p str, bool),
    /// The entry needs none.
    NotNeeded,
    Nothing,
}

pub fn name_of<'p>(pod: &'p Pod, entry: &'p PodResourceClaim) -> Named<'p> {
    if let Some(name) = &entry.resource_claim_name {
        return Named::Is(name, false);
    }
    let statuses = pod.status.as_ref().and_then(|s| s.resource_claim_statuses.as_ref());
    match statuses.into_iter().flatten().find(|s| s.name == entry.name) {
        Some(status) => match &status.resource_claim_name {
            Some(name) => Named::Is(name, true),
            None => Named::NotNeeded,
        },
        None => Named::Nothing,
    }
}

/// Names of all claims that the pod uses as far as it says, the one for its extended resources included.
pub fn names(pod: &Pod) -> Vec<String> {
    let named = entries(pod).iter().filter_map(|entry| match name_of(pod, entry) {
        Named::Is(name, _) => Some(name.to_owned()),
        _ => None,
    });
    let extended = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
    named.chain(extended.map(|s| s.resource_claim_name.clone())).collect()
}

/// Both names in it, each shortened in proportion when they are too long together.
pub fn generate_name(pod: &str, entry: &str) -> String {
    let all = pod.len() + 1 + entry.len();
    let part = |text: &str| {
        let most = if all > BASE { text.len() * BASE / all } else { text.len() };
        text.get(..most).unwrap_or(text).to_owned()
    };
    format!("{}-{}-", part(pod), part(entry))
}

/// The claim that a template makes for an entry of a pod.
pub fn claim_of(template: &Value, pod: &Pod, entry: &str) -> Value {
    let meta = &template["spec"]["metadata"];
    let mut annotations = meta["annotations"].clone();
    if annotations.is_null() {
        annotations = json!({});
    }
    annotations[ENTRY] = json!(entry);
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "generateName": generate_name(&pod.name_any(), entry),
            "namespace": pod.namespace(),
            "labels": meta["labels"],
            "annotations": annotations,
            "ownerReferences": [controller_reference(pod)],
        },
        "spec": template["spec"]["spec"],
    })
}

/// What to do with a claim.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The consumers that stay, when some go or the allocation does.
    pub status: Option<Vec<usize>>,
    /// Whether the devices are given back with that.
    pub deallocate: bool,
    pub unprotect: bool,
    /// The pod that it was made for has ended.
    pub delete: bool,
}

/// `left` are the indices of the consumers that still use the claim; `owner_done` whether its pod has ended.
pub fn plan(claim: &Claim, left: Vec<usize>, owner_done: bool) -> Plan {
    let unused = left.is_empty();
    let protected = claim.finalizers.iter().any(|f| f == FINALIZER);
    let shrinks = left.len() < claim.consumers.len();
    let leaves = unused && protected && (shrinks || claim.deleting);
    let deallocate = leaves && claim.allocated;
    Plan {
        status: (shrinks || deallocate).then_some(left),
        deallocate,
        unprotect: leaves,
        delete: unused && owner_done && !claim.deleting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    #[test]
    fn names_fit_and_show_both_parts() {
        assert_eq!(generate_name("web", "gpu"), "web-gpu-");
        let long = generate_name(&"p".repeat(100), &"c".repeat(60));
        assert!(long.len() <= BASE + 2 && long.contains("ppp-ccc"), "{long}");
    }

    #[test]
    fn entries_say_which_claim() {
        let all = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "resourceClaims": [
            {"name": "direct", "resourceClaimName": "shared"}, {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "none", "resourceClaimTemplateName": "t"}, {"name": "new", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "none"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "p-ext", "requestMappings": []}}}));
        let named: Vec<Named<'_>> = entries(&all).iter().map(|e| name_of(&all, e)).collect();
        let expected =
            [Named::Is("shared", false), Named::Is("p-made-x", true), Named::NotNeeded, Named::Nothing];
        assert_eq!(named, expected);
        assert_eq!(names(&all), ["shared", "p-made-x", "p-ext"]);
    }

    #[test]
    fn a_pod_is_done_when_it_ended_or_never_began() {
        for (value, done) in [
            (json!({"status": {"phase": "Running"}}), false),
            (json!({"status": {"phase": "Failed"}}), true),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                    "spec": {"nodeName": "n", "containers": []}}),
                false,
            ),
        ] {
            assert_eq!(is_done(&pod(value.clone())), done, "{value}");
        }
    }

    #[test]
    fn devices_are_given_back_by_the_last_consumer_and_claims_go_with_their_pod() {
        let claim = |consumers: usize, allocated: bool, deleting: bool| {
            let list: Vec<Value> = (0..consumers)
                .map(|n| json!({"resource": "pods", "name": n.to_string(), "uid": n.to_string()}))
                .collect();
            let mut value = json!({"metadata": {"name": "c", "finalizers": [FINALIZER]},
                "status": {"reservedFor": list}});
            if allocated {
                value["status"]["allocation"] = json!({});
            }
            if deleting {
                value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            Claim::of(&value).expect("a claim")
        };
        let nothing = Plan::default();
        assert_eq!(plan(&claim(2, true, false), vec![0, 1], false), nothing);
        assert_eq!(
            plan(&claim(2, true, false), vec![1], false),
            Plan { status: Some(vec![1]), ..Plan::default() }
        );
        let freed = Plan { status: Some(vec![]), deallocate: true, unprotect: true, delete: false };
        assert_eq!(plan(&claim(1, true, false), vec![], false), freed);
        assert_eq!(plan(&claim(1, true, false), vec![], true), Plan { delete: true, ..freed });
        assert_eq!(plan(&claim(0, true, false), vec![], false), nothing);
        let dying = Plan { status: Some(vec![]), deallocate: true, unprotect: true, delete: false };
        assert_eq!(plan(&claim(0, true, true), vec![], false), dying);
        assert_eq!(plan(&claim(0, false, true), vec![], true), Plan { unprotect: true, ..Plan::default() });
    }
}

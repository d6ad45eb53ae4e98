//! Scopes: which objects a quota is for (<https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes>).

use super::list;
use crate::Object;
use serde_json::Value;

/// Whether all scopes of the quota hold for the object. A resource that knows nothing of a scope is outside of it.
pub fn matches_scopes(quota: &Object, group: &str, resource: &str, object: &Object) -> bool {
    let simple = list(&quota["spec"]["scopes"]).iter();
    let terms = list(&quota["spec"]["scopeSelector"]["matchExpressions"]).iter();
    let holds = |scope: &str, term: &Value| match (group, resource) {
        ("", "pods") => pod_in(scope, term, object),
        ("", "persistentvolumeclaims") if scope == "VolumeAttributesClass" => claim_in(term, object),
        _ => false,
    };
    simple
        .map(|scope| (scope, &Value::Null))
        .chain(terms.map(|t| (&t["scopeName"], t)))
        .all(|(scope, term)| holds(scope.as_str().unwrap_or_default(), term))
}

/// `name` against In, NotIn, Exists (also without operator) or DoesNotExist.
fn selected(term: &Value, name: Option<&str>) -> bool {
    let listed = || name.is_some_and(|name| list(&term["values"]).iter().any(|v| v == name));
    match term["operator"].as_str() {
        Some("In") => listed(),
        Some("NotIn") => !listed(),
        Some("DoesNotExist") => name.is_none(),
        _ => name.is_some(),
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn claim_in(term: &Value, claim: &Object) -> bool {
    let target = text(&claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"]);
    let current = text(&claim["status"]["currentVolumeAttributesClassName"]);
    let wanted = text(&claim["spec"]["volumeAttributesClassName"]);
    let names: Vec<&str> = [target, current, wanted].into_iter().flatten().collect();
    if names.is_empty() { selected(term, None) } else { names.iter().any(|n| selected(term, Some(n))) }
}

fn pod_in(scope: &str, term: &Value, pod: &Object) -> bool {
    let terminating = pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => selected(term, text(&pod["spec"]["priorityClassName"])),
        "CrossNamespacePodAffinity" => crosses_namespaces(&pod["spec"]["affinity"]),
        _ => false,
    }
}

/// Asks for no CPU and no memory, nowhere (the quality of service class of that name).
fn is_best_effort(pod: &Object) -> bool {
    if let Some(class) = text(&pod["status"]["qosClass"]) {
        return class == "BestEffort";
    }
    let asks = |resources: &Value| {
        ["requests", "limits"].iter().any(|field| {
            ["cpu", "memory"].iter().any(|name| {
                super::amounts(&resources[*field]).get(*name).is_some_and(|quantity| !quantity.is_zero())
            })
        })
    };
    let mut containers = ["containers", "initContainers"].into_iter().flat_map(|l| list(&pod["spec"][l]));
    !asks(&pod["spec"]["resources"]) && !containers.any(|c| asks(&c["resources"]))
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let term = |t: &Value| !list(&t["namespaces"]).is_empty() || t["namespaceSelector"].is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let of = &affinity[*kind];
        list(&of["requiredDuringSchedulingIgnoredDuringExecution"]).iter().any(term)
            || list(&of["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .any(|weighted| term(&weighted["podAffinityTerm"]))
    })
}

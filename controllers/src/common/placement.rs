//! Whether a node is one that a pod may run on: node selectors, node affinity, taints.

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use kube::ResourceExt;

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let empty = String::new();
    let key = toleration.key.as_ref().unwrap_or(&empty);
    let effect = toleration.effect.as_ref().unwrap_or(&empty);
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || *effect == taint.effect)
        && (if key.is_empty() { exists } else { *key == taint.key })
        && (exists || toleration.value.as_ref().unwrap_or(&empty) == taint.value.as_ref().unwrap_or(&empty))
}

/// Whether the pod's nodeSelector and required node affinity let it on the node.
pub fn selects(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.labels();
    let by_labels = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    by_labels && required.is_none_or(|selector| matches(selector, node))
}

/// One term suffices; a term without requirements matches nothing.
pub fn matches(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let labels = node.labels();
    let name = node.name_any();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|r| requirement(r, labels.get(&r.key).map(String::as_str)))
        && fields.iter().all(|r| r.key == "metadata.name" && requirement(r, Some(&name)))
}

fn requirement(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|v| v == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compare = || Some((number(value?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare().is_some_and(|(has, limit)| has > limit),
        "Lt" => compare().is_some_and(|(has, limit)| has < limit),
        _ => false,
    }
}

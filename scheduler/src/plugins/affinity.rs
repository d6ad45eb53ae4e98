//! Matching nodes against node selectors and node affinity terms.

use crate::cache::{NodeInfo, PodInfo};
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm};

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
    let compare = |f: fn(i64, i64) -> bool| match (number(value), number(values.first().map(String::as_str)))
    {
        (Some(have), Some(want)) => f(have, want),
        _ => false,
    };
    let listed = value.is_some_and(|v| values.iter().any(|w| w == v));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|have, want| have > want),
        "Lt" => compare(|have, want| have < want),
        _ => false,
    }
}

/// Whether all expressions and fields of the term hold; an empty term matches nothing.
pub fn term_matches(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let field = |key: &str| (key == "metadata.name").then_some(node.name.as_str());
    expressions.iter().all(|r| holds(r, node.label(&r.key))) && fields.iter().all(|r| holds(r, field(&r.key)))
}

/// Whether one of the terms matches.
pub fn any_term_matches(terms: &[NodeSelectorTerm], node: &NodeInfo) -> bool {
    terms.iter().any(|term| term_matches(term, node))
}

pub fn of(pod: &PodInfo) -> Option<&NodeAffinity> {
    pod.spec()?.affinity.as_ref()?.node_affinity.as_ref()
}

/// Whether the pod's node selector and required node affinity allow the node.
pub fn allows(pod: &PodInfo, node: &NodeInfo) -> bool {
    let selector = pod.spec().and_then(|s| s.node_selector.as_ref());
    if !selector.into_iter().flatten().all(|(key, value)| node.label(key) == Some(value)) {
        return false;
    }
    let required = of(pod).and_then(|t| t.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|r| any_term_matches(&r.node_selector_terms, node))
}

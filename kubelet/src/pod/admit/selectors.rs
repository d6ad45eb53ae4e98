//! Where a pod may run: its node selector, its node affinity and its tolerations.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
    let both = number(value).zip(number(values.first().map(String::as_str)));
    let listed = value.is_some_and(|v| values.iter().any(|w| w == v));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => both.is_some_and(|(have, want)| have > want),
        "Lt" => both.is_some_and(|(have, want)| have < want),
        _ => false,
    }
}

fn label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// A term without any requirement fits no node.
fn term_fits(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|r| holds(r, label(node, &r.key)))
        && fields.iter().all(|r| r.key == "metadata.name" && holds(r, name))
}

/// Whether the node is one that the pod's selector and required affinity name.
pub fn fits(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| label(node, key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|r| r.node_selector_terms.iter().any(|term| term_fits(term, node)))
}

/// An empty key with Exists tolerates every key, an empty effect every effect, and no operator means Equal.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    let (theirs, ours) = (text(&taint.value), text(&toleration.value));
    let numbers = theirs.parse::<i64>().ok().zip(ours.parse::<i64>().ok());
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => !key.is_empty() && theirs == ours,
        "Exists" => true,
        "Lt" => numbers.is_some_and(|(taint, own)| taint < own),
        "Gt" => numbers.is_some_and(|(taint, own)| taint > own),
        _ => false,
    }
}

/// Whether the pod puts up with a taint.
pub fn puts_up_with(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Whether a taint drives the pod off the node.
pub fn driven_off(pod: &Pod, node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").any(|taint| !puts_up_with(pod, taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        let mut whole = json!({ "containers": [] });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({ "metadata": {}, "spec": whole })).unwrap()
    }

    #[test]
    fn selectors_and_affinity_are_both_asked() {
        let node: Node =
            serde_json::from_value(json!({ "metadata": { "name": "n1", "labels": { "disk": "ssd" } } }))
                .unwrap();
        let affinity = |term: Value| {
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": [term] } } } })
        };
        let name = |operator: &str| {
            affinity(
                json!({ "matchFields": [{ "key": "metadata.name", "operator": operator, "values": ["n1"] }] }),
            )
        };
        for (expected, spec) in [
            (true, json!({})),
            (true, json!({ "nodeSelector": { "disk": "ssd" } })),
            (false, json!({ "nodeSelector": { "disk": "hdd" } })),
            (true, name("In")),
            (false, name("NotIn")),
            (false, affinity(json!({}))),
            (true, affinity(json!({ "matchExpressions": [{ "key": "disk", "operator": "Exists" }] }))),
        ] {
            assert_eq!(fits(&pod(spec.clone()), &node), expected, "{spec}");
        }
    }

    #[test]
    fn only_taints_of_one_effect_drive_off() {
        let node = |effect: &str| -> Node {
            let taint = json!({ "key": "k", "value": "v", "effect": effect });
            serde_json::from_value(json!({ "metadata": {}, "spec": { "taints": [taint] } })).unwrap()
        };
        assert!(driven_off(&pod(json!({})), &node("NoExecute")));
        assert!(!driven_off(&pod(json!({})), &node("NoSchedule")));
        for toleration in [
            json!({ "operator": "Exists" }),
            json!({ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 }),
            json!({ "key": "k", "value": "v" }),
        ] {
            assert!(!driven_off(&pod(json!({ "tolerations": [toleration] })), &node("NoExecute")));
        }
        let other = json!({ "tolerations": [{ "key": "k", "value": "w" }] });
        assert!(driven_off(&pod(other), &node("NoExecute")));
    }
}

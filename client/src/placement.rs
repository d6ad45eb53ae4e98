//! Whether a node is one that a pod may be on: node selectors, node affinity, tolerations of taints
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>).

use coracle_api::toleration::Toleration;
use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PodSpec, Taint,
};

/// What selectors look at. The scheduler's own form of a node is another one.
pub trait Place {
    /// `metadata.name`
    fn name(&self) -> &str;
    fn label(&self, key: &str) -> Option<&str>;
}

impl Place for Node {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|v| v == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(has, limit)| has > limit),
        "Lt" => numbers().is_some_and(|(has, limit)| has < limit),
        _ => false,
    }
}

/// Whether all expressions and fields of the term hold. One without any matches nothing.
pub fn term_matches(term: &NodeSelectorTerm, place: &impl Place) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|r| holds(r, place.label(&r.key)))
        && fields.iter().all(|r| r.key == "metadata.name" && holds(r, Some(place.name())))
}

/// Whether one of the terms matches.
pub fn any_term_matches(terms: &[NodeSelectorTerm], place: &impl Place) -> bool {
    terms.iter().any(|term| term_matches(term, place))
}

/// Whether the pod's nodeSelector and required node affinity let it on the node.
pub fn selects(spec: &PodSpec, place: &impl Place) -> bool {
    let by_labels =
        spec.node_selector.iter().flatten().all(|(key, value)| place.label(key) == Some(value.as_str()));
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    by_labels && required.is_none_or(|r| any_term_matches(&r.node_selector_terms, place))
}

/// Whether the volume can be used on the node, by its own node affinity.
pub fn reaches(volume: &PersistentVolume, place: &impl Place) -> bool {
    let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required.as_ref());
    required.is_none_or(|r| any_term_matches(&r.node_selector_terms, place))
}

/// Whether a pod of this spec tolerates the taint.
pub fn tolerates_taint(spec: Option<&PodSpec>, taint: &Taint) -> bool {
    let tolerations = spec.and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|toleration| Toleration::from(toleration).tolerates(taint.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(fields: &Value) -> PodSpec {
        let mut whole = json!({ "containers": [] });
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn selectors_and_affinity_are_both_asked() {
        let labels = json!({ "disk": "ssd", "cores": "8" });
        let node: Node =
            serde_json::from_value(json!({ "metadata": { "name": "n1", "labels": labels } })).unwrap();
        let affinity = |terms: Value| {
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": terms } } } })
        };
        let field = |key: &str, operator: &str| {
            affinity(json!([{ "matchFields": [{ "key": key, "operator": operator, "values": ["n1"] }] }]))
        };
        let label = |key: &str, operator: &str, values: Value| {
            affinity(
                json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }]),
            )
        };
        for (expected, fields) in [
            (true, json!({})),
            (true, json!({ "nodeSelector": { "disk": "ssd" } })),
            (false, json!({ "nodeSelector": { "disk": "hdd" } })),
            (true, field("metadata.name", "In")),
            (false, field("metadata.name", "NotIn")),
            (false, field("metadata.namespace", "NotIn")),
            (false, affinity(json!([]))),
            (false, affinity(json!([{}]))),
            (true, affinity(json!([{}, { "matchExpressions": [{ "key": "disk", "operator": "Exists" }] }]))),
            (true, label("disk", "In", json!(["hdd", "ssd"]))),
            (true, label("gpu", "NotIn", json!(["ssd"]))),
            (true, label("gpu", "DoesNotExist", json!([]))),
            (true, label("cores", "Gt", json!(["7"]))),
            (false, label("cores", "Lt", json!(["8"]))),
            (false, label("disk", "Gt", json!(["7"]))),
        ] {
            assert_eq!(selects(&spec(&fields), &node), expected, "{fields}");
        }
    }

    #[test]
    fn one_toleration_of_a_pod_is_enough() {
        let taint = Taint { key: "a".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        let both = json!([{ "key": "b", "operator": "Exists" }, { "key": "a", "operator": "Exists" }]);
        for (expected, tolerations) in
            [(false, json!([])), (false, json!([{ "key": "b", "operator": "Exists" }])), (true, both)]
        {
            let spec = spec(&json!({ "tolerations": tolerations }));
            assert_eq!(tolerates_taint(Some(&spec), &taint), expected, "{tolerations}");
        }
        assert!(!tolerates_taint(None, &taint));
    }
}

//! Keys of which a pod's own labels give the values (KEP-3633, KEP-3243).

use super::super::value::*;
use serde_json::{Value, json};

const TERMS: [&str; 2] =
    ["requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"];

/// Adds to the selectors of affinity and spreading what `matchLabelKeys` and `mismatchLabelKeys` mean for this pod, once,
/// when it is created: later changes of its labels do not move it.
pub fn apply(pod: &mut Value) {
    let labels = at(pod, "metadata.labels").clone();
    let Some(spec) = at_mut(pod, "spec") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        for list in TERMS {
            for term in each_mut(spec, &format!("affinity.{kind}.{list}")) {
                match term.get_mut("podAffinityTerm") {
                    Some(inner) => add(inner, &labels),
                    None => add(term, &labels),
                }
            }
        }
    }
    each_mut(spec, "topologySpreadConstraints").for_each(|constraint| add(constraint, &labels));
}

fn add(term: &mut Value, labels: &Value) {
    let of = |field: &str, operator: &str| {
        let values = strings_at(term, field).filter_map(|key| Some((key, labels.get(key)?)));
        values
            .map(|(key, value)| json!({ "key": key, "operator": operator, "values": [value] }))
            .collect::<Vec<_>>()
    };
    let mut more = of("matchLabelKeys", "In");
    more.extend(of("mismatchLabelKeys", "NotIn"));
    let Some(selector) = at_mut(term, "labelSelector").and_then(Value::as_object_mut) else { return };
    if more.is_empty() {
        return;
    }
    let slot = selector.entry("matchExpressions").or_insert(Value::Null);
    if !slot.is_array() {
        *slot = json!([]);
    }
    if let Some(expressions) = slot.as_array_mut() {
        expressions.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_expressions_with_the_pods_own_values() {
        let term = json!({ "labelSelector": { "matchLabels": { "app": "a" } }, "topologyKey": "t",
            "matchLabelKeys": ["hash", "absent"], "mismatchLabelKeys": ["tenant"] });
        let mut pod = json!({ "metadata": { "labels": { "hash": "1", "tenant": "x" } }, "spec": {
            "affinity": { "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
                "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "podAffinityTerm": term }] } },
            "topologySpreadConstraints": [{ "labelSelector": {}, "matchLabelKeys": ["hash"] }, { "matchLabelKeys": ["hash"] }] } });
        apply(&mut pod);
        let want = json!([{ "key": "hash", "operator": "In", "values": ["1"] },
            { "key": "tenant", "operator": "NotIn", "values": ["x"] }]);
        let affinity = &pod["spec"]["affinity"]["podAffinity"];
        assert_eq!(affinity[TERMS[0]][0]["labelSelector"]["matchExpressions"], want);
        assert_eq!(affinity[TERMS[1]][0]["podAffinityTerm"]["labelSelector"]["matchExpressions"], want);
        let spread = &pod["spec"]["topologySpreadConstraints"];
        assert_eq!(spread[0]["labelSelector"]["matchExpressions"][0]["key"], "hash");
        assert!(spread[1].get("labelSelector").is_none(), "a constraint without a selector selects nothing");
    }
}

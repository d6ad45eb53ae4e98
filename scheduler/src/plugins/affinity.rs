//! Matching nodes against node selectors and node affinity terms.

use crate::cache::{NodeInfo, PodInfo};
use coracle_api::validation::qualified_name;
use coracle_client::placement::selects;
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm};

/// What is wrong with a requirement on labels, in upstream's words; the path is of the field that it is about.
fn mistakes_of(requirement: &NodeSelectorRequirement) -> Vec<String> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let mut all: Vec<String> = qualified_name(&requirement.key)
        .into_iter()
        .map(|why| format!("key: Invalid value: {:?}: {why}", requirement.key))
        .collect();
    let why = match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => "for 'in', 'notin' operators, values set can't be empty",
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            "values set must be empty for exists and does not exist"
        }
        "Gt" | "Lt" if values.len() != 1 => "for 'Gt', 'Lt' operators, exactly one value is required",
        "Gt" | "Lt" if values[0].parse::<i64>().is_err() => {
            "for 'Gt', 'Lt' operators, the value must be an integer"
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => return all,
        other => {
            all.push(format!("operator: Unsupported value: {other:?}"));
            return all;
        }
    };
    all.push(format!("values: Invalid value: {values:?}: {why}"));
    all
}

fn mistakes_of_field(field: &NodeSelectorRequirement) -> Option<String> {
    let values = field.values.as_deref().unwrap_or_default();
    if field.key != "metadata.name" {
        return Some(format!("key: Invalid value: {:?}: not a valid field selector key", field.key));
    }
    if !["In", "NotIn"].contains(&field.operator.as_str()) {
        return Some(format!(
            "operator: Unsupported value: {:?}: supported values: \"In\", \"NotIn\"",
            field.operator
        ));
    }
    (values.len() != 1).then(|| "values: Invalid value: must have one element".to_owned())
}

/// What is wrong with a term, each with its path in it.
pub fn mistakes_in(term: &NodeSelectorTerm) -> Vec<String> {
    let mut all = Vec::new();
    for (i, requirement) in term.match_expressions.iter().flatten().enumerate() {
        all.extend(mistakes_of(requirement).into_iter().map(|why| format!("matchExpressions[{i}].{why}")));
    }
    for (i, field) in term.match_fields.iter().flatten().enumerate() {
        all.extend(mistakes_of_field(field).map(|why| format!("matchFields[{i}].{why}")));
    }
    all
}

pub fn of(pod: &PodInfo) -> Option<&NodeAffinity> {
    pod.spec()?.affinity.as_ref()?.node_affinity.as_ref()
}

/// Whether the pod's node selector and required node affinity allow the node.
pub fn allows(pod: &PodInfo, node: &NodeInfo) -> bool {
    pod.spec().is_none_or(|spec| selects(spec, node))
}

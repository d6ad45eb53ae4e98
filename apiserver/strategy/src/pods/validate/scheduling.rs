//! What steers the scheduler: node selector, affinity, tolerations, topology spread.

use super::super::super::rules;
use super::super::super::value::*;
use serde_json::Value;
use std::collections::HashSet;

pub fn all(spec: &Value, path: &Path, errors: &mut Errors) {
    rules::labels(at(spec, "nodeSelector"), &path.field("nodeSelector"), errors);
    let affinity = path.field("affinity");
    node_affinity(at(spec, "affinity.nodeAffinity"), &affinity.field("nodeAffinity"), errors);
    for kind in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(at(at(spec, "affinity"), kind), &affinity.field(kind), errors);
    }
    for (i, item) in list_at(spec, "tolerations").iter().enumerate() {
        toleration(item, &path.field("tolerations").index(i), errors);
    }
    let mut seen = HashSet::new();
    for (i, item) in list_at(spec, "topologySpreadConstraints").iter().enumerate() {
        let here = path.field("topologySpreadConstraints").index(i);
        spread(item, &here, errors);
        let key = (str_at(item, "topologyKey"), str_at(item, "whenUnsatisfiable"));
        if !seen.insert(key) {
            errors.duplicate(
                &here.field("{topologyKey, whenUnsatisfiable}"),
                format!("{{{}, {}}}", key.0, key.1),
            );
        }
    }
}

pub fn toleration(toleration: &Value, path: &Path, errors: &mut Errors) {
    let (key, value) = (str_at(toleration, "key"), str_at(toleration, "value"));
    let (operator, effect) = (str_at(toleration, "operator"), str_at(toleration, "effect"));
    if !key.is_empty() {
        rules::qualified_name(key, &path.field("key"), errors);
    } else if operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.invalid(&path.field("operator"), operator, detail);
    }
    if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.invalid(&path.field("effect"), effect, detail);
    }
    match operator {
        "" | "Equal" => rules::label_value(value, &path.field("operator"), errors),
        "Exists" if !value.is_empty() => {
            errors.invalid(&path.field("operator"), value, "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        other => errors.not_supported(&path.field("operator"), other, &["Equal", "Exists"]),
    }
    rules::one_of_if_set(
        toleration,
        "effect",
        &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        path,
        errors,
    );
}

fn node_affinity(affinity: &Value, path: &Path, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    if has(affinity, REQUIRED) {
        node_selector(at(affinity, REQUIRED), &path.field(REQUIRED), errors);
    }
    for (i, term) in list_at(affinity, PREFERRED).iter().enumerate() {
        let here = path.field(PREFERRED).index(i);
        weight(term, &here, errors);
        node_term(at(term, "preference"), &here.field("preference"), errors);
    }
}

/// A required node selector: at least one term.
pub fn node_selector(selector: &Value, path: &Path, errors: &mut Errors) {
    let (terms, path) = (list_at(selector, "nodeSelectorTerms"), path.field("nodeSelectorTerms"));
    if terms.is_empty() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (i, term) in terms.iter().enumerate() {
        node_term(term, &path.index(i), errors);
        label_values(term, &path.index(i).field("matchExpressions"), errors);
    }
}

/// What a required term compares with can be the value of a label.
fn label_values(term: &Value, path: &Path, errors: &mut Errors) {
    for (i, requirement) in list_at(term, "matchExpressions").iter().enumerate() {
        for (j, value) in strings_at(requirement, "values").enumerate() {
            rules::label_value(value, &path.index(i).field("values").index(j), errors);
        }
    }
}

fn node_term(term: &Value, path: &Path, errors: &mut Errors) {
    for field in ["matchExpressions", "matchFields"] {
        for (i, requirement) in list_at(term, field).iter().enumerate() {
            node_requirement(requirement, &path.field(field).index(i), errors);
            if field == "matchFields" {
                match_field(requirement, &path.field(field).index(i), errors);
            }
            if field == "matchExpressions" {
                let here = path.field(field).index(i).field("key");
                rules::qualified_name(str_at(requirement, "key"), &here, errors);
            }
        }
    }
}

/// Of a node's fields only its name can be asked for, one at a time.
fn match_field(requirement: &Value, path: &Path, errors: &mut Errors) {
    let key = str_at(requirement, "key");
    if key != "metadata.name" {
        errors.invalid(&path.field("key"), key, "not a valid field selector key");
    }
    match str_at(requirement, "operator") {
        "In" | "NotIn" if list_at(requirement, "values").len() > 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&path.field("values"), detail);
        }
        "In" | "NotIn" => {}
        other => errors.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
}

fn node_requirement(requirement: &Value, path: &Path, errors: &mut Errors) {
    let values = list_at(requirement, "values");
    let here = path.field("values");
    match str_at(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&here, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&here, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(&here, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.field("operator"), other, "not a valid selector operator"),
    }
}

fn weight(term: &Value, path: &Path, errors: &mut Errors) {
    let weight = i64_at(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.field("weight"), weight, "must be in the range 1-100");
    }
}

fn pod_affinity(affinity: &Value, path: &Path, errors: &mut Errors) {
    let required = path.field("requiredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in list_at(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        pod_term(term, &required.index(i), errors);
    }
    let preferred = path.field("preferredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in list_at(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        weight(term, &preferred.index(i), errors);
        pod_term(at(term, "podAffinityTerm"), &preferred.index(i).field("podAffinityTerm"), errors);
    }
}

fn pod_term(term: &Value, path: &Path, errors: &mut Errors) {
    for field in ["labelSelector", "namespaceSelector"] {
        rules::label_selector(at(term, field), &path.field(field), errors);
    }
    for name in strings_at(term, "namespaces") {
        rules::label(name, &path.field("namespace"), errors);
    }
    let (key, here) = (str_at(term, "topologyKey"), path.field("topologyKey"));
    if key.is_empty() {
        errors.required(&here, "can not be empty");
    }
    rules::qualified_name(key, &here, errors);
    label_keys(term, path, errors);
}

/// Keys whose values the pod's own labels give (KEP-3633).
fn label_keys(term: &Value, path: &Path, errors: &mut Errors) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let here = path.field(field);
        if !list_at(term, field).is_empty() && !has(term, "labelSelector") {
            errors.forbidden(&here, "must not be specified when labelSelector is not set");
            continue;
        }
        for (i, key) in strings_at(term, field).enumerate() {
            rules::qualified_name(key, &here.index(i), errors);
        }
    }
    for (i, key) in strings_at(term, "matchLabelKeys").enumerate() {
        if is_selected_twice(at(term, "labelSelector"), key) {
            errors.invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector");
        }
        if strings_at(term, "mismatchLabelKeys").any(|k| k == key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&path.field("matchLabelKeys").index(i), key, detail);
        }
    }
}

/// Whether a selector asks for a key once more than the expression that was made of it.
fn is_selected_twice(selector: &Value, key: &str) -> bool {
    let by_hand = usize::from(at(selector, "matchLabels").get(key).is_some());
    by_hand + list_at(selector, "matchExpressions").iter().filter(|e| str_at(e, "key") == key).count() > 1
}

fn spread(constraint: &Value, path: &Path, errors: &mut Errors) {
    let skew = i64_at(constraint, "maxSkew").unwrap_or(0);
    if skew <= 0 {
        errors.invalid(&path.field("maxSkew"), skew, "must be greater than zero");
    }
    if str_at(constraint, "topologyKey").is_empty() {
        errors.required(&path.field("topologyKey"), "can not be empty");
    }
    rules::one_of(constraint, "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"], path, errors);
    if let Some(domains) = i64_at(constraint, "minDomains") {
        let here = path.field("minDomains");
        if domains <= 0 {
            errors.invalid(&here, domains, "must be greater than zero");
        }
        let action = str_at(constraint, "whenUnsatisfiable");
        if action != "DoNotSchedule" {
            let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            errors.invalid(&here, domains, &detail);
        }
    }
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        rules::one_of_if_set(constraint, field, &["Honor", "Ignore"], path, errors);
    }
    rules::label_selector(at(constraint, "labelSelector"), &path.field("labelSelector"), errors);
    spread_keys(constraint, &path.field("matchLabelKeys"), errors);
}

fn spread_keys(constraint: &Value, path: &Path, errors: &mut Errors) {
    let selector = at(constraint, "labelSelector");
    if !list_at(constraint, "matchLabelKeys").is_empty() && selector.is_null() {
        errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (i, key) in strings_at(constraint, "matchLabelKeys").enumerate() {
        rules::qualified_name(key, &path.index(i), errors);
        if is_selected_twice(selector, key) {
            errors.invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

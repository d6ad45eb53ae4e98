//! Label selectors as objects (`matchLabels`, `matchExpressions`).

use super::super::value::*;
use super::{label_value, qualified_name};
use serde_json::Value;

pub fn label_selector(selector: &Value, path: &Path, errors: &mut Errors) {
    for (key, value) in entries_at(selector, "matchLabels") {
        qualified_name(key, &path.field("matchLabels"), errors);
        label_value(value.as_str().unwrap_or_default(), &path.field("matchLabels"), errors);
    }
    for (i, expression) in list_at(selector, "matchExpressions").iter().enumerate() {
        let here = path.field("matchExpressions").index(i);
        let values = list_at(expression, "values");
        match str_at(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors
                    .required(&here.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&here.field("values"), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(&here.field("operator"), other, "not a valid selector operator"),
        }
        qualified_name(str_at(expression, "key"), &here.field("key"), errors);
        for (j, value) in strings_at(expression, "values").enumerate() {
            label_value(value, &here.field("values").index(j), errors);
        }
    }
}

/// Whether a selector has no requirement, and so selects everything (or, absent, nothing).
pub fn selects_all(selector: &Value) -> bool {
    entries_at(selector, "matchLabels").next().is_none() && list_at(selector, "matchExpressions").is_empty()
}

pub fn selects(selector: &Value, labels: &Value) -> bool {
    entries_at(selector, "matchLabels").all(|(key, value)| labels.get(key) == Some(value))
        && list_at(selector, "matchExpressions").iter().all(|e| expression_holds(e, labels))
}

fn expression_holds(expression: &Value, labels: &Value) -> bool {
    let found = labels.get(str_at(expression, "key"));
    let listed = found.is_some_and(|v| list_at(expression, "values").contains(v));
    match str_at(expression, "operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        _ => false,
    }
}

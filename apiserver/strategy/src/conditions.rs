//! Conditions in the common form (`metav1.Condition`), as status updates may carry them.

use super::rules;
use super::value::*;
use serde_json::Value;
use std::collections::BTreeSet;

/// Bytes; upstream's limits.
const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32 * 1024;

/// Whether the object has a condition of this type in this state.
pub fn is(object: &Value, kind: &str, state: &str) -> bool {
    let mut all = list_at(object, "status.conditions").iter();
    all.any(|c| str_at(c, "type") == kind && str_at(c, "status") == state)
}

pub fn is_true(object: &Value, kind: &str) -> bool {
    is(object, kind, "True")
}

pub fn check(conditions: &[Value], path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let here = path.index(i);
        let kind = str_at(condition, "type");
        if kind.is_empty() {
            errors.required(&here.field("type"), "must be set");
        } else {
            rules::qualified_name(kind, &here.field("type"), errors);
            if !seen.insert(kind) {
                errors.duplicate(&here.field("type"), kind);
            }
        }
        let status = str_at(condition, "status");
        if !["True", "False", "Unknown"].contains(&status) {
            errors.not_supported(&here.field("status"), status, &["False", "True", "Unknown"]);
        }
        rules::non_negative_at(condition, "observedGeneration", &here, errors);
        if str_at(condition, "lastTransitionTime").is_empty() {
            errors.required(&here.field("lastTransitionTime"), "must be set");
        }
        reason(str_at(condition, "reason"), &here.field("reason"), errors);
        if str_at(condition, "message").len() > MESSAGE_MAX {
            errors.too_long(&here.field("message"), MESSAGE_MAX);
        }
    }
}

fn reason(text: &str, path: &Path, errors: &mut Errors) {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(letter)
        && text.chars().all(|c| letter(c) || c == ',' || c == ':');
    if text.is_empty() {
        errors.required(path, "must be set");
    } else if !fits {
        let detail = "a condition reason must start with alphabetic character, optionally followed by a string of \
                      alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
                      'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used \
                      for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
        errors.invalid(path, text, detail);
    } else if text.len() > REASON_MAX {
        errors.too_long(path, REASON_MAX);
    }
}

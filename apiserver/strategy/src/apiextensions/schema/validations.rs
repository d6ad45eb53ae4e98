//! `x-kubernetes-validations`: what can be said of a rule before it is compiled.

use super::*;

const RULES: &str = "x-kubernetes-validations";
const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

fn has_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

pub fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    for (i, rule) in list_at(schema, RULES).iter().enumerate() {
        let here = path.field(RULES).index(i);
        texts(rule, &here, errors);
        if has(rule, "reason") && !REASONS.contains(&str_at(rule, "reason")) {
            errors.not_supported(&here.field("reason"), str_at(rule, "reason"), REASONS);
        }
        field_path(schema, rule, &here.field("fieldPath"), errors);
    }
}

fn texts(rule: &Value, path: &Path, errors: &mut Errors) {
    let (source, message, expression) =
        (str_at(rule, "rule").trim(), str_at(rule, "message"), str_at(rule, "messageExpression"));
    let at_message = path.field("message");
    if source.is_empty() {
        errors.required(&path.field("rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at_message, message, "message must be non-empty if specified");
    } else if has_breaks(message.trim()) {
        errors.invalid(&at_message, message, "message must not contain line breaks");
    } else if has_breaks(source) && message.trim().is_empty() {
        errors.required(&at_message, "message must be specified if rule contains line breaks");
    }
    if !expression.is_empty() && expression.trim().is_empty() {
        errors.required(&path.field("messageExpression"), "messageExpression must be non-empty if specified");
    }
}

fn field_path(schema: &Value, rule: &Value, path: &Path, errors: &mut Errors) {
    let text = str_at(rule, "fieldPath");
    if text.is_empty() {
        return;
    }
    if text.trim().is_empty() {
        errors.invalid(path, text, "fieldPath must be non-empty if specified");
    }
    if has_breaks(text) {
        errors.invalid(path, text, "fieldPath must not contain line breaks");
    }
    if follow(text, schema, true).is_err() {
        errors.invalid(path, text, "fieldPath must be a valid path");
    }
}

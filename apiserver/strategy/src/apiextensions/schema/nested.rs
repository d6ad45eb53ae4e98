//! Parts under `allOf`, `anyOf`, `oneOf` and `not`: they check values and specify nothing.

use super::structural::INT_OR_STRING;
use super::*;
use coracle_api::structural::Pattern;

/// What a part must not say: the keyword, and how it must be.
const FORBIDDEN: [(&str, &str); 13] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    (INT_OR_STRING, "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// Of a schema, or of a part: the pattern, and what stands under its junctors. The two spellings of an integer or a
/// string may use `type`.
pub fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    junctors(schema, is_int_or_string(schema), is_all_of_int_or_string(schema), path, errors);
}

fn is_int_or_string(schema: &Value) -> bool {
    *at(schema, "anyOf") == json!([{ "type": "integer" }, { "type": "string" }])
}

fn is_all_of_int_or_string(schema: &Value) -> bool {
    list_at(schema, "allOf").first().is_some_and(is_int_or_string)
}

fn junctors(schema: &Value, skip_any: bool, skip_first_all: bool, path: &Path, errors: &mut Errors) {
    for word in ["anyOf", "allOf", "oneOf"].into_iter().filter(|word| *word != "anyOf" || !skip_any) {
        for (i, inner) in list_at(schema, word).iter().enumerate() {
            let skips = word == "allOf" && skip_first_all && i == 0;
            part(inner, skips, &path.field(word).index(i), errors);
        }
    }
    if at(schema, "not").is_object() {
        part(at(schema, "not"), false, &path.field("not"), errors);
    }
    let pattern = str_at(schema, "pattern");
    if !pattern.is_empty()
        && let Err(why) = Pattern::check(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid(&path.field("pattern"), pattern, &detail);
    }
}

fn part(schema: &Value, skip_any: bool, path: &Path, errors: &mut Errors) {
    junctors(schema, skip_any, false, path, errors);
    if at(schema, "items").is_object() {
        part(at(schema, "items"), false, &path.field("items"), errors);
    }
    for (name, property) in entries_at(schema, "properties") {
        let here = path.field("properties").key(name);
        part(property, false, &here, errors);
        if name == "metadata" {
            errors.forbidden(&here, "must not be specified in a nested context");
        }
    }
    for (word, how) in FORBIDDEN {
        let value = at(schema, word);
        // `additionalProperties: false` and an empty default say something.
        let unset = if matches!(word, "additionalProperties" | "default") {
            value.is_null()
        } else {
            is_unset(value)
        };
        if !unset {
            errors.forbidden(&path.field(word), how);
        }
    }
}

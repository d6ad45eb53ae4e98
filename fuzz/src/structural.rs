//! Schemas of custom resources with objects that may or may not fit them.

use coracle_api::structural::{self, Structural};
use serde_json::{Value, json};

/// `[schema, object, object before]`: whatever the schema says, the steps of a write end, and repeating one changes
/// nothing.
pub fn structural(bytes: &[u8]) {
    let Ok(Value::Array(parts)) = serde_json::from_slice::<Value>(bytes) else { return };
    let (Some(schema), Some(object)) = (parts.first(), parts.get(1)) else { return };
    let schema = structural::parse(schema);
    let mut object = object.clone();
    structural::prune(&mut object, &schema, true);
    assert_eq!(structural::prune(&mut object, &schema, true), Vec::<String>::new());
    if let Ok(problems) = structural::coerce(&mut object, &schema, "") {
        drop(problems);
        let before = object.clone();
        structural::coerce(&mut object, &schema, "").expect("coerced once already");
        assert_eq!(object, before);
    }
    filled(&mut object, &schema);
    judged(&object, parts.get(2), &schema);
    let _ = structural::object_type(&schema, false);
}

fn filled(object: &mut Value, schema: &Structural) {
    structural::drop_nulls(object, schema);
    structural::fill(object, schema);
    let once = object.clone();
    structural::drop_nulls(object, schema);
    structural::fill(object, schema);
    assert_eq!(*object, once, "defaults are filled in once");
}

fn judged(object: &Value, old: Option<&Value>, schema: &Structural) {
    let errors = structural::validate(object, None, schema, "");
    let unchanged = structural::validate(object, Some(object), schema, "");
    assert!(unchanged.len() <= errors.len(), "an update answers for less than a creation");
    let against = structural::validate(object, old, schema, "");
    for error in errors.iter().chain(&against) {
        assert!(!error.to_string().is_empty());
    }
    let mut doubles = Vec::new();
    structural::duplicates(object, schema, "", &mut doubles);
    structural::check_embedded(object, schema, "", &mut doubles);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let string = json!({ "type": "string", "maxLength": 3, "pattern": "^a*$", "default": "a" });
    let schema = json!({ "type": "object", "required": ["s"], "properties": {
        "s": string, "n": { "type": "integer", "minimum": 1, "multipleOf": 3, "nullable": true, "default": 3 },
        "l": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "maxItems": 2,
            "items": { "type": "object", "properties": { "k": { "type": "string", "default": "x" } } } },
        "m": { "type": "object", "additionalProperties": { "x-kubernetes-int-or-string": true } },
        "e": { "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true },
        "f": { "type": "string", "format": "date-time", "enum": ["2026-01-01T00:00:00Z"] },
        "c": { "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
            "oneOf": [{ "required": ["a"] }, { "required": ["b"] }], "not": { "required": ["z"] } } } });
    let object = json!({ "apiVersion": "g/v1", "kind": "K", "metadata": { "name": "n" }, "s": "aa", "n": null, "x": 1,
        "l": [{ "k": "a" }, {}, { "k": "a" }], "m": { "i": 1, "t": "2" }, "f": "now", "c": { "a": "1", "b": "2" },
        "e": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": { "x": 5 } }, "spec": {} } });
    let set = json!({ "type": "object", "properties": { "l": { "type": "array", "x-kubernetes-list-type": "set",
        "items": { "type": "number" } } }, "x-kubernetes-preserve-unknown-fields": true });
    [
        json!([schema, object, { "s": "bbbb", "n": 4 }]),
        json!([schema, {}, {}]),
        json!([set, { "l": [1, 1.0, "1", null], "y": {} }]),
        json!([{ "type": "array", "items": { "type": "boolean" } }, [true, 0]]),
    ]
    .iter()
    .map(|seed| seed.to_string().into_bytes())
    .collect()
}

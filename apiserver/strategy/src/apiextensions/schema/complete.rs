//! Whatever a part under `allOf` and its like speaks of must be specified outside of it.

use super::*;

pub fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    junctors(schema, schema, path, path, errors);
    for (name, property) in entries_at(schema, "properties") {
        check(property, &path.field("properties").key(name), errors);
    }
    for word in ["items", "additionalProperties"] {
        if at(schema, word).is_object() {
            check(at(schema, word), &path.field(word), errors);
        }
    }
}

/// `value` has the junctors, `schema` specifies; `here` and `there` say where each stands.
fn junctors(value: &Value, schema: &Value, here: &Path, there: &Path, errors: &mut Errors) {
    for word in ["allOf", "anyOf", "oneOf"] {
        for (i, inner) in list_at(value, word).iter().enumerate() {
            part(inner, schema, here, &there.field(word).index(i), errors);
        }
    }
    if at(value, "not").is_object() {
        part(at(value, "not"), schema, here, &there.field("not"), errors);
    }
}

fn part(value: &Value, schema: &Value, here: &Path, there: &Path, errors: &mut Errors) {
    if !schema.is_object() {
        errors.required(here, &format!("because it is defined in {there}"));
        return;
    }
    junctors(value, schema, here, there, errors);
    if at(value, "items").is_object() {
        part(at(value, "items"), at(schema, "items"), &here.field("items"), &there.field("items"), errors);
    }
    for (name, property) in entries_at(value, "properties") {
        let specified = at(schema, "properties").get(name).unwrap_or(&Value::Null);
        let (here, there) = (here.field("properties").key(name), there.field("properties").key(name));
        part(property, specified, &here, &there, errors);
    }
}

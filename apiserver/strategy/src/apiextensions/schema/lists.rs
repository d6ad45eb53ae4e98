//! `x-kubernetes-list-type`, `x-kubernetes-list-map-keys` and `x-kubernetes-map-type`.

use super::*;
use std::collections::BTreeSet;

const LIST: &str = "x-kubernetes-list-type";
const KEYS: &str = "x-kubernetes-list-map-keys";
const MAP: &str = "x-kubernetes-map-type";

pub fn check(schema: &Value, path: &Path, errors: &mut Errors) {
    let (list, map) = (str_at(schema, LIST), str_at(schema, MAP));
    if has(schema, MAP) {
        wanted_type(schema, "object", MAP, path, errors);
        if !["atomic", "granular"].contains(&map) {
            errors.not_supported(&path.field(MAP), map, &["atomic", "granular"]);
        }
    }
    if has(schema, LIST) {
        wanted_type(schema, "array", LIST, path, errors);
        if !["atomic", "set", "map"].contains(&list) {
            errors.not_supported(&path.field(LIST), list, &["atomic", "set", "map"]);
        }
    }
    if !list_at(schema, KEYS).is_empty() && list != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match has(schema, LIST) {
            false => errors.required(&path.field(LIST), detail),
            true => errors.invalid(&path.field(LIST), list, detail),
        }
    }
    match list {
        "set" => set(schema, path, errors),
        "map" => keyed(schema, path, errors),
        _ => {}
    }
}

fn wanted_type(schema: &Value, wanted: &str, word: &str, path: &Path, errors: &mut Errors) {
    let detail = format!("must be {wanted} if {word} is specified");
    match str_at(schema, "type") {
        "" => errors.required(&path.field("type"), &detail),
        kind if kind != wanted => errors.invalid(&path.field("type"), kind, &detail),
        _ => {}
    }
}

fn not_nullable(items: &Value, list: &str, path: &Path, errors: &mut Errors) {
    if bool_at(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.forbidden(&path.field("items").field("nullable"), &detail);
    }
}

/// Members of a set are compared as a whole, so they must be owned as a whole.
fn set(schema: &Value, path: &Path, errors: &mut Errors) {
    let (items, here) = (at(schema, "items"), path.field("items"));
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    match (str_at(schema, "type"), str_at(items, "type")) {
        ("array", "array") if !matches!(str_at(items, LIST), "" | "atomic") => {
            errors.invalid(&here.field(LIST), str_at(items, LIST), detail);
        }
        ("array", "object") if str_at(items, MAP) != "atomic" => {
            errors.invalid(&here.field(MAP), at(items, MAP).clone(), detail);
        }
        _ => {}
    }
    not_nullable(items, "set", path, errors);
}

fn keyed(schema: &Value, path: &Path, errors: &mut Errors) {
    let (items, here) = (at(schema, "items"), path.field("items"));
    if list_at(schema, KEYS).is_empty() {
        errors.required(&path.field(KEYS), "must not be empty if x-kubernetes-list-type is map");
    }
    if items.is_null() {
        errors.required(&here, "must have a schema if x-kubernetes-list-type is map");
        return;
    }
    if !items.is_object() {
        // As the two fields that upstream keeps it in.
        let schemas = if items.is_array() { items } else { &Value::Null };
        let shown =
            coracle_api::shown(&json!({ "JSONSchemas": schemas })).replacen('{', "{\"Schema\":null,", 1);
        let detail = "must only have a single schema if x-kubernetes-list-type is map";
        errors.invalid_as(&here, &shown, detail);
        return;
    }
    if str_at(items, "type") == "object" {
        keys(schema, items, path, errors);
    } else {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.invalid(&here.field("type"), str_at(items, "type"), detail);
    }
    not_nullable(items, "map", path, errors);
    for key in strings_at(schema, KEYS) {
        let Some(property) = at(items, "properties").get(key) else { continue };
        let here = here.field("properties").key(key);
        if !strings_at(items, "required").any(|name| name == key) && !has(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.required(&here.field("default"), detail);
        }
        if bool_at(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&here.field("nullable"), detail);
        }
    }
}

fn keys(schema: &Value, items: &Value, path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for key in strings_at(schema, KEYS) {
        match at(items, "properties").get(key) {
            Some(property) if ["array", "object"].contains(&str_at(property, "type")) => {
                let here = path.field("items").field("properties").key(key).field("type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(&here, str_at(items, "type"), detail);
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.invalid(&path.field(KEYS), at(schema, KEYS).clone(), detail);
            }
        }
        if !seen.insert(key) {
            errors.invalid(&path.field(KEYS), at(schema, KEYS).clone(), "must not contain duplicate entries");
        }
    }
}

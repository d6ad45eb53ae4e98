//! What makes a schema structural: every specified field has a type outside of `allOf` and its like.

use super::nested;
use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Root,
    Item,
    Field,
}

/// One schema for all elements, or one for each, which is refused elsewhere. Upstream takes anything else for none.
fn has_items(schema: &Value) -> bool {
    match at(schema, "items") {
        Value::Object(_) => true,
        Value::Array(schemas) => !schemas.is_empty(),
        _ => false,
    }
}

pub fn check(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    if str_at(schema, "type") == "array" && !has_items(schema) {
        errors.required(&path.field("items"), "must be specified");
    }
    children(schema, level, path, errors);
    extensions(schema, path, errors);
    nested::check(schema, path, errors);
    types(schema, level, path, errors);
    metadata(schema, level, path, errors);
    let embedded = bool_at(schema, EMBEDDED);
    if embedded && !bool_at(schema, PRESERVE) && entries_at(schema, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.required(&path.field("properties"), detail);
    }
}

pub const EMBEDDED: &str = "x-kubernetes-embedded-resource";
pub const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
pub const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

fn children(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    if at(schema, "items").is_object() {
        check(at(schema, "items"), Level::Item, &path.field("items"), errors);
    }
    for (name, property) in entries_at(schema, "properties") {
        check(property, Level::Field, &path.field("properties").key(name), errors);
    }
    let additional = at(schema, "additionalProperties");
    if additional.is_null() {
        return;
    }
    let here = path.field("additionalProperties");
    if level == Level::Root {
        errors.forbidden(&here, "must not be used at the root");
    }
    if bool_at(schema, EMBEDDED) {
        errors.forbidden(&here, "must not be used if x-kubernetes-embedded-resource is set");
    }
    if additional.is_object() {
        check(additional, Level::Field, &here, errors);
    }
}

fn extensions(schema: &Value, path: &Path, errors: &mut Errors) {
    if !bool_at(schema, INT_OR_STRING) {
        return;
    }
    for word in [PRESERVE, EMBEDDED] {
        if bool_at(schema, word) {
            errors.invalid(&path.field(word), true, "must be false if x-kubernetes-int-or-string is true");
        }
    }
}

fn types(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    let (kind, here) = (str_at(schema, "type"), path.field("type"));
    let free = bool_at(schema, INT_OR_STRING) || bool_at(schema, PRESERVE);
    match kind {
        "object" => {}
        "" if bool_at(schema, EMBEDDED) => {
            errors.required(&here, "must be object if x-kubernetes-embedded-resource is true");
        }
        _ if bool_at(schema, EMBEDDED) => {
            errors.invalid(&here, kind, "must be object if x-kubernetes-embedded-resource is true");
        }
        "" if !free => errors.required(
            &here,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ),
        "" => {}
        _ if level == Level::Root => errors.invalid(&here, kind, "must be object at the root"),
        _ => {}
    }
}

/// Objects have `kind`, `apiVersion` and `metadata`, of which the names alone may be restricted.
fn metadata(schema: &Value, level: Level, path: &Path, errors: &mut Errors) {
    let properties = path.field("properties");
    let is_object = level == Level::Root || bool_at(schema, EMBEDDED);
    let property = |name: &str| at(schema, "properties").get(name).filter(|_| is_object);
    for name in ["kind", "apiVersion"] {
        if let Some(kind) = property(name).map(|p| str_at(p, "type")).filter(|kind| *kind != "string") {
            errors.invalid(&properties.key(name).field("type"), kind, "must be string");
        }
    }
    let Some(metadata) = property("metadata") else { return };
    let here = properties.key("metadata");
    if str_at(metadata, "type") != "object" {
        errors.invalid(&here.field("type"), str_at(metadata, "type"), "must be object");
    }
    let names_only = |(word, value): (&String, &Value)| match word.as_str() {
        // A default is refused elsewhere.
        "type" | "default" => true,
        "properties" => {
            entries_at(metadata, "properties").all(|(name, _)| name == "name" || name == "generateName")
        }
        _ => is_unset(value),
    };
    if level == Level::Root && !metadata.as_object().into_iter().flatten().all(names_only) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&here, detail);
    }
}

//! Keywords that no schema of a custom resource may use, and those that need others beside them.

use super::structural::EMBEDDED;
use super::*;
use super::{lists, validations};

/// Where in a definition a schema stands.
#[derive(Clone, Debug, Default)]
pub struct Place {
    root: bool,
    /// Below `metadata`, `kind` or `apiVersion` of an object.
    inside_metadata: bool,
    /// Why defaults are not allowed here.
    no_defaults: Option<String>,
}

impl Place {
    pub fn root() -> Self {
        Self { root: true, ..Self::default() }
    }

    fn inner(&self) -> Self {
        Self { root: false, ..self.clone() }
    }
}

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

pub fn check(schema: &Value, path: &Path, place: &Place, errors: &mut Errors) {
    plain(schema, path, place, errors);
    if bool_at(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.field("uniqueItems"), detail);
    }
    children(schema, path, place, errors);
    junctors(schema, path, &place.inner(), errors);
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if *at(schema, preserve) == Value::Bool(false) {
        errors.invalid(&path.field(preserve), false, "must be true or undefined");
    }
    lists::check(schema, path, errors);
    validations::check(schema, path, errors);
}

fn plain(schema: &Value, path: &Path, place: &Place, errors: &mut Errors) {
    let kind = str_at(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.not_supported(&path.field("type"), kind, TYPES);
    }
    if let (Some(why), true) = (&place.no_defaults, has(schema, "default")) {
        errors.forbidden(&path.field("default"), &format!("must not be set {why}"));
    }
    for word in UNSUPPORTED {
        let value = at(schema, word);
        let there = match word {
            "additionalItems" | "dependencies" | "$ref" => !value.is_null(),
            _ => !is_unset(value),
        };
        if there {
            errors.forbidden(&path.field(word), &format!("{word} is not supported"));
        }
    }
    if kind == "null" {
        errors.forbidden(&path.field("type"), "type cannot be set to null, use nullable as an alternative");
    }
    if !list_at(schema, "items").is_empty() {
        errors.forbidden(&path.field("items"), "items must be a schema object and not an array");
    }
    if place.inside_metadata && bool_at(schema, EMBEDDED) {
        errors.forbidden(&path.field(EMBEDDED), "must not be used inside of resource meta");
    }
}

fn children(schema: &Value, path: &Path, place: &Place, errors: &mut Errors) {
    let additional = at(schema, "additionalProperties");
    let here = path.field("additionalProperties");
    let both = entries_at(schema, "properties").next().is_some();
    if both && !additional.is_null() && *additional != Value::Bool(true) {
        errors.forbidden(&here, "additionalProperties and properties are mutual exclusive");
    }
    if additional.is_object() {
        let mut inner = place.inner();
        if place.inside_metadata {
            inner.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        check(additional, &here, &inner, errors);
    }
    for (name, property) in entries_at(schema, "properties") {
        let mut inner = place.inner();
        if (place.root || bool_at(schema, EMBEDDED)) && OBJECT_FIELDS.contains(&name.as_str()) {
            inner.inside_metadata = true;
            if place.root {
                inner.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        check(property, &path.field("properties").key(name), &inner, errors);
    }
    if at(schema, "items").is_object() {
        check(at(schema, "items"), &path.field("items"), &place.inner(), errors);
    }
}

fn junctors(schema: &Value, path: &Path, place: &Place, errors: &mut Errors) {
    for word in ["allOf", "oneOf", "anyOf"] {
        for (i, part) in list_at(schema, word).iter().enumerate() {
            check(part, &path.field(word).index(i), place, errors);
        }
    }
    if at(schema, "not").is_object() {
        check(at(schema, "not"), &path.field("not"), place, errors);
    }
}

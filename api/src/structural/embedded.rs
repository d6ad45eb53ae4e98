//! Objects inside objects (`x-kubernetes-embedded-resource`): their kind, version and metadata.

use super::{Structural, join};
use crate::decode::conform;
use crate::error::FieldError;
use crate::schema::{self, TypeRef};
use crate::{Object, validation};
use serde_json::Value;

/// The type of `metadata`, of these objects as of all others.
pub fn object_meta() -> Option<TypeRef<'static>> {
    schema::by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
}

/// Whether a schema has embedded objects anywhere, so that the rest here is worth the way.
pub fn has_embedded(schema: &Structural) -> bool {
    schema.embedded_resource
        || schema.properties.values().any(has_embedded)
        || schema.items.as_deref().is_some_and(has_embedded)
        || schema.additional.as_deref().is_some_and(has_embedded)
}

/// Brings the metadata of embedded objects into form and drops unknown fields from it; where they stood comes back.
///
/// # Errors
/// The first value of a wrong type.
pub fn coerce(value: &mut Value, schema: &Structural, path: &str) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    walk(value, schema, path, &mut |object, here| coerce_one(object, here, &mut unknown))?;
    unknown.sort();
    Ok(unknown)
}

/// Every embedded object below, outside in.
fn walk(
    value: &mut Value,
    schema: &Structural,
    path: &str,
    visit: &mut dyn FnMut(&mut Object, &str) -> Result<(), FieldError>,
) -> Result<(), FieldError> {
    if schema.embedded_resource && value.is_object() {
        visit(value, path)?;
    }
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if let Some(below) = schema.below(key) {
                    walk(inner, below, &schema.place(path, key), visit)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                walk(item, below, &format!("{path}[{index}]"), visit)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_one(object: &mut Object, path: &str, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    for field in ["apiVersion", "kind"] {
        if let Some(value) = object.get(field).filter(|value| !value.is_string()) {
            return Err(FieldError::invalid(join(path, field), value, "must be a string"));
        }
    }
    let here = join(path, "metadata");
    let (Some(metadata), Some(ty)) = (object.get_mut("metadata"), object_meta()) else { return Ok(()) };
    let before = metadata.clone();
    let found = conform(metadata, ty).map_err(|e| FieldError::invalid(&*here, &before, &e.to_string()))?;
    unknown.extend(found.iter().filter_map(|problem| field_of(problem)).map(|field| join(&here, field)));
    Ok(())
}

/// The path in `unknown field "path"`.
pub fn field_of(problem: &str) -> Option<&str> {
    problem.strip_prefix("unknown field \"")?.strip_suffix('"')
}

/// What embedded objects must say of themselves, and what is wrong with their metadata.
pub fn check(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    if schema.embedded_resource && value.is_object() {
        check_one(value, path, errors);
    }
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if let Some(below) = schema.below(key) {
                    check(inner, below, &schema.place(path, key), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                check(item, below, &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

fn check_one(object: &Object, path: &str, errors: &mut Vec<FieldError>) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    for field in ["apiVersion", "kind"] {
        match object.get(field) {
            Some(value) if !value.is_string() => {
                errors.push(FieldError::invalid(join(path, field), value, "must be a string"));
            }
            _ if text(field).is_empty() => errors.push(FieldError::required(join(path, field), "")),
            _ => {}
        }
    }
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(join(path, "apiVersion"), &version.into(), &detail));
    }
    let wrong = validation::dns1035_label(&kind.to_lowercase());
    if !kind.is_empty() && !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(FieldError::invalid(join(path, "kind"), &kind.into(), &detail));
    }
    if object.get("metadata").is_some() {
        check_metadata(object, &join(path, "metadata"), errors);
    }
}

fn check_metadata(object: &Object, path: &str, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    crate::meta::validate_embedded(object, &mut found);
    errors.extend(found.into_iter().map(|mut error| {
        let below = error.field.strip_prefix("metadata").unwrap_or(&error.field);
        error.field = format!("{path}{below}");
        error
    }));
}

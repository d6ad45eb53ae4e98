//! Whether an object may be written, in upstream's order: schema, replicas, embedded objects, lists, rules.

use super::{CustomResource, Schema};
use coracle_api::go::type_name;
use coracle_api::structural::{check_embedded, duplicates, join, validate};
use coracle_api::{FieldError, Object};
use coracle_cel::Budget;
use coracle_cel::rules::OBJECT_LIMIT;
use serde_json::Value;

/// Mistakes that make rules meaningless.
const BLOCKING: [&str; 5] = [
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
];

/// How upstream prints the path of what is wrong with an object as a whole.
const NO_PATH: &str = "<nil>";

fn name_the_root(errors: &mut [FieldError]) {
    errors
        .iter_mut()
        .filter(|error| error.field.is_empty())
        .for_each(|error| error.field = NO_PATH.to_owned());
}

pub(super) fn created(custom: &CustomResource, object: &Object, errors: &mut Vec<FieldError>) {
    let schema = custom.schema();
    errors.extend(validate(object, None, &schema.structural, ""));
    replicas(custom, object, true, errors);
    if schema.has_embedded() {
        check_embedded(object, &schema.structural, "", errors);
    }
    if schema.has_unique() {
        duplicates(object, &schema.structural, "", errors);
    }
    rules(schema, object, None, errors);
    name_the_root(errors);
}

/// What an update leaves as it was is not held against it (KEP-4008): of rules that are broken still, the client is
/// warned. `status`: the update is one of the status alone.
pub(super) fn updated(
    custom: &CustomResource,
    new: &Object,
    old: &Object,
    status: bool,
    errors: &mut Vec<FieldError>,
) -> Vec<String> {
    let schema = custom.schema();
    if !status {
        errors.extend(validate(new, Some(old), &schema.structural, ""));
    } else if let (Some(part), Some(new)) = (schema.structural.properties.get("status"), new.get("status")) {
        errors.extend(validate(new, old.get("status"), part, "status"));
    }
    replicas(custom, new, !status, errors);
    if !status && schema.has_embedded() {
        check_embedded(new, &schema.structural, "", errors);
    }
    let mut twice = Vec::new();
    if schema.has_unique() {
        duplicates(new, &schema.structural, "", &mut twice);
    }
    if !twice.is_empty() {
        let mut before = Vec::new();
        duplicates(old, &schema.structural, "", &mut before);
        if before.is_empty() {
            errors.append(&mut twice);
        }
    }
    let mut kept = rules(schema, new, Some(old), errors);
    name_the_root(errors);
    name_the_root(&mut kept);
    kept.iter().map(ToString::to_string).collect()
}

/// Returns the errors that an update leaves as they were.
fn rules(
    schema: &Schema,
    object: &Object,
    old: Option<&Object>,
    errors: &mut Vec<FieldError>,
) -> Vec<FieldError> {
    let rules = match schema.rules() {
        Ok(rules) if rules.is_empty() => return Vec::new(),
        Ok(rules) => rules,
        Err(broken) => {
            errors.extend(broken.iter().cloned());
            return Vec::new();
        }
    };
    if errors.iter().any(|error| BLOCKING.contains(&error.reason)) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                      errors to complete validation";
        // An error without a place, and so without a value.
        errors.push(FieldError::invalid(NO_PATH, &Value::Null, detail));
        return Vec::new();
    }
    let broken = rules.check(object, old, "", &mut Budget::of(OBJECT_LIMIT));
    errors.extend(broken.errors);
    broken.kept
}

/// What the scale subresource shows must be numbers of replicas, and a selector that is text.
fn replicas(custom: &CustomResource, object: &Object, spec: bool, errors: &mut Vec<FieldError>) {
    let Some(scale) = custom.scale() else { return };
    if spec {
        count(object, &scale.spec_replicas, errors);
    }
    count(object, &scale.status_replicas, errors);
    if let Some(path) = &scale.label_selector
        && let Found::Other(value) = find(object, path, Value::is_string)
    {
        wrong_type(path, value, "string", errors);
    }
}

enum Found<'o> {
    Absent,
    Value(&'o Value),
    /// Something that is not what was looked for.
    Other(&'o Value),
}

fn find<'o>(object: &'o Object, path: &[String], fits: impl Fn(&Value) -> bool) -> Found<'o> {
    let mut value = object;
    for part in path {
        match value {
            Value::Object(map) => match map.get(part) {
                Some(inner) => value = inner,
                None => return Found::Absent,
            },
            other => return Found::Other(other),
        }
    }
    if fits(value) { Found::Value(value) } else { Found::Other(value) }
}

fn wrong_type(path: &[String], value: &Value, wanted: &str, errors: &mut Vec<FieldError>) {
    let field = format!(".{}", path.join("."));
    let shown = if wanted == "string" { Value::from("") } else { 0.into() };
    let detail =
        format!("{field} accessor error: {value} is of the type {}, expected {wanted}", type_name(value));
    errors.push(FieldError::invalid(field, &shown, &detail));
}

fn count(object: &Object, path: &[String], errors: &mut Vec<FieldError>) {
    let field = || format!(".{}", path.join("."));
    match find(object, path, Value::is_i64) {
        Found::Absent => {}
        Found::Other(value) => wrong_type(path, value, "int64", errors),
        Found::Value(value) => match value.as_i64().unwrap_or(0) {
            ..0 => errors.push(FieldError::invalid(field(), value, "should be a non-negative integer")),
            count if count > i64::from(i32::MAX) => {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid(field(), value, &detail));
            }
            _ => {}
        },
    }
}

/// Finalizers that are new and no domain's.
pub(super) fn warnings(new: &Object, old: Option<&Object>) -> Vec<String> {
    let mut added: Vec<&str> = coracle_api::meta::finalizers(new)
        .filter(|f| !f.contains('/') && !old.is_some_and(|old| coracle_api::meta::has_finalizer(old, f)))
        .collect();
    added.sort_unstable();
    added.dedup();
    let field = join("metadata", "finalizers");
    let warn = |finalizer: &str| {
        format!(
            "{field}: {finalizer:?}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental \
             conflicts with other finalizer writers"
        )
    };
    added.into_iter().map(warn).collect()
}

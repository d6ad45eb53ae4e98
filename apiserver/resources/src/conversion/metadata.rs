//! A webhook may change labels and annotations, and nothing else of the metadata.

use coracle_api::go::type_name;
use coracle_api::{FieldError, Object, validation};
use serde_json::{Map, Value};

/// Upstream's limit of all annotations together.
const ANNOTATIONS_BYTES: usize = 256 << 10;

/// `converted` with the metadata of `original`, but for its own labels and annotations.
pub fn restore(original: &Object, converted: Object) -> Result<Object, String> {
    let mut converted = converted;
    let theirs = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", type_name(other)));
        }
    };
    let mut ours = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match theirs.get(field) {
            None | Some(Value::Null) => {
                ours.remove(field);
            }
            Some(Value::Object(new)) => {
                let changed = ours.get(field).and_then(Value::as_object) != Some(new);
                check(field, new, changed)?;
                ours.insert(field.to_owned(), Value::Object(new.clone()));
            }
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{field} of type {} in converted object",
                    type_name(other)
                ));
            }
        }
    }
    converted["metadata"] = Value::Object(ours);
    Ok(converted)
}

fn check(field: &str, map: &Map<String, Value>, changed: bool) -> Result<(), String> {
    for (key, value) in map {
        if !value.is_string() {
            let kind = type_name(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {kind} in converted object"
            ));
        }
    }
    let errors = if changed { wrong(field, map) } else { Vec::new() };
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn wrong(field: &str, map: &Map<String, Value>) -> Vec<FieldError> {
    let path = format!("metadata.{field}");
    let mut errors = Vec::new();
    let mut bytes = 0;
    for (key, value) in map {
        let text = value.as_str().unwrap_or_default();
        bytes += key.len() + text.len();
        let is_label = field == "labels";
        let name = if is_label { key.clone() } else { key.to_lowercase() };
        let mut invalid = |shown: &str, why: String| {
            errors.push(FieldError::invalid(path.as_str(), &shown.into(), &why));
        };
        validation::qualified_name(&name).into_iter().for_each(|why| invalid(key, why));
        if is_label {
            validation::label_value(text).into_iter().for_each(|why| invalid(text, why));
        }
    }
    if field == "annotations" && bytes > ANNOTATIONS_BYTES {
        errors.push(FieldError::too_long(path, ANNOTATIONS_BYTES));
    }
    errors
}

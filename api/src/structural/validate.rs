//! Whether a value is what its schema asks for, worded as upstream words it.

use super::{JsonType, Structural, formats, join, unique};
use crate::error::FieldError;
use crate::schema::ListType;
use serde_json::Value;

/// All mistakes of `value`. What an update leaves as it was is not held against it (KEP-4008): `old` is the value
/// before, where there is one.
pub fn validate(value: &Value, old: Option<&Value>, schema: &Structural, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(value, old, schema, path, &mut errors);
    errors
}

fn visit(value: &Value, old: Option<&Value>, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    if old == Some(value) {
        return;
    }
    if value.is_null() && schema.nullable {
        return;
    }
    if !typed(value, schema, path, errors) {
        return;
    }
    keywords(value, schema, path, errors);
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if let Some(below) = schema.below(key) {
                    visit(inner, old.and_then(|old| old.get(key)), below, &join(path, key), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                visit(item, before(index, item, old, schema), below, &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
    junctors(value, schema, path, errors);
}

/// The element of the old list that an element goes on: that with the same keys, and in a list of which nothing is said
/// that at the same place. Sets and atomic lists are one value each.
fn before<'o>(index: usize, item: &Value, old: Option<&'o Value>, schema: &Structural) -> Option<&'o Value> {
    let old = old?.as_array()?;
    match schema.list_type {
        Some(ListType::Map) => {
            let wanted = unique::keys(item, schema);
            old.iter().find(|known| unique::keys(known, schema) == wanted)
        }
        Some(ListType::Set | ListType::Atomic) => None,
        None => old.get(index),
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn typed(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let whole =
        |value: &Value| value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|v| v.fract() == 0.0);
    let fits = match schema.kind {
        _ if schema.int_or_string => value.is_string() || value.is_number() && whole(value),
        None => true,
        Some(JsonType::Array) => value.is_array(),
        Some(JsonType::Boolean) => value.is_boolean(),
        Some(JsonType::Integer) => value.is_number() && whole(value),
        Some(JsonType::Number) => value.is_number(),
        Some(JsonType::Object) => value.is_object(),
        Some(JsonType::String) => value.is_string(),
    };
    if !fits {
        let wanted =
            if schema.int_or_string { "integer,string" } else { schema.kind.map_or("", JsonType::name) };
        let detail = format!("{path} in body must be of type {wanted}: \"{}\"", name_of(value));
        let mut error = FieldError::invalid(path, &Value::from(name_of(value)), &detail);
        error.reason = "FieldValueTypeInvalid";
        errors.push(error);
    }
    fits
}

fn keywords(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    let words = &schema.keywords;
    if !words.one_of_these.is_empty() && !words.one_of_these.contains(value) {
        let known: Vec<String> =
            words.one_of_these.iter().map(|v| v.to_string().trim_matches('"').to_owned()).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value, &known));
    }
    match value {
        Value::Number(_) => number(value, schema, path, errors),
        Value::String(text) => string(value, text, schema, path, errors),
        Value::Array(items) => {
            let count = items.len() as u64;
            if words.min_items.is_some_and(|min| count < min) {
                let detail =
                    format!("{path} in body should have at least {} items", words.min_items.unwrap_or(0));
                errors.push(FieldError::invalid(path, value, &detail));
            }
            too_many(items.len(), words.max_items, path, errors);
        }
        Value::Object(map) => {
            for name in words.required.iter().filter(|name| !map.contains_key(*name)) {
                errors.push(FieldError::required(join(path, name), ""));
            }
            let count = map.len() as u64;
            if words.min_properties.is_some_and(|min| count < min) {
                let min = words.min_properties.unwrap_or(0);
                let detail = format!("{path} in body should have at least {min} properties");
                errors.push(FieldError::invalid(path, value, &detail));
            }
            too_many(map.len(), words.max_properties, path, errors);
        }
        _ => {}
    }
}

fn too_many(count: usize, max: Option<u64>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(max) = max.and_then(|max| usize::try_from(max).ok()).filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, count, max));
    }
}

fn number(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    let words = &schema.keywords;
    let Some(is) = value.as_f64() else { return };
    let mut wrong = |detail: String| {
        errors.push(FieldError::invalid(path, value, &format!("{path} in body {detail}")));
    };
    match words.minimum {
        Some(min) if words.exclusive_minimum && is <= min => wrong(format!("should be greater than {min}")),
        Some(min) if is < min => wrong(format!("should be greater than or equal to {min}")),
        _ => {}
    }
    match words.maximum {
        Some(max) if words.exclusive_maximum && is >= max => wrong(format!("should be less than {max}")),
        Some(max) if is > max => wrong(format!("should be less than or equal to {max}")),
        _ => {}
    }
    // A quotient that is whole but for the last digits of a double.
    let multiple = |of: f64| of == 0.0 || ((is / of) - (is / of).round()).abs() < 1e-9;
    if let Some(of) = words.multiple_of.filter(|of| !multiple(*of)) {
        wrong(format!("should be a multiple of {of}"));
    }
    let out_of_range = match words.format.as_str() {
        "int32" => value.as_i64().is_none_or(|v| i32::try_from(v).is_err()),
        "int64" => value.is_u64() && value.as_i64().is_none(),
        _ => false,
    };
    if out_of_range && schema.kind == Some(JsonType::Integer) {
        wrong(format!("must be of type {}: \"{value}\"", words.format));
    }
}

fn string(value: &Value, text: &str, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    let words = &schema.keywords;
    let length = text.chars().count() as u64;
    if let Some(max) = words.max_length.filter(|max| length > *max) {
        errors.push(FieldError::too_long(path, usize::try_from(max).unwrap_or(usize::MAX)));
    }
    let mut wrong = |detail: String| {
        errors.push(FieldError::invalid(path, value, &format!("{path} in body {detail}")));
    };
    if let Some(min) = words.min_length.filter(|min| length < *min) {
        wrong(format!("should be at least {min} chars long"));
    }
    if let Some(pattern) = words.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        wrong(format!("should match '{pattern}'"));
    }
    if !words.format.is_empty() && !formats::holds(&words.format, text) {
        wrong(format!("must be of type {}: {value}", words.format));
    }
}

fn junctors(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    let words = &schema.keywords;
    let check = |part: &Structural| validate(value, None, part, path);
    let mut wrong = |detail: String| {
        errors.push(FieldError::invalid(path, value, &format!("\"{path}\" must {detail}")));
    };
    let all: Vec<Vec<FieldError>> = words.all_of.iter().map(check).collect();
    let any: Vec<Vec<FieldError>> = words.any_of.iter().map(check).collect();
    let one: Vec<Vec<FieldError>> = words.one_of.iter().map(check).collect();
    let valid = |parts: &[Vec<FieldError>]| parts.iter().filter(|wrong| wrong.is_empty()).count();
    if !any.is_empty() && valid(&any) == 0 {
        wrong("validate at least one schema (anyOf)".to_owned());
    }
    match valid(&one) {
        _ if one.is_empty() => {}
        0 => wrong("validate one and only one schema (oneOf). Found none valid".to_owned()),
        1 => {}
        count => wrong(format!("validate one and only one schema (oneOf). Found {count} valid alternatives")),
    }
    if valid(&all) < all.len() {
        let none = if valid(&all) == 0 { ". None validated" } else { "" };
        wrong(format!("validate all the schemas (allOf){none}"));
    }
    if words.not.as_deref().is_some_and(|part| check(part).is_empty()) {
        wrong("not validate the schema (not)".to_owned());
    }
    // What the parts themselves found wrong: of all that must hold, and of the best of those that one of must.
    errors.extend(all.into_iter().flatten());
    for parts in [any, one] {
        if parts.iter().all(|wrong| !wrong.is_empty()) {
            errors.extend(parts.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
}

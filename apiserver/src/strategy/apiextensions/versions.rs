//! `spec.versions`, with what hangs on a version: schema, subresources, columns, selectable fields.
//!
//! What all versions have alike, upstream reports as if it stood once at the top of the spec; so do we.

use super::*;
use std::collections::BTreeSet;

/// Bytes of a deprecation warning; upstream's number.
const WARNING_MAX: usize = 256;
/// Upstream's number of selectable fields of a version.
const SELECTABLE_FIELDS_MAX: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "binary",
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hexcolor",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

pub fn check(spec: &Value, path: &Path, errors: &mut Errors) {
    let (versions, here) = (list_at(spec, "versions"), path.field("versions"));
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().enumerate() {
        let (name, at_name) = (str_at(version, "name"), here.index(i).field("name"));
        let wrong = validation::dns1035_label(name);
        if name.is_empty() {
            errors.required(&at_name, "");
        } else if !wrong.is_empty() {
            errors.invalid(&at_name, name, &wrong.join(","));
        }
        if !seen.insert(name) {
            errors.invalid(&here, versions, "must contain unique version names");
        }
        deprecation(version, &here.index(i), errors);
    }
    if versions.iter().filter(|v| bool_at(v, "storage")).count() != 1 {
        errors.invalid(&here, versions, "must have exactly one version marked as storage version");
    }
    for (field, hoisted, check) in PARTS {
        each_or_once(versions, field, &here, &path.field(hoisted), |value, path| check(value, path, errors));
    }
}

type Check = fn(&Value, &Path, &mut Errors);

/// (field of a version, its name at the top of the spec, what holds for it)
const PARTS: [(&str, &str, Check); 4] = [
    ("schema", "validation", super::schema::check),
    ("subresources", "subresources", subresources),
    ("additionalPrinterColumns", "additionalPrinterColumns", columns),
    ("selectableFields", "selectableFields", selectable_fields),
];

fn each_or_once(
    versions: &[Value],
    field: &str,
    here: &Path,
    top: &Path,
    mut visit: impl FnMut(&Value, &Path),
) {
    let all_alike = versions.windows(2).all(|pair| at(&pair[0], field) == at(&pair[1], field));
    match versions.first() {
        Some(first) if all_alike => visit(at(first, field), top),
        _ => versions.iter().enumerate().for_each(|(i, v)| visit(at(v, field), &here.index(i).field(field))),
    }
}

fn deprecation(version: &Value, path: &Path, errors: &mut Errors) {
    let (text, here) = (str_at(version, "deprecationWarning"), path.field("deprecationWarning"));
    if !has(version, "deprecationWarning") {
        return;
    }
    if !bool_at(version, "deprecated") {
        errors.invalid(&here, text, "can only be set for deprecated versions");
    }
    if text.len() > WARNING_MAX {
        errors.invalid(&here, text, &format!("must be <= {WARNING_MAX} characters"));
    }
    if text.is_empty() {
        errors.invalid(&here, text, "must not be an empty string");
    }
    if let Some((i, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        );
        errors.invalid(&here, text, &detail);
    }
}

fn subresources(subresources: &Value, path: &Path, errors: &mut Errors) {
    let scale = at(subresources, "scale");
    if scale.is_null() {
        return;
    }
    let here = path.field("scale");
    for (field, under) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let (text, at_field) = (str_at(scale, field), here.field(field));
        if text.is_empty() {
            errors.required(&at_field, "");
        } else if !is_simple_path(text) {
            errors.invalid(&at_field, text, "is an invalid path");
        } else if !text.starts_with(&format!("{under}.")) {
            errors.invalid(&at_field, text, &format!("should be a json path under {under}"));
        }
    }
    let text = str_at(scale, "labelSelectorPath");
    if !(text.is_empty() || text.starts_with(".status.") || text.starts_with(".spec.")) {
        let detail = "should be a json path under either .status or .spec";
        errors.invalid(&here.field("labelSelectorPath"), text, detail);
    }
}

/// `.a.b[0].c`: names and indexes only.
fn is_simple_path(text: &str) -> bool {
    text.strip_prefix('.').is_some_and(|rest| {
        rest.split('.').all(|part| {
            let name = part.split('[').next().unwrap_or_default();
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        })
    })
}

fn columns(list: &Value, path: &Path, errors: &mut Errors) {
    for (i, column) in list.as_array().into_iter().flatten().enumerate() {
        let here = path.index(i);
        if str_at(column, "name").is_empty() {
            errors.required(&here.field("name"), "");
        }
        if str_at(column, "type").is_empty() {
            let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
            errors.required(&here.field("type"), &detail);
        }
        rules::one_of_if_set(column, "type", COLUMN_TYPES, &here, errors);
        rules::one_of_if_set(column, "format", COLUMN_FORMATS, &here, errors);
        match str_at(column, "jsonPath") {
            "" => errors.required(&here.field("JSONPath"), ""),
            text if !text.starts_with('.') => {
                errors.invalid(&here.field("JSONPath"), text, "must be a simple json path starting with .");
            }
            _ => {}
        }
    }
}

fn selectable_fields(list: &Value, path: &Path, errors: &mut Errors) {
    let fields = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if fields.len() > SELECTABLE_FIELDS_MAX {
        errors.0.push(FieldError::too_many(path, fields.len(), SELECTABLE_FIELDS_MAX));
    }
    let mut seen = BTreeSet::new();
    for (i, field) in fields.iter().enumerate() {
        let (text, here) = (str_at(field, "jsonPath"), path.index(i).field("jsonPath"));
        if text.is_empty() {
            errors.required(&here, "");
        } else if !is_simple_path(text) || text.contains('[') {
            errors.invalid(&here, text, "is an invalid path: does not refer to a valid field");
        } else if text == ".metadata" || text.starts_with(".metadata.") {
            errors.invalid(&here, text, "must not point to fields in metadata");
        }
        if !seen.insert(text) {
            errors.duplicate(&here, text);
        }
    }
}

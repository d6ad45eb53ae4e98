//! `spec.versions`, with what hangs on a version: schema, subresources, columns, selectable fields.
//!
//! What all versions have alike, upstream reports as if it stood once at the top of the spec; so do we.

use super::schema::Options;
use super::*;
use std::collections::BTreeSet;

/// Bytes of a deprecation warning; upstream's number.
const WARNING_MAX: usize = 256;
/// Upstream's number of selectable fields of a version.
const SELECTABLE_FIELDS_MAX: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// `old` is the definition's spec before an update.
pub fn check(spec: &Value, old: Option<&Value>, path: &Path, errors: &mut Errors) {
    let (versions, here) = (list_at(spec, "versions"), path.field("versions"));
    let mut seen = BTreeSet::new();
    let mut unique = true;
    for (i, version) in versions.iter().enumerate() {
        if !at(version, "schema.openAPIV3Schema").is_object() {
            errors.required(&here.index(i).field("schema").field("openAPIV3Schema"), "");
        }
    }
    for (i, version) in versions.iter().enumerate() {
        let name = str_at(version, "name");
        let wrong = validation::dns1035_label(name);
        if !wrong.is_empty() {
            errors.invalid(&here.index(i).field("name"), name, &wrong.join(","));
        }
        unique &= seen.insert(name);
        deprecation(version, &here.index(i), errors);
    }
    if !unique {
        errors.invalid_as(&here, &shown(spec), "must contain unique version names");
    }
    if versions.iter().filter(|v| bool_at(v, "storage")).count() != 1 {
        errors.invalid_as(&here, &shown(spec), "must have exactly one version marked as storage version");
    }
    // Upstream keeps the first version's name in a field of its own, where it is judged once more.
    let first = versions.first().map_or("", |version| str_at(version, "name"));
    let wrong = if first.is_empty() { Vec::new() } else { validation::dns1035_label(first) };
    if !wrong.is_empty() {
        errors.invalid(&path.field("version"), first, &wrong.join(","));
    }
    let has_status = |version: &Value| has(version, "subresources.status");
    let any_status = versions.iter().any(has_status);
    each_or_once(versions, "schema", &here, &path.field("validation"), |version, path, alone| {
        let status = if alone { any_status } else { has_status(version) };
        let options = Options { status, unchanged: is_unchanged(version, old) };
        super::schema::check(at(version, "schema"), options, path, errors);
    });
    for (field, check) in PARTS {
        each_or_once(versions, field, &here, &path.field(field), |version, path, _| {
            check(version, path, errors)
        });
    }
}

/// The versions as upstream shows them: what all have alike, it has moved away from them.
fn shown(spec: &Value) -> String {
    let mut spec = spec.clone();
    for field in ["schema", "subresources", "additionalPrinterColumns", "selectableFields"] {
        let versions = list_at(&spec, "versions");
        let all_alike = versions.windows(2).all(|pair| at(&pair[0], field) == at(&pair[1], field));
        for version in each_mut(&mut spec, "versions").filter(|_| all_alike) {
            remove(version, field);
        }
    }
    rules::internal::list_shown(at(&spec, "versions"), rules::internal::DEFINITION_VERSIONS)
}

fn is_unchanged(version: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return false };
    let before = list_at(old, "versions").iter().find(|v| str_at(v, "name") == str_at(version, "name"));
    before.is_some_and(|before| at(before, "schema") == at(version, "schema"))
}

type Check = fn(&Value, &Path, &mut Errors);

/// (field of a version, what holds for it); each is handed the whole version.
const PARTS: [(&str, Check); 3] = [
    ("subresources", |version, path, errors| subresources(at(version, "subresources"), path, errors)),
    ("additionalPrinterColumns", |version, path, errors| {
        columns(at(version, "additionalPrinterColumns"), path, errors);
    }),
    ("selectableFields", selectable_fields),
];

/// The flag tells whether it stands for all versions.
fn each_or_once(
    versions: &[Value],
    field: &str,
    here: &Path,
    top: &Path,
    mut visit: impl FnMut(&Value, &Path, bool),
) {
    let all_alike = versions.windows(2).all(|pair| at(&pair[0], field) == at(&pair[1], field));
    match versions.first() {
        Some(first) if all_alike => visit(first, top, true),
        _ => versions.iter().enumerate().for_each(|(i, v)| visit(v, &here.index(i).field(field), false)),
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
        errors.invalid(&here, text, &format!("must be <= {WARNING_MAX} characters long"));
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
    for (field, under) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let (text, at_field) = (str_at(scale, field), path.field("scale").field(field));
        if text.is_empty() {
            errors.required(&at_field, "");
        } else if !text.starts_with('.') {
            errors.invalid(&at_field, text, NO_PATH);
        } else if !text.starts_with(&format!("{under}.")) {
            errors.invalid(&at_field, text, &format!("should be a json path under {under}"));
        }
    }
    let (text, here) = (str_at(scale, "labelSelectorPath"), path.field("scale").field("labelSelectorPath"));
    if !text.is_empty() && !text.starts_with('.') {
        errors.invalid(&here, text, NO_PATH);
    } else if !(text.is_empty() || text.starts_with(".status.") || text.starts_with(".spec.")) {
        errors.invalid(&here, text, "should be a json path under either .spec or .status");
    }
}

const NO_PATH: &str = "must be a simple json path starting with .";

fn columns(list: &Value, path: &Path, errors: &mut Errors) {
    for (i, column) in list.as_array().into_iter().flatten().enumerate() {
        let here = path.index(i);
        if str_at(column, "name").is_empty() {
            errors.required(&here.field("name"), "");
        }
        let (kind, format) = (str_at(column, "type"), str_at(column, "format"));
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        if kind.is_empty() {
            errors.required(&here.field("type"), &detail);
        } else if !COLUMN_TYPES.contains(&kind) {
            errors.invalid(&here.field("type"), kind, &detail);
        }
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(&here.field("format"), format, &detail);
        }
        match str_at(column, "jsonPath") {
            "" => errors.required(&here.field("JSONPath"), ""),
            text if !text.starts_with('.') => errors.invalid(&here.field("JSONPath"), text, NO_PATH),
            _ => {}
        }
    }
}

fn selectable_fields(version: &Value, path: &Path, errors: &mut Errors) {
    let (fields, schema) = (list_at(version, "selectableFields"), at(version, "schema.openAPIV3Schema"));
    let mut seen = BTreeSet::new();
    for (i, field) in fields.iter().enumerate() {
        let (text, here) = (str_at(field, "jsonPath"), path.index(i).field("jsonPath"));
        if text.is_empty() {
            errors.required(&here, "");
            continue;
        }
        let (names, found) = match super::schema::follow(text, schema, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&here, text, &format!("is an invalid path: {why}"));
                continue;
            }
        };
        if names.first() == Some(&super::schema::Step::Field("metadata".to_owned())) {
            errors.invalid(&here, text, "must not point to fields in metadata");
        }
        if !["string", "boolean", "integer"].contains(&str_at(found, "type")) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.invalid(&here, text, detail);
        }
        if !seen.insert(names) {
            errors.duplicate(&here, text);
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX {
        errors.0.push(FieldError::too_many(path, seen.len(), SELECTABLE_FIELDS_MAX));
    }
}

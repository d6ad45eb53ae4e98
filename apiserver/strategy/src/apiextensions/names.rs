//! `spec.names`.

use super::*;

pub fn check(names: &Value, path: &Path, errors: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if str_at(names, field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
    check_accepted(names, path, errors);
}

/// What holds for names that are there, as in the status.
pub fn check_accepted(names: &Value, path: &Path, errors: &mut Errors) {
    for field in ["plural", "singular"] {
        label(str_at(names, field), &path.field(field), errors);
    }
    for field in ["kind", "listKind"] {
        let text = str_at(names, field);
        let wrong = validation::dns1035_label(&text.to_lowercase());
        if !text.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.invalid(&path.field(field), text, &detail);
        }
    }
    lists(names, "shortNames", path, errors);
    let (kind, list_kind) = (str_at(names, "kind"), str_at(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        errors.invalid(&path.field("listKind"), list_kind, "kind and listKind may not be the same");
    }
    lists(names, "categories", path, errors);
}

fn lists(names: &Value, field: &str, path: &Path, errors: &mut Errors) {
    for (i, text) in strings_at(names, field).enumerate() {
        let wrong = validation::dns1035_label(text);
        if !wrong.is_empty() {
            errors.invalid(&path.field(field).index(i), text, &wrong.join(","));
        }
    }
}

fn label(text: &str, path: &Path, errors: &mut Errors) {
    let wrong = validation::dns1035_label(text);
    if !text.is_empty() && !wrong.is_empty() {
        errors.invalid(path, text, &wrong.join(","));
    }
}

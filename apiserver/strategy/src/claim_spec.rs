//! What claims, volumes and pods with ephemeral volumes have in common: what is asked of a volume, and how it is used.

use super::rules;
use super::value::*;
use coracle_api::Object;
use coracle_api::storage::class_named_by;
use serde_json::Value;

/// The class, which an old annotation may name.
pub fn class(object: &Object) -> &str {
    class_named_by(object).unwrap_or_default()
}

/// Also for the claims of ephemeral volumes.
pub fn spec(spec: &Value, path: &Path, errors: &mut Errors) {
    modes(spec, "at least 1 access mode is required", path, errors);
    let storage = path.field("resources").key("storage");
    match at(spec, "resources.requests").get("storage") {
        None => errors.required(&storage, ""),
        Some(quantity) => rules::positive(quantity, &storage, errors),
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = str_at(spec, field);
        if !class.is_empty() {
            rules::subdomain(class, &path.field(field), errors);
        }
    }
    sources(spec, path, errors);
    rules::one_of_if_there(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
    rules::label_selector(at(spec, "selector"), &path.field("selector"), errors);
}

/// Where the volume's content comes from, said in the old way, the new way, or both alike.
fn sources(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["dataSource", "dataSourceRef"] {
        let (source, here) = (at(spec, field), path.field(field));
        if source.is_null() {
            continue;
        }
        for needed in ["name", "kind"] {
            if str_at(source, needed).is_empty() {
                errors.required(&here.field(needed), "");
            }
        }
        match str_at(source, "apiGroup") {
            "" if str_at(source, "kind") != "PersistentVolumeClaim" => {
                let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
                errors.invalid(&here, str_at(source, "kind"), detail);
            }
            "" => {}
            group => rules::subdomain(group, &here.field("apiGroup"), errors),
        }
    }
    let (old, new) = (at(spec, "dataSource"), at(spec, "dataSourceRef"));
    let differ = ["apiGroup", "kind", "name"].iter().any(|field| at(old, field) != at(new, field));
    if !old.is_null() && !new.is_null() && differ {
        errors.invalid(path, path.field("dataSource").to_string(), "must match dataSourceRef");
    }
}

/// The access modes of a claim or a volume; `none` is said where there is none.
pub fn modes(spec: &Value, none: &str, path: &Path, errors: &mut Errors) {
    const SUPPORTED: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let (modes, path) = (list_at(spec, "accessModes"), path.field("accessModes"));
    if modes.is_empty() {
        errors.required(&path, none);
    }
    for mode in strings_at(spec, "accessModes").filter(|m| !SUPPORTED.contains(m)) {
        errors.not_supported(&path, mode, SUPPORTED);
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Access modes in their short forms, in the order that upstream prints.
pub fn access_modes(object: &Object, path: &str) -> String {
    const SHORT: &[(&str, &str)] = &[
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has_mode = |mode: &str| strings_at(object, path).any(|m| m == mode);
    let shorts: Vec<&str> =
        SHORT.iter().filter(|(long, _)| has_mode(long)).map(|(_, short)| *short).collect();
    shorts.join(",")
}

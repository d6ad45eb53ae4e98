//! `selectableFields`: what field selectors can name.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-selectors>

use super::CustomResource;
use coracle_api::Object;
use parking_lot::Mutex;
use serde_json::Value;

/// Every version's fields, on the object as it is stored: which version asks is known only later. A field that has a
/// default and is absent has its default.
pub(super) fn of(custom: &CustomResource, object: &Object) -> Vec<(&'static str, String)> {
    let versions = &custom.definition.versions;
    let mut names: Vec<&str> =
        versions.iter().flat_map(|v| v.selectable.iter().map(String::as_str)).collect();
    if names.is_empty() {
        return Vec::new();
    }
    names.sort_unstable();
    names.dedup();
    let mut filled = object.clone();
    if filled.is_object() {
        custom.schema().fill(&mut filled);
    }
    names.into_iter().map(|name| (known(name), text_at(&filled, name))).collect()
}

/// What a selector sees at a path; nothing where nothing is.
pub fn text_at(object: &Object, path: &str) -> String {
    match path.split('.').try_fold(object, |value, field| value.get(field)) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// One copy of each name, kept for good: a name is a path that somebody has written into a definition, eight of them a
/// version at most, and definitions come back with the same ones.
fn known(name: &str) -> &'static str {
    static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock();
    match known.binary_search(&name) {
        Ok(at) => known[at],
        Err(at) => {
            let kept: &'static str = name.to_owned().leak();
            known.insert(at, kept);
            kept
        }
    }
}

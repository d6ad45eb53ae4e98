//! The metadata that every object has: reading and writing it on untyped objects.

pub mod go_time;
pub mod time;
mod validate;

pub(crate) use validate::ANNOTATIONS_MAX_BYTES;
pub use validate::{
    NameRule, validate, validate_annotations, validate_embedded, validate_kube_finalizers, validate_labels,
    validate_last, validate_update, version_and_group,
};

use crate::Object;
use serde_json::{Map, Value};

/// Finalizer behind `propagationPolicy: Orphan`.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// Finalizer behind `propagationPolicy: Foreground`.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

fn text<'a>(object: &'a Object, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Empty where absent, as for all texts here.
pub fn name(object: &Object) -> &str {
    text(object, "name")
}

pub fn namespace(object: &Object) -> &str {
    text(object, "namespace")
}

pub fn uid(object: &Object) -> &str {
    text(object, "uid")
}

pub fn resource_version(object: &Object) -> &str {
    text(object, "resourceVersion")
}

pub fn generate_name(object: &Object) -> &str {
    text(object, "generateName")
}

pub fn creation_timestamp(object: &Object) -> Option<jiff::Timestamp> {
    time::parse(text(object, "creationTimestamp"))
}

pub fn deletion_timestamp(object: &Object) -> Option<jiff::Timestamp> {
    time::parse(text(object, "deletionTimestamp"))
}

/// Whether deletion has been asked for and waits for grace or finalizers.
pub fn is_terminating(object: &Object) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub fn deletion_grace_period_seconds(object: &Object) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

pub fn generation(object: &Object) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// `metadata.labels`, null where absent; the form that [`crate::LabelSelector::matches`] takes.
pub fn labels(object: &Object) -> &Value {
    &object["metadata"]["labels"]
}

pub fn label<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    labels(object).get(key).and_then(Value::as_str)
}

pub fn annotations(object: &Object) -> &Value {
    &object["metadata"]["annotations"]
}

pub fn annotation<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    annotations(object).get(key).and_then(Value::as_str)
}

pub fn finalizers(object: &Object) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

pub fn has_finalizer(object: &Object, finalizer: &str) -> bool {
    finalizers(object).any(|f| f == finalizer)
}

pub fn owner_references(object: &Object) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

/// The owner that manages the object, if there is one.
pub fn controller_reference(object: &Object) -> Option<&Value> {
    owner_references(object).iter().find(|r| r["controller"] == true)
}

/// The fields of `metadata`, made if absent.
///
/// # Panics
/// Never for a decoded object: decoding makes sure that it and its metadata are JSON objects. Anything else is
/// replaced by an empty object.
pub fn metadata_mut(object: &mut Object) -> &mut Map<String, Value> {
    as_map(as_map(object).entry("metadata").or_insert_with(|| Value::Object(Map::new())))
}

/// The fields of `value`, which becomes an empty object if it is none.
pub fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}

/// Sets a field of `metadata`; null removes it.
pub fn set(object: &mut Object, field: &str, value: impl Into<Value>) {
    let metadata = metadata_mut(object);
    match value.into() {
        Value::Null => metadata.remove(field),
        value => metadata.insert(field.to_owned(), value),
    };
}

/// Upstream's alphabet of generated names: without vowels and look-alikes, so that no words appear.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_CHARACTERS: usize = 5;
/// Longest part of `generateName` that is used; the result fits a DNS label.
const GENERATE_NAME_MAX_BYTES: usize = crate::validation::LABEL_MAX_BYTES - SUFFIX_CHARACTERS;

/// A name made of `base` and five characters drawn from `random`, whose bits should be uniform.
///
/// 27^5 names are 14 million: on a collision the server answers AlreadyExists and the client tries again, as
/// upstream.
pub fn generated_name(base: &str, mut random: u64) -> String {
    let mut end = base.len().min(GENERATE_NAME_MAX_BYTES);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    for _ in 0..SUFFIX_CHARACTERS {
        let index = usize::try_from(random % 27).unwrap_or_default();
        name.push(char::from(SUFFIX_ALPHABET[index]));
        random /= 27;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn absent_metadata_reads_as_empty() {
        let object = json!({});
        assert_eq!((name(&object), generation(&object)), ("", 0));
        assert!(finalizers(&object).next().is_none() && owner_references(&object).is_empty());
        assert!(!is_terminating(&object) && deletion_timestamp(&object).is_none());
    }

    #[test]
    fn set_makes_and_removes() {
        let mut object = json!({});
        set(&mut object, "uid", "u");
        assert_eq!(uid(&object), "u");
        set(&mut object, "uid", Value::Null);
        assert_eq!(object, json!({ "metadata": {} }));
    }

    proptest! {
        #[test]
        fn generated_names_are_labels(base in "[a-z]([-a-z0-9]{0,70}[a-z0-9-])?", random: u64) {
            let name = generated_name(&base, random);
            prop_assert!(crate::validation::dns1123_label(&name).is_empty(), "{}", name);
            prop_assert_eq!(name.len(), base.len().min(58) + 5);
        }
    }
}

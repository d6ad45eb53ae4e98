//! Columns and cells that many resources share.

use super::duration;
use super::value::{at, entries_at, list_at, str_at};
use super::{Column, Object};
use jiff::Timestamp;
use serde_json::Value;

pub const NAME: Column =
    Column { name: "Name", kind: "string", format: "name", description: "Name of the object", priority: 0 };
pub const AGE: Column = string("Age", "Time since the object was created");
pub const WIDE_CONTAINERS: Column = wide("Containers", "Names of the containers of each pod");
pub const WIDE_IMAGES: Column = wide("Images", "Images of the containers of each pod");
pub const WIDE_SELECTOR: Column = wide("Selector", "Labels that the pods have");

pub const fn string(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0 }
}

pub const fn integer(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "integer", format: "", description, priority: 0 }
}

pub const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "boolean", format: "", description, priority: 0 }
}

/// A string column of `-o wide`.
pub const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 1 }
}

/// The humanised age of an object.
pub fn age(object: &Object, now: Timestamp) -> Value {
    duration::age(at(object, "metadata.creationTimestamp"), now).into()
}

pub fn cell_or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

pub fn cell_or_unset(text: &str) -> Value {
    if text.is_empty() { "<unset>".into() } else { text.into() }
}

/// Names and images of the containers of a pod spec, each joined by commas.
pub fn containers_and_images(pod_spec: &Value) -> [Value; 2] {
    let join = |field: &str| -> Value {
        let all: Vec<&str> = list_at(pod_spec, "containers").iter().map(|c| str_at(c, field)).collect();
        all.join(",").into()
    };
    [join("name"), join("image")]
}

/// A map of labels as `a=1,b=2`, in key order; `<none>` when empty.
pub fn labels(map: &Value) -> String {
    let mut pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A label selector as upstream's `FormatLabelSelector` prints it; `<none>` when it selects everything.
pub fn selector(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = entries_at(selector, "matchLabels")
        .map(|(k, v)| (k.clone(), format!("{k}={}", v.as_str().unwrap_or_default())))
        .collect();
    for expression in list_at(selector, "matchExpressions") {
        let key = str_at(expression, "key");
        let mut values: Vec<&str> = list_at(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let text = match str_at(expression, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") }
}

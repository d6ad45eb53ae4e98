//! Reading and filling in untyped objects.
//!
//! Paths are dotted field names (`spec.template.spec`). An absent field, a `null` and a field of another type read
//! alike: as empty. A string or list that is empty counts as unset, as it does in upstream's Go structs.

use coracle_api::{FieldError, Object, Origin};
use serde_json::{Map, Value};
use std::fmt;

static NULL: Value = Value::Null;

pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(value, |v, field| v.get(field)).unwrap_or(&NULL)
}

pub fn str_at<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

pub fn i64_at(value: &Value, path: &str) -> Option<i64> {
    at(value, path).as_i64()
}

pub fn bool_at(value: &Value, path: &str) -> bool {
    at(value, path).as_bool().unwrap_or_default()
}

pub fn list_at<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The entries of an object, none if the path leads to something else.
pub fn entries_at<'a>(
    value: &'a Value,
    path: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    at(value, path).as_object().into_iter().flatten()
}

pub fn strings_at<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    list_at(value, path).iter().filter_map(Value::as_str)
}

/// Whether the field is there and not `null`.
pub fn has(value: &Value, path: &str) -> bool {
    !at(value, path).is_null()
}

pub fn name(object: &Object) -> &str {
    str_at(object, "metadata.name")
}

pub fn namespace(object: &Object) -> &str {
    str_at(object, "metadata.namespace")
}

/// The object at a field, made when it is absent; `None` when something else stands there.
pub fn object_at<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |v, field| {
        let next = v.as_object_mut()?.entry(field).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        next.is_object().then_some(next)
    })
}

/// Leads into an existing value only.
pub fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |v, field| v.get_mut(field)).filter(|v| !v.is_null())
}

/// Existing elements of an existing list.
pub fn each_mut<'a>(value: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    at_mut(value, path).and_then(Value::as_array_mut).into_iter().flatten()
}

pub fn set(value: &mut Value, field: &str, new: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(field.to_owned(), new.into());
    }
}

pub fn remove(value: &mut Value, path: &str) -> Option<Value> {
    let (parent, field) = match path.rsplit_once('.') {
        Some((parent, field)) => (at_mut(value, parent)?, field),
        None => (value, path),
    };
    parent.as_object_mut()?.remove(field)
}

/// Fills in a field that is absent or `null` (upstream's pointer fields).
pub fn default(value: &mut Value, field: &str, new: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut() {
        let slot = fields.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = new.into();
        }
    }
}

/// Fills in a string field that is absent, `null` or empty.
pub fn default_str(value: &mut Value, field: &str, new: &str) {
    if value.is_object() && str_at(value, field).is_empty() && !at(value, field).is_number() {
        set(value, field, new);
    }
}

/// Fills in a number that is absent, `null` or zero.
pub fn default_number(value: &mut Value, field: &str, new: i64) {
    if value.is_object() && matches!(i64_at(value, field), None | Some(0)) {
        set(value, field, new);
    }
}

const SMALL: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Where a value stands in its object, as upstream's `field.Path` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    pub fn root(field: &str) -> Self {
        Self(field.to_owned())
    }

    pub fn field(&self, field: &str) -> Self {
        if self.0.is_empty() { Self::root(field) } else { self.with([".", field, ""]) }
    }

    pub fn index(&self, index: usize) -> Self {
        match SMALL.get(index) {
            Some(digit) => self.with(["[", digit, "]"]),
            None => self.with(["[", &index.to_string(), "]"]),
        }
    }

    /// An entry of a map.
    pub fn key(&self, key: &str) -> Self {
        self.with(["[", key, "]"])
    }

    /// Validating a pod makes hundreds of paths, nearly all for nothing: the formatter would be most of it.
    fn with(&self, parts: [&str; 3]) -> Self {
        let mut text =
            String::with_capacity(self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        text.push_str(&self.0);
        parts.iter().for_each(|part| text.push_str(part));
        Self(text)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.0
    }
}

impl From<&Path> for String {
    fn from(path: &Path) -> Self {
        path.0.clone()
    }
}

/// What validation has found so far. A wrapper of the list that the registry hands in, so that checks read as
/// sentences.
pub struct Errors<'a>(pub &'a mut Vec<FieldError>);

impl Errors<'_> {
    /// Runs a check whose mistakes an update may forgive, and notes on them where they come from.
    pub fn with_origin(&mut self, origin: &Origin, check: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        check(self);
        self.0[before..].iter_mut().for_each(|error| error.origin = Some(origin.clone()));
    }

    pub fn required(&mut self, path: &Path, detail: &str) {
        self.0.push(FieldError::required(path, detail));
    }

    pub fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: &str) {
        self.0.push(FieldError::invalid(path, &value.into(), detail));
    }

    /// As [`invalid`](Self::invalid), with the value as upstream shows it.
    pub fn invalid_as(&mut self, path: &Path, shown: &str, detail: &str) {
        self.0.push(FieldError::invalid_as(path, shown, detail));
    }

    pub fn invalid_unshown(&mut self, path: &Path, detail: &str) {
        self.0.push(FieldError::invalid_unshown(path, detail));
    }

    pub fn not_supported(&mut self, path: &Path, value: &str, supported: &[&str]) {
        self.0.push(FieldError::not_supported(path, &value.into(), supported));
    }

    /// As [`not_supported`](Self::not_supported), with the value as upstream shows it.
    pub fn not_supported_as(&mut self, path: &Path, shown: &str, supported: &[&str]) {
        self.0.push(FieldError::not_supported_as(path, shown, supported));
    }

    pub fn forbidden(&mut self, path: &Path, detail: &str) {
        self.0.push(FieldError::forbidden(path, detail));
    }

    pub fn duplicate(&mut self, path: &Path, value: impl Into<Value>) {
        self.0.push(FieldError::duplicate(path, &value.into()));
    }

    pub fn not_found(&mut self, path: &Path, value: impl Into<Value>) {
        self.0.push(FieldError::not_found(path, &value.into()));
    }

    pub fn too_many(&mut self, path: &Path, actual: usize, max: usize) {
        self.0.push(FieldError::too_many(path, actual, max));
    }

    pub fn too_long(&mut self, path: &Path, max_bytes: usize) {
        self.0.push(FieldError::too_long(path, max_bytes));
    }

    /// Upstream's message where a field of an update differs from the stored one.
    pub fn immutable(&mut self, path: &Path, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new.clone(), "field is immutable");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_null_and_other_types_read_as_empty() {
        let object = json!({ "a": { "b": "x", "n": null, "l": [1] } });
        assert_eq!(str_at(&object, "a.b"), "x");
        assert_eq!(str_at(&object, "a.n"), "");
        assert_eq!(str_at(&object, "a.b.c"), "");
        assert_eq!(list_at(&object, "a.l").len(), 1);
        assert!(list_at(&object, "a.b").is_empty());
        assert!(!has(&object, "a.n"));
    }

    #[test]
    fn defaults_fill_only_what_is_unset() {
        let mut object = json!({ "empty": "", "set": "x", "null": null, "zero": 0 });
        for field in ["empty", "set", "absent"] {
            default_str(&mut object, field, "d");
        }
        default(&mut object, "null", 5);
        default(&mut object, "zero", 5);
        assert_eq!(object, json!({ "empty": "d", "set": "x", "null": 5, "zero": 0, "absent": "d" }));
        default_number(&mut object, "zero", 7);
        assert_eq!(object["zero"], 7);
    }

    #[test]
    fn paths_print_as_upstream() {
        let path =
            Path::root("spec").field("containers").index(0).field("resources").field("limits").key("cpu");
        assert_eq!(path.to_string(), "spec.containers[0].resources.limits[cpu]");
    }
}

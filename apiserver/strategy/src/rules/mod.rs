//! Checks that many resources share, with upstream's messages
//! (`k8s.io/apimachinery/pkg/util/validation` and `pkg/apis/core/validation`).

mod balancers;
pub mod internal;
mod names;
mod quantity;
mod selector;

pub use balancers::{addresses, load_balancer};
pub use names::*;
pub use quantity::*;
pub use selector::{label_selector, selects, selects_all};

use super::value::*;
use coracle_api::validation;
use serde_json::Value;

/// A string field that must hold one of `supported`; empty is `Required value`.
pub fn one_of(object: &Value, field: &str, supported: &[&str], path: &Path, errors: &mut Errors) {
    match str_at(object, field) {
        "" => errors.required(&path.field(field), ""),
        value if !supported.contains(&value) => errors.not_supported(&path.field(field), value, supported),
        _ => {}
    }
}

pub fn one_of_if_set(object: &Value, field: &str, supported: &[&str], path: &Path, errors: &mut Errors) {
    if !str_at(object, field).is_empty() {
        one_of(object, field, supported, path, errors);
    }
}

/// As [`one_of_if_set`], of a field that upstream tells apart from an empty text: that is wrong too.
pub fn one_of_if_there(object: &Value, field: &str, supported: &[&str], path: &Path, errors: &mut Errors) {
    let value = str_at(object, field);
    if has(object, field) && !supported.contains(&value) {
        errors.not_supported(&path.field(field), value, supported);
    }
}

pub fn non_negative(number: i64, path: &Path, errors: &mut Errors) {
    if number < 0 {
        errors.invalid(path, number, "must be greater than or equal to 0");
    }
}

/// A whole-number field that may be absent and must not be negative.
pub fn non_negative_at(object: &Value, field: &str, path: &Path, errors: &mut Errors) {
    if let Some(number) = i64_at(object, field) {
        non_negative(number, &path.field(field), errors);
    }
}

/// How long a service account's token may live.
pub fn token_seconds(seconds: i64, path: &Path, errors: &mut Errors) {
    if seconds < 600 {
        errors.invalid(path, seconds, "may not specify a duration less than 10 minutes");
    } else if seconds > 1 << 32 {
        errors.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds");
    }
}

/// Fields of the object (dotted paths) that an update must leave as they are.
pub fn immutable(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        errors.immutable(&Path::root(field), at(new, field), at(old, field));
    }
}

/// A number or a percentage, not negative; `true` if it is a percentage.
pub fn int_or_percent(value: &Value, path: &Path, errors: &mut Errors) -> bool {
    match value {
        Value::Number(n) => {
            non_negative(n.as_i64().unwrap_or(-1), path, errors);
            false
        }
        Value::String(text) => {
            for message in validation::percent(text) {
                errors.invalid(path, text.as_str(), &message);
            }
            true
        }
        _ => false,
    }
}

/// The percentage of a value that is one.
pub fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

/// A percentage that is of a whole, so at most 100.
pub fn at_most_all(value: &Value, path: &Path, errors: &mut Errors) {
    if percent(value).is_some_and(|p| p > 100) {
        errors.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

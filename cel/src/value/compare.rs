//! Equality and order. Numbers of different kinds compare by what they are worth.

use super::{Library, List, Map, Value};
use crate::types::ListKind;
use std::cmp::Ordering;

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::String(a), Value::String(b)) | (Value::Type(a), Value::Type(b)) => **a == **b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::List(a), Value::List(b)) => lists(a, b),
            (Value::Map(a), Value::Map(b)) => maps(a, b),
            (Value::Optional(a), Value::Optional(b)) => a == b,
            (Value::Library(a), Value::Library(b)) => libraries(a, b),
            _ => numbers(self, other) == Some(Ordering::Equal),
        }
    }
}

fn libraries(a: &Library, b: &Library) -> bool {
    match (a, b) {
        (Library::Url(a), Library::Url(b)) => a == b,
        (Library::Ip(a), Library::Ip(b)) => a == b,
        (Library::Cidr(a), Library::Cidr(b)) => a == b,
        (Library::Quantity(a), Library::Quantity(b)) => a == b,
        (Library::Semver(a), Library::Semver(b)) => a.order(b) == Ordering::Equal,
        (Library::Format(a), Library::Format(b)) => a == b,
        _ => false,
    }
}

fn lists<'a>(a: &List<'a>, b: &List<'a>) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.kind() {
        ListKind::Atomic => a.iter().zip(b.iter()).all(|(x, y)| x == y),
        // Neither holds anything twice, so that one direction is enough.
        ListKind::Set | ListKind::Map(_) => a.iter().all(|x| b.iter().any(|y| x == y)),
    }
}

fn maps<'a>(a: &Map<'a>, b: &Map<'a>) -> bool {
    let entries = a.entries();
    entries.len() == b.entries().len()
        && entries.iter().all(|(key, value)| matches!(b.get(key), Some(Ok(other)) if other == *value))
}

/// How two numbers compare; `None` when one is none or not a number.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Int(b)) => with_whole(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => with_whole(*a, i128::from(*b)),
        (Value::Int(_) | Value::Uint(_), Value::Double(_)) => numbers(b, a).map(Ordering::reverse),
        _ => None,
    }
}

/// Exact even where a double has no room for all digits.
fn with_whole(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Beyond these bounds every double is larger or smaller than any 64-bit number.
    if double.abs() > 1e30 {
        return Some(if double > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    #[allow(clippy::cast_possible_truncation, reason = "bounded above, and only the whole part is wanted")]
    let floor = double.floor() as i128;
    let fraction = if double.fract() == 0.0 { Ordering::Equal } else { Ordering::Greater };
    Some(floor.cmp(&whole).then(fraction))
}

/// Order of what has one: numbers, text, bytes, booleans, times.
pub fn order(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some((**a).cmp(&**b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        _ => numbers(a, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_by_worth() {
        assert_eq!(Value::Int(1), Value::Double(1.0));
        assert_eq!(order(&Value::Uint(u64::MAX), &Value::Int(-1)), Some(Ordering::Greater));
        assert_eq!(order(&Value::Double(1.5), &Value::Int(1)), Some(Ordering::Greater));
        assert_eq!(order(&Value::Double(-1.5), &Value::Int(-1)), Some(Ordering::Less));
        // 2^63 is a double, the largest int is not.
        assert_eq!(
            order(&Value::Double(9_223_372_036_854_775_808.0), &Value::Int(i64::MAX)),
            Some(Ordering::Greater)
        );
        assert_eq!(order(&Value::Double(f64::NAN), &Value::Int(1)), None);
    }
}

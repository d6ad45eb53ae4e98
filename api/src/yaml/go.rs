//! Keys and numbers of documents as Go prints them.

use crate::go::quoted;
use serde_json::Value;

/// A value as Go source.
pub(super) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| format!("{}:{}", quoted(key), syntax(value));
            let entries: Vec<String> = map.iter().map(entry).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", entries.join(", "))
        }
    }
}

/// With an exponent where Go's `%v` writes one: below 1e-4 and from 1e21 on.
pub(super) fn float(value: f64) -> String {
    general(&format!("{value:e}"), 21)
}

/// The key of a map, which upstream writes with the digits of a 32-bit number and an exponent from 1e6 on.
pub(super) fn float_key(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation)]
    let short = value as f32;
    match short {
        _ if short.is_nan() => ".nan".to_owned(),
        f32::INFINITY => ".inf".to_owned(),
        f32::NEG_INFINITY => "-.inf".to_owned(),
        _ => general(&format!("{short:e}"), 6),
    }
}

/// `scientific` is what Rust writes: the shortest digits, `1.5e7`.
fn general(scientific: &str, from: i32) -> String {
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific.to_owned() };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..from).contains(&exponent) {
        return scientific.parse::<f64>().map_or_else(|_| scientific.to_owned(), |value| value.to_string());
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

//! Values in the words of Go's `fmt`, in which upstream puts them into messages.

use serde_json::{Number, Value};
use std::fmt::Write;

/// `%v` of a decoded JSON value: `map[a:1 b:[x y]]`, `<nil>`.
pub fn go_value(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&go_number(n)),
        Value::String(text) => out.push_str(text),
        Value::Array(list) => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_value(out, item);
            }
            out.push(']');
        }
    }
}

fn go_number(number: &Number) -> String {
    if number.is_f64() { float(number.as_f64().unwrap_or_default()) } else { number.to_string() }
}

/// `%v` of a float64: plain up to 21 digits, otherwise with an exponent of at least two digits.
fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value}")
}

/// As upstream's path elements show values: strings quoted.
pub(super) fn go_text(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Null => "null".to_owned(),
        other => go_value(other),
    }
}

/// `%#v` of upstream's wrapper around a decoded value.
pub(super) fn go_wrapped(value: &Value) -> String {
    let mut inner = String::new();
    match value {
        Value::String(text) => {
            let _ = write!(inner, "{text:?}");
        }
        Value::Array(_) => {
            let _ = write!(inner, "[]interface {{}}{}", go_value(value));
        }
        Value::Object(_) => {
            let _ = write!(inner, "map[string]interface {{}}{}", go_value(value));
        }
        other => write_value(&mut inner, other),
    }
    format!("&value.valueUnstructured{{Value:{inner}}}")
}

/// `%T` of a decoded value.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn as_go_prints() {
        let value = json!({"b": [1, "x", null, 1.5], "a": {"c": true}});
        assert_eq!(go_value(&value), "map[a:map[c:true] b:[1 x <nil> 1.5]]");
        assert_eq!(
            (float(1e21), float(1e20), float(0.00001)),
            ("1e+21".into(), "100000000000000000000".into(), "1e-05".into())
        );
        assert_eq!(go_wrapped(&json!(1)), "&value.valueUnstructured{Value:1}");
        assert_eq!(go_text(&json!("a\"b")), "\"a\\\"b\"");
    }
}

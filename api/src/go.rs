//! Values as Go's `fmt` prints them, in which upstream words its messages.

use regex::Regex;
use serde_json::{Number, Value};
use std::sync::LazyLock;

/// `%q` of a text.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if !c.is_ascii() && !is_printable(c) => match u32::from(c) {
                short @ ..=0xffff => out.push_str(&format!("\\u{short:04x}")),
                long => out.push_str(&format!("\\U{long:08x}")),
            },
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Go prints letters, marks, numbers, punctuation and symbols as they are.
fn is_printable(c: char) -> bool {
    static PRINTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"[\p{L}\p{M}\p{N}\p{P}\p{S}]").ok());
    PRINTED.as_ref().is_none_or(|printed| printed.is_match(c.encode_utf8(&mut [0; 4])))
}

/// `%q` of a list: `["a" "b"]`.
pub fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|i| quoted(i.as_ref())).collect();
    format!("[{}]", items.join(" "))
}

/// `%v` of a decoded JSON value: `map[a:1 b:[x y]]`, `<nil>`.
pub fn value(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&number(n)),
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

fn number(number: &Number) -> String {
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

/// `%T` of a decoded value.
pub fn type_name(value: &Value) -> &'static str {
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
    fn texts_are_quoted() {
        for (text, expected) in [
            ("plain 'é' 日", r#""plain 'é' 日""#),
            ("\"\\", r#""\"\\""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("\u{85}\u{200b}\u{e0001}", r#""\u0085\u200b\U000e0001""#),
            ("e\u{301}", "\"e\u{301}\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
        assert_eq!(quoted_list(&["a", "b"]), r#"["a" "b"]"#);
    }

    #[test]
    fn values_are_printed() {
        let printed = json!({"b": [1, "x", null, 1.5], "a": {"c": true}});
        assert_eq!(value(&printed), "map[a:map[c:true] b:[1 x <nil> 1.5]]");
        let floats = (float(1e21), float(1e20), float(0.00001));
        assert_eq!(floats, ("1e+21".into(), "100000000000000000000".into(), "1e-05".into()));
        let types = [json!(null), json!(true), json!(1.5), json!(1), json!("a"), json!([]), json!({})];
        let names = types.each_ref().map(type_name);
        let expected =
            ["<nil>", "bool", "float64", "int64", "string", "[]interface {}", "map[string]interface {}"];
        assert_eq!(names, expected);
    }
}

//! Values in the words of upstream's structured merges.

use crate::go::{quoted, value};
use serde_json::Value;

/// As upstream's path elements show values: strings quoted.
pub(super) fn go_text(decoded: &Value) -> String {
    match decoded {
        Value::String(text) => quoted(text),
        Value::Null => "null".to_owned(),
        other => value(other),
    }
}

/// `%#v` of upstream's wrapper around a decoded value.
pub(super) fn go_wrapped(decoded: &Value) -> String {
    let inner = match decoded {
        Value::String(text) => quoted(text),
        Value::Array(_) => format!("[]interface {{}}{}", value(decoded)),
        Value::Object(_) => format!("map[string]interface {{}}{}", value(decoded)),
        other => value(other),
    };
    format!("&value.valueUnstructured{{Value:{inner}}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_wrapped_as_upstream_shows_them() {
        assert_eq!(go_wrapped(&json!(1)), "&value.valueUnstructured{Value:1}");
        assert_eq!(go_text(&json!("a\"b")), "\"a\\\"b\"");
    }
}

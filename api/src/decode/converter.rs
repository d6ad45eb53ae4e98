//! What upstream's converter of untyped objects says of a value that does not fit a field.

use crate::schema::{Kind, TypeRef};
use serde_json::Value;

/// `go` is the field's type in Go. Nothing for types that read themselves, which say the same wherever they are read.
pub(super) fn mismatch(value: &Value, ty: TypeRef<'_>, go: Option<String>) -> Option<String> {
    let found = go_kind(value);
    let plain = match ty.kind() {
        Kind::Map => return Some(format!("cannot restore map from {found}")),
        Kind::List | Kind::Bytes => return Some(format!("cannot restore slice from {found}")),
        Kind::Struct => return Some(format!("cannot restore struct from: {found}")),
        Kind::String => "string",
        Kind::Bool => "bool",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Double => "float64",
        Kind::Any | Kind::IntOrString | Kind::Quantity | Kind::Time | Kind::MicroTime => return None,
    };
    // Go converts whole numbers to texts, of one letter; the converter does not let that happen.
    let numbers = matches!(ty.kind(), Kind::Int32 | Kind::Int64 | Kind::Double);
    let converts = match found {
        "int64" => numbers || ty.kind() == Kind::String,
        "float64" => numbers,
        _ => false,
    };
    Some(if converts {
        let named = go.map(|go| go.trim_start_matches('*').to_owned());
        format!("cannot convert {found} to {}", named.unwrap_or_else(|| plain.to_owned()))
    } else {
        format!("unrecognized type: {plain}")
    })
}

/// The kind of Go that untyped objects hold the value as.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use crate::decode::conform_merged;
    use crate::schema::root;
    use serde_json::{Value, json};

    #[test]
    fn a_wrong_type_is_told_in_the_words_of_the_converter() {
        let cases = [
            (json!({ "metadata": { "labels": "x" } }), "cannot restore map from string"),
            (json!({ "metadata": { "labels": ["a"] } }), "cannot restore map from slice"),
            (json!({ "metadata": { "labels": { "a": 5 } } }), "cannot convert int64 to string"),
            (json!({ "metadata": { "labels": { "a": {} } } }), "unrecognized type: string"),
            (json!({ "metadata": { "finalizers": "x" } }), "cannot restore slice from string"),
            (json!({ "spec": 5 }), "cannot restore struct from: int64"),
            (json!({ "spec": { "securityContext": "a" } }), "cannot restore struct from: string"),
            (json!({ "spec": { "nodeSelector": 5 } }), "cannot restore map from int64"),
            (json!({ "spec": { "containers": "x" } }), "cannot restore slice from string"),
            (json!({ "spec": { "containers": [{ "image": 5 }] } }), "cannot convert int64 to string"),
            (json!({ "spec": { "terminationGracePeriodSeconds": "x" } }), "unrecognized type: int64"),
            (json!({ "spec": { "terminationGracePeriodSeconds": 1.5 } }), "cannot convert float64 to int64"),
            (json!({ "spec": { "hostNetwork": "true" } }), "unrecognized type: bool"),
        ];
        for (pod, said) in cases {
            let mut wrong: Value = pod.clone();
            let error = conform_merged(&mut wrong, root("", "v1", "Pod").unwrap()).unwrap_err();
            assert_eq!(error.to_string(), said, "{pod}");
        }
    }
}

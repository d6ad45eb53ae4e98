//! Objects with every field at its zero, and what upstream's types write of them: worked out from the facts about each field
//! on its own, from the top down, where the code under test goes over what is there.

use super::{FieldRef, Kind, TypeRef};
use serde_json::{Map, Value, json};

/// So deep goes the deepest field of a built-in type that is no schema: `httpHeaders` of a hook of a template.
pub const DEEPEST: usize = 8;

/// What says of an object itself what it is.
const TYPE_META: [&str; 2] = ["apiVersion", "kind"];

/// The server keeps it by rules of its own.
const MANAGED_FIELDS: &str = "managedFields";

/// Every field of the type is there and zero; so are those of the structs in it, down to `levels` of them, with one item in
/// each list and map. Below that, structs are `{}`, lists and maps are empty. With what is read back.
pub fn full(ty: TypeRef<'_>, levels: usize) -> (Value, Value) {
    let (mut sent, mut read) = fields(ty, levels);
    for what in [&mut sent, &mut read] {
        TYPE_META.iter().for_each(|name| drop(what.remove(*name)));
    }
    (sent.into(), read.into())
}

fn fields(ty: TypeRef<'_>, levels: usize) -> (Map<String, Value>, Map<String, Value>) {
    let (mut sent, mut read) = (Map::new(), Map::new());
    // Schemas hold schemas in many fields: one within another is enough.
    let levels = if ty.name().ends_with(".JSONSchemaProps") { levels.min(1) } else { levels };
    for field in ty.fields().filter(|field| field.name() != MANAGED_FIELDS) {
        let (value, back) = zero(field, levels);
        if let Some(back) = back {
            read.insert(field.name().to_owned(), back);
        }
        sent.insert(field.name().to_owned(), value);
    }
    (sent, read)
}

/// Nothing is there.
pub fn empty(ty: TypeRef<'_>) -> Value {
    let kept = ty.fields().filter(|field| field.is_kept());
    kept.map(|field| (field.name().to_owned(), absent(field))).collect()
}

fn absent(field: FieldRef<'_>) -> Value {
    match field.ty().kind() {
        _ if field.is_pointer() => Value::Null,
        Kind::Struct => empty(field.ty()),
        Kind::String => json!(""),
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => json!(0),
        Kind::Bool => json!(false),
        Kind::Quantity => json!("0"),
        Kind::Any | Kind::Bytes | Kind::Time | Kind::MicroTime | Kind::List | Kind::Map => Value::Null,
    }
}

fn zero(field: FieldRef<'_>, levels: usize) -> (Value, Option<Value>) {
    let unless_omitted = |value: Value| field.is_kept().then_some(value);
    let ty = field.ty();
    let scalar = |value: Value| {
        let back = if field.is_pointer() { Some(value.clone()) } else { unless_omitted(value.clone()) };
        (value, back)
    };
    match ty.kind() {
        Kind::String => scalar(json!("")),
        Kind::Int32 | Kind::Int64 | Kind::Double => scalar(json!(0)),
        Kind::Bool => scalar(json!(false)),
        // Structs to Go, which are never left out.
        Kind::IntOrString => (json!(0), Some(json!(0))),
        Kind::Quantity => (json!("0"), Some(json!("0"))),
        Kind::Any | Kind::Bytes | Kind::Time | Kind::MicroTime => (Value::Null, unless_omitted(Value::Null)),
        Kind::Struct if levels == 0 => (json!({}), Some(empty(ty))),
        Kind::Struct => {
            let (sent, read) = fields(ty, levels - 1);
            (sent.into(), Some(read.into()))
        }
        Kind::List | Kind::Map => {
            match ty.element().filter(|_| levels > 0).and_then(|ty| item(ty, levels - 1)) {
                None if ty.kind() == Kind::List => (json!([]), unless_omitted(Value::Null)),
                None => (json!({}), unless_omitted(Value::Null)),
                Some((sent, read)) if ty.kind() == Kind::List => (json!([sent]), Some(json!([read]))),
                Some((sent, read)) => (json!({ "k": sent }), Some(json!({ "k": read }))),
            }
        }
    }
}

fn item(ty: TypeRef<'_>, levels: usize) -> Option<(Value, Value)> {
    let same = |value: Value| Some((value.clone(), value));
    match ty.kind() {
        Kind::String => same(json!("")),
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => same(json!(0)),
        Kind::Bool => same(json!(false)),
        Kind::Quantity => same(json!("0")),
        Kind::Struct => {
            let (sent, read) = fields(ty, levels);
            Some((sent.into(), read.into()))
        }
        _ => None,
    }
}

/// The first place where an object is not what is expected. Null is as good as an empty list or map: upstream keeps most objects
/// in a form that does not tell them apart.
pub fn difference(path: &str, given: &Value, expected: &Value) -> Option<String> {
    match (given, expected) {
        (Value::Object(a), Value::Object(b)) => {
            a.keys().chain(b.keys()).find_map(|key| match (a.get(key), b.get(key)) {
                (Some(given), Some(expected)) => difference(&format!("{path}.{key}"), given, expected),
                (given, expected) => Some(format!("{path}.{key}: {given:?} for {expected:?}")),
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.into_iter().find_map(|(n, (a, b))| difference(&format!("{path}[{n}]"), a, b))
        }
        (Value::Array(list), Value::Null) | (Value::Null, Value::Array(list)) if list.is_empty() => None,
        (Value::Object(map), Value::Null) | (Value::Null, Value::Object(map)) if map.is_empty() => None,
        _ => (given != expected).then(|| format!("{path}: {given} for {expected}")),
    }
}

//! The facts that field ownership and strict decoding need, in the form the built-in types have them.

use super::{JsonType, Structural};
use crate::schema::{Dynamic, DynamicField, Kind};

/// The type that the schema describes.
pub fn dynamic(of: &Structural) -> Dynamic {
    let fields = of.properties.iter().map(|(name, property)| field(name, property, &of.keywords.required));
    let open = of.preserve_unknown && of.properties.is_empty() && of.items.is_none();
    let (kind, element) = match of.kind {
        _ if of.int_or_string => (Kind::IntOrString, None),
        Some(JsonType::Object) if of.additional.is_some() => (Kind::Map, of.additional.as_deref()),
        Some(JsonType::Object) if !open => (Kind::Struct, None),
        Some(JsonType::Array) => (Kind::List, of.items.as_deref()),
        Some(JsonType::Boolean) => (Kind::Bool, None),
        Some(JsonType::Integer) => (Kind::Int64, None),
        Some(JsonType::Number) => (Kind::Double, None),
        Some(JsonType::String) => (Kind::String, None),
        None if !of.properties.is_empty() => (Kind::Struct, None),
        _ => (Kind::Any, None),
    };
    Dynamic {
        kind,
        fields: fields.collect(),
        element: element.map(|element| Box::new(dynamic(element))),
        map_type: of.map_type,
        nullable: of.nullable,
        preserve_unknown_fields: of.preserve_unknown,
    }
}

fn field(name: &str, of: &Structural, required: &[String]) -> DynamicField {
    DynamicField {
        name: name.to_owned(),
        ty: dynamic(of),
        required: required.iter().any(|r| r == name),
        default: of.default.clone(),
        list_type: of.list_type,
        map_keys: of.list_map_keys.clone(),
    }
}

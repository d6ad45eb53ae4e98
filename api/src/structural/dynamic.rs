//! The facts that field ownership needs, in the form the built-in types have them.

use super::{JsonType, OBJECT_FIELDS, Structural};
use crate::schema::{self, Dynamic, DynamicField, Kind, MapType};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The type of a whole object: what the schema specifies, and the fields that every object has.
///
/// With `preserve_all` unknown fields are kept at every level, as in definitions that prune nothing.
pub fn object_type(of: &Structural, preserve_all: bool) -> Dynamic {
    let fields = fields(of, true);
    let preserve_unknown_fields = preserve_all || of.preserve_unknown;
    Dynamic { fields, preserve_unknown_fields, ..Dynamic::of(Kind::Struct) }
}

/// The type that the schema describes. Where it allows anything, values are taken as they come: objects field by field,
/// lists as a whole.
pub fn dynamic(of: &Structural) -> Dynamic {
    let shared = |kind| Dynamic {
        map_type: of.map_type,
        nullable: of.nullable,
        preserve_unknown_fields: of.preserve_unknown,
        list_type: of.list_type,
        map_keys: of.list_map_keys.clone(),
        ..Dynamic::of(kind)
    };
    let specified = !of.properties.is_empty() || of.embedded_resource;
    let element = |part: &Structural| Some(Box::new(dynamic(part)));
    match of.kind {
        _ if of.int_or_string => shared(Kind::IntOrString),
        Some(JsonType::Object) | None if specified => {
            Dynamic { fields: fields(of, of.embedded_resource), ..shared(Kind::Struct) }
        }
        Some(JsonType::Object) => match &of.additional {
            Some(part) => Dynamic { element: element(part), ..shared(Kind::Map) },
            None if of.map_type == Some(MapType::Atomic) => shared(Kind::Map),
            None => shared(Kind::Any),
        },
        Some(JsonType::Array) => {
            Dynamic { element: of.items.as_deref().and_then(element), ..shared(Kind::List) }
        }
        Some(JsonType::Boolean) => shared(Kind::Bool),
        Some(JsonType::Integer) => shared(Kind::Int64),
        Some(JsonType::Number) => shared(Kind::Double),
        // Ownership takes text with a format for any scalar; whether it fits is for validation to say.
        Some(JsonType::String) => shared(match of.keywords.format.as_str() {
            "" | "byte" => Kind::String,
            "date" | "date-time" => Kind::Time,
            _ => Kind::Quantity,
        }),
        None => shared(Kind::Any),
    }
}

/// Sorted by name; with those of an object, if this is one.
fn fields(of: &Structural, is_object: bool) -> Vec<DynamicField> {
    let own = of.properties.iter().filter(|(name, _)| !is_object || !OBJECT_FIELDS.contains(&name.as_str()));
    let mut fields: Vec<DynamicField> =
        own.map(|(name, property)| field(name, property, &of.keywords.required)).collect();
    if is_object {
        let built_in = schema::by_name(OBJECT_META);
        let metadata = Dynamic { built_in, ..Dynamic::of(Kind::Struct) };
        fields.extend([
            plain("apiVersion", Dynamic::of(Kind::String)),
            plain("kind", Dynamic::of(Kind::String)),
            plain("metadata", metadata),
        ]);
        fields.sort_by(|a, b| a.name.cmp(&b.name));
    }
    fields
}

fn plain(name: &str, ty: Dynamic) -> DynamicField {
    let (name, map_keys) = (name.to_owned(), Vec::new());
    DynamicField { name, ty, required: false, default: None, list_type: None, map_keys }
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

//! From schemas of custom resources to the types that rules see.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>

use crate::types::{Field, ListKind, ListType, MapType, ObjectType, Type};
use coracle_api::schema::ListType as Semantics;
use coracle_api::structural::{JsonType, Structural};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Words that a field may be named and an expression may not: they are escaped.
const KEYWORDS: [&str; 19] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
];
const MORE_KEYWORDS: [&str; 2] = ["void", "while"];

/// The name by which an expression knows a field, or `None` when it cannot name it.
pub fn escape(name: &str) -> Option<String> {
    if KEYWORDS.contains(&name) || MORE_KEYWORDS.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    let begins = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
    if !begins || !name.chars().all(good) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

/// Bytes of the largest request; upstream's number, from which the largest list without a limit follows.
pub(crate) const REQUEST_BYTES: u64 = 3 << 20;

/// The type of values of a schema. `root` is an object of its own, of whose metadata rules see the names.
pub fn declare(schema: &Structural, root: bool) -> Type {
    object_type(schema, root || schema.embedded_resource, "object").unwrap_or(Type::Dyn)
}

/// How many values of this schema fit into a request.
pub fn most_in_a_request(schema: &Structural) -> u64 {
    REQUEST_BYTES / (smallest(schema) + 1)
}

/// The fewest bytes that a value takes as JSON, by upstream's reckoning.
pub(crate) fn smallest(schema: &Structural) -> u64 {
    match schema.kind {
        _ if schema.int_or_string => 1,
        Some(JsonType::Boolean) => 4,
        Some(JsonType::Integer | JsonType::Number) => 1,
        Some(JsonType::String) => match schema.keywords.format.as_str() {
            "date" => 12,
            "date-time" => 21,
            "duration" => 3,
            _ => 2,
        },
        Some(JsonType::Object) if schema.additional.is_none() => {
            let required = schema.properties.iter().filter(|(name, property)| {
                property.default.is_none() && schema.keywords.required.contains(name)
            });
            required.fold(2, |sum, (name, property)| sum + name.len() as u64 + smallest(property) + 4)
        }
        Some(JsonType::Array | JsonType::Object) => 2,
        None => 1,
    }
}

/// `None` for what has no schema: rules cannot speak of it.
fn object_type(schema: &Structural, resource: bool, name: &str) -> Option<Type> {
    let words = &schema.keywords;
    Some(match schema.kind {
        _ if schema.int_or_string => Type::Dyn,
        Some(JsonType::Boolean) => Type::Bool,
        Some(JsonType::Integer) => Type::Int,
        Some(JsonType::Number) => Type::Double,
        Some(JsonType::String) => text(schema),
        Some(JsonType::Array) => {
            let items = schema.items.as_deref()?;
            let element = below(items, name, "items")?;
            let kind = match schema.list_type {
                Some(Semantics::Set) => ListKind::Set,
                Some(Semantics::Map) => ListKind::Map(schema.list_map_keys.clone()),
                _ => ListKind::Atomic,
            };
            // Brackets around, and a comma after each.
            let most = words.max_items.unwrap_or((REQUEST_BYTES - 2) / (smallest(items) + 1));
            Type::List(Arc::new(ListType { element, kind, max_items: Some(most) }))
        }
        None if !resource && schema.properties.is_empty() && schema.additional.is_none() => return None,
        _ => match schema.additional.as_deref().and_then(|of| Some((of, below(of, name, "values")?))) {
            Some((of, value)) => {
                // Two quotes, a colon, a comma, and the shortest names there are.
                let most = words.max_properties.unwrap_or((REQUEST_BYTES - 2) / (smallest(of) + 6));
                Type::Map(Arc::new(MapType { key: Type::STRING, value, max_properties: Some(most) }))
            }
            None => structure(schema, resource, name),
        },
    })
}

fn below(schema: &Structural, name: &str, part: &str) -> Option<Type> {
    object_type(schema, schema.embedded_resource, &format!("{name}.{part}"))
}

fn structure(schema: &Structural, resource: bool, name: &str) -> Type {
    let mut fields = BTreeMap::new();
    let mut add = |json: &str, of: Type| {
        if let Some(escaped) = escape(json) {
            fields.insert(escaped, Field { json: json.to_owned(), of });
        }
    };
    for (json, property) in &schema.properties {
        if let Some(of) = below(property, name, json) {
            add(json, of);
        }
    }
    if resource {
        add("apiVersion", Type::STRING);
        add("kind", Type::STRING);
        let names = ["name", "generateName"]
            .map(|json| (json.to_owned(), Field { json: json.to_owned(), of: Type::String(Some(253)) }));
        let metadata = ObjectType { name: format!("{name}.metadata"), fields: names.into_iter().collect() };
        add("metadata", Type::Object(Arc::new(metadata)));
    }
    Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields }))
}

fn text(schema: &Structural) -> Type {
    match schema.keywords.format.as_str() {
        "date" | "date-time" => return Type::Timestamp,
        "duration" => return Type::Duration,
        "byte" => return Type::Bytes(schema.keywords.max_length),
        _ => {}
    }
    let listed =
        schema.keywords.one_of_these.iter().filter_map(|value| value.as_str()).map(|text| text.len() as u64);
    // A character takes up to four bytes.
    let longest = schema.keywords.max_length.map(|max| max.saturating_mul(4)).or_else(|| listed.max());
    Type::String(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_where_an_expression_could_not_say_them() {
        for (name, escaped) in [
            ("plain", Some("plain")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("a__b", Some("a__underscores__b")),
            ("namespace", Some("__namespace__")),
            ("1st", None),
            ("a b", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}

//! From the JSON of an accepted CustomResourceDefinition.

use super::{JsonType, Keywords, Pattern, Rule, Structural};
use crate::schema::{ListType, MapType};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// Reads a schema. What a check at creation has refused is not looked for again: it reads as not being there.
pub fn parse(schema: &Value) -> Structural {
    let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
    let part = |name: &str| schema[name].as_object().map(|_| Box::new(parse(&schema[name])));
    let properties = schema["properties"].as_object().into_iter().flatten();
    let additional = match &schema["additionalProperties"] {
        Value::Bool(true) => {
            Some(Box::new(Structural { preserve_unknown: true, nullable: true, ..Structural::default() }))
        }
        Value::Object(_) => part("additionalProperties"),
        _ => None,
    };
    Structural {
        kind: kind(&schema["type"]),
        nullable: flag("nullable"),
        default: schema.get("default").filter(|default| !default.is_null()).cloned(),
        properties: properties.map(|(name, property)| (name.clone(), parse(property))).collect(),
        additional,
        items: part("items"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag("x-kubernetes-embedded-resource"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        list_type: match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Some(ListType::Set),
            Some("map") => Some(ListType::Map),
            Some("atomic") => Some(ListType::Atomic),
            _ => None,
        },
        list_map_keys: words(&schema["x-kubernetes-list-map-keys"]),
        map_type: match schema["x-kubernetes-map-type"].as_str() {
            Some("atomic") => Some(MapType::Atomic),
            Some("granular") => Some(MapType::Granular),
            _ => None,
        },
        keywords: keywords(schema),
        rules: schema["x-kubernetes-validations"].as_array().into_iter().flatten().map(rule).collect(),
    }
}

fn kind(name: &Value) -> Option<JsonType> {
    use JsonType::{Array, Boolean, Integer, Number, Object, String};
    let known = [Array, Boolean, Integer, Number, Object, String];
    known.into_iter().find(|kind| Some(kind.name()) == name.as_str())
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

const KEYWORDS: [&str; 19] = [
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];

fn keywords(schema: &Value) -> Arc<Keywords> {
    static NONE: LazyLock<Arc<Keywords>> = LazyLock::new(Arc::default);
    if KEYWORDS.iter().any(|word| schema.get(word).is_some()) { Arc::new(read(schema)) } else { NONE.clone() }
}

fn read(schema: &Value) -> Keywords {
    let parts = |name: &str| schema[name].as_array().into_iter().flatten().map(parse).collect();
    let flag = |name: &str| schema[name].as_bool().unwrap_or(false);
    Keywords {
        format: schema["format"].as_str().unwrap_or_default().to_owned(),
        minimum: schema["minimum"].as_f64(),
        maximum: schema["maximum"].as_f64(),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: schema["multipleOf"].as_f64(),
        min_length: schema["minLength"].as_u64(),
        max_length: schema["maxLength"].as_u64(),
        pattern: schema["pattern"].as_str().map(Pattern::new),
        min_items: schema["minItems"].as_u64(),
        max_items: schema["maxItems"].as_u64(),
        min_properties: schema["minProperties"].as_u64(),
        max_properties: schema["maxProperties"].as_u64(),
        required: words(&schema["required"]),
        one_of_these: schema["enum"].as_array().cloned().unwrap_or_default(),
        all_of: parts("allOf"),
        any_of: parts("anyOf"),
        one_of: parts("oneOf"),
        not: schema["not"].as_object().map(|_| Box::new(parse(&schema["not"]))),
    }
}

fn rule(rule: &Value) -> Rule {
    let text = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
    Rule {
        rule: text("rule"),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: rule["optionalOldSelf"].as_bool().unwrap_or(false),
    }
}

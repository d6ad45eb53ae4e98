//! The definitions of custom resources, made of their schemas.
//!
//! Version 3 shows a schema as it is, with the two types of an integer or a string spelt out. Version 2 knows less, and
//! kubectl's check of it less still: whatever could make kubectl refuse a good object is left out there, as upstream does.

use super::prose::Prose;
use super::schema::{Dialect, Identities, OF_VALUES};
use super::v3::META;
use coracle_resources::custom::CustomResource;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// `com.example.stable.v1.Widget` of the group `stable.example.com`.
pub fn name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const IDENTITY: &str = "x-kubernetes-group-version-kind";
const SELECTABLE: &str = "x-kubernetes-selectable-fields";
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// Groups of which the document of custom resources does not say that the common types are of them too: they are those
/// that upstream's client does not know.
const UNKNOWN_TO_CLIENTS: [&str; 4] =
    ["admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"];

/// Group, version and kind of built-in types, as documents of custom resources say them.
pub fn identities() -> Identities {
    let mut all = super::schema::identities();
    let known =
        |identity: &Value| identity["group"].as_str().is_none_or(|g| !UNKNOWN_TO_CLIENTS.contains(&g));
    all.values_mut().for_each(|of_type| of_type.retain(known));
    all.retain(|_, of_type| !of_type.is_empty());
    all
}

/// What `apiVersion`, `kind` and `metadata` of an object are for.
fn described(field: &str) -> Value {
    static KNOWN: LazyLock<[(&str, Option<String>); 3]> = LazyLock::new(|| {
        let prose = Prose::load();
        let of = |field| prose.of_field(super::prose::COMMON, field);
        ["apiVersion", "kind", "metadata"].map(|field| (field, of(field)))
    });
    json!(KNOWN.iter().find(|(known, _)| *known == field).and_then(|(_, text)| text.as_deref()))
}

/// Keywords that both dialects show as they are, beside [`OF_VALUES`].
const PLAIN: [&str; 10] = [
    "description",
    "title",
    "maxProperties",
    "minProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    INT_OR_STRING,
];

/// The definition of the kind, and that of its list.
pub fn definitions(custom: &CustomResource, dialect: Dialect) -> [(String, Value); 2] {
    let r = &custom.resource;
    let own = name(&r.group, &r.version, &r.kind);
    let identity = |kind: &str| json!([{ "group": r.group, "kind": kind, "version": r.version }]);
    let raw = custom.definition.raw_schema(&r.version);
    let open = dialect == Dialect::V2 && (is(&raw, PRESERVE) || custom.definition.preserve_unknown);
    let mut object = if raw.is_null() || open {
        // With any property at all kubectl would refuse the others.
        Map::from_iter([("type".to_owned(), Value::from("object"))])
    } else {
        let mut object = publish(&raw, dialect);
        object_fields(&mut object, dialect);
        object
    };
    object.insert(IDENTITY.into(), identity(&r.kind));
    let selectable = selectable(custom);
    if !selectable.is_empty() {
        object.insert(SELECTABLE.into(), selectable.clone().into());
    }
    let mut list = json!({
        "type": "object",
        "description": format!("{} is a list of {}", r.list_kind, r.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": type_field("apiVersion"),
            "kind": type_field("kind"),
            "metadata": metadata(dialect, "ListMeta",
                format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds").into()),
            "items": { "type": "array", "description": format!("List of {}. More info: {CONVENTIONS}", r.plural),
                "items": dialect.reference(&own) },
        },
    });
    list[IDENTITY] = identity(&r.list_kind);
    if !selectable.is_empty() {
        list[SELECTABLE] = selectable.into();
    }
    [(own, Value::Object(object)), (name(&r.group, &r.version, &r.list_kind), list)]
}

/// The fields that selectors may name beside those of metadata, in the definition's order.
fn selectable(custom: &CustomResource) -> Vec<Value> {
    let paths = custom.version().selectable.iter();
    paths.map(|path| json!({ "fieldPath": path.trim_start_matches('.') })).collect()
}

fn is(schema: &Value, word: &str) -> bool {
    schema[word] == true
}

fn type_field(field: &str) -> Value {
    json!({ "type": "string", "description": described(field) })
}

fn metadata(dialect: Dialect, kind: &str, description: Value) -> Value {
    let mut property = dialect.property(&format!("{META}.{kind}"));
    property.insert("description".into(), description);
    Value::Object(property)
}

/// `apiVersion`, `kind` and `metadata` of an object, in place of what a schema says of them.
fn object_fields(object: &mut Map<String, Value>, dialect: Dialect) {
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    for field in ["apiVersion", "kind"] {
        properties[field] = type_field(field);
    }
    properties["metadata"] = metadata(dialect, "ObjectMeta", described("metadata"));
}

/// A schema as a dialect shows it.
pub fn publish(schema: &Value, dialect: Dialect) -> Map<String, Value> {
    let mut out = Map::new();
    for word in OF_VALUES.into_iter().chain(PLAIN) {
        let value = &schema[word];
        let unset =
            value.is_null() || *value == false || *value == "" || value.as_array().is_some_and(Vec::is_empty);
        if !unset || (word == "default" && schema.get(word).is_some_and(|v| !v.is_null())) {
            out.insert(word.to_owned(), value.clone());
        }
    }
    for word in [EMBEDDED, PRESERVE] {
        if is(schema, word) {
            out.insert(word.to_owned(), true.into());
        }
    }
    children(schema, dialect, &mut out);
    match dialect {
        Dialect::V2 => restrict(schema, &mut out),
        Dialect::V3 => junctors(schema, &mut out),
    }
    if is(schema, EMBEDDED) && !(dialect == Dialect::V2 && is(schema, PRESERVE)) {
        embed(&mut out, dialect);
    }
    out
}

fn children(schema: &Value, dialect: Dialect, out: &mut Map<String, Value>) {
    let below = |inner: &Value| Value::Object(publish(inner, dialect));
    if let Some(properties) = schema["properties"].as_object().filter(|map| !map.is_empty()) {
        let properties: Map<String, Value> =
            properties.iter().map(|(name, inner)| (name.clone(), below(inner))).collect();
        out.insert("properties".into(), Value::Object(properties));
    }
    if schema["items"].is_object() {
        out.insert("items".into(), below(&schema["items"]));
    }
    match &schema["additionalProperties"] {
        inner @ Value::Object(_) => {
            out.insert("additionalProperties".into(), below(inner));
        }
        Value::Bool(allowed) => {
            out.insert("additionalProperties".into(), (*allowed).into());
        }
        _ => {}
    }
}

/// What kubectl's check of version 2 cannot cope with.
fn restrict(schema: &Value, out: &mut Map<String, Value>) {
    let (nullable, preserves) = (is(schema, "nullable"), is(schema, PRESERVE));
    if nullable || preserves {
        out.remove("items");
        out.remove("properties");
    }
    let kind = schema["type"].as_str().unwrap_or_default();
    let untyped =
        nullable || (kind == "array" && !out.contains_key("items")) || (kind == "object" && preserves);
    if untyped {
        out.remove("type");
    }
    let may_be_null =
        |name: &Value| name.as_str().is_some_and(|name| is(&schema["properties"][name], "nullable"));
    let any_may = is(&schema["additionalProperties"], "nullable");
    if let Some(required) = out.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| {
            !any_may && (!out_has_properties(schema, nullable, preserves) || !may_be_null(name))
        });
        if required.is_empty() {
            out.remove("required");
        }
    }
}

/// Whether the properties are still shown, and with them which of them may be null.
fn out_has_properties(schema: &Value, nullable: bool, preserves: bool) -> bool {
    !nullable && !preserves && schema["properties"].is_object()
}

fn junctors(schema: &Value, out: &mut Map<String, Value>) {
    if is(schema, "nullable") {
        out.insert("nullable".into(), true.into());
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        if schema[word].as_array().is_some_and(|list| !list.is_empty()) {
            out.insert(word.into(), schema[word].clone());
        }
    }
    if schema["not"].is_object() {
        out.insert("not".into(), schema["not"].clone());
    }
    if !is(schema, INT_OR_STRING) {
        return;
    }
    let either = json!([{ "type": "integer" }, { "type": "string" }]);
    if schema["anyOf"] == either || schema["allOf"][0]["anyOf"] == either {
        return;
    }
    if out.contains_key("anyOf") {
        let mut all = vec![json!({ "anyOf": either })];
        all.extend(schema["allOf"].as_array().into_iter().flatten().cloned());
        out.insert("allOf".into(), all.into());
    } else {
        out.insert("anyOf".into(), either);
    }
}

/// An object inside of an object.
fn embed(out: &mut Map<String, Value>, dialect: Dialect) {
    object_fields(out, dialect);
    let version = "apiVersion defines the versioned schema of this representation of an object.";
    let kind = "kind is a string value representing the type of this object. In CamelCase.";
    let texts = [("apiVersion", version, "resources"), ("kind", kind, "types-kinds")];
    for (field, text, section) in texts {
        out["properties"][field]["description"] = format!("{text} More info: {CONVENTIONS}#{section}").into();
    }
    let required = out.entry("required").or_insert_with(|| json!([]));
    if let Some(list) = required.as_array_mut() {
        for field in ["kind", "apiVersion"] {
            if !list.iter().any(|known| known == field) {
                list.push(field.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(schema: Value, dialect: Dialect) -> Value {
        Value::Object(publish(&schema, dialect))
    }

    #[test]
    fn names_turn_the_group_around() {
        assert_eq!(name("stable.example.io", "v1", "Foo"), "io.example.stable.v1.Foo");
    }

    #[test]
    fn version_3_shows_all_and_spells_out_two_types() {
        let schema = json!({ "type": "object", "nullable": true, "oneOf": [{ "required": ["a"] }], "properties": {
            "a": { "x-kubernetes-int-or-string": true, "description": "" },
            "b": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "c": { "x-kubernetes-int-or-string": true, "anyOf": [{ "minimum": 1 }], "allOf": [{ "maximum": 2 }] },
            "d": { "type": "array", "items": { "type": "string", "default": "" }, "x-kubernetes-list-type": "set" } } });
        let either = json!([{ "type": "integer" }, { "type": "string" }]);
        let mut want = schema.clone();
        want["properties"]["a"] = json!({ "x-kubernetes-int-or-string": true, "anyOf": either });
        want["properties"]["c"]["allOf"] = json!([{ "anyOf": either }, { "maximum": 2 }]);
        assert_eq!(shown(schema, Dialect::V3), want);
    }

    #[test]
    fn version_2_leaves_out_what_kubectl_would_trip_over() {
        for (schema, want) in [
            (
                json!({ "type": "object", "nullable": true, "properties": { "a": { "type": "string" } } }),
                json!({}),
            ),
            (
                json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": {} } }),
                json!({ "x-kubernetes-preserve-unknown-fields": true }),
            ),
            (
                json!({ "type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": { "type": "string" } }),
                json!({ "x-kubernetes-preserve-unknown-fields": true }),
            ),
            (
                json!({ "type": "object", "required": ["a", "b"], "anyOf": [{}],
                    "properties": { "a": { "type": "string", "nullable": true }, "b": { "type": "integer" } } }),
                json!({ "type": "object", "required": ["b"],
                    "properties": { "a": {}, "b": { "type": "integer" } } }),
            ),
            (
                json!({ "type": "object", "additionalProperties": { "type": "string", "minLength": 2 } }),
                json!({ "type": "object", "additionalProperties": { "type": "string", "minLength": 2 } }),
            ),
            (
                json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
                json!({ "x-kubernetes-int-or-string": true }),
            ),
        ] {
            assert_eq!(shown(schema.clone(), Dialect::V2), want, "{schema}");
        }
    }

    #[test]
    fn embedded_objects_have_the_fields_of_objects() {
        let schema = json!({ "type": "object", "x-kubernetes-embedded-resource": true, "required": ["spec"],
            "properties": { "spec": { "type": "object" } } });
        let v3 = shown(schema.clone(), Dialect::V3);
        assert_eq!(v3["required"], json!(["spec", "kind", "apiVersion"]));
        assert_eq!(
            v3["properties"]["metadata"]["allOf"],
            json!([{ "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" }])
        );
        let mut open = schema;
        open["x-kubernetes-preserve-unknown-fields"] = true.into();
        assert!(shown(open, Dialect::V2).get("properties").is_none());
    }
}

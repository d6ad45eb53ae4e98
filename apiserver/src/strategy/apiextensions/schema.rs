//! Structural schemas: every specified field has a type, and nothing stands in a schema that could not be pruned,
//! defaulted or published (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>).

use super::*;
use std::collections::BTreeSet;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
/// Levels of schemas in schemas; as deep as a stack of ours should go. Upstream's limit is the size of the object.
const DEEPEST: usize = 200;
/// Upstream's lists of what a schema, and what a part under `allOf` and the like, must not use.
const FORBIDDEN: &[&str] =
    &["definitions", "dependencies", "id", "patternProperties", "$ref", "additionalItems"];
const VALUE_ONLY_FORBIDDEN: &[&str] = &[
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];

pub fn check(holder: &Value, path: &Path, errors: &mut Errors) {
    let (schema, path) = (at(holder, "openAPIV3Schema"), path.field("openAPIV3Schema"));
    if schema.is_null() {
        errors.required(&path, "schemas are required");
        return;
    }
    match str_at(schema, "type") {
        "" => errors.required(&path.field("type"), "must not be empty at the root"),
        "object" => {}
        other => errors.invalid(&path.field("type"), other, "must be object at the root"),
    }
    if bool_at(schema, "nullable") {
        errors.forbidden(&path.field("nullable"), "must be false at the root");
    }
    restricted_metadata(at(schema, "properties.metadata"), &path, errors);
    structural(schema, &path, &Position { root: true, depth: 0 }, errors);
}

/// Of metadata only the names may be restricted.
fn restricted_metadata(metadata: &Value, path: &Path, errors: &mut Errors) {
    let here = path.field("properties").key("metadata");
    for name in entries_at(metadata, "properties").map(|(name, _)| name) {
        if !["name", "generateName"].contains(&name.as_str()) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly \
                          specified";
            errors.forbidden(&here.field("properties").key(name), detail);
        }
    }
}

struct Position {
    root: bool,
    depth: usize,
}

fn structural(schema: &Value, path: &Path, position: &Position, errors: &mut Errors) {
    if position.depth > DEEPEST {
        errors.forbidden(path, "schemas are nested too deeply");
        return;
    }
    let int_or_string = bool_at(schema, "x-kubernetes-int-or-string");
    let preserves = bool_at(schema, "x-kubernetes-preserve-unknown-fields");
    let kind = str_at(schema, "type");
    if kind.is_empty() {
        if !position.root && !int_or_string && !preserves {
            errors.required(&path.field("type"), "must not be empty for specified object fields");
        }
    } else if int_or_string {
        errors.forbidden(&path.field("type"), "must be empty if x-kubernetes-int-or-string is true");
    } else if !TYPES.contains(&kind) {
        errors.not_supported(&path.field("type"), kind, TYPES);
    }
    if has(schema, "x-kubernetes-preserve-unknown-fields") && !preserves {
        errors.invalid(
            &path.field("x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        );
    }
    keywords(schema, path, errors);
    if kind == "array" && !at(schema, "items").is_object() {
        errors.required(&path.field("items"), "must be specified");
    }
    if at(schema, "items").is_array() {
        errors.forbidden(&path.field("items"), "items must be a schema object and not an array");
    }
    if bool_at(schema, "x-kubernetes-embedded-resource") {
        if kind != "object" {
            errors.invalid(
                &path.field("type"),
                kind,
                "must be object if x-kubernetes-embedded-resource is true",
            );
        }
        if !preserves && entries_at(schema, "properties").next().is_none() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
            errors.required(&path.field("properties"), detail);
        }
    }
    list_type(schema, path, errors);
    children(schema, path, position.depth, errors);
    junctors(schema, path, position.depth, errors);
    validations(schema, path, errors);
}

fn keywords(schema: &Value, path: &Path, errors: &mut Errors) {
    for word in FORBIDDEN {
        if has(schema, word) {
            errors.forbidden(&path.field(word), &format!("{word} is not supported"));
        }
    }
    if bool_at(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.field("uniqueItems"), detail);
    }
    let additional = at(schema, "additionalProperties");
    if *additional == Value::Bool(false) {
        errors.forbidden(&path.field("additionalProperties"), "additionalProperties cannot be set to false");
    } else if !additional.is_null() && entries_at(schema, "properties").next().is_some() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.forbidden(&path.field("additionalProperties"), detail);
    }
    for word in ["maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"] {
        rules::non_negative_at(schema, word, path, errors);
    }
    let pattern = str_at(schema, "pattern");
    if let Some(detail) = unbalanced(pattern) {
        errors.invalid(&path.field("pattern"), pattern, detail);
    }
    let default = at(schema, "default");
    if !default.is_null() && !fits(default, schema) {
        let detail = format!("must be of type {}", str_at(schema, "type"));
        errors.invalid(&path.field("default"), default.clone(), &detail);
    }
}

/// The commonest mistakes in a regular expression; nothing here compiles one.
fn unbalanced(pattern: &str) -> Option<&'static str> {
    let (mut round, mut square, mut escaped) = (0i32, false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' if square => square = false,
            '[' if !square => square = true,
            '(' if !square => round += 1,
            ')' if !square => round -= 1,
            _ => {}
        }
        if round < 0 {
            return Some("must be a valid regular expression, but isn't: unexpected )");
        }
    }
    match (round > 0, square, escaped) {
        (true, ..) => Some("must be a valid regular expression, but isn't: missing closing )"),
        (_, true, _) => Some("must be a valid regular expression, but isn't: missing closing ]"),
        (_, _, true) => {
            Some("must be a valid regular expression, but isn't: trailing backslash at end of expression")
        }
        _ => None,
    }
}

fn fits(value: &Value, schema: &Value) -> bool {
    match str_at(schema, "type") {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        _ => true,
    }
}

fn list_type(schema: &Value, path: &Path, errors: &mut Errors) {
    let (list, map) = (str_at(schema, "x-kubernetes-list-type"), str_at(schema, "x-kubernetes-map-type"));
    let is = |kind: &str| str_at(schema, "type") == kind;
    rules::one_of_if_set(schema, "x-kubernetes-list-type", &["atomic", "map", "set"], path, errors);
    rules::one_of_if_set(schema, "x-kubernetes-map-type", &["atomic", "granular"], path, errors);
    if !list.is_empty() && !is("array") {
        errors.invalid(
            &path.field("type"),
            str_at(schema, "type"),
            "must be array if x-kubernetes-list-type is specified",
        );
    }
    if !map.is_empty() && !is("object") {
        errors.invalid(
            &path.field("type"),
            str_at(schema, "type"),
            "must be object if x-kubernetes-map-type is specified",
        );
    }
    let (keys, here) =
        (list_at(schema, "x-kubernetes-list-map-keys"), path.field("x-kubernetes-list-map-keys"));
    if list != "map" {
        if !keys.is_empty() {
            errors.forbidden(&here, "must not be set if x-kubernetes-list-type is not map");
        }
        return;
    }
    if keys.is_empty() {
        errors.required(&here, "must not be empty if x-kubernetes-list-type is map");
    }
    let (items, mut seen) = (at(schema, "items"), BTreeSet::new());
    for (i, key) in strings_at(schema, "x-kubernetes-list-map-keys").enumerate() {
        let Some(property) = at(items, "properties").get(key) else {
            let detail = "entries must all be names of item properties";
            errors.invalid(&here.index(i), key, detail);
            continue;
        };
        if ["array", "object"].contains(&str_at(property, "type")) {
            let detail = "entries must all be names of scalar item properties";
            errors.invalid(
                &path.field("items").field("properties").key(key).field("type"),
                str_at(property, "type"),
                detail,
            );
        }
        if !strings_at(items, "required").any(|r| r == key) && !has(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.required(&path.field("items").field("properties").key(key).field("default"), detail);
        }
        if !seen.insert(key) {
            errors.duplicate(&here.index(i), key);
        }
    }
}

fn children(schema: &Value, path: &Path, depth: usize, errors: &mut Errors) {
    let inner = Position { root: false, depth: depth + 1 };
    for (name, property) in entries_at(schema, "properties") {
        // At the root apiVersion, kind and metadata may stay empty: they have types of their own.
        let implied = depth == 0 && name == "metadata";
        let inner = if implied { Position { root: true, depth: 1 } } else { Position { ..inner } };
        structural(property, &path.field("properties").key(name), &inner, errors);
    }
    for field in ["items", "additionalProperties"] {
        if at(schema, field).is_object() {
            structural(at(schema, field), &path.field(field), &inner, errors);
        }
    }
}

/// Parts under allOf, anyOf, oneOf and not check values and specify nothing.
fn junctors(schema: &Value, path: &Path, depth: usize, errors: &mut Errors) {
    for word in ["allOf", "anyOf", "oneOf"] {
        for (i, part) in list_at(schema, word).iter().enumerate() {
            let allowed = bool_at(schema, "x-kubernetes-int-or-string");
            value_only(part, &path.field(word).index(i), depth + 1, allowed, errors);
        }
    }
    if has(schema, "not") {
        value_only(at(schema, "not"), &path.field("not"), depth + 1, false, errors);
    }
}

fn value_only(schema: &Value, path: &Path, depth: usize, types: bool, errors: &mut Errors) {
    if depth > DEEPEST {
        errors.forbidden(path, "schemas are nested too deeply");
        return;
    }
    for word in VALUE_ONLY_FORBIDDEN {
        let there = match at(schema, word) {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            _ => true,
        };
        if there && !(types && *word == "type") {
            errors.forbidden(&path.field(word), "must be undefined to be structural");
        }
    }
    for (name, property) in entries_at(schema, "properties") {
        value_only(property, &path.field("properties").key(name), depth + 1, false, errors);
    }
    if at(schema, "items").is_object() {
        value_only(at(schema, "items"), &path.field("items"), depth + 1, false, errors);
    }
    junctors(schema, path, depth, errors);
}

fn validations(schema: &Value, path: &Path, errors: &mut Errors) {
    const REASONS: &[&str] =
        &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let here = path.field("x-kubernetes-validations");
    for (i, rule) in list_at(schema, "x-kubernetes-validations").iter().enumerate() {
        let here = here.index(i);
        if str_at(rule, "rule").trim().is_empty() {
            errors.required(&here.field("rule"), "rule is not specified");
        }
        let (message, own) = (str_at(rule, "message"), has(rule, "message"));
        if own && message.trim().is_empty() {
            errors.invalid(&here.field("message"), message, "message must be non-empty if specified");
        } else if message.trim().contains(['\n', '\r']) {
            errors.invalid(&here.field("message"), message, "message must not contain line breaks");
        } else if !own
            && str_at(rule, "rule").trim().contains(['\n', '\r'])
            && !has(rule, "messageExpression")
        {
            errors.required(&here.field("message"), "message must be specified if rule contains line breaks");
        }
        rules::one_of_if_set(rule, "reason", REASONS, &here, errors);
    }
}

/// For formats that nothing knows.
pub fn warnings(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (i, version) in list_at(spec, "versions").iter().enumerate() {
        let path = Path::root("spec").field("versions").index(i).field("schema").field("openAPIV3Schema");
        formats(at(version, "schema.openAPIV3Schema"), &path, 0, &mut found);
    }
    found
}

fn formats(schema: &Value, path: &Path, depth: usize, found: &mut Vec<String>) {
    const KNOWN: &[&str] = &[
        "bsonobjectid",
        "byte",
        "cidr",
        "creditcard",
        "date",
        "date-time",
        "datetime",
        "double",
        "duration",
        "email",
        "float",
        "hexcolor",
        "hostname",
        "int32",
        "int64",
        "ipv4",
        "ipv6",
        "isbn",
        "isbn10",
        "isbn13",
        "k8s-long-name",
        "k8s-short-name",
        "mac",
        "password",
        "rgbcolor",
        "ssn",
        "uri",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
    ];
    if depth > DEEPEST || !schema.is_object() {
        return;
    }
    let format = str_at(schema, "format");
    if !format.is_empty() && !KNOWN.contains(&format) {
        found.push(format!("unrecognized format {format:?}"));
    }
    for (name, property) in entries_at(schema, "properties") {
        formats(property, &path.field("properties").key(name), depth + 1, found);
    }
    for field in ["items", "additionalProperties"] {
        formats(at(schema, field), &path.field(field), depth + 1, found);
    }
}

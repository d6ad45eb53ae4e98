//! Schemas that are refused, and why.

use super::tests::{create, definition};
use serde_json::{Value, json};

/// The mistakes of a schema, each without the path of the schema in front.
fn of_schema(schema: Value) -> Vec<String> {
    let mut object = definition();
    object["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    let (_, errors) = create(&object);
    errors.iter().map(|e| e.replace("spec.validation.openAPIV3Schema", "#")).collect()
}

/// The mistakes of a schema of one property.
fn of_property(property: Value) -> Vec<String> {
    let found = of_schema(json!({ "type": "object", "properties": { "p": property } }));
    found.iter().map(|e| e.replace("#.properties[p]", "p")).collect()
}

/// A schema with another below a junctor.
fn nested(part: Value) -> Value {
    json!({ "type": "object", "properties": { "a": { "type": "string" } }, "anyOf": [part] })
}

/// Each property is refused, among other things in these words.
fn refused<const N: usize>(cases: [(Value, &str); N]) {
    for (property, want) in cases {
        let found = of_property(property.clone());
        assert!(found.iter().any(|e| e.starts_with(want)), "{property}: {found:?}");
    }
}

#[test]
fn what_is_not_structural_is_named() {
    refused([
        (json!({}), "p.type: Required value: must not be empty for specified object fields"),
        (
            json!({ "type": "array", "items": {} }),
            "p.items.type: Required value: must not be empty for specified array items",
        ),
        (
            json!({ "type": "object", "additionalProperties": {} }),
            "p.additionalProperties.type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({ "x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true }),
            "p.x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            json!({ "type": "string", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true }),
            "p.type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
        ),
        (
            json!({ "type": "object", "x-kubernetes-embedded-resource": true }),
            "p.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({ "type": "string", "pattern": "a(" }),
            "p.pattern: Invalid value: \"a(\": must be a valid regular expression, but isn't: error parsing regexp: \
             missing closing ): `a(`",
        ),
    ]);
}

#[test]
fn what_may_not_stand_below_a_junctor_is_named() {
    refused([
        (nested(json!({ "type": "object" })), "p.anyOf[0].type: Forbidden: must be empty to be structural"),
        (
            nested(json!({ "description": "x" })),
            "p.anyOf[0].description: Forbidden: must be empty to be structural",
        ),
        (
            nested(json!({ "nullable": true })),
            "p.anyOf[0].nullable: Forbidden: must be false to be structural",
        ),
        (
            nested(json!({ "properties": { "b": { "minLength": 1 } } })),
            "p.properties[b]: Required value: because it is defined in p.anyOf[0].properties[b]",
        ),
        (
            nested(json!({ "properties": { "a": { "x-kubernetes-validations": [{ "rule": "true" }] } } })),
            "p.anyOf[0].properties[a].x-kubernetes-validations: Forbidden: must be empty to be structural",
        ),
    ]);
}

#[test]
fn keywords_that_are_not_supported_are_named() {
    refused([
        (json!({ "type": "null" }), "p.type: Unsupported value: \"null\""),
        (json!({ "type": "string", "id": "x" }), "p.id: Forbidden: id is not supported"),
        (
            json!({ "type": "object", "patternProperties": { "a": { "type": "string" } } }),
            "p.patternProperties: Forbidden: patternProperties is not supported",
        ),
        (
            json!({ "type": "object", "additionalProperties": false, "properties": { "a": { "type": "string" } } }),
            "p.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": false }),
            "p.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
    ]);
}

#[test]
fn structural_schemas_are_accepted() {
    for good in [
        json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] }),
        json!({ "x-kubernetes-int-or-string": true,
            "allOf": [{ "anyOf": [{ "type": "integer" }, { "type": "string" }] }, { "minimum": 1 }] }),
        // As the definitions of volume snapshots have it: the type says nothing then.
        json!({ "x-kubernetes-int-or-string": true, "type": "string" }),
        json!({ "x-kubernetes-int-or-string": true, "type": "integer" }),
        json!({ "type": "object", "additionalProperties": true }),
        json!({ "type": "object", "additionalProperties": false }),
        json!({ "x-kubernetes-preserve-unknown-fields": true }),
        json!({ "type": "object", "properties": { "a": { "type": "string" } }, "oneOf": [{ "required": ["a"] }] }),
        nested(json!({ "not": { "properties": { "a": { "enum": ["x"] } } } })),
    ] {
        assert!(of_property(good.clone()).is_empty(), "{good}: {:?}", of_property(good.clone()));
    }
}

#[test]
fn the_root_and_its_metadata() {
    let restricted = "#.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
                      metadata is implicitly specified";
    let metadata = |metadata: Value| json!({ "type": "object", "properties": { "metadata": metadata } });
    for (schema, want) in [
        (json!({}), "#.type: Required value: must not be empty at the root"),
        (
            json!({ "type": "object", "nullable": true }),
            "#.nullable: Forbidden: nullable cannot be true at the root",
        ),
        (
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            "#.additionalProperties: Forbidden: must not be used at the root",
        ),
        (metadata(json!({ "type": "object", "properties": { "labels": { "type": "object" } } })), restricted),
        (metadata(json!({ "type": "object", "description": "x" })), restricted),
        (
            metadata(json!({ "type": "string" })),
            "#.properties[metadata].type: Invalid value: \"string\": must be object",
        ),
        (
            json!({ "type": "object", "properties": { "kind": { "type": "integer" } } }),
            "#.properties[kind].type: Invalid value: \"integer\": must be string",
        ),
        (
            metadata(
                json!({ "type": "object", "properties": { "name": { "type": "string", "default": "x" } } }),
            ),
            "#.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
        ),
    ] {
        let found = of_schema(schema.clone());
        assert!(found.iter().any(|e| e == want), "{schema}: {found:?}");
    }
    let named =
        metadata(json!({ "type": "object", "properties": { "name": { "type": "string", "maxLength": 9 } } }));
    assert!(of_schema(named).is_empty());
    let mut object = definition();
    object["spec"]["versions"][0]["subresources"] = json!({ "status": {} });
    object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["oneOf"] = json!([{ "required": ["spec"] }]);
    let (_, errors) = create(&object);
    assert!(
        errors[0].contains("only [Description Type Format Title")
            && errors[0].ends_with(
                "fields are allowed at the root of the schema if the status subresource is enabled"
            ),
        "{errors:?}"
    );
}

fn list(kind: &str, items: Value, keys: Value) -> Value {
    json!({ "type": "array", "x-kubernetes-list-type": kind, "items": items, "x-kubernetes-list-map-keys": keys })
}

fn object(more: Value) -> Value {
    let mut object = json!({ "type": "object", "required": ["k"], "properties": {
        "k": { "type": "string" }, "o": { "type": "object" } } });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

#[test]
fn types_of_lists_and_sets() {
    refused([
        (
            list("odd", json!({ "type": "string" }), json!([])),
            "p.x-kubernetes-list-type: Unsupported value: \"odd\"",
        ),
        (
            json!({ "type": "object", "x-kubernetes-list-type": "set" }),
            "p.type: Invalid value: \"object\": must be array if x-kubernetes-list-type is specified",
        ),
        (
            json!({ "type": "string", "x-kubernetes-map-type": "atomic" }),
            "p.type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
        ),
        (
            list("set", object(json!({})), json!([])),
            "p.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
             x-kubernetes-list-type=set",
        ),
        (
            list("set", json!({ "type": "string", "nullable": true }), json!([])),
            "p.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            list("set", json!({ "type": "string" }), json!(["k"])),
            "p.x-kubernetes-list-type: Invalid value: \"set\": must be map if x-kubernetes-list-map-keys is non-empty",
        ),
    ]);
}

#[test]
fn keys_of_lists() {
    refused([
        (
            list("map", object(json!({})), json!([])),
            "p.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            list("map", json!({ "type": "string" }), json!(["k"])),
            "p.items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
        ),
        (
            list("map", object(json!({})), json!(["z"])),
            "p.x-kubernetes-list-map-keys: Invalid value: [\"z\"]: entries must all be names of item properties",
        ),
        (
            list("map", object(json!({})), json!(["k", "k"])),
            "p.x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\"]: must not contain duplicate entries",
        ),
        (
            list("map", object(json!({ "required": ["o"] })), json!(["o"])),
            "p.items.properties[o].type: Invalid value: \"object\": must be a scalar type if parent array's \
             x-kubernetes-list-type is map",
        ),
        (
            list("map", object(json!({ "required": [] })), json!(["k"])),
            "p.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must \
             have a default or be a required property",
        ),
    ]);
    let atomic = object(json!({ "x-kubernetes-map-type": "atomic" }));
    for good in [list("map", object(json!({})), json!(["k"])), list("set", atomic, json!([]))] {
        assert!(of_property(good.clone()).is_empty(), "{good}: {:?}", of_property(good.clone()));
    }
}

#[test]
fn defaults_must_be_what_their_schema_asks_for() {
    for (property, want) in [
        (
            json!({ "type": "object", "default": { "a": 1, "x": 2 }, "properties": { "a": { "type": "integer" } } }),
            "p.default: Invalid value: {\"a\":1,\"x\":2}: must not have unknown fields",
        ),
        (
            json!({ "type": "integer", "minimum": 3, "default": 2 }),
            "p.default: Invalid value: 2:  in body should be greater than or equal to 3",
        ),
        (
            json!({ "type": "integer", "default": 2, "x-kubernetes-validations": [{ "rule": "self > 5" }] }),
            "p.default: Invalid value: 2: failed rule: self > 5",
        ),
        (json!({ "type": "string", "enum": ["a"], "default": "b" }), "p.default: Unsupported value: \"b\""),
    ] {
        let found = of_property(property.clone());
        assert!(found.len() == 1 && found[0].starts_with(want), "{property}: {found:?}");
    }
    assert!(of_property(json!({ "type": "string", "nullable": true, "default": null })).is_empty());
}

#[test]
fn rules_are_compiled_when_they_are_written() {
    let rules = |rules: Value| json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "x-kubernetes-validations": rules });
    let at = "p.x-kubernetes-validations[0]";
    for (rule, want) in [
        (json!({ "rule": "" }), "rule: Required value: rule is not specified"),
        (json!({ "rule": "self.b == 1" }), "compilation failed: ERROR: <input>:1:5: undefined field 'b'"),
        (json!({ "rule": "self.a" }), "cel expression must evaluate to a bool"),
        (
            json!({ "rule": "true", "message": "a\nb" }),
            "message: Invalid value: \"a\\nb\": message must not contain line breaks",
        ),
        (
            json!({ "rule": "true\n&& true" }),
            "message: Required value: message must be specified if rule contains line breaks",
        ),
        (
            json!({ "rule": "true", "reason": "Odd" }),
            "reason: Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \
             \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (
            json!({ "rule": "true", "fieldPath": ".b" }),
            "fieldPath: Invalid value: \".b\": fieldPath must be a valid path",
        ),
        (json!({ "rule": "true", "messageExpression": "1" }), "messageExpression must evaluate to a string"),
        (
            json!({ "rule": "true", "optionalOldSelf": true }),
            "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ] {
        let found = of_property(rules(json!([rule])));
        assert!(found.len() == 1 && found[0].starts_with(at) && found[0].contains(want), "{rule}: {found:?}");
    }
    assert!(
        of_property(rules(json!([{ "rule": "self.a > 0", "fieldPath": ".a", "message": "x" }]))).is_empty()
    );
}

#[test]
fn dear_rules_stay_where_they_were() {
    let dear = json!({ "type": "array", "items": { "type": "string" },
        "x-kubernetes-validations": [{ "rule": "self.all(a, self.exists(b, b == a))" }] });
    let found = of_property(dear.clone());
    assert!(
        found[0].contains("p.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds"),
        "{found:?}"
    );
    let bounded = json!({ "type": "array", "maxItems": 10, "items": { "type": "string", "maxLength": 10 },
        "x-kubernetes-validations": [{ "rule": "self.all(a, self.exists(b, b == a))" }] });
    assert!(of_property(bounded).is_empty());
}

#[test]
fn no_schema_is_too_deep_for_the_stack() {
    let mut schema = json!({ "type": "string" });
    for _ in 0..500 {
        schema = json!({ "type": "object", "properties": { "p": schema } });
    }
    assert_eq!(of_schema(schema), ["#: Forbidden: schemas are nested more than 200 levels deep"]);
}

mod any_schema {
    use super::*;
    use proptest::prelude::*;

    /// Schemas that are nearly right: the keywords are real, what stands behind them is not always.
    fn schema() -> impl Strategy<Value = Value> {
        let words = [
            "type",
            "properties",
            "items",
            "additionalProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "default",
            "nullable",
            "required",
            "enum",
            "pattern",
            "maxItems",
            "maxLength",
            "metadata",
            "kind",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
            "x-kubernetes-int-or-string",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-validations",
            "rule",
            "messageExpression",
            "fieldPath",
            "format",
            "a",
        ];
        let texts = [
            "object",
            "array",
            "string",
            "integer",
            "map",
            "set",
            "atomic",
            "self.a == oldSelf.a",
            "[",
            ".a",
            "",
        ];
        let word = prop::sample::select(words.to_vec()).prop_map(str::to_owned);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            prop::sample::select(texts.to_vec()).prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 60, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(word.clone(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn is_judged_without_panic(schema in schema()) {
            let _ = of_schema(schema.clone());
            let _ = of_property(schema);
        }
    }
}

use super::*;
use serde_json::json;

fn schema() -> Structural {
    parse(&json!({
        "type": "object",
        "properties": { "spec": {
            "type": "object",
            "required": ["replicas"],
            "properties": {
                "replicas": { "type": "integer", "minimum": 1, "maximum": 9, "format": "int32" },
                "name": { "type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$", "default": "web" },
                "level": { "type": "string", "enum": ["low", "high"] },
                "port": { "x-kubernetes-int-or-string": true },
                "note": { "type": "string", "nullable": true },
                "tags": { "type": "array", "x-kubernetes-list-type": "set", "maxItems": 3, "items": { "type": "string" } },
                "ports": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                    "items": { "type": "object", "required": ["port"], "properties": {
                        "port": { "type": "integer" }, "protocol": { "type": "string", "default": "TCP" } } } },
                "labels": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 1 },
                "raw": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": { "known": { "type": "object" } } },
                "embedded": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": { "spec": { "type": "object" } } },
                "choice": { "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
                    "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] },
                "when": { "type": "string", "format": "date-time" }
            }
        } }
    }))
}

fn wrong(spec: Value) -> Vec<String> {
    let object = json!({ "spec": spec });
    validate(&object, None, &schema(), "").iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_not_specified_is_dropped_and_named() {
    let mut object = json!({ "apiVersion": "a/v1", "kind": "A", "metadata": { "name": "x" }, "other": 1, "spec": {
        "replicas": 1, "foo": 1, "ports": [{ "port": 1, "bar": 2 }], "labels": { "any": "thing" },
        "raw": { "anything": 1, "known": { "gone": 1 } },
        "embedded": { "apiVersion": "v1", "kind": "B", "metadata": { "name": "y" }, "status": 1, "spec": { "x": 1 } } } });
    let dropped = prune(&mut object, &schema(), true);
    assert_eq!(
        dropped,
        [
            "other",
            "spec.embedded.spec.x",
            "spec.embedded.status",
            "spec.foo",
            "spec.ports[0].bar",
            "spec.raw.known.gone"
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
    );
    assert_eq!(object["spec"]["raw"], json!({ "anything": 1, "known": {} }));
    assert_eq!(object["spec"]["embedded"]["kind"], "B");
    assert_eq!(object["metadata"]["name"], "x");
}

#[test]
fn what_is_missing_gets_its_default() {
    let mut object =
        json!({ "spec": { "name": null, "note": null, "level": null, "ports": [{ "port": 1 }] } });
    let schema = schema();
    drop_nulls(&mut object, &schema);
    fill(&mut object, &schema);
    assert_eq!(
        object,
        json!({ "spec": { "name": "web", "note": null, "ports": [{ "port": 1, "protocol": "TCP" }] } })
    );
}

/// Whether a null is given where there may be none.
#[test]
fn nulls_of_fields_and_entries_count_as_not_given() {
    let text = json!({ "type": "string" });
    let map = |values: Value| json!({ "type": "object", "additionalProperties": values });
    let schema = parse(&json!({ "type": "object", "properties": {
        "a": text, "map": map(text.clone()), "list": { "type": "array", "items": text }, "any": map(json!(true)),
        "items": { "type": "array", "items": { "type": "object", "properties": { "a": text } } } } }));
    let mut object = json!({ "a": null, "map": { "x": null }, "list": [null], "any": { "x": null }, "items": [{ "a": null }] });
    drop_nulls(&mut object, &schema);
    assert_eq!(object, json!({ "map": {}, "list": [null], "any": { "x": null }, "items": [{}] }));
}

#[test]
fn every_keyword_is_held_against_the_value() {
    for (spec, expected) in [
        (json!({}), "spec.replicas: Required value"),
        (
            json!({ "replicas": "a" }),
            r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#,
        ),
        (
            json!({ "replicas": 0 }),
            "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
        ),
        (
            json!({ "replicas": 10 }),
            "spec.replicas: Invalid value: 10: spec.replicas in body should be less than or equal to 9",
        ),
        (
            json!({ "replicas": 1, "name": "a" }),
            r#"spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long"#,
        ),
        (json!({ "replicas": 1, "name": "abcdef" }), "spec.name: Too long: may not be more than 5 bytes"),
        (
            json!({ "replicas": 1, "name": "ABC" }),
            r#"spec.name: Invalid value: "ABC": spec.name in body should match '^[a-z]+$'"#,
        ),
        (
            json!({ "replicas": 1, "level": "mid" }),
            r#"spec.level: Unsupported value: "mid": supported values: "low", "high""#,
        ),
        (
            json!({ "replicas": 1, "tags": ["a", "b", "c", "d"] }),
            "spec.tags: Too many: 4: must have at most 3 items",
        ),
        (
            json!({ "replicas": 1, "port": 1.5 }),
            r#"spec.port: Invalid value: "number": spec.port in body must be of type integer,string: "number""#,
        ),
        (
            json!({ "replicas": 1, "choice": {} }),
            r#"spec.choice: Invalid value: {}: "spec.choice" must validate one and only one schema (oneOf). Found none valid"#,
        ),
        (
            json!({ "replicas": 1, "choice": { "a": "", "b": "" } }),
            r#"spec.choice: Invalid value: {"a":"","b":""}: "spec.choice" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
        (
            json!({ "replicas": 1, "when": "today" }),
            r#"spec.when: Invalid value: "today": spec.when in body must be of type date-time: "today""#,
        ),
        (json!({ "replicas": 1, "ports": [{}] }), "spec.ports[0].port: Required value"),
    ] {
        let found = wrong(spec.clone());
        assert!(found.iter().any(|error| error == expected), "{spec}: {found:?}");
    }
    assert_eq!(
        wrong(
            json!({ "replicas": 3, "name": "ok", "port": "http", "note": null, "when": "2024-01-01T00:00:00Z" })
        ),
        Vec::<String>::new()
    );
}

#[test]
fn an_update_answers_only_for_what_it_changes() {
    let schema = schema();
    let old = json!({ "spec": { "replicas": 10, "ports": [{ "port": "x" }, { "port": 2 }], "tags": ["a"] } });
    let new = json!({ "spec": { "replicas": 10, "ports": [{ "port": 2 }, { "port": "x" }], "tags": ["b"] } });
    assert!(validate(&new, Some(&old), &schema, "").is_empty());
    let worse = json!({ "spec": { "replicas": 11 } });
    assert_eq!(validate(&worse, Some(&old), &schema, "").len(), 1);
}

#[test]
fn sets_and_maps_hold_nothing_twice() {
    let object = json!({ "spec": { "tags": ["a", "b", "a"], "ports": [{ "port": 1 }, { "port": 1, "protocol": "UDP" }] } });
    let mut errors = Vec::new();
    duplicates(&object, &schema(), "", &mut errors);
    let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [r#"spec.ports[1]: Duplicate value: {"port":1}"#, r#"spec.tags[2]: Duplicate value: "a""#]
    );
}

#[test]
fn ownership_sees_the_same_schema() {
    let of = dynamic(&schema());
    let spec = &of.fields[0].ty;
    let ports = spec.fields.iter().find(|f| f.name == "ports").unwrap();
    assert_eq!((ports.list_type, ports.map_keys.as_slice()), (Some(ListType::Map), &["port".to_owned()][..]));
}

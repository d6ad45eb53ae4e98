//! Field validation of custom resources, and server-side apply by their schemas.

use crate::Suite;
use coracle_tests::custom::{self, definition, install, version};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

const APPLY: [&str; 1] = ["Content-Type: application/apply-patch+yaml"];
const YAML: [&str; 1] = ["Content-Type: application/yaml"];

fn ports() -> Value {
    json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
        "items": {
            "type": "object", "required": ["containerPort", "protocol"],
            "properties": {
                "containerPort": {"type": "integer", "format": "int32"}, "hostIP": {"type": "string"},
                "name": {"type": "string"}, "protocol": {"type": "string"},
            },
        },
    })
}

fn schema(template: bool) -> Value {
    let cron = json!({"type": "string", "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"});
    let mut spec = json!({"type": "object", "properties": {"foo": {"type": "string"}, "cronSpec": cron, "ports": ports()}});
    if template {
        let metadata = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        spec["properties"]["template"] = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"metadata": metadata, "spec": {"type": "object"}}});
        spec["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    json!({"type": "object", "properties": {"spec": spec}})
}

fn noxu(group: &str, schema: Value, rest: &Rest) -> String {
    let mut made = definition(group, "noxus", "Noxu", &[version("v1beta1", schema)]);
    made["spec"]["scope"] = json!("Cluster");
    custom::path(&install(rest, &made), "v1beta1", "")
}

/// An object as YAML, with these lines in metadata, at the top and in spec.
fn yaml(group: &str, metadata: &str, top: &str, spec: &str) -> String {
    format!(
        "apiVersion: {group}/v1beta1\nkind: Noxu\nmetadata:\n  name: mytest\n  finalizers: [example.com/f]\n{metadata}{top}spec:\n  cronSpec: \"* * * * */5\"\n{spec}  ports:\n  - {{name: x, containerPort: 80, protocol: TCP}}\n"
    )
}

#[test]
fn fields_of_custom_resources() {
    let mut suite = Suite::start();
    suite.check("valid", |rest| {
        let path = noxu("valid.example.com", schema(false), rest);
        let body = yaml("valid.example.com", "", "", "  foo: foo1\n");
        let strict = format!("{path}/mytest?fieldManager=m&fieldValidation=Strict");
        assert_eq!(rest.call("PATCH", &strict, &APPLY, &body).code, 201);
        let wrong = body.replace("* * * * */5", "* * *");
        let message = rest.call("PATCH", &strict, &APPLY, &wrong).refused(422, "Invalid");
        assert!(
            message.contains("spec.cronSpec: Invalid value: \"* * *\": spec.cronSpec in body should match '"),
            "{message}"
        );
    });
    suite.check("without a schema", |rest| {
        let path = noxu("none.example.com", custom::anything(), rest);
        let body = yaml("none.example.com", "", "", "  unknown: uk1\n");
        let made = rest.call("PATCH", &format!("{path}/mytest?fieldManager=m&fieldValidation=Strict"), &APPLY, &body).ok();
        assert_eq!(made["spec"]["unknown"], "uk1");
        // Duplicates are found all the same.
        let twice = body.replace("mytest", "twice") + "  unknown: uk2\n";
        let message = rest.call("POST", &format!("{path}?fieldValidation=Strict"), &YAML, &twice).refused(400, "BadRequest");
        assert!(message.contains("strict decoding error") && message.contains("key \"unknown\" already set in map"), "{message}");
        let json = r#"{"apiVersion":"none.example.com/v1beta1","kind":"Noxu","metadata":{"name":"dup"},"spec":{"a":1,"a":2}}"#;
        let message = rest.call("POST", &format!("{path}?fieldValidation=Strict"), &[], json).refused(400, "BadRequest");
        assert!(message.contains("strict decoding error: duplicate field \"spec.a\""), "{message}");
        let warned = rest.call("POST", &path, &[], json);
        assert_eq!(warned.warnings(), ["duplicate field \"spec.a\""]);
        assert_eq!(warned.ok()["spec"]["a"], 2);
    });
    suite.check("unknown fields", unknown);
    suite.check("unknown metadata", metadata);
    suite.check("metadata by default", metadata_by_default);
    suite.check("apply", applied);
    suite.end();
}

fn unknown(rest: &Rest) {
    let path = noxu("extra.example.com", schema(false), rest);
    let body = yaml("extra.example.com", "", "unknownField: unknown\n", "  foo: foo1\n  other: x\n");
    let reply =
        rest.call("PATCH", &format!("{path}/mytest?fieldManager=m&fieldValidation=Strict"), &APPLY, &body);
    assert!(
        reply.body["message"]
            .as_str()
            .is_some_and(|m| m.contains(".unknownField: field not declared in schema")),
        "{}",
        reply.body
    );
    let message =
        rest.call("POST", &format!("{path}?fieldValidation=Strict"), &YAML, &body).refused(400, "BadRequest");
    assert!(
        message
            .contains("strict decoding error: unknown field \"spec.other\", unknown field \"unknownField\""),
        "{message}"
    );
    let warned = rest.call("POST", &path, &YAML, &body);
    assert_eq!(warned.warnings(), ["unknown field \"spec.other\"", "unknown field \"unknownField\""]);
    let made = warned.ok();
    assert!(made["unknownField"].is_null() && made["spec"]["other"].is_null(), "pruned: {made}");
    let version = made["metadata"]["resourceVersion"].as_str().expect("a version");
    let body = yaml(
        "extra.example.com",
        &format!("  resourceVersion: \"{version}\"\n"),
        "unknownField: unknown\n",
        "  foo: foo2\n",
    );
    let ignored = rest.call("PUT", &format!("{path}/mytest?fieldValidation=Ignore"), &YAML, &body);
    assert!(ignored.warnings().is_empty());
    ignored.ok();
    let merge = ["Content-Type: application/merge-patch+json"];
    let patched = rest.call(
        "PATCH",
        &format!("{path}/mytest?fieldValidation=Strict"),
        &merge,
        r#"{"spec":{"other":"x"}}"#,
    );
    assert!(patched.refused(422, "Invalid").contains("unknown field \"spec.other\""));
}

fn metadata(rest: &Rest) {
    let path = noxu("meta.example.com", schema(true), rest);
    let template = "  template:\n    apiVersion: foo/v1\n    kind: Sub\n    metadata: {unknownSubMeta: unknown, name: subobject}\n";
    let body = yaml("meta.example.com", "  unknownMeta: unknown\n", "", template);
    let reply =
        rest.call("PATCH", &format!("{path}/mytest?fieldManager=m&fieldValidation=Strict"), &APPLY, &body);
    assert!(
        reply.body["message"]
            .as_str()
            .is_some_and(|m| m.contains(".metadata.unknownMeta: field not declared in schema")),
        "{}",
        reply.body
    );
    let message =
        rest.call("POST", &format!("{path}?fieldValidation=Strict"), &YAML, &body).refused(400, "BadRequest");
    for problem in
        ["unknown field \"metadata.unknownMeta\"", "unknown field \"spec.template.metadata.unknownSubMeta\""]
    {
        assert!(message.contains(problem), "{problem}: {message}");
    }
    let warned = rest.call("POST", &path, &YAML, &body);
    assert_eq!(warned.warnings().len(), 2, "{:?}", warned.warnings());
    assert_eq!(warned.ok()["spec"]["template"]["metadata"], json!({"name": "subobject"}));
}

/// Defaults of a schema put nothing into the metadata of an embedded object that no metadata have.
fn metadata_by_default(rest: &Rest) {
    let full =
        json!({"apiVersion": "foos/v1", "kind": "Foo", "metadata": {"name": "Bar", "unknown": "unknown"}});
    let identity = json!({"apiVersion": {"type": "string", "default": "foos/v1"}, "kind": {"type": "string", "default": "Foo"}});
    let embedded = |metadata: Value, default: &Value| {
        let mut made =
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": identity});
        made["properties"]["metadata"] = metadata;
        if default.is_object() {
            made["default"] = default.clone();
        }
        made
    };
    let text = |default: &str| json!({"type": "string", "default": default});
    let fields = json!({"type": "object", "properties": {"name": text("Bar"), "unknown": text("unknown")}});
    let whole = json!({"type": "object", "default": full["metadata"]});
    let plain = json!({"type": "object"});
    let around = json!({"type": "object", "default": {"inner": full},
        "properties": {"inner": embedded(plain.clone(), &Value::Null)}});
    let mut keeping = embedded(plain.clone(), &full);
    keeping["x-kubernetes-preserve-unknown-fields"] = json!(true);
    let schema = json!({"type": "object", "properties": {
        "fields": embedded(fields, &Value::Null), "whole": embedded(whole, &Value::Null),
        "object": embedded(plain, &full), "around": around, "keeping": keeping,
    }});
    let path = noxu("defaulted.example.com", schema, rest);
    let object = json!({"apiVersion": "defaulted.example.com/v1beta1", "kind": "Noxu", "metadata": {"name": "a"},
        "fields": {"metadata": {}}, "whole": {}});
    let made = rest.create(&path, &object);
    let expected = json!({"apiVersion": "foos/v1", "kind": "Foo", "metadata": {"name": "Bar"}});
    for place in ["/fields", "/whole", "/object", "/around/inner", "/keeping"] {
        assert_eq!(made.pointer(place), Some(&expected), "{place}: {made}");
    }
    assert_eq!(rest.get(&format!("{path}/a")), made);
}

/// Lists are merged by the keys that the schema names; ownership goes by them, and conflicts name them.
fn applied(rest: &Rest) {
    let path = noxu("applied.example.com", schema(false), rest);
    let object = |ports: Value| {
        json!({"apiVersion": "applied.example.com/v1beta1", "kind": "Noxu", "metadata": {"name": "a"}, "spec": {"ports": ports}}).to_string()
    };
    let apply = |manager: &str, ports: Value, more: &str| {
        rest.call("PATCH", &format!("{path}/a?fieldManager={manager}{more}"), &APPLY, &object(ports))
    };
    apply("one", json!([{"containerPort": 80, "protocol": "TCP", "name": "x"}]), "").ok();
    let both = apply("two", json!([{"containerPort": 443, "protocol": "TCP", "name": "y"}]), "").ok();
    assert_eq!(both["spec"]["ports"].as_array().map(Vec::len), Some(2), "{both}");
    let refused = apply("two", json!([{"containerPort": 80, "protocol": "TCP", "name": "z"}]), "");
    let message = refused.refused(409, "Conflict");
    assert!(
        message.contains(r#"conflict with "one": .spec.ports[containerPort=80,protocol="TCP"].name"#),
        "{message}"
    );
    let forced =
        apply("two", json!([{"containerPort": 80, "protocol": "TCP", "name": "z"}]), "&force=true").ok();
    assert_eq!(
        forced["spec"]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP", "name": "z"}]),
        "443 went with its only owner"
    );
    let twice = apply(
        "one",
        json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}]),
        "",
    );
    assert!(
        twice.code >= 400
            && twice.body["message"].as_str().is_some_and(|m| m.contains("duplicate entries for key")),
        "{}",
        twice.body
    );
}

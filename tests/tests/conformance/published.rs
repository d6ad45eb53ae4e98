//! OpenAPI of custom resources: published at once, changed with its definition, gone with it; and what kubectl makes
//! of it.

use crate::{Suite, eventually};
use coracle_tests::Shell;
use coracle_tests::custom::{self, DEFINITIONS, definition, install, version};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

fn foo() -> Value {
    json!({
        "type": "object", "description": "Foo CRD for Testing",
        "properties": {
            "spec": {
                "type": "object", "description": "Specification of Foo",
                "properties": {"bars": {
                    "type": "array", "description": "List of Bars and their specs.",
                    "items": {
                        "type": "object", "required": ["name"],
                        "properties": {
                            "name": {"type": "string", "description": "Name of Bar."},
                            "age": {"type": "string", "description": "Age of Bar."},
                            "feeling": {"type": "string", "enum": ["Great", "Down"]},
                            "bazs": {"type": "array", "items": {"type": "string"}, "description": "List of Bazs."},
                        },
                    },
                }},
            },
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    })
}

#[test]
fn schemas_are_published() {
    let mut suite = Suite::start();
    suite.check("documents", documents);
    suite.check("several definitions", several);
    suite.check("a version renamed, and one no longer served", versions);
    let shell = suite.cluster().in_namespace("published");
    suite.check("kubectl with a schema", |rest| with_schema(rest, &shell));
    suite.check("kubectl without", |rest| without_schema(rest, &shell));
    suite.end();
}

/// The definition of a kind in OpenAPI v2, by its extension.
fn in_v2(rest: &Rest, group: &str, version: &str, kind: &str) -> Option<(String, Value)> {
    let document = rest.get("/openapi/v2");
    let wanted = json!([{"group": group, "version": version, "kind": kind}]);
    let definitions = document["definitions"].as_object().expect("definitions");
    let found = definitions.iter().find(|(_, schema)| schema["x-kubernetes-group-version-kind"] == wanted);
    found.map(|(name, schema)| (name.clone(), schema.clone()))
}

fn in_v3(rest: &Rest, group: &str, version: &str, kind: &str) -> Option<Value> {
    let index = rest.get("/openapi/v3");
    let url = index["paths"][format!("apis/{group}/{version}")]["serverRelativeURL"].as_str()?.to_owned();
    // Between the two requests the group may have gone.
    let reply = rest.call("GET", &url, &[], "");
    let document = if reply.code == 404 { return None } else { reply.ok() };
    let wanted = json!([{"group": group, "version": version, "kind": kind}]);
    let schemas = document["components"]["schemas"].as_object()?;
    schemas.values().find(|schema| schema["x-kubernetes-group-version-kind"] == wanted).cloned()
}

/// Waits until both documents have the kind, or neither.
#[track_caller]
fn until_published(rest: &Rest, group: &str, version: &str, kind: &str, wanted: bool) {
    eventually(&format!("{group}/{version} {kind}: {wanted}"), || {
        let there = || in_v2(rest, group, version, kind).is_some() == wanted;
        (in_v3(rest, group, version, kind).is_some() == wanted && there()).then_some(())
    });
}

fn documents(rest: &Rest) {
    let begun = std::time::Instant::now();
    install(rest, &definition("foo.example.com", "foos", "Foo", &[version("v1", foo())]));
    let (name, old) = eventually("OpenAPI v2", || in_v2(rest, "foo.example.com", "v1", "Foo"));
    println!("in OpenAPI v2 after {:?}, installation included", begun.elapsed());
    assert_eq!(name, "com.example.foo.v1.Foo");
    assert_eq!(old["description"], "Foo CRD for Testing");
    assert_eq!(
        old["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let bar = &old["properties"]["spec"]["properties"]["bars"]["items"];
    assert_eq!(
        (&bar["required"], &bar["properties"]["feeling"]["enum"]),
        (&json!(["name"]), &json!(["Great", "Down"]))
    );
    let new = eventually("OpenAPI v3", || in_v3(rest, "foo.example.com", "v1", "Foo"));
    assert_eq!(
        new["properties"]["spec"]["properties"]["bars"]["items"]["properties"]["bazs"]["type"],
        "array"
    );
    let document = rest.get("/openapi/v3/apis/foo.example.com/v1");
    let paths = document["paths"].as_object().expect("paths");
    for path in [
        "/apis/foo.example.com/v1/foos",
        "/apis/foo.example.com/v1/namespaces/{namespace}/foos",
        "/apis/foo.example.com/v1/namespaces/{namespace}/foos/{name}",
    ] {
        assert!(paths.contains_key(path), "{path} in {:?}", paths.keys());
    }
    let one = &paths["/apis/foo.example.com/v1/namespaces/{namespace}/foos/{name}"];
    for verb in ["get", "put", "patch", "delete"] {
        assert!(one[verb].is_object(), "{verb}: {one}");
    }
    rest.delete(&format!("{DEFINITIONS}/foos.foo.example.com"));
    until_published(rest, "foo.example.com", "v1", "Foo", false);
    assert!(rest.get("/openapi/v3")["paths"]["apis/foo.example.com/v1"].is_null());
}

fn several(rest: &Rest) {
    for (group, plural, kind, versions) in [
        ("one.pub.example.com", "foos", "Foo", vec!["v1"]),
        ("two.pub.example.com", "waldos", "Waldo", vec!["v1beta1"]),
        ("two.pub.example.com", "foos", "Foo", vec!["v1beta1"]),
        ("three.pub.example.com", "foos", "Foo", vec!["v2", "v3"]),
    ] {
        let versions: Vec<Value> = versions.into_iter().map(|name| version(name, foo())).collect();
        install(rest, &definition(group, plural, kind, &versions));
    }
    for (group, version, kind) in [
        ("one.pub.example.com", "v1", "Foo"),
        ("two.pub.example.com", "v1beta1", "Waldo"),
        ("two.pub.example.com", "v1beta1", "Foo"),
        ("three.pub.example.com", "v2", "Foo"),
        ("three.pub.example.com", "v3", "Foo"),
    ] {
        until_published(rest, group, version, kind, true);
    }
}

fn versions(rest: &Rest) {
    let made =
        definition("versions.example.com", "foos", "Foo", &[version("v2", foo()), version("v3", foo())]);
    install(rest, &made);
    let until = |version: &str, wanted| until_published(rest, "versions.example.com", version, "Foo", wanted);
    let other = rest.get("/openapi/v3")["paths"]["apis/apps/v1"]["serverRelativeURL"].clone();
    let name = format!("{DEFINITIONS}/foos.versions.example.com");
    let mut found = rest.get(&name);
    found["spec"]["versions"][1]["name"] = json!("v4");
    rest.replace(&name, &found);
    until("v4", true);
    until("v3", false);
    until("v2", true);
    let mut found = rest.get(&name);
    found["spec"]["versions"][1]["served"] = json!(false);
    rest.replace(&name, &found);
    until("v4", false);
    until("v2", true);
    eventually("404", || {
        (rest.call("GET", "/apis/versions.example.com/v4/foos", &[], "").code == 404).then_some(())
    });
    assert_eq!(
        rest.get("/openapi/v3")["paths"]["apis/apps/v1"]["serverRelativeURL"],
        other,
        "others keep their hash"
    );
}

fn with_schema(rest: &Rest, shell: &Shell) {
    let made = definition("kubectl.example.com", "foos", "Foo", &[version("v1", foo())]);
    install(rest, &made);
    let object = |spec: &str| {
        format!(
            "{{\"apiVersion\":\"kubectl.example.com/v1\",\"kind\":\"Foo\",\"metadata\":{{\"name\":\"test-foo\"}},\"spec\":{spec}}}"
        )
    };
    for command in ["create", "apply"] {
        let run = |spec: &str| shell.run_with(&format!("kubectl {command} -f -"), &object(spec));
        let valid = run(r#"{"bars":[{"name":"test-bar"}]}"#);
        assert_eq!(valid.code, 0, "{valid}");
        shell.ok("kubectl delete foos.kubectl.example.com test-foo");
        let unknown = run(r#"{"foo":true}"#);
        assert!(unknown.code != 0 && unknown.stderr.contains("unknown field \"spec.foo\""), "{unknown}");
        let missing = run(r#"{"bars":[{"age":"10"}]}"#);
        assert!(
            missing.code != 0 && missing.stderr.contains("spec.bars[0].name: Required value"),
            "{missing}"
        );
        let feeling = run(r#"{"bars":[{"name":"b","feeling":"Odd"}]}"#);
        assert!(
            feeling.code != 0
                && feeling.stderr.contains(
                    "spec.bars[0].feeling: Unsupported value: \"Odd\": supported values: \"Great\", \"Down\""
                ),
            "{feeling}"
        );
    }
    explained(shell, "foos.kubectl.example.com");
}

fn explained(shell: &Shell, name: &str) {
    eventually("an explanation", || (shell.run(&format!("kubectl explain {name}")).code == 0).then_some(()));
    shell.shows(
        &format!("kubectl explain {name}"),
        &[
            "DESCRIPTION:",
            "Foo CRD for Testing",
            "FIELDS:",
            "apiVersion",
            "<string>",
            "APIVersion defines",
            "spec",
            "<Object>",
            "Specification of Foo",
        ],
    );
    shell.shows(
        &format!("kubectl explain {name}.metadata"),
        &[
            "DESCRIPTION:",
            "Standard object's metadata",
            "FIELDS:",
            "creationTimestamp",
            "<string>",
            "CreationTimestamp is a timestamp",
        ],
    );
    shell.shows(
        &format!("kubectl explain {name}.spec"),
        &["Specification of Foo", "FIELDS:", "bars", "<[]Object>", "List of Bars and their specs"],
    );
    shell.shows(
        &format!("kubectl explain {name}.spec.bars"),
        &[
            "bars <[]Object>",
            "List of Bars and their specs",
            "FIELDS:",
            "age",
            "bazs",
            "<[]string>",
            "List of Bazs",
            "name",
            "<string> -required-",
            "Name of Bar",
        ],
    );
    let lost = shell.run(&format!("kubectl explain {name}.spec.bars2"));
    assert!(lost.code != 0 && lost.stderr.contains("field \"bars2\" does not exist"), "{lost}");
}

/// Unknown fields are kept where the schema says so: everywhere, at the root, or inside.
fn without_schema(rest: &Rest, shell: &Shell) {
    let nested = json!({"type": "object", "description": "preserve-unknown-properties in nested field for Testing", "properties": {"spec": custom::anything()}});
    for (group, schema, body, described) in [
        ("root.pub.example.com", custom::anything(), r#""a":{"b":[{"c":"d"}]}"#, "<empty>"),
        (
            "nested.pub.example.com",
            nested,
            r#""spec":{"a":null,"b":[{"c":"d"}]}"#,
            "preserve-unknown-properties in nested field for Testing",
        ),
    ] {
        let made = definition(group, "bags", "Bag", &[version("v1", schema)]);
        install(rest, &made);
        let object = format!(
            "{{\"apiVersion\":\"{group}/v1\",\"kind\":\"Bag\",\"metadata\":{{\"name\":\"b\"}},{body}}}"
        );
        for command in ["create", "apply"] {
            let output = shell.run_with(&format!("kubectl {command} -f -"), &object);
            assert_eq!(output.code, 0, "{output}");
            shell.ok(&format!("kubectl delete bags.{group} b"));
        }
        eventually("an explanation", || {
            (shell.run(&format!("kubectl explain bags.{group}")).code == 0).then_some(())
        });
        shell.shows(&format!("kubectl explain bags.{group}"), &["KIND:", "Bag", "DESCRIPTION:", described]);
    }
}

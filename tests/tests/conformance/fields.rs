//! Field validation of built-in types: unknown and duplicate fields, by every verb that writes.

use crate::Suite;
use coracle_tests::rest::Rest;

const DEPLOYMENT: &str = r#"{
  "apiVersion": "apps/v1", "kind": "Deployment",
  "metadata": {"name": "NAME", "unknownMeta": "x", "labels": {"app": "d"}},
  "spec": {
    "unknown1": "val", "unknownDupe": "a", "unknownDupe": "b",
    "paused": true, "paused": false,
    "selector": {"matchLabels": {"app": "d"}},
    "template": {
      "metadata": {"labels": {"app": "d"}},
      "spec": {"containers": [{
        "name": "c", "image": "nginx", "unknownNested": "val",
        "imagePullPolicy": "Always", "imagePullPolicy": "Never"
      }]}
    }
  }
}"#;

const PATH: &str = "/apis/apps/v1/namespaces/default/deployments";

/// What upstream's strict decoder says of `DEPLOYMENT`, duplicates before unknown fields.
const PROBLEMS: [&str; 6] = [
    r#"duplicate field "spec.template.spec.containers[0].imagePullPolicy""#,
    r#"duplicate field "spec.paused""#,
    r#"unknown field "metadata.unknownMeta""#,
    r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
    r#"unknown field "spec.unknown1""#,
    r#"unknown field "spec.unknownDupe""#,
];

#[test]
fn unknown_and_duplicate_fields() {
    let mut suite = Suite::start();
    suite.check("create", |rest| written(rest, "POST", PATH, "made"));
    suite.check("update", |rest| {
        let valid = DEPLOYMENT.replace("NAME", "put");
        rest.call("POST", &format!("{PATH}?fieldValidation=Ignore"), &[], &valid).ok();
        written(rest, "PUT", &format!("{PATH}/put"), "put");
    });
    suite.check("patches", patches);
    suite.check("apply", apply);
    suite.check("nonsense", |rest| {
        let reply = rest.call("POST", &format!("{PATH}?fieldValidation=Sometimes"), &[], DEPLOYMENT);
        assert_eq!(reply.code, 422, "{}", reply.body);
    });
    suite.end();
}

fn written(rest: &Rest, method: &str, path: &str, name: &str) {
    let body = DEPLOYMENT.replace("NAME", name);
    let strict = rest.call(method, &format!("{path}?fieldValidation=Strict"), &[], &body);
    let message = strict.refused(400, "BadRequest");
    assert!(message.contains("strict decoding error: "), "{message}");
    for problem in PROBLEMS {
        assert!(message.contains(problem), "{problem}: {message}");
    }
    let warned = rest.call(method, &format!("{path}?fieldValidation=Warn"), &[], &body);
    let warnings = warned.warnings();
    for problem in PROBLEMS {
        assert!(warnings.iter().any(|w| w == problem), "{problem}: {warnings:?}");
    }
    let made = warned.ok();
    // The last one of a field's values counts; unknown ones are dropped.
    let container = &made["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Never");
    assert!(made["spec"]["unknown1"].is_null() && made["metadata"]["unknownMeta"].is_null(), "{made}");
    let yaml = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: dupes}\nspec:\n  paused: true\n  paused: false\n";
    let headers = ["Content-Type: application/yaml"];
    let reply = rest.call("POST", &format!("{PATH}?fieldValidation=Strict"), &headers, yaml);
    let message = reply.refused(400, "BadRequest");
    assert!(message.contains("already set in map"), "{message}");
    let again = path.replace(&format!("/{name}"), "") + &format!("/{name}?fieldValidation=Ignore");
    let ignored = rest.call("PUT", &again, &[], &body);
    assert!(ignored.warnings().is_empty(), "{:?}", ignored.warnings());
    ignored.ok();
}

fn patches(rest: &Rest) {
    let valid = DEPLOYMENT.replace("NAME", "patched");
    rest.call("POST", &format!("{PATH}?fieldValidation=Ignore"), &[], &valid).ok();
    let one = format!("{PATH}/patched");
    let merge = r#"{"spec": {"unknown1": "v", "paused": true, "paused": false}}"#;
    let json = r#"[{"op": "add", "path": "/spec/unknown1", "value": "v"}]"#;
    for (kind, body, problems) in [
        (
            "merge-patch+json",
            merge,
            &[r#"duplicate field "spec.paused""#, r#"unknown field "spec.unknown1""#][..],
        ),
        (
            "strategic-merge-patch+json",
            merge,
            &[r#"duplicate field "spec.paused""#, r#"unknown field "spec.unknown1""#],
        ),
        ("json-patch+json", json, &[r#"unknown field "spec.unknown1""#]),
    ] {
        let kind = format!("Content-Type: application/{kind}");
        let strict = rest.call("PATCH", &format!("{one}?fieldValidation=Strict"), &[&kind], body);
        assert!([400, 422].contains(&strict.code), "{kind}: {} {}", strict.code, strict.body);
        let message = strict.body["message"].as_str().unwrap_or_default().to_owned();
        let warned = rest.call("PATCH", &one, &[&kind], body);
        let warnings = warned.warnings();
        for problem in problems {
            assert!(message.contains(problem), "{kind}: {message}");
            assert!(warnings.iter().any(|w| w == problem), "{kind}: {warnings:?}");
        }
        warned.ok();
    }
}

/// Server-side apply knows the schema itself: what it does not declare is an error, however lenient.
fn apply(rest: &Rest) {
    let body = DEPLOYMENT.replace("NAME", "applied").replace(r#""paused": true, "#, "");
    let path = format!("{PATH}/applied?fieldManager=m");
    let headers = ["Content-Type: application/apply-patch+yaml"];
    let strict = rest.call("PATCH", &format!("{path}&fieldValidation=Strict"), &headers, &body);
    assert!(strict.code == 400 || strict.code == 500, "{} {}", strict.code, strict.body);
    let message = strict.body["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("already set in map") || message.contains("field not declared in schema"),
        "{message}"
    );
    let missing =
        rest.call("PATCH", &format!("{PATH}/applied"), &headers, "apiVersion: apps/v1\nkind: Deployment\n");
    assert!(missing.body["message"].as_str().is_some_and(|m| m.contains("fieldManager")), "{}", missing.body);
}

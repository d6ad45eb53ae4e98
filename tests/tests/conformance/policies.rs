//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy.

use crate::{Suite, eventually};
use coracle_tests::custom::{self, definition, install, version, with_spec};
use coracle_tests::rest::Rest;
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A policy for one resource, with further fields of its spec.
fn policy(kind: &str, name: &str, resource: &str, more: Value) -> Value {
    let (group, resource) = resource.split_once('/').unwrap_or(("", resource));
    let rule = json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]});
    let mut spec = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}});
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A binding for one namespace, with further fields of its spec.
fn binding(kind: &str, name: &str, ns: &str, more: Value) -> Value {
    let mut spec = json!({
        "policyName": name,
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}}},
    });
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let kind = format!("{kind}Binding");
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": format!("{name}-b")}, "spec": spec})
}

const VALIDATING: &str = "ValidatingAdmissionPolicy";
const MUTATING: &str = "MutatingAdmissionPolicy";

/// Makes a validating policy and its binding. Both hold at once: what is stored is what is asked.
fn validate(rest: &Rest, ns: &str, resource: &str, spec: Value, bound: Value) {
    rest.create(&format!("{GROUP}/validatingadmissionpolicies"), &policy(VALIDATING, ns, resource, spec));
    let mut fields = json!({"validationActions": ["Deny"]});
    for (field, value) in bound.as_object().expect("fields") {
        fields[field] = value.clone();
    }
    rest.create(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding(VALIDATING, ns, ns, fields));
}

fn mutate(rest: &Rest, ns: &str, resource: &str, spec: Value) {
    let mut fields = json!({"reinvocationPolicy": "Never"});
    for (field, value) in spec.as_object().expect("fields") {
        fields[field] = value.clone();
    }
    rest.create(&format!("{GROUP}/mutatingadmissionpolicies"), &policy(MUTATING, ns, resource, fields));
    rest.create(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding(MUTATING, ns, ns, json!({})));
}

fn deployments(ns: &str) -> String {
    format!("/apis/apps/v1/namespaces/{ns}/deployments")
}

fn deployment(name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    let pod =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    })
}

fn maps(ns: &str) -> String {
    format!("/api/v1/namespaces/{ns}/configmaps")
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[test]
fn policies_validate() {
    let mut suite = Suite::start();
    suite.check_in("deployment", deny);
    suite.check_in("variables", variables);
    suite.check_in("types", type_checked);
    suite.check_in("parameters", parameters);
    suite.check_in("warned", warned);
    suite.check_in("custom", custom_resources);
    suite.check_in("failing", failing);
    suite.check("what is refused", refused);
    suite.end();
}

#[test]
fn policies_change() {
    let mut suite = Suite::start();
    suite.check_in("applied", applied);
    suite.check_in("annotated", annotated);
    suite.check_in("patched", patched);
    suite.check_in("twice", reinvoked);
    suite.check_in("first", before_validation);
    suite.end();
}

fn deny(rest: &Rest, ns: &str) {
    let rule = json!({"expression": "object.spec.replicas > 1", "messageExpression": "'wants replicas > 1, got ' + string(object.spec.replicas)"});
    validate(rest, ns, "apps/deployments", json!({"validations": [rule]}), json!({}));
    let reply = rest.call("POST", &deployments(ns), &[], &deployment("one", 1).to_string());
    let details = reply.body["details"].clone();
    let text = format!(
        "ValidatingAdmissionPolicy '{ns}' with binding '{ns}-b' denied request: wants replicas > 1, got 1"
    );
    assert_eq!(reply.refused(422, "Invalid"), format!("deployments.apps \"one\" is forbidden: {text}"));
    assert_eq!(
        (&details["name"], &details["kind"], &details["group"]),
        (&json!("one"), &json!("deployments"), &json!("apps"))
    );
    assert_eq!(details["causes"], json!([{"message": text}]));
    rest.create(&deployments(ns), &deployment("two", 2));
    let scaled = rest.call(
        "PATCH",
        &format!("{}/two", deployments(ns)),
        &["Content-Type: application/merge-patch+json"],
        r#"{"spec":{"replicas":1}}"#,
    );
    scaled.refused(422, "Invalid");
    // Other resources and namespaces are none of its business.
    let mut set = deployment("set", 1);
    set["kind"] = json!("ReplicaSet");
    rest.create(&format!("/apis/apps/v1/namespaces/{ns}/replicasets"), &set);
    rest.create(&deployments("default"), &deployment("elsewhere", 1));
    rest.delete(&format!("{GROUP}/validatingadmissionpolicybindings/{ns}-b"));
    rest.create(&deployments(ns), &deployment("one", 1));
}

fn variables(rest: &Rest, ns: &str) {
    let variables = json!([
        {"name": "replicas", "expression": "object.spec.replicas"},
        {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"},
    ]);
    let rules = json!([
        {"expression": "variables.replicas > 1"},
        {"expression": "variables.oddReplicas", "message": "want odd", "reason": "Forbidden"},
    ]);
    validate(rest, ns, "apps/deployments", json!({"variables": variables, "validations": rules}), json!({}));
    rest.create(&deployments(ns), &deployment("three", 3));
    let one = rest.call("POST", &deployments(ns), &[], &deployment("one", 1).to_string());
    let message = one.refused(422, "Invalid");
    assert!(message.ends_with("denied request: failed expression: variables.replicas > 1"), "{message}");
    let even = rest.call("POST", &deployments(ns), &[], &deployment("even", 2).to_string());
    assert!(even.refused(403, "Forbidden").ends_with("denied request: want odd"));
}

fn type_checked(rest: &Rest, ns: &str) {
    let right = json!({"validations": [{"expression": "object.spec.replicas > 1"}]});
    let wrong = json!({"validations": [{"expression": "object.spec.replicas > '1'", "messageExpression": "'got ' + object.spec.replicas"}]});
    for (name, spec) in [(format!("{ns}-right"), right), (format!("{ns}-wrong"), wrong)] {
        rest.create(
            &format!("{GROUP}/validatingadmissionpolicies"),
            &policy(VALIDATING, &name, "apps/deployments", spec),
        );
    }
    let checked = |name: &str| {
        let path = format!("{GROUP}/validatingadmissionpolicies/{ns}-{name}");
        eventually("type checking", || {
            let found = rest.get(&path);
            let generation = found["metadata"]["generation"].clone();
            (found["status"]["observedGeneration"] == generation
                && found["status"]["typeChecking"].is_object())
            .then(|| found["status"]["typeChecking"].clone())
        })
    };
    assert!(checked("right")["expressionWarnings"].as_array().is_none_or(Vec::is_empty));
    let warnings = checked("wrong")["expressionWarnings"].clone();
    let expected = [
        ("spec.validations[0].expression", "found no matching overload for '_>_' applied to '(int, string)'"),
        (
            "spec.validations[0].messageExpression",
            "found no matching overload for '_+_' applied to '(string, int)'",
        ),
    ];
    assert_eq!(warnings.as_array().map(Vec::len), Some(2), "{warnings}");
    for (n, (field, text)) in expected.into_iter().enumerate() {
        assert_eq!(warnings[n]["fieldRef"], field);
        assert!(warnings[n]["warning"].as_str().is_some_and(|w| w.contains(text)), "{warnings}");
    }
}

/// Parameters of a built-in and of a custom kind, by name and by selector, and what happens without any.
fn parameters(rest: &Rest, ns: &str) {
    let limits = install(
        rest,
        &definition(
            "rules.policy.example.com",
            "limits",
            "Limit",
            &[version("v1", with_spec(json!({"max": {"type": "integer"}})))],
        ),
    );
    let kind = json!({"apiVersion": "rules.policy.example.com/v1", "kind": "Limit"});
    let rule = json!({"expression": "object.spec.replicas <= params.spec.max", "messageExpression": "'at most ' + string(params.spec.max)"});
    validate(
        rest,
        ns,
        "apps/deployments",
        json!({"paramKind": kind, "validations": [rule]}),
        json!({"paramRef": {"name": "limit", "parameterNotFoundAction": "Deny"}}),
    );
    let try_it = |name: &str, replicas: u32| {
        rest.call("POST", &deployments(ns), &[], &deployment(name, replicas).to_string())
    };
    let message = try_it("lost", 1).body["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"), "{message}");
    let path = custom::path(&limits, "v1", ns);
    let limit = |name: &str, max: u32| json!({"apiVersion": "rules.policy.example.com/v1", "kind": "Limit", "metadata": {"name": name, "labels": {"use": "yes"}}, "spec": {"max": max}});
    rest.create(&path, &limit("limit", 3));
    eventually("the parameters", || (try_it("fits", 3).code == 201).then_some(()));
    assert!(try_it("big", 4).refused(422, "Invalid").ends_with("denied request: at most 3"));
    rest.merge(&format!("{path}/limit"), &json!({"spec": {"max": 5}}));
    eventually("the new limit", || (try_it("big", 4).code == 201).then_some(()));
    // Every one that a selector finds counts.
    let bound = format!("{GROUP}/validatingadmissionpolicybindings/{ns}-b");
    let mut found = rest.get(&bound);
    found["spec"]["paramRef"] =
        json!({"selector": {"matchLabels": {"use": "yes"}}, "parameterNotFoundAction": "Allow"});
    rest.replace(&bound, &found);
    rest.create(&path, &limit("stricter", 2));
    eventually("the stricter one", || (try_it("three", 3).code == 422).then_some(()));
    rest.call("DELETE", &path, &[], "").ok();
    eventually("nothing to go by", || (try_it("many", 9).code == 201).then_some(()));
}

fn warned(rest: &Rest, ns: &str) {
    let rule = json!({"expression": "object.data.size() == 0", "message": "has data"});
    let audit = json!([{"key": "size", "valueExpression": "'size ' + string(object.data.size())"}]);
    validate(
        rest,
        ns,
        "configmaps",
        json!({"validations": [rule], "auditAnnotations": audit}),
        json!({"validationActions": ["Warn", "Audit"]}),
    );
    let reply = rest.call("POST", &maps(ns), &[], &map("m", json!({"a": "b"})).to_string());
    assert_eq!(
        reply.warnings(),
        [format!("Validation failed for ValidatingAdmissionPolicy '{ns}' with binding '{ns}-b': has data")]
    );
    reply.ok();
}

fn custom_resources(rest: &Rest, ns: &str) {
    let made = install(
        rest,
        &definition(
            "policy.example.com",
            "boxes",
            "Box",
            &[version("v1", with_spec(json!({"size": {"type": "integer"}, "owner": {"type": "string"}})))],
        ),
    );
    let rules = json!([
        {"expression": "has(object.spec.owner)", "message": "needs an owner"},
        {"expression": "request.operation != 'UPDATE' || object.spec.size >= oldObject.spec.size", "message": "must not shrink"},
        {"expression": "authorizer.group('policy.example.com').resource('boxes').namespace(namespaceObject.metadata.name).check('get').allowed()"},
    ]);
    validate(rest, ns, "policy.example.com/boxes", json!({"validations": rules}), json!({}));
    let path = custom::path(&made, "v1", ns);
    let object = |spec: Value| json!({"apiVersion": "policy.example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": spec});
    let reply = rest.call("POST", &path, &[], &object(json!({"size": 1})).to_string());
    assert!(reply.refused(422, "Invalid").ends_with("denied request: needs an owner"));
    rest.create(&path, &object(json!({"size": 2, "owner": "me"})));
    let shrunk = rest.call(
        "PATCH",
        &format!("{path}/b"),
        &["Content-Type: application/merge-patch+json"],
        r#"{"spec":{"size":1}}"#,
    );
    assert!(shrunk.refused(422, "Invalid").ends_with("denied request: must not shrink"));
    rest.merge(&format!("{path}/b"), &json!({"spec": {"size": 3}}));
}

/// An expression that fails when it runs: refused or passed over, as the policy says.
fn failing(rest: &Rest, ns: &str) {
    let spec = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.data.missing == 'x'"}]});
    validate(rest, ns, "configmaps", spec("Fail"), json!({}));
    let reply = rest.call("POST", &maps(ns), &[], &map("m", json!({"a": "b"})).to_string());
    let message = reply.refused(422, "Invalid");
    assert!(
        message.contains(
            "denied request: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
        ),
        "{message}"
    );
    let path = format!("{GROUP}/validatingadmissionpolicies/{ns}");
    let mut found = rest.get(&path);
    found["spec"]["failurePolicy"] = json!("Ignore");
    rest.replace(&path, &found);
    rest.create(&maps(ns), &map("m", json!({"a": "b"})));
}

fn refused(rest: &Rest) {
    let try_it = |kind: &str, spec: Value| {
        let path = format!(
            "{GROUP}/{}",
            if kind == VALIDATING { "validatingadmissionpolicies" } else { "mutatingadmissionpolicies" }
        );
        rest.call("POST", &path, &[], &policy(kind, "refused", "configmaps", spec).to_string())
            .refused(422, "Invalid")
    };
    let message = try_it(VALIDATING, json!({"validations": [{"expression": "object.x +"}]}));
    assert!(
        message.contains("spec.validations[0].expression: Invalid value")
            && message.contains("compilation failed"),
        "{message}"
    );
    let message = try_it(VALIDATING, json!({"validations": [{"expression": "'text'"}]}));
    assert!(message.contains("must evaluate to bool"), "{message}");
    let message = try_it(VALIDATING, json!({}));
    assert!(message.contains("validations or auditAnnotations must contain at least one item"), "{message}");
    let message = try_it(MUTATING, json!({"reinvocationPolicy": "Never", "mutations": []}));
    assert!(message.contains("spec.mutations"), "{message}");
    let message = try_it(
        MUTATING,
        json!({"reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "1"}}]}),
    );
    assert!(message.contains("must evaluate to Object"), "{message}");
}

fn apply(expression: &str) -> Value {
    json!({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]})
}

fn applied(rest: &Rest, ns: &str) {
    mutate(
        rest,
        ns,
        "apps/deployments",
        apply(
            "Object{spec: Object.spec{replicas: object.spec.replicas % 2 == 0 ? object.spec.replicas + 1 : object.spec.replicas}}",
        ),
    );
    assert_eq!(rest.create(&deployments(ns), &deployment("even", 2))["spec"]["replicas"], 3);
    assert_eq!(rest.create(&deployments(ns), &deployment("odd", 3))["spec"]["replicas"], 3);
    assert_eq!(rest.create(&deployments("default"), &deployment("even", 2))["spec"]["replicas"], 2);
    rest.delete(&format!("{GROUP}/mutatingadmissionpolicybindings/{ns}-b"));
    assert_eq!(rest.create(&deployments(ns), &deployment("unbound", 2))["spec"]["replicas"], 2);
}

fn annotated(rest: &Rest, ns: &str) {
    mutate(
        rest,
        ns,
        "apps/deployments",
        apply(
            r#"Object{metadata: Object.metadata{annotations: {"my-foo-annotation": "myAnnotationValue"}}}"#,
        ),
    );
    let made = rest.create(&deployments(ns), &deployment("d", 1));
    assert_eq!(made["metadata"]["annotations"]["my-foo-annotation"], "myAnnotationValue");
    assert_eq!(made["metadata"]["labels"], json!({"app": "d"}), "what was there stays");
}

fn patched(rest: &Rest, ns: &str) {
    let expression = r#"[
        JSONPatch{op: "test", path: "/metadata/name", value: object.metadata.name},
        JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/added"), value: "yes"},
        JSONPatch{op: "remove", path: "/data/secret"}
    ]"#;
    let mutations = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]);
    let conditions = json!([{"name": "has-secret", "expression": "has(object.data.secret)"}]);
    mutate(rest, ns, "configmaps", json!({"mutations": mutations, "matchConditions": conditions}));
    let mut object = map("m", json!({"secret": "x", "b": "c"}));
    object["metadata"]["labels"] = json!({"a": "b"});
    let made = rest.create(&maps(ns), &object);
    assert_eq!(made["data"], json!({"b": "c"}));
    assert_eq!(made["metadata"]["labels"], json!({"a": "b", "example.com/added": "yes"}));
    assert_eq!(rest.create(&maps(ns), &map("n", json!({"b": "c"})))["data"], json!({"b": "c"}));
}

/// The first of two policies is asked again after the second changed the object.
fn reinvoked(rest: &Rest, ns: &str) {
    let add = |key: &str, after: &str| {
        let patch = format!("[JSONPatch{{op: \"add\", path: \"/data/{key}\", value: \"yes\"}}]");
        let expression = format!("'{after}' in object.data && !('{key}' in object.data) ? {patch} : []");
        let mutations = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]);
        json!({"mutations": mutations, "reinvocationPolicy": "IfNeeded"})
    };
    for (name, spec) in
        [(format!("{ns}-1"), add("third", "second")), (format!("{ns}-2"), add("second", "first"))]
    {
        rest.create(
            &format!("{GROUP}/mutatingadmissionpolicies"),
            &policy(MUTATING, &name, "configmaps", spec),
        );
        rest.create(
            &format!("{GROUP}/mutatingadmissionpolicybindings"),
            &binding(MUTATING, &name, ns, json!({})),
        );
    }
    let made = rest.create(&maps(ns), &map("m", json!({"first": "yes"})));
    assert_eq!(made["data"], json!({"first": "yes", "second": "yes", "third": "yes"}));
}

/// What one policy changes, another judges.
fn before_validation(rest: &Rest, ns: &str) {
    validate(
        rest,
        ns,
        "configmaps",
        json!({"validations": [{"expression": "has(object.metadata.labels) && object.metadata.labels.team == 'a'", "message": "no team"}]}),
        json!({}),
    );
    rest.call("POST", &maps(ns), &[], &map("m", json!({})).to_string()).refused(422, "Invalid");
    mutate(rest, ns, "configmaps", apply(r#"Object{metadata: Object.metadata{labels: {"team": "a"}}}"#));
    assert_eq!(rest.create(&maps(ns), &map("m", json!({})))["metadata"]["labels"]["team"], "a");
}

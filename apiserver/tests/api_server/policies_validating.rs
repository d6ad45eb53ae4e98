//! ValidatingAdmissionPolicies from the outside.

use crate::policies::*;
use crate::support::*;
use coracle_api::UserInfo;
use coracle_apiserver::audit::{Log, Mode, Policy, Rotation, Sink, Target};
use coracle_apiserver::server::EdgeOptions;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn data(name: &str, data: &Value) -> Value {
    json!({ "metadata": { "name": name }, "data": data })
}

#[tokio::test]
async fn a_policy_counts_from_its_write_to_its_deletion() {
    let fixture = world().await;
    fixture.post(CONFIG_MAPS, &data("before", &json!({ "k": "bad" }))).await.expect(201);
    let rule = json!({ "validations": [{ "expression": "object.data.k != 'bad'" }] });
    fixture.enforce("no-bad", &rule).await;
    let denied = fixture.post(CONFIG_MAPS, &data("a", &json!({ "k": "bad" }))).await.expect(422);
    let text = "ValidatingAdmissionPolicy 'no-bad' with binding 'no-bad' denied request: failed expression: \
                object.data.k != 'bad'";
    assert_eq!(message(&denied), format!("configmaps \"a\" is forbidden: {text}"));
    assert_eq!((denied["reason"].as_str(), denied["code"].as_u64()), (Some("Invalid"), Some(422)));
    assert_eq!(denied["details"]["causes"], json!([{ "message": text }]));
    assert_eq!((&denied["details"]["name"], &denied["details"]["kind"]), (&json!("a"), &json!("configmaps")));
    fixture.post(CONFIG_MAPS, &data("b", &json!({ "k": "good" }))).await.expect(201);
    let change = json!({ "data": { "k": "bad" } });
    fixture.patch(&format!("{CONFIG_MAPS}/b"), "merge-patch", &change).await.expect(422);
    // Deletions and other resources are not named by the rules.
    fixture.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "k": "bad" } });
    fixture.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    // A change of the policy counts at once, and so does its end.
    let path = format!("{GROUP}/validatingadmissionpolicies/no-bad");
    let change = json!({ "spec": { "validations": [{ "expression": "object.data.k != 'worse'" }] } });
    fixture.patch(&path, "merge-patch", &change).await.expect(200);
    fixture.post(CONFIG_MAPS, &data("c", &json!({ "k": "bad" }))).await.expect(201);
    fixture.post(CONFIG_MAPS, &data("d", &json!({ "k": "worse" }))).await.expect(422);
    fixture.delete(&format!("{GROUP}/validatingadmissionpolicybindings/no-bad")).await.expect(200);
    fixture.post(CONFIG_MAPS, &data("d", &json!({ "k": "worse" }))).await.expect(201);
}

#[tokio::test]
async fn reasons_messages_and_their_expressions() {
    let fixture = world().await;
    let rules = json!({
        "variables": [
            { "name": "size", "expression": "object.data.size()" },
            { "name": "shown", "expression": "'has ' + string(variables.size)" },
        ],
        "validations": [
            { "expression": "!has(object.data.forbidden)", "reason": "Forbidden", "message": "is not for you" },
            { "expression": "variables.size < 4", "messageExpression": "variables.shown + ' entries'", "message": "other" },
            { "expression": "!has(object.data.huge)", "reason": "RequestEntityTooLarge",
              "messageExpression": "'two\\nlines'", "message": "plain" },
            { "expression": "!has(object.data.odd)", "messageExpression": "string(object.data.nothing)" },
        ],
    });
    fixture.enforce("p", &rules).await;
    for (fields, code, reason, text) in [
        (json!({ "forbidden": "x" }), 403, "Forbidden", "is not for you"),
        (json!({ "a": "", "b": "", "c": "", "d": "" }), 422, "Invalid", "has 4 entries"),
        (json!({ "huge": "x" }), 413, "RequestEntityTooLarge", "plain"),
        (json!({ "odd": "x" }), 422, "Invalid", "failed expression: !has(object.data.odd)"),
    ] {
        let denied = fixture.post(CONFIG_MAPS, &data("a", &fields)).await.expect(code);
        assert_eq!(denied["reason"], reason);
        assert!(message(&denied).ends_with(&format!("denied request: {text}")), "{denied}");
    }
    fixture.post(CONFIG_MAPS, &data("a", &json!({ "a": "" }))).await.expect(201);
}

#[tokio::test]
async fn errors_follow_the_failure_policy() {
    let fixture = world().await;
    let rule = json!({ "validations": [{ "expression": "object.data.k == 'v'" }] });
    fixture.enforce("strict", &rule).await;
    let denied = fixture.post(CONFIG_MAPS, &data("a", &json!({ "x": "y" }))).await.expect(422);
    assert!(
        message(&denied).ends_with("expression 'object.data.k == 'v'' resulted in error: no such key: k"),
        "{denied}"
    );
    let path = format!("{GROUP}/validatingadmissionpolicies/strict");
    let change = json!({ "spec": { "failurePolicy": "Ignore" } });
    fixture.patch(&path, "merge-patch", &change).await.expect(200);
    fixture.post(CONFIG_MAPS, &data("a", &json!({ "x": "y" }))).await.expect(201);
    // What is false is denied all the same.
    fixture.post(CONFIG_MAPS, &data("b", &json!({ "k": "w" }))).await.expect(422);
}

#[tokio::test]
async fn expressions_see_the_whole_request() {
    let fixture = world().await;
    let dry = "request.dryRun == (request.name == 'dry')";
    let rules = json!({
        "validations": [
            { "expression": "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && request.kind.group == ''" },
            { "expression": "request.requestKind.version == 'v1' && request.requestResource.version == 'v1'" },
            { "expression": "request.namespace == 'default' && request.operation == (oldObject == null ? 'CREATE' : 'UPDATE')" },
            { "expression": "request.userInfo.username == 'jane' && 'dev' in request.userInfo.groups" },
            { "expression": "request.options.kind == (oldObject == null ? 'CreateOptions' : 'UpdateOptions')" },
            { "expression": "namespaceObject.metadata.labels.team == 'blue' && namespaceObject.metadata.name == 'default'" },
            { "expression": "!has(request.subResource) && !has(object.metadata.labels)" },
            { "expression": dry },
        ],
    });
    fixture.enforce("p", &rules).await;
    let jane = fixture.as_user(Some(UserInfo::authenticated("jane", &["dev"])));
    jane.post(CONFIG_MAPS, &data("a", &json!({ "k": "1" }))).await.expect(201);
    let change = json!({ "data": { "k": "2" } });
    jane.patch(&format!("{CONFIG_MAPS}/a"), "merge-patch", &change).await.expect(200);
    jane.post(&format!("{CONFIG_MAPS}?dryRun=All"), &data("dry", &json!({}))).await.expect(201);
    let denied = fixture.post(CONFIG_MAPS, &data("b", &json!({ "k": "1" }))).await.expect(422);
    assert!(message(&denied).contains("failed expression: request.userInfo.username == 'jane'"), "{denied}");
}

#[tokio::test]
async fn the_authorizer_is_asked() {
    let fixture = world().await;
    let rules = json!({ "validations": [
        { "expression": "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
          "message": "no secrets, no maps" },
        { "expression": "authorizer.requestResource.check('custom').allowed()" },
        { "expression": "authorizer.path('/healthz').check('get').allowed()" },
        { "expression": "authorizer.serviceAccount('default', 'weak').group('').resource('secrets').check('get').reason() == ''" },
    ] });
    fixture.enforce("p", &rules).await;
    let user = |name: &str| fixture.as_user(Some(UserInfo::authenticated(name, &[])));
    user("strong").post(CONFIG_MAPS, &data("a", &json!({}))).await.expect(201);
    let denied = user("weak").post(CONFIG_MAPS, &data("b", &json!({}))).await.expect(422);
    assert!(message(&denied).ends_with("no secrets, no maps"), "{denied}");
}

#[tokio::test]
async fn parameters_by_name_and_by_selector() {
    let fixture = world().await;
    let limit = |name: &str, size: &str| json!({ "metadata": { "name": name, "labels": { "kind": "limit" } }, "data": { "max": size } });
    let rules = json!({
        "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
        "matchConditions": [{ "name": "not-params", "expression": "!has(object.metadata.labels)" }],
        "validations": [{ "expression": "object.data.size() <= int(params.data.max)",
            "messageExpression": "'at most ' + params.data.max + ' of ' + params.metadata.name" }],
    });
    let by_name = json!({ "validationActions": ["Deny"],
        "paramRef": { "name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny" } });
    fixture.bind("p", &rules, &by_name).await;
    let missing = fixture.post(CONFIG_MAPS, &data("a", &json!({ "a": "1" }))).await.expect(422);
    assert!(
        message(&missing).ends_with(
            "denied request: failed to configure binding: no params found for policy binding with `Deny` \
             parameterNotFoundAction"
        ),
        "{missing}"
    );
    // Without its parameters a policy does not let them in either: they are put there before the binding, or by selector.
    let path = format!("{GROUP}/validatingadmissionpolicybindings/p");
    let change = json!({ "spec": { "paramRef": { "parameterNotFoundAction": "Allow" } } });
    fixture.patch(&path, "merge-patch", &change).await.expect(200);
    fixture.post(CONFIG_MAPS, &data("a", &json!({ "a": "1", "b": "2" }))).await.expect(201);
    fixture.post(CONFIG_MAPS, &limit("limit", "1")).await.expect(201);
    let denied = fixture.post(CONFIG_MAPS, &data("b", &json!({ "a": "1", "b": "2" }))).await.expect(422);
    assert!(message(&denied).ends_with("at most 1 of limit"), "{denied}");
    let selected = json!({ "spec": { "policyName": "p", "validationActions": ["Deny"], "paramRef": {
        "selector": { "matchLabels": { "kind": "limit" } }, "parameterNotFoundAction": "Deny" } },
        "metadata": { "name": "p" } });
    fixture.replace(&path, &selected).await.expect(200);
    let change = json!({ "data": { "max": "3" } });
    fixture.patch(&format!("{CONFIG_MAPS}/limit"), "merge-patch", &change).await.expect(200);
    fixture.post(CONFIG_MAPS, &data("b", &json!({ "a": "1", "b": "2" }))).await.expect(201);
    fixture.post(CONFIG_MAPS, &limit("other", "1")).await.expect(201);
    let denied = fixture.post(CONFIG_MAPS, &data("c", &json!({ "a": "1", "b": "2" }))).await.expect(422);
    assert!(message(&denied).ends_with("at most 1 of other"), "{denied}");
}

#[tokio::test]
async fn parameters_of_a_kind_that_is_not_there_fail() {
    let fixture = world().await;
    let rules = json!({ "paramKind": { "apiVersion": "example.com/v1", "kind": "Limit" },
        "validations": [{ "expression": "params == null" }] });
    fixture.enforce("p", &rules).await;
    let denied = fixture.post(CONFIG_MAPS, &data("a", &json!({}))).await.expect(422);
    assert!(
        message(&denied).ends_with(
            "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource \
             referenced by paramKind: 'example.com/v1, Kind=Limit'"
        ),
        "{denied}"
    );
}

#[tokio::test]
async fn bindings_choose_and_warn_instead() {
    let fixture = world().await;
    let rule = json!({ "validations": [{ "expression": "false", "message": "never" }] });
    let bound = json!({ "validationActions": ["Warn"] });
    fixture.bind("p", &rule, &bound).await;
    let answer = fixture.post(CONFIG_MAPS, &data("a", &json!({}))).await;
    answer.expect(201);
    assert_eq!(
        answer.header("warning"),
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': never\""
    );
    let narrow = binding(
        "narrow",
        "p",
        &json!({ "validationActions": ["Deny"], "matchResources": { "objectSelector": { "matchLabels": { "strict": "yes" } },
            "namespaceSelector": { "matchLabels": { "team": "blue" } } } }),
    );
    fixture.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &narrow).await.expect(201);
    fixture.post(CONFIG_MAPS, &data("b", &json!({}))).await.expect(201);
    let mut strict = data("c", &json!({}));
    strict["metadata"]["labels"] = json!({ "strict": "yes" });
    let denied = fixture.post(CONFIG_MAPS, &strict).await.expect(422);
    assert!(message(&denied).contains("'p' with binding 'narrow' denied request: never"), "{denied}");
    let change = json!({ "metadata": { "labels": { "team": "red" } } });
    fixture.patch("/api/v1/namespaces/default", "merge-patch", &change).await.expect(200);
    fixture.post(CONFIG_MAPS, &strict).await.expect(201);
}

#[tokio::test]
async fn audits_record_failures_and_annotations() {
    let dir = tempfile::TempDir::new().unwrap();
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  omitStages: [RequestReceived]\n";
    let target = Target::File(dir.path().join("audit.log"), Rotation::default());
    let log = Log::new(Policy::parse(rules).unwrap(), Sink::open(target, Mode::Blocking).unwrap());
    let fixture = with_options(EdgeOptions { audit: Some(log.clone()), ..EdgeOptions::default() }).await;
    let rule = json!({
        "validations": [{ "expression": "true" }, { "expression": "false", "message": "a <b>" }],
        "auditAnnotations": [
            { "key": "size", "valueExpression": "'size ' + string(object.data.size())" },
            { "key": "none", "valueExpression": "object.data.size() > 5 ? 'many' : ''" },
        ],
    });
    fixture.bind("p.example.com", &rule, &json!({ "validationActions": ["Audit"] })).await;
    fixture.post(CONFIG_MAPS, &data("a", &json!({ "x": "y" }))).await.expect(201);
    log.close().await;
    let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let notes = &events.iter().find(|e| e["objectRef"]["resource"] == "configmaps").unwrap()["annotations"];
    assert_eq!(notes["p.example.com/size"], "size 1");
    assert!(notes.get("p.example.com/none").is_none(), "{notes}");
    let failure = notes["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap();
    assert_eq!(
        failure,
        r#"[{"message":"a \u003cb\u003e","policy":"p.example.com","binding":"p.example.com","expressionIndex":1,"validationActions":["Audit"]}]"#
    );
}

#[tokio::test]
async fn expressions_cannot_cost_what_they_like() {
    let fixture = world().await;
    let dear = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, \
                [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a > 0))))))";
    fixture.enforce("p", &json!({ "validations": [{ "expression": dear }] })).await;
    let began = Instant::now();
    let denied = fixture.post(CONFIG_MAPS, &data("a", &json!({}))).await.expect(422);
    assert!(message(&denied).ends_with("operation cancelled: actual cost limit exceeded"), "{denied}");
    // Together they may cost ten times what one may.
    let middling = "lists.range(90000).all(x, x >= 0)";
    let many: Vec<Value> = (0..30).map(|_| json!({ "expression": middling })).collect();
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    fixture.patch(&path, "merge-patch", &json!({ "spec": { "validations": many } })).await.expect(200);
    let denied = fixture.post(CONFIG_MAPS, &data("a", &json!({}))).await.expect(422);
    assert!(
        message(&denied).ends_with(
            "validation failed due to running out of cost budget, no further validation rules will be run"
        ),
        "{denied}"
    );
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn policies_do_not_judge_policies() {
    let fixture = world().await;
    let rules = json!({ "matchConstraints": { "resourceRules": [{ "apiGroups": ["*"], "apiVersions": ["*"],
        "operations": ["*"], "resources": ["*"] }] }, "validations": [{ "expression": "false" }] });
    fixture.post("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } })).await.expect(201);
    fixture.enforce("lock", &rules).await;
    fixture.post(CONFIG_MAPS, &data("a", &json!({}))).await.expect(422);
    fixture.delete("/api/v1/namespaces/other").await.expect(422);
    fixture.delete(&format!("{GROUP}/validatingadmissionpolicybindings/lock")).await.expect(200);
    fixture.delete(&format!("{GROUP}/validatingadmissionpolicies/lock")).await.expect(200);
    fixture.post(CONFIG_MAPS, &data("a", &json!({}))).await.expect(201);
}

#[tokio::test]
async fn policies_are_checked_when_they_are_written() {
    let fixture = world().await;
    let path = format!("{GROUP}/validatingadmissionpolicies");
    for (spec, wanted) in [
        (
            json!({ "validations": [{ "expression": "object.x >" }] }),
            "spec.validations[0].expression: Invalid value: \"object.x >\": compilation failed: ERROR: <input>:1:11: Syntax error",
        ),
        (
            json!({ "validations": [{ "expression": "object.x" }] }),
            "spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn",
        ),
        (
            json!({ "validations": [{ "expression": "params.x == 1" }] }),
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')",
        ),
        (
            json!({ "validations": [{ "expression": "true", "messageExpression": "1" }] }),
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        ),
        (
            json!({ "validations": [{ "expression": "variables.b" }],
                "variables": [{ "name": "a", "expression": "variables.b" }, { "name": "b", "expression": "true" }] }),
            "spec.variables[0].expression: Invalid value: \"variables.b\": compilation failed: ERROR: <input>:1:10: undefined field 'b'",
        ),
        (
            json!({ "validations": [{ "expression": "true" }],
                "matchConditions": [{ "name": "c", "expression": "1 + 'a'" }] }),
            "spec.matchConditions[0].expression: Invalid value: \"1 + 'a'\": compilation failed: ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            json!({ "auditAnnotations": [{ "key": "k", "valueExpression": "1" }] }),
            "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int",
        ),
    ] {
        let denied = fixture.post(&path, &validating("p", &spec)).await.expect(422);
        assert!(message(&denied).contains(wanted), "{denied}");
    }
}

#[tokio::test]
async fn types_are_checked_into_the_status() {
    let fixture = world().await;
    fixture.api.maintain_policies();
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let spec = json!({
        "matchConstraints": { "resourceRules": rules_of("apps", "deployments") },
        "validations": [
            { "expression": "object.spec.replicas > 1", "messageExpression": "'has ' + string(object.spec.replicaz)" },
            { "expression": "object.replicas > 1" },
            { "expression": "object.spec.template.spec.containers.all(c, c.name.startsWith('a')) && object.metadata.labels['a'] == 'b'" },
        ],
    });
    fixture.post(&path, &validating("typed", &spec)).await.expect(201);
    let began = Instant::now();
    let status = loop {
        let policy = fixture.get(&format!("{path}/typed")).await.expect(200);
        if policy["status"]["observedGeneration"] == 1 {
            break policy["status"].clone();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{policy}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let warnings = status["typeChecking"]["expressionWarnings"].as_array().unwrap();
    let brief: Vec<(&str, bool)> = warnings
        .iter()
        .map(|w| {
            let text = w["warning"].as_str().unwrap();
            let good =
                text.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:") && text.ends_with("^\n");
            (w["fieldRef"].as_str().unwrap(), good)
        })
        .collect();
    assert_eq!(
        brief,
        [("spec.validations[0].messageExpression", true), ("spec.validations[1].expression", true)]
    );
    assert!(warnings[1]["warning"].as_str().unwrap().contains("undefined field 'replicas'"), "{status}");
    let mended = json!({ "spec": { "validations": [{ "expression": "object.spec.replicas > 1" }] } });
    fixture.patch(&format!("{path}/typed"), "merge-patch", &mended).await.expect(200);
    loop {
        let policy = fixture.get(&format!("{path}/typed")).await.expect(200);
        if policy["status"]["observedGeneration"] == 2 {
            assert_eq!(policy["status"]["typeChecking"], json!({}));
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{policy}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

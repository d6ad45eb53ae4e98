//! MutatingAdmissionPolicies from the outside.

use crate::policies::*;
use crate::support::*;
use serde_json::{Value, json};

fn deployment(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
}

fn on_deployments() -> Value {
    json!({ "matchConstraints": { "resourceRules": rules_of("apps", "deployments") } })
}

#[tokio::test]
async fn configurations_are_applied() {
    let fixture = world().await;
    let expression = "Object{ metadata: Object.metadata{ annotations: {'by': 'policy'} }, spec: Object.spec{ replicas: object.spec.replicas + 2, \
        template: Object.spec.template{ spec: Object.spec.template.spec{ containers: object.spec.template.spec.containers.map(c, \
        Object.spec.template.spec.containers{ name: c.name, imagePullPolicy: 'Always', env: [Object.spec.template.spec.containers.env{ name: 'X', value: 'y' }] }) } } } }";
    fixture.mutate("p", &json!([apply(expression)]), &on_deployments()).await;
    let made = fixture.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    assert_eq!(made["spec"]["replicas"], 3);
    assert_eq!(made["metadata"]["annotations"], json!({ "by": "policy" }));
    let container = &made["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["imagePullPolicy"]), (&json!("i"), &json!("Always")));
    assert_eq!(container["env"], json!([{ "name": "X", "value": "y" }]));
    // An update is mutated again, from what the client sends.
    let change = json!({ "spec": { "replicas": 5 } });
    let changed = fixture.patch(&format!("{DEPLOYMENTS}/a"), "merge-patch", &change).await.expect(200);
    assert_eq!(changed["spec"]["replicas"], 7);
}

#[tokio::test]
async fn json_patches_are_applied() {
    let fixture = world().await;
    let expression = "[JSONPatch{op: 'test', path: '/data/k', value: 'v'}, \
        JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}, \
        JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'), value: 'y'}, \
        JSONPatch{op: 'copy', from: '/data/k', path: '/data/copy'}]";
    fixture.mutate("p", &json!([json_patch(expression)]), &json!({})).await;
    let made = fixture.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({ "a": "b", "example.com/x": "y" }));
    assert_eq!(made["data"], json!({ "k": "v", "copy": "v" }));
    // A test that fails leaves the object as it is.
    let other = json!({ "metadata": { "name": "b" }, "data": { "k": "w" } });
    let made = fixture.post(CONFIG_MAPS, &other).await.expect(201);
    assert_eq!((&made["data"], made["metadata"].get("labels")), (&json!({ "k": "w" }), None));
}

#[tokio::test]
async fn mutations_stand_in_order_and_see_each_other() {
    let fixture = world().await;
    let add = |key: &str, value: &str| {
        json_patch(&format!("[JSONPatch{{op: 'add', path: '/data/{key}', value: {value}}}]"))
    };
    // By the names of the policies, whatever the order they were written in.
    let second = json!([add("second", "object.data.first + 'b'"), add("third", "object.data.second + 'c'")]);
    fixture.mutate("b", &second, &json!({})).await;
    fixture.mutate("a", &json!([add("first", "object.data.k + 'a'")]), &json!({})).await;
    let made = fixture.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    assert_eq!(made["data"], json!({ "k": "v", "first": "va", "second": "vab", "third": "vabc" }));
}

#[tokio::test]
async fn those_who_may_run_again_run_when_others_change_the_object() {
    let fixture = world().await;
    let count = "[JSONPatch{op: 'add', path: '/data/seen', value: (has(object.data.seen) ? object.data.seen : '') + \
        (has(object.data.late) ? 'L' : 'e')}]";
    let again = json!({ "reinvocationPolicy": "IfNeeded" });
    fixture.mutate("a", &json!([json_patch(count)]), &again).await;
    let late = json!([json_patch("[JSONPatch{op: 'add', path: '/data/late', value: 'x'}]")]);
    fixture.mutate("b", &late, &json!({})).await;
    let made = fixture.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    assert_eq!(made["data"]["seen"], "eL");
    let never = json!({ "spec": { "reinvocationPolicy": "Never" } });
    let path = format!("{GROUP}/mutatingadmissionpolicies/a");
    fixture.patch(&path, "merge-patch", &never).await.expect(200);
    let made = fixture.post(CONFIG_MAPS, &config_map("n")).await.expect(201);
    assert_eq!(made["data"]["seen"], "e");
}

#[tokio::test]
async fn mutations_that_cannot_be_made_refuse() {
    let fixture = world().await;
    fixture.mutate("p", &json!([apply("Object{}")]), &on_deployments()).await;
    let path = format!("{GROUP}/mutatingadmissionpolicies/p");
    for (mutation, wanted) in [
        (
            apply(
                "Object{ spec: Object.spec{ template: Object.spec.template{ spec: Object.spec.template.spec{ containers: [Object.spec.template.spec.containers{ name: 'c', args: ['x'] }] } } } }",
            ),
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].args",
        ),
        (
            apply("Object{ spec: Object.spec{ selector: Object.spec.wrong{} } }"),
            "type mismatch: unexpected type name \"Object.spec.wrong\", expected \"Object.spec.selector\", which matches field name path from root Object type",
        ),
        (
            apply("Object{ spec: Object.spec{ replicas: 'x' } }"),
            "error applying patch: failed to convert patch object to typed object: ",
        ),
        (
            apply("Object{ spec: Object.spec{ nothing: 1 } }"),
            "error applying patch: failed to convert patch object to typed object: ",
        ),
        (
            json_patch("[JSONPatch{op: 'remove', path: '/spec/nothing'}]"),
            "JSONPath: remove operation does not apply: doc is missing path: /spec/nothing: missing value",
        ),
        (
            apply("Object{ spec: Object.spec{ replicas: object.spec.nothing } }"),
            "resulted in error: no such key: nothing",
        ),
    ] {
        fixture
            .patch(&path, "merge-patch", &json!({ "spec": { "mutations": [mutation] } }))
            .await
            .expect(200);
        let denied = fixture.post(DEPLOYMENTS, &deployment("a")).await.expect(403);
        assert_eq!(denied["reason"], "Invalid");
        assert!(message(&denied).starts_with("policy 'p' with binding 'p' denied request: "), "{denied}");
        assert!(message(&denied).contains(wanted), "{denied}");
        assert_eq!(denied["details"]["causes"], json!([{ "message": message(&denied) }]));
    }
    let ignore = json!({ "spec": { "failurePolicy": "Ignore" } });
    fixture.patch(&path, "merge-patch", &ignore).await.expect(200);
    let made = fixture.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    assert_eq!(made["spec"]["replicas"], 1);
}

#[tokio::test]
async fn parameters_conditions_and_variables_of_mutations() {
    let fixture = world().await;
    let sidecar = json!({ "metadata": { "name": "defaults", "labels": { "params": "yes" } }, "data": { "team": "red" } });
    fixture.post(CONFIG_MAPS, &sidecar).await.expect(201);
    let spec = json!({
        "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
        "variables": [{ "name": "team", "expression": "params.data.team + '-' + namespaceObject.metadata.labels.team" }],
        "matchConditions": [{ "name": "unlabelled", "expression": "!has(object.metadata.labels)" }],
    });
    let mutation = apply("Object{ metadata: Object.metadata{ labels: {'team': variables.team} } }");
    fixture.mutate("p", &json!([mutation]), &spec).await;
    let path = format!("{GROUP}/mutatingadmissionpolicybindings/p");
    let reference =
        json!({ "spec": { "paramRef": { "name": "defaults", "parameterNotFoundAction": "Deny" } } });
    fixture.patch(&path, "merge-patch", &reference).await.expect(200);
    let made = fixture.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({ "team": "red-blue" }));
    let made = fixture.post(CONFIG_MAPS, &labelled("b", "own")).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({ "app": "own" }));
    fixture.delete(&format!("{CONFIG_MAPS}/defaults")).await.expect(200);
    let denied = fixture.post(CONFIG_MAPS, &config_map("c")).await.expect(403);
    assert!(message(&denied).contains("failed to configure binding: no params found"), "{denied}");
    assert_eq!(denied["reason"], "Forbidden");
}

#[tokio::test]
async fn what_policies_make_is_validated_as_what_clients_send() {
    let fixture = world().await;
    let mutation = json_patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: -1}]");
    fixture.mutate("p", &json!([mutation]), &on_deployments()).await;
    let denied = fixture.post(DEPLOYMENTS, &deployment("a")).await.expect(422);
    assert!(message(&denied).contains("spec.replicas"), "{denied}");
    // A validating policy sees what mutating ones have made.
    let seen = json!({ "validations": [{ "expression": "object.metadata.labels.made == 'yes'" }] });
    fixture.enforce("v", &seen).await;
    let label = apply("Object{ metadata: Object.metadata{ labels: {'made': 'yes'} } }");
    fixture.mutate("m", &json!([label]), &json!({})).await;
    fixture.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
}

#[tokio::test]
async fn mutating_policies_are_checked_when_they_are_written() {
    let fixture = world().await;
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    for (mutation, wanted) in [
        (
            apply("1"),
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"1\": must evaluate to Object but got int",
        ),
        (
            json_patch("[1]"),
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"[1]\": must evaluate to list(JSONPatch) but got list(int)",
        ),
        (
            json_patch("[JSONPatch{op: 1}]"),
            "expected type of field 'op' is 'string' but provided type is 'int'",
        ),
        (json_patch("[JSONPatch{opp: 'add'}]"), "undefined field 'opp'"),
        (apply("Other{}"), "undeclared reference to 'Other' (in container '')"),
    ] {
        let spec = json!({ "mutations": [mutation], "reinvocationPolicy": "Never" });
        let denied = fixture.post(&path, &validating("p", &spec)).await.expect(422);
        assert!(message(&denied).contains(wanted), "{denied}");
    }
    let wrong = json!({ "patchType": "JSONPatch", "applyConfiguration": { "expression": "Object{}" } });
    let deletes = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"] }]);
    let spec = json!({ "mutations": [wrong], "reinvocationPolicy": "Always", "matchConstraints": { "resourceRules": deletes } });
    let denied = fixture.post(&path, &validating("p", &spec)).await.expect(422);
    for wanted in [
        "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
        "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        "spec.reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \"Never\"",
        "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
    ] {
        assert!(message(&denied).contains(wanted), "{denied}");
    }
    let either = json_patch("object.data.k == 'x' ? [JSONPatch{op: 'remove', path: '/data/k'}] : []");
    let spec = json!({ "mutations": [either], "reinvocationPolicy": "Never" });
    fixture.post(&path, &validating("p", &spec)).await.expect(201);
}

use super::*;
use crate::Strategy;
use crate::testing::World;

fn created(strategy: &dyn Strategy, object: Value) -> (Value, Vec<String>) {
    let mut object = object;
    strategy.defaults(&mut object);
    let (world, mut errors) = (World::default(), Vec::new());
    strategy.validate(&object, &world.env(), &mut errors);
    strategy.validate_create(&object, &world.env(), &mut errors);
    (object, errors.iter().map(ToString::to_string).collect())
}

fn hook() -> Value {
    json!({ "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": { "namespace": "n", "name": "s", "path": "/x" } },
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }] })
}

#[test]
fn hooks_are_defaulted() {
    let (object, errors) = created(&Webhooks { mutating: true }, json!({ "webhooks": [hook()] }));
    assert!(errors.is_empty(), "{errors:?}");
    let hook = &object["webhooks"][0];
    assert_eq!((&hook["failurePolicy"], &hook["matchPolicy"]), (&json!("Fail"), &json!("Equivalent")));
    assert_eq!((&hook["timeoutSeconds"], &hook["reinvocationPolicy"]), (&json!(10), &json!("Never")));
    assert_eq!((&hook["rules"][0]["scope"], &hook["namespaceSelector"]), (&json!("*"), &json!({})));
    assert_eq!(hook["clientConfig"]["service"]["port"], 443);
}

#[test]
fn mistakes_in_hooks() {
    for (field, value, want) in [
        (
            "name",
            json!("a"),
            "webhooks[0].name: Invalid value: \"a\": should be a domain with at least three segments separated by dots",
        ),
        (
            "sideEffects",
            json!("Some"),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            "timeoutSeconds",
            json!(31),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            "clientConfig",
            json!({}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            "clientConfig",
            json!({ "url": "http://a/b" }),
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            "admissionReviewVersions",
            json!(["v2"]),
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
        ),
        (
            "matchConditions",
            json!([{ "name": "a" }]),
            "webhooks[0].matchConditions[0].expression: Required value",
        ),
    ] {
        let mut hook = hook();
        hook[field] = value;
        let (_, errors) = created(&Webhooks { mutating: false }, json!({ "webhooks": [hook] }));
        assert_eq!(errors, [want]);
    }
}

#[test]
fn known_mistakes_may_stay() {
    let mut lax = hook();
    lax["sideEffects"] = "Some".into();
    let old = json!({ "webhooks": [lax] });
    let (world, mut errors) = (World::default(), Vec::new());
    Webhooks { mutating: true }.validate_update(&old, &old, &world.env(), &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    Webhooks { mutating: true }.validate_update(&old, &json!({ "webhooks": [] }), &world.env(), &mut errors);
    assert_eq!(errors.len(), 1);
}

#[test]
fn resources_of_rules() {
    for (resources, want) in [
        (json!(["*/*", "pods"]), "if '*/*' is present, must not specify other resources"),
        (json!(["pods/*", "pods/status"]), "if 'pods/*' is present, must not specify pods/status"),
        (json!(["*/scale", "a/scale"]), "if '*/scale' is present, must not specify a/scale"),
        (json!(["*", "pods"]), "if '*' is present, must not specify other resources without subresources"),
    ] {
        let mut hook = hook();
        hook["rules"][0]["resources"] = resources;
        let (_, errors) = created(&Webhooks { mutating: false }, json!({ "webhooks": [hook] }));
        assert!(errors.len() == 1 && errors[0].ends_with(want), "{errors:?}");
    }
}

#[test]
fn policies() {
    let rule = json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] });
    let spec = json!({ "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" }, "validations": [{ "expression": "true" }],
        "matchConstraints": { "resourceRules": [rule] } });
    let policy = json!({ "metadata": { "name": "p" }, "spec": spec });
    let (object, errors) = created(&ValidatingPolicies, policy.clone());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(object["spec"]["matchConstraints"]["resourceRules"][0]["scope"], "*");
    let row = Value::Array(ValidatingPolicies.row(&object, Timestamp::UNIX_EPOCH));
    assert_eq!(row, json!(["p", 1, "v1/ConfigMap", "<unknown>"]));
    let mut wrong = policy.clone();
    wrong["spec"]["variables"] = json!([{ "name": "for", "expression": "1" }]);
    assert_eq!(
        created(&ValidatingPolicies, wrong).1,
        ["spec.variables[0].name: Invalid value: \"for\": name is not a valid CEL identifier"]
    );
    let (_, errors) = created(&MutatingPolicies, policy);
    assert_eq!(
        errors,
        [
            "spec.mutations: Required value: mutations must contain at least one item",
            "spec.reinvocationPolicy: Required value"
        ]
    );
}

#[test]
fn bindings() {
    let binding = json!({ "metadata": { "name": "b" }, "spec": { "policyName": "p", "validationActions": ["Deny", "Warn"],
        "paramRef": { "name": "x", "namespace": "n" } } });
    let (object, errors) = created(&PolicyBindings { mutating: false }, binding);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(errors[0], "spec.paramRef.parameterNotFoundAction: Required value");
    let row = Value::Array(PolicyBindings { mutating: false }.row(&object, Timestamp::UNIX_EPOCH));
    assert_eq!(row, json!(["b", "p", "n/x", "<unknown>"]));
}

//! Defaults, validation and tables of both kinds.

use super::super::testing::World;
use super::defaults;
use super::*;
use crate::{CreateStrategy, Strategy, TableConvertor};
use jiff::Timestamp;
use serde_json::{Value, json};

fn errors(strategy: &dyn Strategy, object: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    strategy.validate(object, &World::default().env(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn the_default_objects_are_valid_and_complete() {
    let all = defaults::levels().into_iter().map(|o| (&PriorityLevelConfigurations as &dyn Strategy, o));
    let all = all.chain(defaults::schemas().into_iter().map(|o| (&FlowSchemas as &dyn Strategy, o)));
    for (strategy, object) in all {
        let mut defaulted = object.clone();
        strategy.defaults(&mut defaulted);
        assert_eq!(defaulted, object, "defaults change nothing");
        assert_eq!(errors(strategy, &object), [""; 0], "{object}");
    }
}

#[test]
fn levels_are_filled_in() {
    let mut level = json!({ "metadata": { "name": "l" }, "spec": { "type": "Limited",
        "limited": { "limitResponse": { "type": "Queue", "queuing": {} } } } });
    PriorityLevelConfigurations.defaults(&mut level);
    assert_eq!(
        level["spec"]["limited"],
        json!({ "nominalConcurrencyShares": 30, "lendablePercent": 0, "limitResponse": { "type": "Queue",
            "queuing": { "queues": 64, "handSize": 8, "queueLengthLimit": 50 } } })
    );
    assert_eq!(errors(&PriorityLevelConfigurations, &level), [""; 0]);
}

#[test]
fn mistakes_of_levels() {
    let with = |change: &Value| {
        let mut level = json!({ "metadata": { "name": "l" }, "spec": { "type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "limitResponse": { "type": "Queue",
            "queuing": { "queues": 64, "handSize": 8, "queueLengthLimit": 50 } } } } });
        json_patch::merge(&mut level, change);
        errors(&PriorityLevelConfigurations, &level)
    };
    let queuing =
        |change: Value| json!({ "spec": { "limited": { "limitResponse": { "queuing": change } } } });
    let table = [
        (json!({}), vec![]),
        (
            json!({ "metadata": { "name": "exempt" } }),
            vec!["spec.type: Invalid value: \"Limited\": must be 'Exempt' if and only if `name` is 'exempt'"],
        ),
        (
            queuing(json!({ "queues": 3 })),
            vec![
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: should not be greater than queues (3)",
            ],
        ),
        (
            queuing(json!({ "queues": 512 })),
            vec![
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 \
                 and handSize 8 should not be greater than 60",
            ],
        ),
        (
            json!({ "spec": { "limited": { "limitResponse": { "type": "Reject" } } } }),
            vec![
                "spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not \
                 Limited",
            ],
        ),
        (
            json!({ "spec": { "limited": { "lendablePercent": 101 } } }),
            vec!["spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"],
        ),
        (
            json!({ "spec": { "limited": null } }),
            vec!["spec.limited: Required value: must not be empty when type is Limited"],
        ),
        (
            json!({ "spec": { "type": "Some" } }),
            vec!["spec.type: Unsupported value: \"Some\": supported values: \"Exempt\", \"Limited\""],
        ),
    ];
    for (change, expected) in table {
        let mut found = with(&change);
        // Its whole spec is shown there.
        found.retain(|e| !e.contains("must equal the fixed value"));
        assert_eq!(found, expected, "{change}");
    }
}

#[test]
fn what_is_mandatory_is_fixed() {
    let mut level = defaults::levels().remove(1);
    level["spec"]["limited"]["nominalConcurrencyShares"] = 7.into();
    let found = errors(&PriorityLevelConfigurations, &level);
    assert!(found[0].ends_with("spec of 'catch-all' must equal the fixed value"), "{found:?}");
    let mut schema = defaults::schemas().remove(0);
    schema["spec"]["matchingPrecedence"] = 2.into();
    let found = errors(&FlowSchemas, &schema);
    assert!(found[0].ends_with("spec of 'exempt' must equal the fixed value"), "{found:?}");
    let mut exempt = defaults::levels().remove(0);
    exempt["spec"]["exempt"]["nominalConcurrencyShares"] = 10.into();
    assert_eq!(errors(&PriorityLevelConfigurations, &exempt), [""; 0]);
}

#[test]
fn levels_say_what_they_are() {
    let level =
        |annotations: Value| json!({ "metadata": { "name": "l", "annotations": annotations }, "spec": {} });
    let missing = "spec.type: Required value";
    assert_eq!(errors(&PriorityLevelConfigurations, &level(Value::Null)), [missing]);
    let mark = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    assert_eq!(
        errors(&PriorityLevelConfigurations, &level(json!({ mark: "" }))),
        [format!("metadata.annotations: Forbidden: annotation '{mark}' is forbidden"), missing.to_owned()]
    );
}

#[test]
fn conditions_of_a_status() {
    let object = json!({ "status": { "conditions": [{ "type": "A" }, { "type": "A" }, {}] } });
    for strategy in [&FlowSchemas as &dyn Strategy, &PriorityLevelConfigurations] {
        assert_eq!(
            crate::testing::status_errors(strategy, &object, &object),
            [
                "status.conditions[1].type: Duplicate value: \"A\"",
                "status.conditions[2].type: Required value"
            ]
        );
    }
}

#[test]
fn mistakes_of_schemas() {
    let schema = json!({ "metadata": { "name": "s" }, "spec": {
        "matchingPrecedence": 1, "distinguisherMethod": { "type": "ByMoon" },
        "priorityLevelConfiguration": {},
        "rules": [
            { "subjects": [{ "kind": "User", "group": { "name": "g" } }] },
            { "subjects": [{ "kind": "ServiceAccount", "serviceAccount": { "name": "*" } }],
              "resourceRules": [{ "verbs": ["*", "get"], "apiGroups": [], "resources": ["pods"] }],
              "nonResourceRules": [{ "verbs": ["fly"], "nonResourceURLs": ["/a*", "a"] }] },
        ],
    } });
    let expected = [
        "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
        "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"ByMoon\"}: supported values: \"ByNamespace\", \"ByUser\"",
        "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
        "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
        "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
        "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
        "spec.rules[1].subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account",
        "spec.rules[1].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify \
         other verbs",
        "spec.rules[1].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group",
        "spec.rules[1].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must \
         supply at least one namespace",
        "spec.rules[1].nonResourceRules[0].verbs: Unsupported value: [\"fly\"]: supported values: \"create\", \"delete\", \
         \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\"",
        "spec.rules[1].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"/a*\": wildcard can only do suffix \
         matching",
        "spec.rules[1].nonResourceRules[0].nonResourceURLs[1]: Invalid value: \"a\": must start with slash",
    ];
    assert_eq!(errors(&FlowSchemas, &schema), expected);
    let mut blank = json!({ "metadata": { "name": "s" }, "spec": {} });
    FlowSchemas.defaults(&mut blank);
    assert_eq!(blank["spec"]["matchingPrecedence"], 1000);
}

#[test]
fn rows_are_upstreams() {
    let now = Timestamp::UNIX_EPOCH;
    let levels = defaults::levels();
    assert_eq!(
        Value::Array(PriorityLevelConfigurations.row(&levels[0], now)),
        json!(["exempt", "Exempt", "<none>", "<none>", "<none>", "<none>", "<unknown>"])
    );
    assert_eq!(
        Value::Array(PriorityLevelConfigurations.row(&levels[2], now)),
        json!(["system", "Limited", 30, 64, 6, 50, "<unknown>"])
    );
    let mut schema = defaults::schemas().remove(0);
    assert_eq!(
        Value::Array(FlowSchemas.row(&schema, now)),
        json!(["exempt", "exempt", 1, "<none>", "<unknown>", "?"])
    );
    schema["status"] = json!({ "conditions": [{ "type": "Dangling", "status": "False" }] });
    assert_eq!(FlowSchemas.row(&schema, now)[5], "False");
}

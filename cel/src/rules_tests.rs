//! Rules of schemas, from their compilation to their messages.

use crate::Budget;
use crate::rules::{OBJECT_LIMIT, Rules, check, compile};
use coracle_api::structural::parse;
use serde_json::{Value, json};

fn rules(spec: &Value) -> Result<Rules, Vec<String>> {
    let schema = parse(&json!({ "type": "object", "properties": { "spec": spec } }));
    compile(&schema, "schema").map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn judged(spec: &Value) -> Vec<String> {
    let schema = parse(&json!({ "type": "object", "properties": { "spec": spec } }));
    check(&schema, "schema").iter().map(ToString::to_string).collect()
}

fn broken(rules: &Rules, new: Value, old: Option<Value>) -> Vec<String> {
    let (new, old) = (json!({ "spec": new }), old.map(|old| json!({ "spec": old })));
    let broken = rules.check(&new, old.as_ref(), "", &mut Budget::of(OBJECT_LIMIT));
    let kept = broken.kept.iter().map(|error| format!("warning: {error}"));
    broken.errors.iter().map(ToString::to_string).chain(kept).collect()
}

fn integers(rules: Value) -> Value {
    let number = json!({ "type": "integer" });
    json!({ "type": "object", "x-kubernetes-validations": rules,
        "properties": { "min": number, "max": number, "a-b": number } })
}

#[test]
fn a_broken_rule_says_what_its_author_wrote() {
    let rules = rules(&integers(json!([
        { "rule": "self.min <= self.max", "message": "min must not be above max" },
        { "rule": "self.min > 0", "messageExpression": "'min is ' + string(self.min)", "fieldPath": ".min",
          "reason": "FieldValueForbidden" },
        { "rule": "!has(self.a__dash__b) || self.a__dash__b < 10" }
    ])))
    .unwrap();
    assert!(broken(&rules, json!({ "min": 1, "max": 2, "a-b": 3 }), None).is_empty());
    assert_eq!(
        broken(&rules, json!({ "min": 0, "max": -1, "a-b": 30 }), None),
        [
            r#"spec: Invalid value: min must not be above max"#,
            "spec.min: Forbidden: min is 0",
            r#"spec: Invalid value: failed rule: !has(self.a__dash__b) || self.a__dash__b < 10"#,
        ]
    );
    let missing = broken(&rules, json!({ "max": 1 }), None);
    assert!(missing[0].contains("no such key: min"), "{missing:?}");
}

#[test]
fn rules_about_changes_hold_for_changes() {
    let rules = rules(&json!({ "type": "object", "properties": {
        "fixed": { "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "is immutable" }] },
        "count": { "type": "integer", "x-kubernetes-validations": [
            { "rule": "oldSelf.hasValue() || self == 1", "message": "must begin with 1", "optionalOldSelf": true }] },
        "odd": { "type": "integer", "x-kubernetes-validations": [{ "rule": "self % 2 == 1", "message": "must be odd" }] }
    } }))
    .unwrap();
    let object = |fixed: &str, count: i64, odd: i64| json!({ "fixed": fixed, "count": count, "odd": odd });
    assert_eq!(broken(&rules, object("a", 2, 1), None), ["spec.count: Invalid value: 2: must begin with 1"]);
    assert_eq!(
        broken(&rules, object("b", 2, 2), Some(object("a", 1, 2))),
        [
            r#"spec.fixed: Invalid value: "b": is immutable"#,
            "warning: spec.odd: Invalid value: 2: must be odd",
        ],
        "of what stays as it was there is but a warning"
    );
}

/// Parts of lists without keys are compared by their places, those of sets and atomic lists not at all: these are one
/// value each.
#[test]
fn what_was_wrong_before_may_stay() {
    let list = |kind: Option<&str>| {
        let mut list = json!({ "type": "array", "maxItems": 9, "items": { "type": "integer",
            "x-kubernetes-validations": [{ "rule": "self % 2 == 1", "message": "must be odd" }] } });
        if let Some(kind) = kind {
            list["x-kubernetes-list-type"] = kind.into();
        }
        rules(&json!({ "type": "object", "properties": { "list": list, "note": { "type": "string" } } }))
            .unwrap()
    };
    let of = |numbers: &[i64], note: &str| json!({ "list": numbers, "note": note });
    let wrong = |at: usize, value: i64| format!("spec.list[{at}]: Invalid value: {value}: must be odd");
    let (old, kept) = (Some(of(&[2], "a")), |at, value| format!("warning: {}", wrong(at, value)));
    for kind in [None, Some("atomic"), Some("set")] {
        assert_eq!(broken(&list(kind), of(&[2], "b"), old.clone()), [kept(0, 2)], "{kind:?}");
        assert_eq!(broken(&list(kind), of(&[1, 2], "a"), old.clone()), [wrong(1, 2)], "{kind:?}");
    }
    assert_eq!(broken(&list(None), of(&[2, 1], "a"), old.clone()), [kept(0, 2)]);
    assert_eq!(broken(&list(Some("atomic")), of(&[2, 1], "a"), old), [wrong(0, 2)]);
}

#[test]
fn errors_are_worded_as_upstream_words_them() {
    let of = |kind: Value, rule: Value| {
        let mut part = json!({ "x-kubernetes-validations": [rule] });
        part.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        rules(&json!({ "type": "object", "properties": { "x": part } })).unwrap()
    };
    let (no, text) =
        (json!({ "rule": "false", "message": " no " }), json!({ "type": "string", "maxLength": 9 }));
    let with = |more: Value| {
        let mut rule = no.clone();
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    };
    let list = json!({ "type": "array", "maxItems": 3, "items": text });
    let map = json!({ "type": "object", "additionalProperties": { "type": "object", "properties": { "a.b": text } } });
    let dynamic = json!({ "x-kubernetes-int-or-string": true });
    let twice = with(json!({ "reason": "FieldValueDuplicate" }));
    for (kind, rule, value, wanted) in [
        (&text, no.clone(), json!("a"), r#"spec.x: Invalid value: "a": no"#),
        (&list, no.clone(), json!(["a"]), "spec.x: Invalid value: no"),
        (&map, no.clone(), json!({}), "spec.x: Invalid value: no"),
        (&dynamic, no.clone(), json!(8), "spec.x: Invalid value: 8: no"),
        (&text, twice.clone(), json!("a"), r#"spec.x: Duplicate value: "a""#),
        (&list, twice, json!(["a"]), "spec.x: Duplicate value"),
        (&list, with(json!({ "reason": "FieldValueRequired" })), json!([]), "spec.x: Required value: no"),
        (&map, with(json!({ "fieldPath": ".k['a.b']" })), json!({}), "spec.x.[k].a.b: Invalid value: no"),
        (
            &map,
            json!({ "rule": " self['k'] == self['l'] " }),
            json!({}),
            r#"spec.x: Invalid value: "object": no such key: k evaluating rule: self['k'] == self['l']"#,
        ),
        (
            &dynamic,
            json!({ "rule": "self > 1", "message": "must be above 1" }),
            json!("a"),
            "spec.x: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function \
             or macro signature for rule: must be above 1",
        ),
    ] {
        let found = broken(&of(kind.clone(), rule), json!({ "x": value }), None);
        assert_eq!(found, [wanted]);
    }
}

#[test]
fn nothing_runs_after_what_is_too_dear() {
    let part = json!({ "type": "string", "x-kubernetes-validations": [
        { "rule": "'aaaaaaaaaaaaaaaa'.contains(self) || false", "message": "no" }] });
    let spec = json!({ "type": "object", "properties": { "a": part, "b": part } });
    let schema = parse(&json!({ "type": "object", "properties": { "spec": spec } }));
    let rules = compile(&schema, "").unwrap();
    let found = rules.check(&json!({ "spec": { "a": "x", "b": "x" } }), None, "", &mut Budget::of(1)).errors;
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "spec.a: Invalid value: \"string\": validation failed due to running out of cost budget, no further validation \
             rules will be run"
        ]
    );
}

#[test]
fn elements_with_keys_are_found_again() {
    let list = |kind: &str| {
        json!({ "type": "object", "properties": { "ports": { "type": "array", "maxItems": 10,
            "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["name"],
            "items": { "type": "object", "required": ["name"],
                "x-kubernetes-validations": [{ "rule": "self.port == oldSelf.port", "message": "port is fixed" }],
                "properties": { "name": { "type": "string" }, "port": { "type": "integer" } } } } } })
    };
    let keyed = rules(&list("map")).unwrap();
    let port = |name: &str, port: i64| json!({ "name": name, "port": port });
    let old = json!({ "ports": [port("a", 1), port("b", 2)] });
    assert!(broken(&keyed, json!({ "ports": [port("b", 2), port("c", 9)] }), Some(old.clone())).is_empty());
    let moved = broken(&keyed, json!({ "ports": [port("b", 3)] }), Some(old));
    assert_eq!(moved, [r#"spec.ports[0]: Invalid value: port is fixed"#]);
    let error = rules(&list("atomic")).unwrap_err();
    let wanted = "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                  schema.properties[spec].properties[ports]";
    assert!(error[0].ends_with(wanted), "{error:?}");
}

#[test]
fn rules_without_sense_or_bounds_are_refused() {
    let error = rules(&integers(json!([{ "rule": "self.nope > 1" }]))).unwrap_err();
    assert!(
        error[0].starts_with("schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: ")
    );
    assert!(error[0].contains("compilation failed: ERROR: <input>:1:5: undefined field 'nope'"), "{error:?}");
    let error = rules(&integers(json!([{ "rule": "self.min" }]))).unwrap_err();
    assert!(error[0].contains("cel expression must evaluate to a bool"));
    let open = json!({ "type": "array", "items": { "type": "string" },
        "x-kubernetes-validations": [{ "rule": "self.all(a, self.all(b, self.all(c, a + b != c)))" }] });
    let error = judged(&json!({ "type": "object", "properties": { "names": open } }));
    let place = "schema.properties[spec].properties[names].x-kubernetes-validations[0].rule";
    assert!(
        error[0].starts_with(&format!(
            "{place}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the \
             rule, or adding maxItems"
        )),
        "{error:?}"
    );
    assert_eq!(
        error[1],
        format!(
            "{place}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 \
             schema"
        )
    );
    assert!(
        error[2].starts_with("schema: Forbidden: x-kubernetes-validations estimated rule cost total for")
    );
    let bounded = json!({ "type": "array", "maxItems": 5, "items": { "type": "string", "maxLength": 10 },
        "x-kubernetes-validations": [{ "rule": "self.all(a, self.all(b, a != b || a == b))" }] });
    assert!(judged(&json!({ "type": "object", "properties": { "names": bounded } })).is_empty());
}

#[test]
fn what_a_rule_costs_counts_as_often_as_it_can_be_run() {
    let element = |most: Value| {
        let mut list = json!({ "type": "array", "items": { "type": "object", "properties": { "a": { "type": "array",
            "maxItems": 100, "items": { "type": "string", "maxLength": 5 } } },
            "x-kubernetes-validations": [{ "rule": "self.a.all(x, x.size() > 1)" }] } });
        if !most.is_null() {
            list["maxItems"] = most;
        }
        judged(&json!({ "type": "object", "properties": { "list": list } }))
    };
    assert!(element(10.into()).is_empty());
    assert!(element(100_000.into())[0].contains("estimated rule cost exceeds budget by factor of"));
    assert!(element(Value::Null)[0].contains("estimated rule cost exceeds budget by factor of"));
}

/// As the Gateway API's definitions speak of the keys of annotations.
#[test]
fn keys_of_maps_cost_what_upstream_says() {
    let rule = "self.all(key, size(key) < 254 && key.matches('^(([a-z0-9]([-a-z0-9]*[a-z0-9])?\\\\.)*/)?[A-Za-z0-9._-]{1,63}$'))";
    let map = |most: u64| {
        json!({ "type": "object", "maxProperties": most, "additionalProperties": { "type": "string", "maxLength": 4096 },
            "x-kubernetes-validations": [{ "rule": rule }] })
    };
    assert_eq!(judged(&map(8)), [""; 0]);
    assert_eq!(judged(&json!({ "type": "array", "maxItems": 64, "items": map(64) })), [""; 0]);
    assert!(judged(&map(10_000_000))[0].contains("estimated rule cost exceeds budget by factor of"));
}

/// Upstream knows no bound of the text that a number is written as, and definitions say `format` for that.
#[test]
fn messages_are_put_together_by_format() {
    let message = |expression: &str| {
        judged(&integers(json!([{ "rule": "self.min <= self.max", "messageExpression": expression }])))
    };
    assert_eq!(message("'min is %d'.format([self.min])"), [""; 0]);
    let refused = message("'min is ' + string(self.min)");
    assert!(
        refused[0].contains("estimated messageExpression cost exceeds budget by factor of more than 100x")
    );
    assert!(refused[1].contains("contributed to estimated rule cost total"), "{refused:?}");
}

#[test]
fn what_has_no_schema_cannot_be_spoken_of() {
    let object = json!({ "type": "object", "x-kubernetes-validations": [{ "rule": "self.raw.x == 1" }],
        "properties": { "raw": { "x-kubernetes-preserve-unknown-fields": true } } });
    assert!(judged(&object)[0].contains("undefined field 'raw'"));
}

#[test]
fn rules_are_shown_whole_where_they_do_not_compile() {
    let error = judged(&integers(json!([{ "rule": "self.nope > 1", "message": "m" }])));
    assert!(
        error[0].contains(
            "Invalid value: {\"Rule\":\"self.nope \\u003e 1\",\"Message\":\"m\",\"MessageExpression\":\"\",\"Reason\":null,\
             \"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5"
        ),
        "{error:?}"
    );
    let error = judged(&integers(json!([{ "rule": "self.min < 1 && self.nope" }])));
    assert!(error[0].contains(r#"{"Rule":"self.min \u003c 1 \u0026\u0026 self.nope","#), "{error:?}");
    let error = judged(&integers(json!([{ "rule": "true", "messageExpression": "1" }])));
    assert!(error[0].ends_with("messageExpression must evaluate to a string"), "{error:?}");
}

//! What is believed of an answer.

use super::review::{Nonsense, Verdict};
use proptest::prelude::*;
use serde_json::{Value, json};

fn answer(response: Value) -> Value {
    json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response })
}

fn read(answer: &Value, mutating: bool) -> Result<Verdict, Nonsense> {
    Verdict::read(answer, "v1", "u", mutating)
}

fn wrong(response: Value, mutating: bool) -> String {
    match read(&answer(response), mutating).unwrap_err() {
        Nonsense::Types(why) | Nonsense::Content(why) => why,
    }
}

#[test]
fn a_good_answer() {
    let response = json!({ "uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": "W10=",
        "warnings": ["a"], "auditAnnotations": { "k": "v" } });
    let verdict = read(&answer(response), true).unwrap();
    assert!(verdict.allowed && verdict.patch == b"[]" && verdict.warnings == ["a"]);
    assert_eq!(verdict.annotations["k"], "v");
}

#[test]
fn contradictions() {
    for (response, mutating, words) in [
        (json!({ "uid": "x" }), true, "expected response.uid=\"u\", got \"x\""),
        (
            json!({ "uid": "u", "patch": "W10=" }),
            true,
            "webhook returned response.patch but not response.patchType",
        ),
        (
            json!({ "uid": "u", "patchType": "JSONPatch" }),
            true,
            "webhook returned response.patchType but not response.patch",
        ),
        (
            json!({ "uid": "u", "patchType": "" , "patch": "W10=" }),
            true,
            "webhook returned invalid response.patchType of \"\"",
        ),
        (
            json!({ "uid": "u", "patchType": "Full", "patch": "W10=" }),
            true,
            "unsupported patch type \"Full\"",
        ),
        (json!({ "uid": "u", "patch": "W10=" }), false, "validating webhook may not return response.patch"),
        (
            json!({ "uid": "u", "patchType": "JSONPatch" }),
            false,
            "validating webhook may not return response.patchType",
        ),
        (Value::Null, false, "webhook response was absent"),
        (json!({ "uid": "u", "patch": "!" }), true, "illegal base64 data in response.patch"),
        (
            json!({ "uid": "u", "warnings": [1] }),
            true,
            "json: cannot unmarshal number into Go struct field AdmissionResponse.warnings of type string",
        ),
    ] {
        assert_eq!(wrong(response, mutating), words);
    }
    let nameless = json!({ "response": { "uid": "u", "allowed": true } });
    assert_eq!(
        read(&nameless, false).unwrap_err(),
        Nonsense::Content(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=".into()
        )
    );
    assert!(Verdict::read(&nameless, "v1beta1", "other", false).unwrap().allowed);
}

/// Any JSON.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("response".to_owned()),
        Just("uid".to_owned()),
        Just("allowed".to_owned()),
        Just("status".to_owned()),
        Just("patch".to_owned()),
        Just("code".to_owned()),
        ".{0,4}",
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_answer_is_read_or_refused(response in json_value(), mutating: bool) {
        if let Ok(verdict) = read(&answer(response.clone()), mutating) {
            prop_assert_eq!(&response["uid"], "u");
            prop_assert_eq!(verdict.allowed, response["allowed"] == true);
        }
        let lenient = Verdict::read(&json!({ "response": response }), "v1beta1", "u", mutating);
        if let Ok(verdict) = lenient {
            let error = super::denial::denial("w", &verdict.status);
            prop_assert!(error.code >= 400);
        }
    }
}

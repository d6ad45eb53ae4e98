//! What a webhook may answer, and what not.

use super::review::{Review, version};
use coracle_api::Object;
use serde_json::{Value, json};

fn object(version: &str, name: &str) -> Object {
    json!({ "apiVersion": format!("a.b/{version}"), "kind": "Widget", "metadata": { "name": name, "namespace": "ns",
        "uid": "u", "generation": 3, "labels": { "a": "1" }, "managedFields": [{ "manager": "m" }] }, "spec": {} })
}

fn ask(list: bool) -> Review {
    let objects = if list { vec![object("v1", "x"), object("v1", "y")] } else { vec![object("v1", "x")] };
    let kind = if list { "WidgetList" } else { "Widget" };
    Review::new(objects, "a.b/v2", super::described("a.b/v1", kind), list)
}

fn answer(review: &Review, objects: Value) -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": { "uid": review.uid, "result": { "status": "Success" }, "convertedObjects": objects } })
}

#[test]
fn a_good_answer_changes_the_payload_labels_and_annotations() {
    let review = ask(false);
    let mut new = object("v2", "x");
    new["spec"] = json!({ "new": true });
    new["metadata"] = json!({ "name": "x", "namespace": "ns", "uid": "u", "generation": 99, "annotations": { "b": "2" },
        "finalizers": ["no/thanks"] });
    let converted = review.accept("v1", answer(&review, json!([new]))).unwrap();
    assert_eq!(
        converted,
        [
            json!({ "apiVersion": "a.b/v2", "kind": "Widget", "spec": { "new": true }, "metadata": { "name": "x",
            "namespace": "ns", "uid": "u", "generation": 3, "annotations": { "b": "2" },
            "managedFields": [{ "manager": "m" }] } })
        ]
    );
    let sent = review.request("v1");
    assert_eq!(sent["request"]["desiredAPIVersion"], "a.b/v2");
    assert_eq!(sent["request"]["objects"], json!([object("v1", "x")]));
}

#[test]
fn nonsense_is_refused_and_named() {
    let failed = |why: &str| format!("conversion webhook for a.b/v1, Kind=Widget failed: {why}");
    let invalid = |why: &str| format!("conversion webhook for a.b/v1, Kind=Widget returned invalid {why}");
    let review = ask(false);
    let good = answer(&review, json!([object("v2", "x")]));
    let with = |path: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(path).unwrap() = value;
        changed
    };
    let first = "/response/convertedObjects/0";
    for (answer, want) in [
        (json!({}), failed("no response provided")),
        (json!([1]), failed("no response provided")),
        (
            with("/kind", "Pod".into()),
            failed(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=Pod",
            ),
        ),
        (
            with("/response/uid", "other".into()),
            failed(&format!("expected response.uid={:?}, got \"other\"", review.uid)),
        ),
        (
            with("/response/result", json!({ "status": "Failure" })),
            failed("response.result.status was 'Failure', not 'Success'"),
        ),
        (with("/response/result", json!({ "status": "Failure", "message": "cannot" })), failed("cannot")),
        (with("/response/result", Value::Null), failed("response.result.status was '', not 'Success'")),
        (
            with("/response/convertedObjects", json!([])),
            "conversion webhook for a.b/v1, Kind=Widget returned 0 objects, expected 1".to_owned(),
        ),
        (
            with("/response/convertedObjects", Value::Null),
            "conversion webhook for a.b/v1, Kind=Widget returned 0 objects, expected 1".to_owned(),
        ),
        (with(first, json!(7)), invalid("object at index 0: int64 is no object")),
        (
            with(first, object("v1", "x")),
            invalid("object at index 0: invalid groupVersion (expected a.b/v2, received a.b/v1)"),
        ),
        (
            with(&format!("{first}/kind"), "Other".into()),
            invalid("object at index 0: invalid kind (expected Widget, received Other)"),
        ),
        (
            with(&format!("{first}/metadata/name"), "z".into()),
            invalid("object: must have the same name: x != z"),
        ),
        (
            with(&format!("{first}/metadata/uid"), "z".into()),
            invalid("object: must have the same UID: u != z"),
        ),
        (
            with(&format!("{first}/metadata/labels"), json!([1])),
            invalid("metadata: invalid metadata.labels of type []interface {} in converted object"),
        ),
        (
            with(&format!("{first}/metadata/labels"), json!({ "a": 1 })),
            invalid("metadata: metadata.labels[a] must be a string, but is int64 in converted object"),
        ),
    ] {
        assert_eq!(review.accept("v1", answer).unwrap_err(), want);
    }
    let error =
        review.accept("v1", with(&format!("{first}/metadata/labels"), json!({ "a b": "1" }))).unwrap_err();
    assert!(error.contains("returned invalid metadata: metadata.labels: Invalid value: \"a b\""), "{error}");
    assert_eq!(review.accept("v1beta1", with("/response/uid", "".into())).unwrap().len(), 1);
}

#[test]
fn lists_say_which_object_is_wrong() {
    let review = ask(true);
    let error =
        review.accept("v1", answer(&review, json!([object("v2", "x"), object("v2", "x")]))).unwrap_err();
    assert_eq!(
        error,
        "conversion webhook for a.b/v1, Kind=WidgetList returned invalid converted object at index 1: must have the same \
         name: y != x"
    );
}

#[test]
fn the_first_known_version_is_spoken() {
    let versions = |list: Value| version(&json!({ "conversionReviewVersions": list }));
    assert_eq!(versions(json!(["v9", "v1beta1", "v1"])), Ok("v1beta1"));
    assert_eq!(versions(json!(["v9"])), Err("no supported conversion review versions".to_owned()));
}

mod any_answer {
    use super::*;
    use proptest::prelude::*;

    /// JSON that is made of the words of a review, so that it comes near to being one.
    fn json() -> impl Strategy<Value = Value> {
        let words = [
            "response",
            "result",
            "status",
            "Success",
            "uid",
            "convertedObjects",
            "kind",
            "apiVersion",
            "metadata",
            "labels",
            "annotations",
            "name",
            "a.b/v2",
            "Widget",
            "ConversionReview",
            "apiextensions.k8s.io/v1",
            "x",
        ];
        let word = prop::sample::select(words.to_vec()).prop_map(str::to_owned);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            word.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(word.clone(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn is_judged_without_panic(given in json(), list in any::<bool>(), beta in any::<bool>()) {
            let review = ask(list);
            let version = if beta { "v1beta1" } else { "v1" };
            prop_assert!(review.accept(version, given.clone()).is_err());
            for path in ["/response", "/response/result", "/response/convertedObjects", "/response/convertedObjects/0",
                "/response/convertedObjects/0/metadata"] {
                let count = if list { json!([object("v2", "x"), object("v2", "y")]) } else { json!([object("v2", "x")]) };
                let mut near = answer(&review, count);
                *near.pointer_mut(path).unwrap() = given.clone();
                if let Ok(objects) = review.accept(version, near) {
                    prop_assert!(objects.iter().all(|o| o["metadata"]["uid"] == "u" && o["apiVersion"] == "a.b/v2"));
                }
            }
        }
    }
}

//! Any answer of a conversion webhook.

use super::review::Review;
use serde_json::{Value, json};

/// Whatever the bytes say, what is accepted are the objects that were sent, in their order and in the version asked for,
/// with all metadata but labels and annotations. True if it could be accepted.
#[must_use]
pub fn conversion_answer(bytes: &[u8]) -> bool {
    let Ok(answer) = serde_json::from_slice::<Value>(bytes) else { return false };
    let sent = |name: &str| {
        json!({ "apiVersion": "b.c/v1", "kind": "A", "spec": {}, "metadata": { "name": name, "namespace": "n", "uid": "7",
            "finalizers": ["k.l/m"], "resourceVersion": "9" } })
    };
    let sent = [sent("one"), sent("two")];
    let mut read = false;
    for version in ["v1", "v1beta1"] {
        let mut review = Review::new(sent.to_vec(), "b.c/v2", "b.c/v1, Kind=A".to_owned(), true);
        review.uid = "u".to_owned();
        match review.accept(version, answer.clone()) {
            Err(why) => assert!(why.starts_with("conversion webhook for b.c/v1, Kind=A "), "{why}"),
            Ok(converted) => {
                read = true;
                assert_eq!(converted.len(), sent.len());
                for (new, old) in converted.iter().zip(&sent) {
                    assert_eq!((&new["apiVersion"], &new["kind"]), (&json!("b.c/v2"), &old["kind"]));
                    let mut metadata = new["metadata"].clone();
                    for field in ["labels", "annotations"] {
                        let is_text = |value: &Value| {
                            value.as_object().is_none_or(|m| m.values().all(Value::is_string))
                        };
                        assert!(is_text(&metadata[field]));
                        metadata.as_object_mut().map(|metadata| metadata.remove(field));
                    }
                    assert_eq!(metadata, old["metadata"]);
                }
            }
        }
    }
    read
}

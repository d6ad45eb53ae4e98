//! Answers of webhooks changed at random, in the same order every time: what a webhook says can be wrong, never harmful.

use super::denial::denial;
use super::review::Verdict;
use serde_json::{Value, json};

#[path = "../../../../fuzz/src/mutate.rs"]
mod mutate;

/// About a second in a debug build.
const RUNS: usize = 20_000;
const WORDS: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "-1",
    "1e999",
    "\"uid\"",
    "\"response\":",
    "\"patch\":",
    "\"patchType\":",
    "\"JSONPatch\"",
    "\"allowed\":",
    "\"status\":",
    "\"code\":",
    "\"auditAnnotations\":",
    "\"warnings\":",
    "W10=",
    ",",
    "\\u0000",
];

fn seeds() -> Vec<Vec<u8>> {
    let review = |version: &str, response: Value| {
        let version = format!("admission.k8s.io/{version}");
        json!({ "apiVersion": version, "kind": "AdmissionReview", "response": response })
            .to_string()
            .into_bytes()
    };
    vec![
        review(
            "v1",
            json!({ "uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": "W10=",
            "auditAnnotations": { "a": "b" }, "warnings": ["w"] }),
        ),
        review(
            "v1",
            json!({ "uid": "u", "allowed": false, "status": { "code": 418, "message": "m", "reason": "r",
            "details": { "causes": [{ "field": "f" }] } } }),
        ),
        review("v1beta1", json!({ "allowed": true, "patch": "W3sib3AiOiJhZGQifV0=" })),
        review("v1", Value::Null),
    ]
}

#[test]
fn any_answer_is_read_or_refused() {
    let seeds = seeds();
    let mut random = mutate::Random(0x9e37_79b9_7f4a_7c15);
    let mut read = 0;
    for _ in 0..RUNS {
        let bytes = mutate::mutated(&mut random, &seeds, WORDS);
        let Ok(answer) = serde_json::from_slice::<Value>(&bytes) else { continue };
        for (version, mutating) in [("v1", true), ("v1", false), ("v1beta1", true)] {
            let Ok(verdict) = Verdict::read(&answer, version, "u", mutating) else { continue };
            read += 1;
            if !verdict.allowed {
                let error = denial("hook.example.com", &verdict.status);
                assert!(error.code >= 400, "{}: {answer}", error.code);
            }
        }
    }
    assert!(read > RUNS / 100, "only {read} answers could be read");
}

//! What the fuzz targets of webhooks' answers and of requests do with any bytes, and the seeds they begin with. What a
//! webhook says can be wrong, never harmful; a request is one request, however it is written. Also run, with a fixed number of answers changed at random, by the test below.

pub use crate::http::fuzzing::{request, request_seeds};
pub use coracle_admission::webhook::fuzzing::admission_answer;
pub use coracle_resources::conversion::fuzzing::conversion_answer;

use serde_json::{Value, json};

/// A target says whether it could read the answer, and panics where something is wrong.
pub type Target = fn(&[u8]) -> bool;

pub fn admission_seeds() -> Vec<Value> {
    let review = |version: &str, response: Value| {
        let version = format!("admission.k8s.io/{version}");
        json!({ "apiVersion": version, "kind": "AdmissionReview", "response": response })
    };
    vec![
        review(
            "v1",
            json!({ "uid": "u", "allowed": true, "patchType": "JSONPatch",
                "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscyIsInZhbHVlIjp7ImEiOiJiIn19XQ==",
                "auditAnnotations": { "a": "b" }, "warnings": ["w"] }),
        ),
        review(
            "v1",
            json!({ "uid": "u", "allowed": false, "status": { "code": 418, "message": "m", "reason": "r",
                "details": { "causes": [{ "field": "f" }], "retryAfterSeconds": 3 } } }),
        ),
        review("v1beta1", json!({ "allowed": true, "patch": "W3sib3AiOiJhZGQifV0=" })),
        review("v1", Value::Null),
    ]
}

pub fn conversion_seeds() -> Vec<Value> {
    let review = |version: &str, response: Value| {
        let version = format!("apiextensions.k8s.io/{version}");
        json!({ "apiVersion": version, "kind": "ConversionReview", "response": response })
    };
    let converted = |name: &str| {
        json!({ "apiVersion": "b.c/v2", "kind": "A", "spec": { "x": [1] }, "metadata": { "name": name, "namespace": "n",
            "uid": "7", "labels": { "a": "b" }, "annotations": { "c/d": "e" } } })
    };
    let good = json!({ "uid": "u", "result": { "status": "Success" },
        "convertedObjects": [converted("one"), converted("two")] });
    let failed = json!({ "uid": "u", "result": { "status": "Failed", "message": "no" } });
    vec![review("v1", good.clone()), review("v1beta1", good), review("v1", failed)]
}

#[cfg(test)]
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;
#[cfg(test)]
#[path = "../../../fuzz/src/mutate_json.rs"]
mod mutate_json;

#[cfg(test)]
mod tests {
    use super::*;

    /// A second or two in a debug build; the environment's FUZZ_RUNS may ask for more.
    const RUNS: usize = 20_000;

    fn words() -> Vec<Value> {
        let patch = |text: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
        let long = "x".repeat(300);
        json!([null, true, false, {}, [], "", 0, -1, 200, 404, 65_536, 1e300, 18_446_744_073_709_551_615_u64, "u", "v1",
            "Success", "JSONPatch", "Merge", "W10=", "\u{0}", "\n", "\u{fffd}", long, [[]], { "a": { "b": null } },
            patch("[]"), patch("null"), patch("{}"), patch(r#"[{"op":"replace","path":"","value":1}]"#),
            patch(r#"[{"op":"remove","path":"/metadata"}]"#), patch(r#"[{"op":"copy","from":"","path":"/a"}]"#),
            patch(r#"[{"op":"add","path":"/metadata/labels","value":7}]"#), patch("[{")])
        .as_array()
        .cloned()
        .unwrap_or_default()
    }

    /// The same answers in every run.
    fn run(target: Target, seeds: &[Value]) {
        let runs = std::env::var("FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number"));
        let (mut random, mut read, words) = (mutate::Random(0x9e37_79b9_7f4a_7c15), 0, words());
        let texts: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_string().into_bytes()).collect();
        for n in 0..runs {
            let bytes = if n % 4 == 0 {
                mutate::mutated(&mut random, &texts, &["null", "{", "\"uid\":", ",", "\\u0000"])
            } else {
                let seed = &seeds[random.below(seeds.len())];
                mutate_json::mutated_json(&mut |limit| random.below(limit), seed, &words)
                    .to_string()
                    .into_bytes()
            };
            let outcome = std::panic::catch_unwind(|| target(&bytes));
            read += usize::from(outcome.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&bytes))));
        }
        // Otherwise this would try the refusals alone.
        assert!(read > runs / 10, "only {read} answers of {runs} could be read");
    }

    #[test]
    fn any_answer_of_an_admission_webhook_is_read_or_refused() {
        run(admission_answer, &admission_seeds());
    }

    #[test]
    fn any_answer_of_a_conversion_webhook_is_read_or_refused() {
        run(conversion_answer, &conversion_seeds());
    }

    #[test]
    fn any_request_is_one_request() {
        let (mut random, mut read, seeds) = (mutate::Random(0x9e37_79b9_7f4a_7c15), 0, request_seeds());
        let words = [
            "/",
            "//",
            "/..",
            "/.",
            "%2F",
            "%2e",
            "%",
            "%zz",
            "%ff",
            "?",
            "&",
            "=",
            ";",
            "+",
            ",",
            "\\",
            "!",
            "==",
            "namespaces/",
            "watch/",
            "watch=",
            "proxy/",
            "fieldSelector=",
            "metadata.name%3D",
            "%5C,",
            "%00",
            "apis/",
            "status",
        ];
        for _ in 0..RUNS {
            let bytes = mutate::mutated(&mut random, &seeds, &words);
            let outcome = std::panic::catch_unwind(|| request(&bytes));
            read += usize::from(outcome.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&bytes))));
        }
        assert!(read > RUNS / 10, "only {read} requests of {RUNS} were for resources");
    }
}

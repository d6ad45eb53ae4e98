//! Any answer of an admission webhook.

use super::denial::denial;
use super::review::Verdict;
use coracle_api::patch::{self, PatchType};
use coracle_api::schema::{Dynamic, Kind, TypeRef};
use serde_json::{Value, json};

static ANY: Dynamic = Dynamic::of(Kind::Any);

/// Whatever the bytes say, a refusal is a failure, a validating webhook changes nothing, and a patch gives an object or an
/// error. True if it could be read in any of the ways that webhooks are asked.
#[must_use]
pub fn admission_answer(bytes: &[u8]) -> bool {
    let Ok(answer) = serde_json::from_slice::<Value>(bytes) else { return false };
    let mut read = false;
    for (version, mutating) in [("v1", true), ("v1", false), ("v1beta1", true)] {
        let Ok(verdict) = Verdict::read(&answer, version, "u", mutating) else { continue };
        read = true;
        assert!(mutating || verdict.patch.is_empty());
        if !verdict.allowed {
            let error = denial("hook.example.com", &verdict.status);
            let status = error.to_status();
            assert!(error.code >= 400 && status["status"] == "Failure", "{status}");
            assert!(error.message.starts_with("admission webhook \"hook.example.com\" denied the request"));
        }
        let object = json!({ "metadata": { "name": "x" }, "data": { "a": "b" } });
        if let Err(error) = patch::apply(PatchType::Json, &object, &verdict.patch, TypeRef::dynamic(&ANY)) {
            assert!(!error.to_string().is_empty());
        }
    }
    read
}

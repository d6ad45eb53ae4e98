//! The Status that a client reads when a webhook has denied its request.

use coracle_api::ApiError;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Reasons of Kubernetes' own.
const REASONS: &[&str] = &[
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
];

/// Other reasons that webhooks may think of in the life of a process, and their length in bytes: what is remembered for
/// ever has to end somewhere. Beyond that an answer has no reason.
const MOST_REASONS: usize = 256;
const REASON_BYTES: usize = 128;

/// `status` is the webhook's, or null. Whatever it says, the answer is a failure with a code from 400 on.
pub(super) fn denial(webhook: &str, status: &Value) -> ApiError {
    let denied = format!("admission webhook {webhook:?} denied the request");
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0).max(400);
    let mut error = ApiError::new(code, reason(text("reason")), message);
    if let Some(details) = status["details"].as_object() {
        error.details = details.clone().into();
        let seconds = status["details"]["retryAfterSeconds"].as_u64();
        error.retry_after = seconds.and_then(|seconds| u32::try_from(seconds).ok()).filter(|s| *s > 0);
    }
    if error.details == json!({}) {
        error.details = Value::Null;
    }
    error
}

fn reason(text: &str) -> &'static str {
    static OTHERS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if let Some(known) = REASONS.iter().find(|known| **known == text) {
        return known;
    }
    if text.is_empty() || text.len() > REASON_BYTES {
        return "";
    }
    let mut others = OTHERS.lock();
    match others.get(text) {
        Some(known) => known,
        None if others.len() >= MOST_REASONS => "",
        None => {
            let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
            others.insert(kept);
            kept
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_causes_are_the_webhooks() {
        let status = json!({ "code": 422, "reason": "Odd", "message": "no", "details": { "causes": [{ "field": "a" }] } });
        let error = denial("w.example.com", &status);
        assert_eq!((error.code, error.reason), (422, "Odd"));
        assert_eq!(error.message, "admission webhook \"w.example.com\" denied the request: no");
        assert_eq!(error.details["causes"][0]["field"], "a");
    }

    #[test]
    fn a_denial_never_looks_like_a_success() {
        for (status, code, words) in [
            (Value::Null, 400, "admission webhook \"w\" denied the request without explanation"),
            (
                json!({ "code": 200, "status": "Success" }),
                400,
                "admission webhook \"w\" denied the request without explanation",
            ),
            (
                json!({ "reason": "Conflict", "code": 409 }),
                409,
                "admission webhook \"w\" denied the request: Conflict",
            ),
        ] {
            let error = denial("w", &status);
            assert_eq!((error.code, &*error.message), (code, words));
            assert_eq!(error.to_status()["status"], "Failure");
        }
    }
}

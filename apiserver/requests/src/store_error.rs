//! What a client is told when the store fails.

use coracle_api::ApiError;
use coracle_store::{Revision, StoreError};
use serde_json::json;

/// Seconds after which a client that is ahead of this server tries again, as upstream's `resourceVersionTooHighRetrySeconds`.
const AHEAD_RETRY_SECONDS: u32 = 1;
/// How soon a write may be tried again that a full or failing disk refused. The store itself looks every two seconds; kubectl
/// tries ten times before it shows the message, which nobody should wait for much longer.
const READ_ONLY_RETRY_SECONDS: u32 = 1;

/// What the client is told when the store fails.
pub fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Conflict { key, .. } => ApiError::internal(format!("unresolved conflict on {key}")),
        StoreError::Compacted { asked, oldest } => {
            ApiError::expired(format!("too old resource version: {} ({})", asked.0, oldest.0))
        }
        StoreError::Future { asked, newest } => too_large_version(asked, newest),
        StoreError::ReadOnly(why) => ApiError::unavailable(format!("the store is read-only: {why}"))
            .retry_after(READ_ONLY_RETRY_SECONDS),
        StoreError::Unavailable(why) => {
            ApiError::unavailable(format!("the store is away, nothing was written: {why}"))
                .retry_after(READ_ONLY_RETRY_SECONDS)
        }
        // Without a time to try again: who tries a write again has to look first.
        StoreError::Unknown(why) => {
            ApiError::timeout(format!("whether it was written is unknown, look before you try again: {why}"))
        }
        StoreError::TooLarge(why) => {
            ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
        }
        StoreError::Closed => ApiError::unavailable("the server is shutting down"),
        other @ (StoreError::Unreadable(_) | StoreError::Seal { .. }) => {
            tracing::error!(error = &other as &dyn std::error::Error, "encryption at rest");
            ApiError::internal(coracle_api::error::chain(&other))
        }
        other => {
            tracing::error!(error = &other as &dyn std::error::Error, "store failed");
            ApiError::internal(other)
        }
    }
}

/// The 504 for a revision that is yet to come.
pub fn too_large_version(asked: Revision, newest: Revision) -> ApiError {
    let message = format!("Timeout: Too large resource version: {}, current: {}", asked.0, newest.0);
    let mut error = ApiError::timeout(message).with_details(json!({
        "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
        "retryAfterSeconds": AHEAD_RETRY_SECONDS,
    }));
    error.retry_after = Some(AHEAD_RETRY_SECONDS);
    error
}

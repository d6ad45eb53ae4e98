//! Request bodies, read whole up to the limit.

use crate::registry::decode::MAX_BODY_BYTES;
use axum::body::Body;
use bytes::Bytes;
use coracle_api::ApiError;
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// 413 over the limit, before anything is read if the client announces it.
pub async fn read(body: Body) -> Result<Bytes, ApiError> {
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(ApiError::too_large(MAX_BODY_BYTES));
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(MAX_BODY_BYTES)),
        Err(error) => Err(ApiError::bad_request(format!("unable to read the request body: {error}"))),
    }
}

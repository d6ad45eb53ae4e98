//! What the kubelet's clients read when a request fails: a status and a line of text.

use crate::cri::RuntimeError;
use crate::streaming::StreamError;
use axum::body::Body;
use coracle_api::error::chain;
use http::{HeaderValue, Response, StatusCode, header};

/// A failed request. `retry_after_seconds` goes with 429.
#[derive(Debug)]
pub(crate) struct HttpError {
    pub status: StatusCode,
    pub text: String,
    pub retry_after_seconds: Option<u32>,
}

impl HttpError {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), retry_after_seconds: None }
    }

    pub fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub fn internal(text: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// As upstream's streaming server maps gRPC codes.
impl From<RuntimeError> for HttpError {
    fn from(error: RuntimeError) -> Self {
        let code = match &error {
            RuntimeError::Failed { code, .. } => *code,
            RuntimeError::Unreachable { .. } | RuntimeError::Timeout { .. } => tonic::Code::Internal,
        };
        let status = match code {
            tonic::Code::NotFound => StatusCode::NOT_FOUND,
            tonic::Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let retry_after_seconds = (status == StatusCode::TOO_MANY_REQUESTS).then_some(1);
        Self { status, text: error.to_string(), retry_after_seconds }
    }
}

impl From<StreamError> for HttpError {
    fn from(error: StreamError) -> Self {
        Self::new(error.status(), chain(&error))
    }
}

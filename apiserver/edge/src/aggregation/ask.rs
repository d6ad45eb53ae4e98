//! Asking an aggregated server about itself, as the aggregator and not for anybody else.

use super::identity::set_user;
use super::resolve::resolve;
use super::table::Remote;
use axum::body::Body;
use bytes::Bytes;
use coracle_api::UserInfo;
use coracle_requests::ObjectReader;
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::time::Duration;

/// A server that has not answered by then is as good as none.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest document that is read; metrics-server's Swagger has 100 KB, those of the largest known servers 4 MB.
const MOST_BYTES: usize = 16 << 20;
/// Each asks another endpoint, if there are several.
const ATTEMPTS: usize = 2;

/// An answer in the 200s, or 304.
pub struct Document {
    pub body: Bytes,
    pub etag: String,
    /// The server has nothing newer than what the caller has.
    pub unchanged: bool,
}

impl Document {
    pub async fn json(self) -> Result<Value, String> {
        let parse = move || serde_json::from_slice(&self.body).map_err(|error| error.to_string());
        tokio::task::spawn_blocking(parse).await.map_err(|error| error.to_string())?
    }
}

/// Allowed everything, so that only the server itself can fail.
fn myself() -> UserInfo {
    let groups = vec![coracle_access::authz::MASTERS.to_owned()];
    UserInfo { name: "system:kube-aggregator".to_owned(), groups, ..UserInfo::default() }
}

/// The error is upstream's message of `FailedDiscoveryCheck`.
pub async fn get(
    remote: &Remote,
    reader: &dyn ObjectReader,
    path: &str,
    etag: &str,
) -> Result<Document, String> {
    let mut outcome = Err(String::new());
    for _ in 0..ATTEMPTS {
        outcome = once(remote, reader, path, etag).await;
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

async fn once(
    remote: &Remote,
    reader: &dyn ObjectReader,
    path: &str,
    etag: &str,
) -> Result<Document, String> {
    let transport = remote.transport.as_ref().map_err(Clone::clone)?;
    let address = resolve(reader, &transport.settings.service)?;
    let url = format!("https://{address}{path}");
    let mut request = Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    set_user(headers, &myself());
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Ok(etag) = HeaderValue::from_str(etag)
        && !etag.is_empty()
    {
        headers.insert(IF_NONE_MATCH, etag);
    }
    let failing = |error: String| format!("failing or missing response from {url}: {error}");
    let exchange = async {
        let response = transport.send(&address, request).await;
        let response = response.map_err(|error| failing(format!("Get {url:?}: {error}")))?;
        let status = response.status();
        let unchanged = status == StatusCode::NOT_MODIFIED;
        if !status.is_success() && !unchanged {
            return Err(failing(format!("bad status from {url}: {}", status.as_u16())));
        }
        let etag = response.headers().get(ETAG).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(|error| failing(error.to_string()))?.to_bytes();
        Ok(Document { body, etag, unchanged })
    };
    let timed_out = || failing(format!("Get {url:?}: context deadline exceeded"));
    tokio::time::timeout(WAIT_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(timed_out()))
}

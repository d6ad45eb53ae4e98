//! Tokens of Secrets that are still in use: their Secret is labelled with the day
//! (<https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#legacy-serviceaccount-token-tracking>),
//! by which the cleaner knows the ones that nobody misses.

use axum::Router;
use axum::body::Body;
use coracle_api::well_known;
use coracle_api::{Object, UserInfo};
use coracle_requests::value::str_at;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::HashMap;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub const LAST_USED: &str = well_known::LEGACY_TOKEN_LAST_USED;

/// A Secret whose token was accepted and whose label does not say so yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyUse {
    pub namespace: String,
    pub secret: String,
    pub uid: String,
    /// `2026-01-31`, in UTC.
    pub day: String,
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

impl LegacyUse {
    /// `None` if the label is of today; or of tomorrow, because the servers of a cluster need not have the same clock.
    pub(super) fn of(secret: &Object, now: Timestamp) -> Option<Self> {
        let label = secret["metadata"]["labels"][LAST_USED].as_str().unwrap_or_default();
        let tomorrow = now.checked_add(SignedDuration::from_hours(24)).unwrap_or(now);
        if label == day(now) || label == day(tomorrow) {
            return None;
        }
        let text = |field: &str| str_at(secret, field).to_owned();
        Some(Self {
            namespace: text("metadata.namespace"),
            secret: text("metadata.name"),
            uid: text("metadata.uid"),
            day: day(now),
        })
    }
}

/// Labels the Secrets until `stop`. `service` is the server's own. Once a day for each Secret, however often it is used;
/// a label that could not be written is tried again with the next use.
pub async fn track(mut uses: UnboundedReceiver<LegacyUse>, service: Router, stop: CancellationToken) {
    let mut written: HashMap<(String, String), String> = HashMap::new();
    while let Some(Some(used)) = stop.run_until_cancelled(uses.recv()).await {
        written.retain(|_, day| *day == used.day);
        let key = (used.namespace.clone(), used.uid.clone());
        if written.contains_key(&key) {
            continue;
        }
        match label(&service, &used).await {
            Ok(()) => drop(written.insert(key, used.day)),
            Err(error) => {
                tracing::warn!(namespace = used.namespace, secret = used.secret, %error, "use of a token not noted");
            }
        }
    }
}

async fn label(service: &Router, used: &LegacyUse) -> Result<(), String> {
    let body = json!({ "metadata": { "uid": used.uid, "labels": { LAST_USED: used.day } } });
    let mut request = Request::builder()
        .method(http::Method::PATCH)
        .uri(format!("/api/v1/namespaces/{}/secrets/{}", used.namespace, used.secret))
        .header("content-type", "application/merge-patch+json")
        .body(Body::from(body.to_string()))
        .map_err(|e| e.to_string())?;
    request.extensions_mut().insert(UserInfo::authenticated("system:apiserver", &[crate::authz::MASTERS]));
    let Ok(response) = service.clone().oneshot(request).await;
    if response.status().is_success() { Ok(()) } else { Err(response.status().to_string()) }
}

//! `status` of ValidatingAdmissionPolicies: what the check of types has found, once for each generation.

use super::compiled::{Policy, Validating, text};
use super::typecheck;
use axum::Router;
use axum::body::Body;
use coracle_api::{Object, UserInfo};
use coracle_requests::ObjectReader;
use coracle_requests::value::i64_at;
use coracle_resources::cache::{Cache, Changes};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// After a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Upstream's name of the field manager.
const MANAGER: &str = "validatingadmissionpolicy-status";

/// Keeps the statuses until `stop`. Recomputes from what there is whenever a policy changes; `service` is the server's
/// own, for writes as one of its clients.
pub async fn maintain(cache: Arc<Cache>, service: Router, stop: CancellationToken) {
    let mut changes = Changes::of(&cache, &[Validating::POLICIES]);
    while !stop.is_cancelled() {
        let mut failed = false;
        for policy in cache.list(Validating::POLICIES, "").iter().filter(|policy| is_behind(policy)) {
            if let Err(error) = write(&service, policy, &status(policy, &*cache)).await {
                tracing::warn!(%error, "status of a ValidatingAdmissionPolicy");
                failed = true;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY_INTERVAL), if failed => {}
            () = changes.next() => {}
        }
    }
}

fn is_behind(policy: &Object) -> bool {
    let seen = i64_at(policy, "status.observedGeneration").unwrap_or(0);
    i64_at(policy, "metadata.generation").is_some_and(|generation| generation > seen)
}

fn status(policy: &Object, read: &dyn ObjectReader) -> Value {
    let warnings = typecheck::check(policy, read);
    // As a merge patch: null takes away what the last check has found.
    let warnings = if warnings.is_empty() { Value::Null } else { Value::Array(warnings) };
    let generation = &policy["metadata"]["generation"];
    json!({ "observedGeneration": generation, "typeChecking": { "expressionWarnings": warnings } })
}

async fn write(service: &Router, policy: &Object, status: &Value) -> Result<(), String> {
    let name = text(&policy["metadata"], "name");
    let body = json!({ "metadata": { "uid": policy["metadata"]["uid"] }, "status": status });
    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}/status?fieldManager={MANAGER}"
    );
    let mut request = Request::patch(&path)
        .header("content-type", "application/merge-patch+json")
        .body(Body::from(body.to_string()))
        .map_err(|error| error.to_string())?;
    request
        .extensions_mut()
        .insert(UserInfo::authenticated("system:apiserver", &[coracle_access::authz::MASTERS]));
    let Ok(response) = service.clone().oneshot(request).await;
    let code = response.status();
    // Gone or changed meanwhile: the event of that leads back here.
    if code.is_success() || matches!(code, StatusCode::CONFLICT | StatusCode::NOT_FOUND) {
        return Ok(());
    }
    let text = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    Err(format!("{path}: {code}: {}", String::from_utf8_lossy(&text)))
}

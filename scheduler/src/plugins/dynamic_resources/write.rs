//! Writing allocations and reservations into claims.

use crate::cache::PodInfo;
use kube::Client;
use serde_json::{Value, json};

/// Keeps an allocated claim from vanishing before its devices are given back.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn path(claim: &Value) -> String {
    let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
    format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", text("namespace"), text("name"))
}

async fn send(client: &Client, method: http::Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let kind =
        if method == http::Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Adds the pod to the claim's consumers, and the allocation if it has none. The resourceVersion guards both against
/// whoever changed the claim meanwhile.
pub async fn reserve(
    client: &Client,
    claim: &Value,
    allocation: Option<&Value>,
    pod: &PodInfo,
) -> Result<(), kube::Error> {
    let path = path(claim);
    let mut version = claim["metadata"]["resourceVersion"].clone();
    let finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if allocation.is_some() && !finalizers.iter().any(|f| f == FINALIZER) {
        let mut finalizers = finalizers;
        finalizers.push(json!(FINALIZER));
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
        let written = send(client, http::Method::PATCH, &path, &patch).await?;
        version = written["metadata"]["resourceVersion"].clone();
    }
    let mut consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    consumers.push(json!({ "resource": "pods", "name": pod.key.name, "uid": pod.uid }));
    let mut status = json!({ "reservedFor": consumers });
    if let Some(allocation) = allocation {
        status["allocation"] = allocation.clone();
    }
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
    send(client, http::Method::PATCH, &format!("{path}/status"), &patch).await.map(|_| ())
}

/// Takes the pod off the consumers again; the allocation stays for its next attempt.
pub async fn release(client: &Client, claims: &[std::sync::Arc<Value>], uid: &str) {
    for claim in claims {
        let path = path(claim);
        let Ok(current) = send_get(client, &path).await else { continue };
        let consumers = current["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let left: Vec<&Value> = consumers.iter().filter(|c| c["uid"] != uid).collect();
        if left.len() == consumers.len() {
            continue;
        }
        let version = &current["metadata"]["resourceVersion"];
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "reservedFor": left } });
        if let Err(error) = send(client, http::Method::PATCH, &format!("{path}/status"), &patch).await {
            tracing::debug!(claim = path, %error, "reservation not taken back");
        }
    }
}

async fn send_get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

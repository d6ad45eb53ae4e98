//! Writing allocations and reservations into claims.

use super::decided::{Decided, Extended};
use super::{binding, is_allocated};
use crate::cache::PodInfo;
use coracle_api::well_known;
use coracle_client::write;
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Patch;
use serde_json::{Value, json};

/// Keeps an allocated claim from vanishing before its devices are given back.
const FINALIZER: &str = well_known::RESOURCE_CLAIM_PROTECTION;

fn collection(claim: &Value) -> String {
    let namespace = claim["metadata"]["namespace"].as_str().unwrap_or_default();
    format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
}

fn path(claim: &Value) -> String {
    format!("{}/{}", collection(claim), claim["metadata"]["name"].as_str().unwrap_or_default())
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.request(request.body(body).map_err(kube::Error::HttpError)?).await
}

/// Adds the pod to the claim's consumers, and the allocation if it has none; gives the claim as it is written. The
/// resourceVersion guards both against whoever changed the claim meanwhile.
pub async fn reserve(
    client: &Client,
    claim: &Value,
    allocation: Option<&Value>,
    pod: &PodInfo,
) -> Result<Value, kube::Error> {
    let path = path(claim);
    let mut version = claim["metadata"]["resourceVersion"].clone();
    let finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if allocation.is_some() && !finalizers.iter().any(|f| f == FINALIZER) {
        let mut finalizers = finalizers;
        finalizers.push(json!(FINALIZER));
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
        let written = send(client, Method::PATCH, &path, &patch).await?;
        version = written["metadata"]["resourceVersion"].clone();
    }
    let mut consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    consumers.push(json!({ "resource": "pods", "name": pod.key.name, "uid": pod.uid }));
    let mut status = json!({ "reservedFor": consumers });
    if let Some(allocation) = allocation {
        status["allocation"] = allocation.clone();
        if binding::has_conditions(allocation) {
            // Drivers measure their time by it.
            status["allocation"]["allocationTimestamp"] = json!(jiff::Timestamp::now());
        }
    }
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
    send(client, Method::PATCH, &format!("{path}/status"), &patch).await
}

/// Creates the claim for extended resources.
pub async fn create(client: &Client, claim: &Value) -> Result<Value, kube::Error> {
    let mut body = claim.clone();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("name");
    }
    send(client, Method::POST, &collection(claim), &body).await
}

/// Allocates the claim that was made for extended resources, and says in the pod's status whom it serves. Gives the
/// claim as it is written.
pub async fn serve(
    client: &Client,
    extended: &Extended,
    made: &Value,
    pod: &PodInfo,
) -> Result<Value, kube::Error> {
    let written = reserve(client, made, Some(&extended.allocation), pod).await?;
    let status = json!({
        "resourceClaimName": made["metadata"]["name"], "requestMappings": extended.mappings,
    });
    let patch =
        json!({ "metadata": { "uid": pod.uid }, "status": { "extendedResourceClaimStatus": status } });
    write::patch_status::<Pod>(client, &pod.key, &Patch::Merge(patch)).await?;
    Ok(written)
}

/// Takes the pod off the consumers again; the allocation stays for its next attempt, unless its devices must be made
/// ready, which failed. A claim that was made for the pod goes.
pub async fn release(client: &Client, decided: &Decided, uid: &str) {
    for (claim, allocation) in decided.claims.iter().zip(&decided.allocations) {
        let path = path(claim);
        let Ok(current) = send(client, Method::GET, &path, &Value::Null).await else { continue };
        let consumers = current["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let left: Vec<&Value> = consumers.iter().filter(|c| c["uid"] != uid).collect();
        if left.len() == consumers.len() {
            continue;
        }
        if left.is_empty() && allocation.as_ref().is_some_and(binding::has_conditions) {
            deallocate(client, &current).await;
            continue;
        }
        let version = &current["metadata"]["resourceVersion"];
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": { "reservedFor": left } });
        if let Err(error) = send(client, Method::PATCH, &format!("{path}/status"), &patch).await {
            tracing::debug!(claim = path, %error, "reservation not taken back");
        }
    }
    if let Some(made) = decided.extended.as_ref().and_then(|e| e.made.as_ref()) {
        delete(client, made).await;
    }
}

/// Gives a claim's devices back, if it is still as it is shown here.
pub async fn deallocate(client: &Client, claim: &Value) {
    let version = &claim["metadata"]["resourceVersion"];
    let status = json!({ "reservedFor": [], "allocation": null });
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
    let path = path(claim);
    if let Err(error) = send(client, Method::PATCH, &format!("{path}/status"), &patch).await {
        tracing::debug!(claim = path, %error, "not deallocated");
    }
}

/// Deletes a claim that the scheduler made.
pub async fn delete(client: &Client, claim: &Value) {
    let path = path(claim);
    let Ok(current) = send(client, Method::GET, &path, &Value::Null).await else { return };
    if current["metadata"]["uid"] != claim["metadata"]["uid"] {
        return;
    }
    if is_allocated(&current) {
        deallocate(client, &current).await;
    }
    let finalizers = current["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let left: Vec<&Value> = finalizers.iter().filter(|f| **f != FINALIZER).collect();
    if left.len() < finalizers.len() {
        let patch = json!({ "metadata": { "finalizers": left } });
        if let Err(error) = send(client, Method::PATCH, &path, &patch).await {
            tracing::debug!(claim = path, %error, "finalizer not removed");
        }
    }
    let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1",
        "preconditions": { "uid": claim["metadata"]["uid"] } });
    if let Err(error) = send(client, Method::DELETE, &path, &options).await {
        tracing::debug!(claim = path, %error, "not deleted");
    }
}

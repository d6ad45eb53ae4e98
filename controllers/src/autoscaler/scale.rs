//! The size of any resource that has the subresource `scale`.

use crate::common::message_of;
use crate::discovery::{Known, Served};
use http::Request;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use serde_json::{Value, json};

/// A target with its size and the selector of its pods.
pub struct Target {
    path: String,
    scale: Value,
}

/// The group of a reference without one is the core's; its version does not matter.
fn is_it(served: &Served, reference: &CrossVersionObjectReference) -> bool {
    let version = reference.api_version.as_deref().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    served.resource.group == group && served.resource.kind == reference.kind
}

impl Target {
    /// # Errors
    /// Why there is none, in words.
    pub async fn get(
        client: &kube::Client,
        known: &Known,
        namespace: &str,
        reference: &CrossVersionObjectReference,
    ) -> Result<Self, String> {
        let found = known.find(|served| is_it(served, reference)).await;
        let found = found.map_err(|error| message_of(&error))?.ok_or_else(|| {
            let version = reference.api_version.as_deref().unwrap_or("v1");
            format!("unable to determine resource for scale target reference: no matches for kind {:?} in version {version:?}", reference.kind)
        })?;
        let resource = &found.resource;
        let root = if resource.group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}", resource.api_version)
        };
        let path = format!("{root}/namespaces/{namespace}/{}/{}/scale", resource.plural, reference.name);
        let request = Request::get(&path).body(Vec::new()).map_err(|error| error.to_string())?;
        let scale = client.request(request).await.map_err(|error| message_of(&error))?;
        Ok(Self { path, scale })
    }

    fn number(&self, part: &str) -> i32 {
        self.scale[part]["replicas"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
    }

    pub fn wanted(&self) -> i32 {
        self.number("spec")
    }

    pub fn running(&self) -> i32 {
        self.number("status")
    }

    /// As text: `a=b,c in (d,e)`.
    pub fn selector(&self) -> &str {
        self.scale["status"]["selector"].as_str().unwrap_or_default()
    }

    /// # Errors
    /// What the API said.
    pub async fn resize(&self, client: &kube::Client, replicas: i32) -> Result<(), String> {
        let mut scale = self.scale.clone();
        scale["spec"]["replicas"] = json!(replicas);
        let body = serde_json::to_vec(&scale).map_err(|error| error.to_string())?;
        let request = Request::put(&self.path).header("content-type", "application/json").body(body);
        let request = request.map_err(|error| error.to_string())?;
        client.request::<Scale>(request).await.map(drop).map_err(|error| message_of(&error))
    }
}

//! The operator's resource in its two versions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::crd::merge_crds;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A web site: so many servers for a host.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
#[kube(group = "sites.coracle.dev", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
#[kube(printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"))]
pub struct SiteSpec {
    pub host: String,
    #[serde(default)]
    pub replicas: i32,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    pub phase: String,
    pub ready: i32,
    pub observed_generation: i64,
    /// Who wrote this.
    pub leader: String,
}

pub mod v1beta1 {
    use super::{Deserialize, JsonSchema, Serialize, SiteStatus};
    use kube::CustomResource;

    /// What was called `domain` once.
    #[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug)]
    #[kube(
        group = "sites.coracle.dev",
        version = "v1beta1",
        kind = "Site",
        namespaced,
        status = "SiteStatus"
    )]
    pub struct SiteSpec {
        pub domain: String,
        #[serde(default)]
        pub replicas: i32,
    }
}

/// Both versions, the newer one stored, with the webhook that converts.
pub fn definition(converter: &Value) -> CustomResourceDefinition {
    let merged = merge_crds(vec![Site::crd(), v1beta1::Site::crd()], "v1").expect("the same kind twice");
    let mut merged = serde_json::to_value(merged).expect("JSON");
    let webhook = json!({"clientConfig": converter, "conversionReviewVersions": ["v1"]});
    merged["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": webhook});
    serde_json::from_value(merged).expect("a definition")
}

/// `host` and `domain` are one and the same.
pub fn convert(object: &mut Value, version: &str) {
    let (from, to) = if version.ends_with("/v1") { ("domain", "host") } else { ("host", "domain") };
    if let Some(spec) = object["spec"].as_object_mut()
        && let Some(name) = spec.remove(from)
    {
        spec.insert(to.to_owned(), name);
    }
}

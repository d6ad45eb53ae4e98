//! What claims ask for, read: one way, or several in the order of preference (`firstAvailable`, KEP-4816).

use crate::framework::Cluster;
use coracle_api::toleration::Toleration;
use serde_json::Value;
use std::sync::Arc;

/// One thing that a claim asks for: so many devices that satisfy these.
#[derive(Clone)]
pub struct Want<'c> {
    pub claim: usize,
    /// `request`, or `request/subrequest`.
    pub name: String,
    pub request: &'c Value,
    pub class: Arc<Value>,
    /// `None` for all that match.
    pub count: Option<usize>,
    pub admin: bool,
}

impl Want<'_> {
    pub fn tolerates(&self, taint: &Value) -> bool {
        let mut tolerations = self.request["tolerations"].as_array().into_iter().flatten();
        tolerations.any(|t| Toleration::from(t).tolerates(taint.into()))
    }
}

fn requests(claim: &Value) -> impl Iterator<Item = &Value> {
    claim["spec"]["devices"]["requests"].as_array().into_iter().flatten()
}

/// The alternatives of every request of the claims, the preferred first.
pub fn alternatives<'c>(
    claims: &'c [Arc<Value>],
    cluster: &dyn Cluster,
) -> Result<Vec<Vec<Want<'c>>>, String> {
    let mut all = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        for request in requests(claim) {
            let name = request["name"].as_str().unwrap_or_default();
            let exactly = &request["exactly"];
            let mut ways = Vec::new();
            if exactly.is_object() {
                ways.push(want(index, name.to_owned(), exactly, cluster)?);
            } else {
                for sub in request["firstAvailable"].as_array().into_iter().flatten() {
                    let full = format!("{name}/{}", sub["name"].as_str().unwrap_or_default());
                    ways.push(want(index, full, sub, cluster)?);
                }
            }
            if ways.is_empty() {
                let claim = super::key(claim);
                return Err(format!("resource claim {claim}, request {name}: unknown request type"));
            }
            all.push(ways);
        }
    }
    Ok(all)
}

fn want<'c>(
    claim: usize,
    name: String,
    request: &'c Value,
    cluster: &dyn Cluster,
) -> Result<Want<'c>, String> {
    let class_name = request["deviceClassName"].as_str().unwrap_or_default();
    let class = cluster.device_class(class_name);
    let class = class.ok_or_else(|| format!("request {name}: device class {class_name} does not exist"))?;
    let count = match request["allocationMode"].as_str().unwrap_or("ExactCount") {
        "ExactCount" => {
            let count = request["count"].as_u64().unwrap_or(1);
            Some(usize::try_from(count).unwrap_or(usize::MAX))
        }
        "All" => None,
        other => return Err(format!("request {name}: unsupported allocation mode {other}")),
    };
    Ok(Want { claim, name, request, class, count, admin: request["adminAccess"] == true })
}

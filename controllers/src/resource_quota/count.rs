//! Counts what a namespace holds, by asking the API.

use crate::discovery;
use coracle_api::quota::{self, Amounts};
use coracle_api::{Quantity, catalogue};
use coracle_client::ReconcileError;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer of discovery is good for; custom resources come and go slowly.
const DISCOVERY_TTL: Duration = Duration::from_secs(30);

type Name = (String, String);

/// Where resources are served.
pub struct Resources {
    client: kube::Client,
    /// Custom resources: their path's beginning, such as `/apis/example.com/v1`.
    custom: Mutex<(Option<Instant>, HashMap<Name, String>)>,
}

/// Whether objects of the resource must be looked into, not only counted.
pub fn is_weighed(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("", "pods" | "services" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims")
    )
}

/// `/api/v1` or `/apis/<group>/<version>` of a built-in resource.
fn built_in(group: &str, plural: &str) -> Option<String> {
    let resource = catalogue::catalogue().iter().find(|r| r.group == group && r.plural == plural)?;
    resource.namespaced.then(|| prefix(&resource.api_version()))
}

fn prefix(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

impl Resources {
    pub fn new(client: kube::Client) -> Self {
        Self { client, custom: Mutex::default() }
    }

    /// The beginning of the resource's path; `None` if nobody serves it, or not in namespaces.
    pub async fn prefix(&self, group: &str, plural: &str) -> Result<Option<String>, kube::Error> {
        if let Some(found) = built_in(group, plural) {
            return Ok(Some(found));
        }
        let key = (group.to_owned(), plural.to_owned());
        {
            // Plain data, whole after a panic.
            let known = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
            if known.0.is_some_and(|at| at.elapsed() < DISCOVERY_TTL) {
                return Ok(known.1.get(&key).cloned());
            }
        }
        let served = discovery::served(&self.client).await?;
        let paths = served.into_iter().filter(|s| s.namespaced).map(|s| {
            ((s.resource.group.clone(), s.resource.plural.clone()), prefix(&s.resource.api_version))
        });
        let mut known = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        *known = (Some(Instant::now()), paths.collect());
        Ok(known.1.get(&key).cloned())
    }

    /// What is used of everything in `hard`; what nobody serves is used by nobody.
    pub async fn used(&self, quota: &Value, hard: &Amounts) -> Result<Amounts, ReconcileError> {
        let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
        let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
        for (group, plural) in quota::all_measured(hard) {
            let Some(prefix) = self.prefix(&group, &plural).await? else { continue };
            let path = format!("{prefix}/namespaces/{namespace}/{plural}");
            let found = if is_weighed(&group, &plural) {
                self.weigh(quota, &path, &group, &plural).await?
            } else {
                self.count(quota, &path, &group, &plural).await?
            };
            for (name, quantity) in found {
                if let Some(sum) = used.get_mut(&name) {
                    *sum += quantity;
                }
            }
        }
        Ok(used)
    }

    async fn get(&self, path: &str) -> Result<Value, ReconcileError> {
        let request =
            http::Request::get(path).body(Vec::new()).map_err(|e| ReconcileError::Other(e.to_string()))?;
        Ok(self.client.request::<Value>(request).await?)
    }

    async fn weigh(
        &self,
        quota: &Value,
        path: &str,
        group: &str,
        plural: &str,
    ) -> Result<Amounts, ReconcileError> {
        let list = self.get(path).await?;
        let now = Timestamp::now();
        let mut sum = Amounts::new();
        let items = list["items"].as_array().into_iter().flatten();
        for object in items.filter(|object| quota::matches_scopes(quota, group, plural, object)) {
            for (name, quantity) in quota::usage(group, plural, object, now) {
                *sum.entry(name).or_default() += quantity;
            }
        }
        Ok(sum)
    }

    /// Without a look at the objects: one comes back, and the number of the rest.
    async fn count(
        &self,
        quota: &Value,
        path: &str,
        group: &str,
        plural: &str,
    ) -> Result<Amounts, ReconcileError> {
        if !quota::matches_scopes(quota, group, plural, &Value::Null) {
            return Ok(Amounts::new());
        }
        let list = self.get(&format!("{path}?limit=1")).await?;
        let shown = list["items"].as_array().map_or(0, Vec::len);
        let rest = list["metadata"]["remainingItemCount"].as_i64().unwrap_or(0);
        let many = Quantity::from_units(i64::try_from(shown).unwrap_or(0).saturating_add(rest));
        let one = quota::usage(group, plural, &Value::Null, Timestamp::now());
        Ok(one.into_keys().map(|name| (name, many)).collect())
    }
}

//! PreBind: writes what was decided, and waits for devices that must be made ready for a node before a pod is bound
//! there (binding conditions, KEP-5007).

use super::decided::Decided;
use super::{DynamicResources, is_allocated, reserved_for, write};
use crate::cache::PodInfo;
use crate::framework::Status;
use serde_json::Value;
use std::time::Duration;

/// What was written is seen by then, unless the watch of claims stands still.
const SEEN_TIMEOUT: Duration = Duration::from_secs(30);

/// How far the devices of an allocated claim are.
#[derive(Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    Waiting,
    /// A device's driver gave up.
    Failed(String),
}

fn holds(state: Option<&Value>, condition: &str) -> bool {
    let conditions = state.and_then(|s| s["conditions"].as_array());
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

/// Of a claim as the API shows it.
pub fn readiness(claim: &Value) -> Readiness {
    let states = claim["status"]["devices"].as_array();
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    let mut waiting = false;
    for result in results.into_iter().flatten() {
        let same = |field: &str, state: &Value| state[field] == result[field];
        let is_it = |s: &&Value| ["driver", "pool", "device", "shareID"].iter().all(|f| same(f, s));
        let state = states.and_then(|all| all.iter().find(is_it));
        let named = |field: &str| {
            let list = result[field].as_array().cloned().unwrap_or_default();
            list.into_iter().filter_map(|c| c.as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        if let Some(failed) = named("bindingFailureConditions").iter().find(|c| holds(state, c)) {
            let device = result["device"].as_str().unwrap_or_default();
            return Readiness::Failed(format!("device {device}: binding condition {failed} is True"));
        }
        waiting |= named("bindingConditions").iter().any(|c| !holds(state, c));
    }
    if waiting { Readiness::Waiting } else { Readiness::Ready }
}

/// Whether an allocation has devices that must be waited for.
pub fn has_conditions(allocation: &Value) -> bool {
    let results = allocation["devices"]["results"].as_array();
    results.into_iter().flatten().any(|r| r["bindingConditions"].is_array())
}

/// The version of an object; later ones are greater.
fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
}

impl DynamicResources {
    /// Waits until the claims are seen as they were written: what PreBind decided needs no memory of its own then.
    pub(super) async fn seen(&self, written: &[Value]) -> Status {
        let mut changes = self.cluster.changes();
        let is_seen = |claim: &Value| {
            let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
            let shown = self.cluster.resource_claim(text("namespace"), text("name"));
            shown.is_some_and(|shown| version(&shown) >= version(claim))
        };
        let wait = async {
            loop {
                changes.borrow_and_update();
                if written.iter().all(is_seen) {
                    return Status::Success;
                }
                if changes.changed().await.is_err() {
                    return Status::Error("nobody follows claims any more".to_owned());
                }
            }
        };
        let ended = tokio::time::timeout(SEEN_TIMEOUT, wait).await;
        ended.unwrap_or_else(|_| Status::Error("written claims were not seen in time".to_owned()))
    }

    /// Writes what was decided; gives the claims as they are written.
    pub(super) async fn write(
        &self,
        client: &kube::Client,
        decided: &Decided,
        pod: &PodInfo,
    ) -> Result<Vec<Value>, String> {
        let mut all = Vec::new();
        for (claim, allocation) in decided.claims.iter().zip(&decided.allocations) {
            if allocation.is_none() && reserved_for(claim, pod) {
                continue;
            }
            let claim = write::reserve(client, claim, allocation.as_ref(), pod).await;
            all.push(claim.map_err(|error| format!("reserving resourceclaim: {error}"))?);
        }
        if let Some(extended) = &decided.extended {
            let made = write::create(client, &extended.claim).await;
            let made = made.map_err(|error| format!("create claim for extended resources: {error}"))?;
            self.in_binding.made(&pod.uid, made.clone());
            let claim = write::serve(client, extended, &made, pod).await;
            all.push(claim.map_err(|error| format!("reserving resourceclaim: {error}"))?);
        }
        Ok(all)
    }

    /// Waits until the devices of the claims are ready for the node; all at once when none needs to be.
    pub(super) async fn ready(&self, decided: &Decided) -> Status {
        let names: Vec<(String, String)> = decided.awaited();
        if names.is_empty() {
            return Status::Success;
        }
        let mut changes = self.cluster.changes();
        let wait = async {
            loop {
                changes.borrow_and_update();
                let mut waiting = false;
                for (namespace, name) in &names {
                    let Some(claim) = self.cluster.resource_claim(namespace, name) else {
                        return Status::unschedulable(format!("resourceclaim {name} is gone"));
                    };
                    match readiness(&claim) {
                        Readiness::Ready if is_allocated(&claim) => {}
                        Readiness::Ready | Readiness::Waiting => waiting = true,
                        Readiness::Failed(why) => return Status::unschedulable(why),
                    }
                }
                if !waiting {
                    return Status::Success;
                }
                if changes.changed().await.is_err() {
                    return Status::Error("nobody follows claims any more".to_owned());
                }
            }
        };
        let ended = tokio::time::timeout(self.binding_timeout, wait).await;
        ended.unwrap_or_else(|_| Status::unschedulable("device binding timeout"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_condition_must_hold_and_no_failure() {
        let claim = |conditions: Value| {
            let id = json!({"driver": "d", "pool": "p", "device": "x"});
            let (mut result, mut state) = (id.clone(), id);
            result["bindingConditions"] = json!(["Attached", "Warm"]);
            result["bindingFailureConditions"] = json!(["Broken"]);
            state["conditions"] = conditions;
            json!({"status": {"allocation": {"devices": {"results": [result]}}, "devices": [state]}})
        };
        let is = |name: &str, status: &str| json!({"type": name, "status": status});
        let cases = [
            (json!([]), Readiness::Waiting),
            (json!([is("Attached", "True"), is("Warm", "False")]), Readiness::Waiting),
            (json!([is("Attached", "True"), is("Warm", "True")]), Readiness::Ready),
            (
                json!([is("Attached", "True"), is("Broken", "True")]),
                Readiness::Failed("device x: binding condition Broken is True".to_owned()),
            ),
        ];
        for (conditions, expected) in cases {
            assert_eq!(readiness(&claim(conditions.clone())), expected, "{conditions}");
        }
    }
}

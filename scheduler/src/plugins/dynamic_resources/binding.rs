//! Devices that must be made ready for a node before a pod is bound there (binding conditions, KEP-5007).

use serde_json::Value;

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

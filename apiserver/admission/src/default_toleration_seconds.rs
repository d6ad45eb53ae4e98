//! DefaultTolerationSeconds: pods stay five minutes on a node that does not answer, also when an update replaces all of
//! their tolerations
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>).

use super::{Operation, Plugin, Request, items, items_mut};
use coracle_api::well_known;
use coracle_api::{ApiError, Object};
use serde_json::{Value, json};

pub(super) struct DefaultTolerationSeconds;

/// Upstream's `--default-not-ready-toleration-seconds`.
const SECONDS: i64 = 300;

const KEYS: [&str; 2] = [well_known::NOT_READY, well_known::UNREACHABLE];

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if !(writes && request.is_for("", "pods", "")) {
            return Ok(());
        }
        for key in KEYS {
            if items(&pod["spec"]["tolerations"]).iter().any(|t| tolerates(t, key)) {
                continue;
            }
            if let Some(list) = items_mut(&mut pod["spec"], "tolerations") {
                list.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
                }));
            }
        }
        Ok(())
    }
}

fn tolerates(toleration: &Value, key: &str) -> bool {
    let is = |field: &str, value: &str| {
        let text = toleration[field].as_str().unwrap_or_default();
        text.is_empty() || text == value
    };
    is("key", key) && is("effect", "NoExecute")
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn keys(tolerations: Value) -> Vec<String> {
        let mut pod = pod();
        pod["spec"]["tolerations"] = tolerations;
        let world = World::new();
        let pod = Try::create(&world, "pods.").mutate(&DefaultTolerationSeconds, pod).unwrap();
        let list = items(&pod["spec"]["tolerations"]).iter();
        list.filter(|t| t["tolerationSeconds"] == 300)
            .map(|t| t["key"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn an_update_that_replaces_the_tolerations_is_completed() {
        let mut pod = pod();
        pod["spec"]["tolerations"] = json!([{ "key": "own", "operator": "Exists" }]);
        let world = World::new();
        for (resource, completed) in [("pods.", 3), ("pods./status", 1)] {
            let update = Try { operation: Operation::Update, ..Try::create(&world, resource) };
            let pod = update.mutate(&DefaultTolerationSeconds, pod.clone()).unwrap();
            assert_eq!(items(&pod["spec"]["tolerations"]).len(), completed, "{resource}");
        }
    }

    #[test]
    fn only_what_is_not_tolerated_already() {
        assert_eq!(keys(Value::Null), KEYS);
        assert_eq!(keys(json!([{ "key": "other", "operator": "Exists" }])), KEYS);
        assert_eq!(
            keys(json!([{ "key": KEYS[0], "effect": "NoExecute", "tolerationSeconds": 5 }])),
            [KEYS[1]]
        );
        assert_eq!(keys(json!([{ "key": KEYS[0], "effect": "NoSchedule" }])), KEYS);
        assert!(keys(json!([{ "operator": "Exists" }])).is_empty());
    }
}

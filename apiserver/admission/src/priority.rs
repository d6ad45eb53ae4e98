//! Priority: the number behind a pod's priority class
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/>).

use super::{Operation, Plugin, Request};
use coracle_api::{ApiError, Object};
use std::sync::Arc;

pub(super) struct Priority;

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const DEFAULT_POLICY: &str = "PreemptLowerPriority";

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, old: Option<&Object>) -> Result<(), ApiError> {
        if request.is(Operation::Create, "", "pods") {
            return resolve(request, pod);
        }
        // An update cannot change the number, and need not repeat it.
        if request.is(Operation::Update, "", "pods")
            && let Some(old) = old
        {
            for field in ["priority", "preemptionPolicy"] {
                if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
                    pod["spec"][field] = old["spec"][field].clone();
                }
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(class) =
            object.filter(|_| writes && request.is_for("scheduling.k8s.io", "priorityclasses", ""))
        else {
            return Ok(());
        };
        if class["globalDefault"] != true {
            return Ok(());
        }
        match default_class(request).filter(|other| other["metadata"]["name"] != request.name) {
            Some(other) => {
                let name = other["metadata"]["name"].as_str().unwrap_or_default();
                let why =
                    format!("PriorityClass {name} is already marked as default. Only one default can exist");
                Err(request.forbidden(&why))
            }
            None => Ok(()),
        }
    }
}

/// The least of those marked, should there be several by accident.
fn default_class(request: &Request) -> Option<Arc<Object>> {
    let classes = request.read.list(CLASSES, "");
    classes.into_iter().filter(|c| c["globalDefault"] == true).min_by_key(|c| c["value"].as_i64())
}

fn resolve(request: &Request, pod: &mut Object) -> Result<(), ApiError> {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let class = if name.is_empty() {
        default_class(request)
    } else {
        let class = request.read.get(CLASSES, "", &name);
        Some(
            class
                .ok_or_else(|| request.forbidden(&format!("no PriorityClass with name {name} was found")))?,
        )
    };
    let (value, policy) = match &class {
        Some(class) => {
            pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
            (class["value"].as_i64().unwrap_or_default(), class["preemptionPolicy"].as_str())
        }
        None => (0, None),
    };
    let policy = policy.unwrap_or(DEFAULT_POLICY);
    let computed = "must not be provided in pod spec; priority admission controller computed";
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) {computed} {value} from the given PriorityClass name"
        );
        return Err(request.forbidden(&why));
    }
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) {computed} {policy} from the given PriorityClass name"
        );
        return Err(request.forbidden(&why));
    }
    pod["spec"]["priority"] = value.into();
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::{Value, json};

    fn world() -> Arc<World> {
        let world = World::new();
        world.put(
            CLASSES,
            json!({ "metadata": { "name": "high" }, "value": 1000, "preemptionPolicy": "Never" }),
        );
        world
    }

    fn admit(world: &World, spec: Value) -> Result<Value, String> {
        let mut pod = pod();
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        let pod = Try::create(world, "pods.").mutate(&Priority, pod).map_err(|e| e.message)?;
        let fields = ["priorityClassName", "priority", "preemptionPolicy"];
        Ok(fields.iter().map(|f| pod["spec"][*f].clone()).collect())
    }

    #[test]
    fn classes_become_numbers() {
        let world = world();
        assert_eq!(admit(&world, json!({})).unwrap(), json!([null, 0, "PreemptLowerPriority"]));
        assert_eq!(
            admit(&world, json!({ "priorityClassName": "high" })).unwrap(),
            json!(["high", 1000, "Never"])
        );
        world.put(CLASSES, json!({ "metadata": { "name": "usual" }, "value": 7, "globalDefault": true }));
        assert_eq!(admit(&world, json!({})).unwrap(), json!(["usual", 7, "PreemptLowerPriority"]));
    }

    #[test]
    fn contradictions_are_refused() {
        let world = world();
        let error = admit(&world, json!({ "priorityClassName": "none" })).unwrap_err();
        assert_eq!(error, "pods \"web\" is forbidden: no PriorityClass with name none was found");
        let error = admit(&world, json!({ "priorityClassName": "high", "priority": 3 })).unwrap_err();
        assert!(
            error.contains("the integer value of priority (3) must not be provided in pod spec"),
            "{error}"
        );
        assert!(admit(&world, json!({ "preemptionPolicy": "Never" })).is_err());
        admit(&world, json!({ "priorityClassName": "high", "priority": 1000, "preemptionPolicy": "Never" }))
            .unwrap();
    }

    #[test]
    fn there_is_one_default_class() {
        let world = world();
        let class = |name: &str| json!({ "metadata": { "name": name }, "value": 1, "globalDefault": true });
        let create = |name| Try::create(&world, CLASSES).validate(&Priority, &class(name), None);
        create("a").unwrap();
        world.put(CLASSES, class("a"));
        create("a").unwrap();
        assert!(create("b").unwrap_err().message.contains("PriorityClass a is already marked as default"));
    }
}

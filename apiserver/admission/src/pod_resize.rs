//! PodResizeValidator: a resize that the node could never grant, however empty it was, is refused at once
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>).

use super::{Operation, Plugin, Request};
use coracle_api::pod::{self, Counted};
use coracle_api::quantity::Quantity;
use coracle_api::{ApiError, Object};

pub(super) struct PodResizeValidator;

/// What is larger than what the node gives to pods.
fn too_much(pod: &Object, node: &Object) -> Vec<String> {
    let asked = pod::requests(pod, Counted { overhead: true, ..Counted::default() });
    let exceeds = |name: &str, amount: fn(Quantity) -> i64| {
        let given = node["status"]["allocatable"][name].as_str().and_then(|text| text.parse().ok());
        let (asked, given) = (asked.get(name).map_or(0, amount), given.map_or(0, amount));
        (asked > given).then(|| format!("{name}, requested: {asked}, allocatable: {given}"))
    };
    [exceeds("cpu", Quantity::milli), exceeds("memory", Quantity::units)].into_iter().flatten().collect()
}

impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let is_resize = request.is_for("", "pods", "resize");
        let Some((new, old)) = object.zip(old).filter(|_| is_resize) else { return Ok(()) };
        if new["spec"] == old["spec"] {
            return Ok(());
        }
        let Some(node) = request.node_of(new)? else { return Ok(()) };
        let too_much = too_much(new, &node);
        if !too_much.is_empty() {
            let what = too_much.join("; ");
            let why = format!("Node didn't have enough allocatable resources: {what}");
            return Err(because(request.forbidden(&why), "NodeCapacity"));
        }
        let system = node["metadata"]["labels"]["kubernetes.io/os"].as_str().unwrap_or_default();
        if system == "linux" {
            return Ok(());
        }
        let name = new["spec"]["nodeName"].as_str().unwrap_or_default();
        let why = format!("pod resize is only supported on linux nodes, node \"{name}\" is \"{system}\"");
        Err(because(request.forbidden(&why), "UnsupportedPlatform"))
    }
}

/// Autoscalers decide by the cause.
fn because(mut error: ApiError, cause: &str) -> ApiError {
    error.details["causes"] = serde_json::json!([{ "reason": cause }]);
    error
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::json;

    #[test]
    fn no_resize_exceeds_the_whole_node() {
        let world = World::new();
        let with = |cpu: &str, memory: &str| {
            let mut pod = pod();
            pod["spec"]["nodeName"] = "n".into();
            pod["spec"]["containers"][0]["resources"] =
                json!({ "requests": { "cpu": cpu, "memory": memory } });
            pod
        };
        let refused = |new: &Object| {
            let attempt = Try { operation: Operation::Update, ..Try::create(&world, "pods./resize") };
            let answer = attempt.validate(&PodResizeValidator, new, Some(&with("1", "1Gi")));
            let refused = answer.err().map(|e| (e.to_string(), e.details["causes"].to_string()));
            refused.map(|(why, causes)| format!("{why} {causes}")).unwrap_or_default()
        };
        let node = |system: &str| {
            json!({ "metadata": { "name": "n", "labels": { "kubernetes.io/os": system } },
                "status": { "allocatable": { "cpu": "2", "memory": "2Gi" } } })
        };
        assert!(refused(&with("2", "2Gi")).contains("node \"n\" not found"));
        world.put("nodes.", node("linux"));
        assert_eq!(refused(&with("2", "2Gi")), "");
        let both = refused(&with("2001m", "3Gi"));
        let wanted = "pods \"web\" is forbidden: Node didn't have enough allocatable resources: cpu, requested: 2001, \
                      allocatable: 2000; memory, requested: 3221225472, allocatable: 2147483648";
        assert!(both.contains(wanted) && both.ends_with(r#" [{"reason":"NodeCapacity"}]"#), "{both}");
        world.put("nodes.", node("windows"));
        let windows = refused(&with("2", "2Gi"));
        assert!(
            windows.contains("pod resize is only supported on linux nodes, node \"n\" is \"windows\""),
            "{windows}"
        );
        assert_eq!(refused(&with("1", "1Gi")), "", "nothing changes");
    }
}

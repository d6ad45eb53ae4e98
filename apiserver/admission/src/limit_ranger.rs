//! LimitRanger: defaults and bounds for what containers, pods and claims ask for
//! (<https://kubernetes.io/docs/concepts/policy/limit-range/>).

use super::{Operation, Plugin, Request, items, present_items};
use coracle_api::pod::{self, Counted};
use coracle_api::quantity::Quantity;
use coracle_api::quota::{Amounts, amounts};
use coracle_api::{ApiError, Object};
use serde_json::{Map, Value};

pub(super) struct LimitRanger;

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if sets_resources(request) {
            for range in request.read.list("limitranges.", request.namespace) {
                let limits = items(&range["spec"]["limits"]);
                for limit in limits.iter().filter(|l| l["type"] == "Container") {
                    set_defaults(pod, limit);
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
        let Some(object) = object else { return Ok(()) };
        let pod = sets_resources(request);
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let claim = writes && request.is_for("", "persistentvolumeclaims", "");
        if !pod && !claim {
            return Ok(());
        }
        let mut errors = Vec::new();
        for range in request.read.list("limitranges.", request.namespace) {
            for limit in items(&range["spec"]["limits"]) {
                match limit["type"].as_str() {
                    Some("Container") if pod => containers(object, limit, &mut errors),
                    Some("Pod") if pod => ResourceAmounts::of_pod(object).check("Pod", limit, &mut errors),
                    Some("PersistentVolumeClaim") if claim => check_claim(object, limit, &mut errors),
                    _ => {}
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(()),
            [one] => Err(request.forbidden(one)),
            many => Err(request.forbidden(&format!("[{}]", many.join(", ")))),
        }
    }
}

/// Containers get their resources when their pod is made, and later only by resizing it.
fn sets_resources(request: &Request) -> bool {
    let resize = request.operation == Operation::Update && request.is_for("", "pods", "resize");
    resize || request.is(Operation::Create, "", "pods")
}

/// The default limits and requests that a range gives a container; what it leaves out follows from the rest, as
/// upstream's defaulting of LimitRange.
fn defaults_of(limit: &Value) -> (Map<String, Value>, Map<String, Value>) {
    let map = |field: &str| limit[field].as_object().cloned().unwrap_or_default();
    let fill = |mut map: Map<String, Value>, from: Map<String, Value>| {
        for (key, value) in from {
            map.entry(key).or_insert(value);
        }
        map
    };
    let limits = fill(map("default"), map("max"));
    let requests = fill(fill(map("defaultRequest"), limits.clone()), map("min"));
    (limits, requests)
}

fn set_defaults(pod: &mut Object, limit: &Value) {
    let (limits, requests) = defaults_of(limit);
    let mut notes = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let Some(containers) = present_items(&mut pod["spec"], list) else { continue };
        for container in containers {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (field, label, values) in [("requests", "request", &requests), ("limits", "limit", &limits)] {
                let set = set_missing(container, field, values);
                if !set.is_empty() {
                    notes.push(format!("{} {label} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        if pod["metadata"]["annotations"].is_null() {
            pod["metadata"]["annotations"] = Map::new().into();
        }
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = note.into();
    }
}

fn set_missing(container: &mut Value, field: &str, values: &Map<String, Value>) -> Vec<String> {
    let mut set = Vec::new();
    for (key, value) in values {
        if container["resources"][field][key].is_null() {
            container["resources"][field][key] = value.clone();
            set.push(key.clone());
        }
    }
    set
}

fn containers(pod: &Object, limit: &Value, errors: &mut Vec<String>) {
    for list in ["containers", "initContainers"] {
        for container in items(&pod["spec"][list]) {
            ResourceAmounts::of(&container["resources"]).check("Container", limit, errors);
        }
    }
}

fn check_claim(claim: &Object, limit: &Value, errors: &mut Vec<String>) {
    let requests = amounts(&claim["spec"]["resources"]["requests"]);
    ResourceAmounts { limits: requests.clone(), requests }.check("PersistentVolumeClaim", limit, errors);
}

struct ResourceAmounts {
    requests: Amounts,
    limits: Amounts,
}

impl ResourceAmounts {
    fn of(resources: &Value) -> Self {
        Self { requests: amounts(&resources["requests"]), limits: amounts(&resources["limits"]) }
    }

    fn of_pod(pod: &Object) -> Self {
        let counted = Counted::default();
        Self { requests: pod::requests(pod, counted).to_map(), limits: pod::limits(pod, counted).to_map() }
    }

    fn check(&self, kind: &str, limit: &Value, errors: &mut Vec<String>) {
        for (key, bound) in amounts(&limit["min"]) {
            let head = format!("minimum {key} usage per {kind} is {bound}");
            match (self.requests.get(&key), self.limits.get(&key)) {
                (None, _) => errors.push(format!("{head}.  No request is specified")),
                (Some(request), _) if *request < bound => {
                    errors.push(format!("{head}, but request is {request}"))
                }
                (_, Some(limit)) if *limit < bound => errors.push(format!("{head}, but limit is {limit}")),
                _ => {}
            }
        }
        for (key, bound) in amounts(&limit["max"]) {
            let head = format!("maximum {key} usage per {kind} is {bound}");
            match (self.limits.get(&key), self.requests.get(&key)) {
                (None, _) => errors.push(format!("{head}.  No limit is specified")),
                (Some(limit), _) if *limit > bound => errors.push(format!("{head}, but limit is {limit}")),
                (_, Some(request)) if *request > bound => {
                    errors.push(format!("{head}, but request is {request}"))
                }
                _ => {}
            }
        }
        for (key, bound) in amounts(&limit["maxLimitRequestRatio"]) {
            self.check_ratio(kind, &key, bound, errors);
        }
    }

    fn check_ratio(&self, kind: &str, key: &str, bound: Quantity, errors: &mut Vec<String>) {
        let head = format!("{key} max limit to request ratio per {kind} is {bound}");
        let (Some(request), Some(limit)) = (self.requests.get(key), self.limits.get(key)) else {
            let lacking = if self.requests.contains_key(key) { "limit" } else { "request" };
            errors.push(format!("{head}, but no {lacking} is specified or {lacking} is 0"));
            return;
        };
        if request.is_zero() || limit.is_zero() {
            let lacking = if request.is_zero() { "request" } else { "limit" };
            errors.push(format!("{head}, but no {lacking} is specified or {lacking} is 0"));
            return;
        }
        // Exact: limit / request > bound, without dividing.
        let nanos_per_unit = Quantity::from_units(1).nanos();
        let over =
            limit.nanos().saturating_mul(nanos_per_unit) > bound.nanos().saturating_mul(request.nanos());
        if over {
            let thousandths = limit.nanos().saturating_mul(1000) / request.nanos();
            let (whole, rest) = (thousandths / 1000, thousandths % 1000);
            errors.push(format!("{head}, but provided ratio is {whole}.{rest:03}000"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::json;

    fn world(limit: Value) -> std::sync::Arc<World> {
        let world = World::new();
        let metadata = json!({ "name": "l", "namespace": "a" });
        world.put("limitranges.", json!({ "metadata": metadata, "spec": { "limits": [limit] } }));
        world
    }

    fn asking(resources: Value) -> Object {
        let mut pod = pod();
        pod["spec"]["containers"][0]["resources"] = resources;
        pod
    }

    #[test]
    fn defaults() {
        let world = world(json!({
            "type": "Container", "default": { "cpu": "1" }, "defaultRequest": { "cpu": "100m" }, "max": { "memory": "1Gi" },
        }));
        let pod = Try::create(&world, "pods.")
            .mutate(&LimitRanger, asking(json!({ "requests": { "cpu": "5m" } })))
            .unwrap();
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({ "requests": { "cpu": "5m", "memory": "1Gi" }, "limits": { "cpu": "1", "memory": "1Gi" } })
        );
        assert_eq!(
            pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
            "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c"
        );
    }

    #[test]
    fn resizing_is_bounded_and_other_updates_are_not() {
        let world = world(json!({ "type": "Container", "max": { "cpu": "1" } }));
        let more = asking(json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "1500m" } }));
        let update = |resource| Try { operation: Operation::Update, ..Try::create(&world, resource) };
        let refused = update("pods./resize").validate(&LimitRanger, &more, Some(&pod())).unwrap_err();
        assert!(refused.message.ends_with("maximum cpu usage per Container is 1, but limit is 1500m"));
        update("pods.").validate(&LimitRanger, &more, Some(&pod())).unwrap();
        let resized =
            update("pods./resize").mutate(&LimitRanger, asking(json!({ "requests": { "cpu": "5m" } })));
        assert_eq!(resized.unwrap()["spec"]["containers"][0]["resources"]["limits"], json!({ "cpu": "1" }));
    }

    #[test]
    fn bounds() {
        let message = |limit: Value, resources: Value| {
            let result = Try::create(&world(limit), "pods.").validate(&LimitRanger, &asking(resources), None);
            result.err().map(|e| e.message.replace("pods \"web\" is forbidden: ", ""))
        };
        let cpu = |request: &str, limit: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } });
        let min = || json!({ "type": "Container", "min": { "cpu": "100m" } });
        let max = || json!({ "type": "Pod", "max": { "cpu": "1" } });
        let ratio = || json!({ "type": "Container", "maxLimitRequestRatio": { "cpu": "2" } });
        for (limit, resources, wanted) in [
            (min(), cpu("100m", "1"), None),
            (min(), cpu("50m", "1"), Some("minimum cpu usage per Container is 100m, but request is 50m")),
            (min(), json!({}), Some("minimum cpu usage per Container is 100m.  No request is specified")),
            (max(), cpu("1", "1"), None),
            (max(), cpu("1", "1500m"), Some("maximum cpu usage per Pod is 1, but limit is 1500m")),
            (max(), json!({}), Some("maximum cpu usage per Pod is 1.  No limit is specified")),
            (ratio(), cpu("1", "2"), None),
            (
                ratio(),
                cpu("1", "3"),
                Some("cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
            ),
            (
                ratio(),
                json!({ "limits": { "cpu": "1" } }),
                Some(
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ),
            ),
        ] {
            assert_eq!(message(limit.clone(), resources.clone()).as_deref(), wanted, "{limit} {resources}");
        }
    }

    #[test]
    fn claims_and_sums() {
        let world_ = world(json!({ "type": "PersistentVolumeClaim", "max": { "storage": "1Gi" } }));
        let claim = |size: &str| {
            json!({
                "metadata": { "name": "c", "namespace": "a" }, "spec": { "resources": { "requests": { "storage": size } } },
            })
        };
        let check =
            |size| Try::create(&world_, "persistentvolumeclaims.").validate(&LimitRanger, &claim(size), None);
        check("1Gi").unwrap();
        assert!(
            check("2Gi")
                .unwrap_err()
                .message
                .contains("maximum storage usage per PersistentVolumeClaim is 1Gi")
        );
        let one = json!({ "name": "x", "resources": { "limits": { "cpu": "600m" } } });
        let mut pod = pod();
        pod["spec"]["containers"] = json!([one, one]);
        let limit = || json!({ "type": "Pod", "max": { "cpu": "1" } });
        let bounded = |pod: &Object| Try::create(&world(limit()), "pods.").validate(&LimitRanger, pod, None);
        let error = bounded(&pod).unwrap_err();
        assert!(error.message.ends_with("but limit is 1200m"), "{}", error.message);
        let mut sidecar = one.clone();
        sidecar["restartPolicy"] = "Always".into();
        pod["spec"]["containers"] = json!([{ "name": "x" }]);
        pod["spec"]["initContainers"] = json!([sidecar, one]);
        let error = bounded(&pod).unwrap_err();
        assert!(error.message.ends_with("but limit is 1200m"), "beside its sidecar: {}", error.message);
        pod["spec"]["resources"] = json!({ "limits": { "cpu": "1" } });
        bounded(&pod).expect("the pod as a whole is limited");
    }
}

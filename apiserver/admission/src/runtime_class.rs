//! RuntimeClass: what a pod's runtime class adds to it
//! (<https://kubernetes.io/docs/concepts/containers/runtime-class/#scheduling>).

use super::{Operation, Plugin, Request, items, items_mut};
use coracle_api::{ApiError, Object};
use serde_json::{Value, json};

pub(super) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if !request.is(Operation::Create, "", "pods") {
            return Ok(());
        }
        let name = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
        let overhead = pod["spec"]["overhead"].as_object().is_some_and(|o| !o.is_empty());
        if name.is_empty() {
            if overhead {
                let why =
                    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
                return Err(request.forbidden(why));
            }
            return Ok(());
        }
        let class = request.read.get("runtimeclasses.node.k8s.io", "", &name);
        let class = class
            .ok_or_else(|| request.forbidden(&format!("pod rejected: RuntimeClass \"{name}\" not found")))?;
        let fixed = &class["overhead"]["podFixed"];
        if overhead && pod["spec"]["overhead"] != *fixed {
            let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Err(request.forbidden(why));
        }
        if fixed.is_object() {
            pod["spec"]["overhead"] = fixed.clone();
        }
        scheduling(request, pod, &class["scheduling"])
    }
}

fn scheduling(request: &Request, pod: &mut Object, scheduling: &Value) -> Result<(), ApiError> {
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        if pod["spec"]["nodeSelector"].is_null() {
            pod["spec"]["nodeSelector"] = json!({});
        }
        let own = &pod["spec"]["nodeSelector"][key];
        if !own.is_null() && own != value {
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(own)
            );
            return Err(request.forbidden(&why));
        }
        pod["spec"]["nodeSelector"][key] = value.clone();
    }
    let lacking: Vec<Value> = items(&scheduling["tolerations"])
        .iter()
        .filter(|t| !items(&pod["spec"]["tolerations"]).contains(t))
        .cloned()
        .collect();
    if let Some(list) = items_mut(&mut pod["spec"], "tolerations").filter(|_| !lacking.is_empty()) {
        list.extend(lacking);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn admit(spec: Value) -> Result<Value, String> {
        let world = World::new();
        world.put(
            "runtimeclasses.node.k8s.io",
            json!({
                "metadata": { "name": "vm" }, "handler": "kata", "overhead": { "podFixed": { "cpu": "250m" } },
                "scheduling": { "nodeSelector": { "vm": "yes" }, "tolerations": [{ "key": "vm" }] },
            }),
        );
        let mut pod = pod();
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        Try::create(&world, "pods.")
            .mutate(&RuntimeClass, pod)
            .map(|p| p["spec"].clone())
            .map_err(|e| e.message)
    }

    #[test]
    fn adds_what_the_class_says() {
        let spec = admit(json!({ "runtimeClassName": "vm", "nodeSelector": { "a": "b" } })).unwrap();
        assert_eq!(spec["overhead"], json!({ "cpu": "250m" }));
        assert_eq!(spec["nodeSelector"], json!({ "a": "b", "vm": "yes" }));
        assert_eq!(spec["tolerations"], json!([{ "key": "vm" }]));
        assert_eq!(admit(json!({})).unwrap(), pod()["spec"]);
    }

    #[test]
    fn refuses_contradictions() {
        for (spec, message) in [
            (json!({ "runtimeClassName": "no" }), "RuntimeClass \"no\" not found"),
            (json!({ "overhead": { "cpu": "1" } }), "without corresponding RuntimeClass"),
            (json!({ "runtimeClassName": "vm", "overhead": { "cpu": "1" } }), "doesn't match"),
            (json!({ "runtimeClassName": "vm", "nodeSelector": { "vm": "no" } }), "conflict: runtimeClass"),
        ] {
            let error = admit(spec).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}

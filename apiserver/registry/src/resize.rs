//! `pods/resize`: CPU and memory of a running pod
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>).

use super::Scope;
use coracle_api::pod::{qos_class, restarts_as_sidecar};
use coracle_api::well_known;
use coracle_api::{ApiError, FieldError, Object};
use serde_json::{Map, Value};

/// What can be resized; the rest of a container's resources stays as it was made.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

const LISTS: [&str; 2] = ["containers", "initContainers"];

const ONLY: &str = "only cpu and memory resources are mutable";

impl Scope<'_> {
    /// `old` with the resources of `new`, if that is allowed. Whatever else `new` changes is dropped, as upstream does.
    pub(super) fn resized(&self, new: &Object, old: &Object) -> Result<Object, ApiError> {
        let mut sent = new.clone();
        self.strategy.defaults(&mut sent);
        let mut merged = take_resources(&sent, old);
        self.strategy.defaults(&mut merged);
        let mut errors = Vec::new();
        check(&sent, &merged, old, &mut errors);
        if errors.is_empty() { Ok(merged) } else { Err(self.invalid(&errors)) }
    }
}

fn list<'a>(pod: &'a Object, field: &str) -> &'a [Value] {
    pod["spec"][field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// By name, so that containers in another order (which the checks refuse) are not mixed up.
fn take_resources(new: &Object, old: &Object) -> Object {
    let mut merged = old.clone();
    for field in LISTS {
        let Some(containers) = merged["spec"].get_mut(field).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let Some(sent) = list(new, field).iter().find(|c| c["name"] == container["name"]) else {
                continue;
            };
            for part in ["resources", "resizePolicy"] {
                copy(container, sent, part);
            }
        }
    }
    if let (Some(spec), sent) = (merged.get_mut("spec"), &new["spec"]) {
        copy(spec, sent, "resources");
    }
    for name in ["resourceVersion", "uid"] {
        let sent = new["metadata"].get(name).cloned().unwrap_or_else(|| "".into());
        super::metadata::of(&mut merged).insert(name.into(), sent);
    }
    merged
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => {
            fields.insert(field.to_owned(), value.clone());
        }
        None => {
            fields.remove(field);
        }
    }
}

/// Upstream's rules in upstream's order, which ends early where containers cannot be compared.
fn check(sent: &Object, merged: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if old["metadata"]["annotations"][well_known::CONFIG_MIRROR].is_string() {
        errors.push(FieldError::forbidden("", "static pods cannot be resized"));
        return;
    }
    if old["spec"]["os"]["name"] == "windows" {
        errors.push(FieldError::forbidden("", "windows pods cannot be resized"));
        return;
    }
    let before = old["status"]["qosClass"].as_str().unwrap_or_else(|| qos_class(old).as_str());
    if qos_class(merged).as_str() != before {
        let why = "Pod QOS Class may not change as a result of resizing";
        // Upstream quotes the class that the pod has.
        errors.push(FieldError::invalid("spec", &before.into(), why));
    }
    if !shows_resources(old) {
        errors.push(FieldError::forbidden("spec", "Pod running on node without support for resize"));
    }
    of_pod(&merged["spec"]["resources"], &old["spec"]["resources"], errors);
    let known = errors.len();
    for field in LISTS {
        same_containers(sent, old, field, errors);
    }
    if errors.len() > known {
        return;
    }
    let pairs = |field| list(merged, field).iter().zip(list(old, field)).enumerate();
    for field in LISTS.into_iter().rev() {
        for (i, (new, old)) in pairs(field) {
            let path = format!("spec.{field}[{i}].resources");
            kept(&new["resources"], &old["resources"], &path, "", errors);
        }
    }
    let differ = |new, old| container_without_resizable(new) != container_without_resizable(old);
    if pairs("containers").any(|(_, (new, old))| differ(new, old)) {
        errors.push(FieldError::forbidden("spec", ONLY));
    }
    for (i, (new, old)) in pairs("initContainers") {
        init(new, old, &format!("spec.initContainers[{i}]"), errors);
    }
    if errors.is_empty() && without_resizable(merged) != without_resizable(old) {
        errors.push(FieldError::forbidden("spec", ONLY));
    }
}

/// Whether the node resizes: it says of the first container that runs what it has. Where none runs there is no telling.
fn shows_resources(pod: &Object) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let mut running = statuses.filter(|status| status["state"]["running"].is_object());
    running.next().is_none_or(|status| status["resources"].is_object())
}

/// Containers are neither added nor removed, renamed nor put in another order.
fn same_containers(sent: &Object, old: &Object, field: &str, errors: &mut Vec<FieldError>) {
    let (now, before) = (list(sent, field), list(old, field));
    if now.len() != before.len() {
        let why = format!("{field} may not be added or removed on resize");
        errors.push(FieldError::forbidden(format!("spec.{field}"), &why));
        return;
    }
    let why = format!("{field} may not be renamed or reordered on resize");
    for (i, _) in
        now.iter().zip(before).enumerate().filter(|(_, (now, before))| now["name"] != before["name"])
    {
        errors.push(FieldError::forbidden(format!("spec.{field}[{i}].name"), &why));
    }
}

/// A container that runs before the others may not have a policy that starts it anew.
fn init(new: &Value, old: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if container_without_resizable(new) != container_without_resizable(old) {
        let why = "only cpu and memory resources for init or sidecar containers are mutable";
        errors.push(FieldError::forbidden(path, why));
    }
    let mut policies = new["resizePolicy"].as_array().into_iter().flatten();
    let anew = policies.any(|policy| policy["restartPolicy"] == "RestartContainer");
    if anew && new != old && !restarts_as_sidecar(new["restartPolicy"].as_str()) {
        let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
        errors.push(FieldError::forbidden(path, why));
    }
}

/// The pod's own resources can be added, changed and not taken away, neither one of them nor all.
fn of_pod(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if !old.is_null() && new.is_null() {
        errors.push(FieldError::forbidden("spec.resources", "pod-level resources cannot be removed"));
        return;
    }
    kept(new, old, "spec.resources", "pod-level ", errors);
    if requirements_without_resizable(new) != requirements_without_resizable(old) {
        let why = "only cpu and memory resources are mutable at pod-level";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// A request or limit can be changed and added, not taken away.
fn kept(new: &Value, old: &Value, path: &str, whose: &str, errors: &mut Vec<FieldError>) {
    for kind in ["requests", "limits"] {
        let mut before = old[kind].as_object().into_iter().flatten();
        if before.any(|(name, _)| new[kind][name].is_null()) {
            let why = format!("{whose}resource {kind} cannot be removed");
            errors.push(FieldError::forbidden(format!("{path}.{kind}"), &why));
        }
    }
}

/// The spec without what a resize may change, for comparison.
fn without_resizable(pod: &Object) -> Value {
    let mut spec = pod["spec"].clone();
    for field in LISTS {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            *container = container_without_resizable(container);
        }
    }
    let own = requirements_without_resizable(&spec["resources"]);
    if let Some(fields) = spec.as_object_mut() {
        fields.insert("resources".to_owned(), own);
    }
    spec
}

fn container_without_resizable(container: &Value) -> Value {
    let mut container = container.clone();
    let own = requirements_without_resizable(&container["resources"]);
    if let Some(fields) = container.as_object_mut() {
        fields.insert("resources".to_owned(), own);
    }
    container
}

/// What is left of resources without CPU and memory; absent and empty ones are the same.
fn requirements_without_resizable(resources: &Value) -> Value {
    let mut rest = resources.as_object().cloned().unwrap_or_default();
    for kind in ["limits", "requests"] {
        let Some(amounts) = rest.get_mut(kind).and_then(Value::as_object_mut) else { continue };
        amounts.retain(|name, _| !RESIZABLE.contains(&name.as_str()));
    }
    rest.retain(|_, value| !value.is_null() && !value.as_object().is_some_and(Map::is_empty));
    rest.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(resources: Value) -> Object {
        let mut pod = json!({ "metadata": { "name": "p" }, "spec": {
            "containers": [{ "name": "c", "image": "i", "resources": resources }],
            "initContainers": [{ "name": "i", "image": "i", "resources": {} }],
        } });
        pod["status"]["qosClass"] = qos_class(&pod).as_str().into();
        pod
    }

    fn burst(cpu: &str) -> Value {
        json!({ "requests": { "cpu": cpu, "ephemeral-storage": "1Gi" } })
    }

    fn errors(new: &Object, old: &Object) -> Vec<String> {
        let mut errors = Vec::new();
        check(new, &take_resources(new, old), old, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_resources_are_taken() {
        let old = pod(burst("1"));
        let mut new = pod(burst("2"));
        new["metadata"]["labels"] = json!({ "a": "b" });
        new["spec"]["containers"][0]["image"] = "other".into();
        assert!(errors(&new, &old).is_empty());
        let merged = take_resources(&new, &old);
        assert_eq!(merged["spec"]["containers"][0]["resources"], burst("2"));
        assert_eq!(merged["spec"]["containers"][0]["image"], "i");
        assert!(merged["metadata"]["labels"].is_null());
    }

    #[test]
    fn the_pods_own_resources_are_resized() {
        let of = |own: Value| {
            let mut pod = pod(burst("1"));
            pod["spec"]["resources"] = own;
            pod
        };
        let old = of(json!({ "requests": { "cpu": "2", "memory": "1Gi" }, "limits": { "cpu": "3" } }));
        let more =
            json!({ "requests": { "cpu": "4", "memory": "2Gi" }, "limits": { "cpu": "5", "memory": "2Gi" } });
        assert_eq!(errors(&of(more.clone()), &old), [""; 0]);
        assert_eq!(take_resources(&of(more.clone()), &old)["spec"]["resources"], more);
        assert_eq!(errors(&of(more), &pod(burst("1"))), [""; 0], "they may be added");
        for (own, wanted) in [
            (
                json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "3" } }),
                "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed",
            ),
            (
                json!({ "requests": { "cpu": "2", "memory": "1Gi" } }),
                "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed",
            ),
            (Value::Null, "spec.resources: Forbidden: pod-level resources cannot be removed"),
            (
                json!({ "requests": { "cpu": "2", "memory": "1Gi", "hugepages-2Mi": "2Mi" }, "limits": { "cpu": "3", "hugepages-2Mi": "2Mi" } }),
                "spec: Forbidden: only cpu and memory resources are mutable at pod-level",
            ),
        ] {
            let found = errors(&of(own), &old);
            assert!(found.iter().any(|e| e.contains(wanted)), "{wanted}: {found:?}");
        }
        let two = |names: [&str; 2]| {
            let mut pod = pod(burst("1"));
            let amounts = burst("1");
            pod["spec"]["containers"] =
                names.map(|name| json!({ "name": name, "resources": amounts })).to_vec().into();
            pod
        };
        assert_eq!(
            errors(&two(["b", "a"]), &two(["a", "b"])),
            [0, 1].map(|n| format!(
                "spec.containers[{n}].name: Forbidden: containers may not be renamed or reordered on resize"
            ))
        );
    }

    #[test]
    fn what_a_resize_may_not_do() {
        let old = pod(burst("1"));
        let guaranteed = json!({ "cpu": "1", "memory": "1Gi" });
        let mut more = pod(burst("1"));
        more["spec"]["containers"].as_array_mut().unwrap().push(json!({ "name": "d" }));
        let mut init = pod(burst("1"));
        init["spec"]["initContainers"][0]["resources"] = json!({ "requests": { "cpu": "1" } });
        assert_eq!(errors(&init, &old), [""; 0], "one that runs before the others can be resized too");
        init["spec"]["initContainers"][0]["resizePolicy"] =
            json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]);
        let mut disk = pod(burst("1"));
        disk["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "2Gi".into();
        for (new, wanted) in [
            (pod(json!({ "requests": guaranteed, "limits": guaranteed })), "only cpu and memory"),
            (
                pod(json!({ "requests": { "ephemeral-storage": "1Gi" } })),
                "resource requests cannot be removed",
            ),
            (more, "spec.containers: Forbidden: containers may not be added or removed"),
            (
                init,
                "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of \
                 RestartContainer cannot be resized",
            ),
            (disk, "spec: Forbidden: only cpu and memory resources are mutable"),
        ] {
            let found = errors(&new, &old);
            assert!(found.iter().any(|e| e.contains(wanted)), "{wanted}: {found:?}");
        }
        let mut windows = old.clone();
        windows["spec"]["os"] = json!({ "name": "windows" });
        assert_eq!(errors(&old, &windows), [": Forbidden: windows pods cannot be resized"]);
        let mut silent = old.clone();
        silent["status"]["containerStatuses"] = json!([
            { "name": "i", "state": { "waiting": {} } }, { "name": "c", "state": { "running": {} } },
        ]);
        let refused = ["spec: Forbidden: Pod running on node without support for resize"];
        assert_eq!(errors(&old, &silent), refused);
        silent["status"]["containerStatuses"][1]["resources"] = json!({});
        assert_eq!(errors(&old, &silent), [""; 0]);
        let alone = |resources| {
            let mut pod = pod(resources);
            pod["spec"]["initContainers"] = json!([]);
            pod["status"]["qosClass"] = qos_class(&pod).as_str().into();
            pod
        };
        let full = alone(json!({ "requests": guaranteed, "limits": guaranteed }));
        let half = alone(json!({ "requests": { "cpu": "500m", "memory": "1Gi" }, "limits": guaranteed }));
        assert_eq!(
            errors(&half, &full),
            ["spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"]
        );
    }
}

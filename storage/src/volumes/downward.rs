//! The downward API: fields and resources of a pod as text, for files and for environment variables.

use coracle_api::Quantity;
use coracle_api::go::quoted;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use std::collections::BTreeMap;

/// What the node can give, for containers without limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    pub cpu_millis: i64,
    pub memory_bytes: i64,
    pub ephemeral_storage_bytes: i64,
}

/// The value of `fieldPath`: metadata.{name,namespace,uid,labels,annotations}, labels and annotations by key,
/// spec.{nodeName,serviceAccountName}, status.{hostIP,hostIPs,podIP,podIPs}.
pub fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    if let Some((map, key)) = path.strip_suffix(']').and_then(|p| p.split_once('[')) {
        let key = key.trim_matches(['\'', '"']);
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(format!("fieldPath {path:?} does not support subscripts")),
        };
        return Ok(map.and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let join = |ips: Vec<&str>| Some(ips.join(","));
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(lines(meta.labels.as_ref())),
        "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
        "spec.nodeName" => spec.and_then(|s| s.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()),
        "status.hostIP" => status.and_then(|s| s.host_ip.clone()),
        "status.podIP" => status.and_then(|s| s.pod_ip.clone()),
        "status.hostIPs" => {
            join(status.iter().flat_map(|s| s.host_ips.iter().flatten()).map(|i| &*i.ip).collect())
        }
        "status.podIPs" => {
            join(status.iter().flat_map(|s| s.pod_ips.iter().flatten()).map(|i| &*i.ip).collect())
        }
        _ => return Err(format!("unsupported fieldPath: {path}")),
    };
    Ok(value.unwrap_or_default())
}

/// `key="value"` lines, sorted, the value quoted as Go quotes it.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.into_iter().flatten().map(|(k, v)| format!("{k}={}", quoted(v))).collect();
    lines.join("\n")
}

/// The value of a `resourceFieldRef` in units of its divisor, rounded up. `own` is the container that asks, for
/// references that name none. A limit that is not set is what the node can give.
pub fn resource(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    own: Option<&Container>,
    allocatable: &Allocatable,
) -> Result<String, String> {
    let name = selector.container_name.as_deref().filter(|n| !n.is_empty());
    let spec = pod.spec.as_ref().ok_or("pod without spec")?;
    let container = match name {
        None => own,
        Some(name) => {
            spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|c| c.name == name)
        }
    };
    let container = container.ok_or_else(|| format!("container {:?} not found", name.unwrap_or_default()))?;
    let (kind, resource) = selector
        .resource
        .split_once('.')
        .ok_or_else(|| format!("unsupported container resource : {}", selector.resource))?;
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let set = match kind {
        "limits" => limits.and_then(|m| m.get(resource)),
        "requests" => requests.and_then(|m| m.get(resource)),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let value = match set.and_then(|q| q.0.parse().ok()) {
        Some(value) => value,
        None if kind == "requests" => Quantity::ZERO,
        None => match resource {
            "cpu" => Quantity::from_milli(allocatable.cpu_millis),
            "memory" => Quantity::from_bytes(allocatable.memory_bytes),
            "ephemeral-storage" => Quantity::from_bytes(allocatable.ephemeral_storage_bytes),
            _ => Quantity::ZERO,
        },
    };
    let divisor = selector.divisor.as_ref().and_then(|q| q.0.parse().ok());
    let divisor = divisor.filter(|d| *d > Quantity::ZERO).unwrap_or(Quantity::from_units(1));
    Ok(value.div_ceil(divisor).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_and_resources_read_as_upstream_writes_them() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "labels": { "b": "2\n", "a": "1" }, "annotations": { "x.y/z": "v" } },
            "spec": { "containers": [{ "name": "c", "resources": {
                "limits": { "memory": "64Mi" }, "requests": { "cpu": "125m" } } }] },
            "status": { "podIPs": [{ "ip": "10.42.0.2" }, { "ip": "fd00::2" }] }
        }))
        .unwrap();
        assert_eq!(field(&pod, "metadata.labels").unwrap(), "a=\"1\"\nb=\"2\\n\"");
        assert_eq!(field(&pod, "metadata.annotations['x.y/z']").unwrap(), "v");
        assert_eq!(field(&pod, "status.podIPs").unwrap(), "10.42.0.2,fd00::2");
        assert!(field(&pod, "spec.hostname").is_err());
        let node = Allocatable { cpu_millis: 1900, ..Allocatable::default() };
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let read = |resource: &str, divisor: &str| {
            let selector =
                serde_json::from_value(json!({ "resource": resource, "divisor": divisor })).unwrap();
            super::resource(&pod, &selector, Some(container), &node).unwrap()
        };
        assert_eq!(read("limits.memory", "1Mi"), "64");
        assert_eq!(read("requests.cpu", "1m"), "125");
        assert_eq!(read("requests.cpu", "0"), "1", "rounded up");
        assert_eq!(read("limits.cpu", "1"), "2", "the node's");
    }
}

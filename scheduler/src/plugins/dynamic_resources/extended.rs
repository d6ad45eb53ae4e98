//! Extended resources that devices back (KEP-5004): a pod asks for `example.com/gpu: 1` as ever, and on nodes without a
//! device plugin for it a claim that the scheduler makes gets it a device of the class that names the resource.

use crate::cache::{NodeInfo, PodInfo};
use crate::framework::Cluster;
use coracle_api::pod::restarts_as_sidecar;
use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every class is an extended resource under this prefix too.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";
/// Marks the claim that the scheduler made for a pod's extended resources; upstream's.
pub const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// What the claim is called before it exists: no object can have this name.
pub const UNMADE: &str = "<extended-resources>";

/// The class that backs a resource: the newest of those that name it.
pub fn class_of(cluster: &dyn Cluster, resource: &str) -> Option<Arc<Value>> {
    if let Some(name) = resource.strip_prefix(IMPLICIT) {
        return cluster.device_class(name);
    }
    let age = |class: &Arc<Value>| {
        let meta = &class["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        (text("creationTimestamp"), std::cmp::Reverse(text("name")))
    };
    let named = cluster.device_classes().into_iter();
    named.filter(|c| c["spec"]["extendedResourceName"] == resource).max_by_key(age)
}

/// Names of what the pod asks for and a class backs, with the class.
pub fn backed(pod: &PodInfo, cluster: &dyn Cluster) -> BTreeMap<String, String> {
    let asked = pod.requests.scalar.iter().filter(|(name, amount)| **amount > 0 && name.contains('/'));
    asked
        .filter_map(|(name, _)| {
            let class = class_of(cluster, name)?;
            Some((name.clone(), class["metadata"]["name"].as_str()?.to_owned()))
        })
        .collect()
}

/// Whether the node has the resource without devices.
pub fn has_plugin(node: &NodeInfo, resource: &str) -> bool {
    node.allocatable.get(resource) > 0
}

/// The claim that the scheduler made for the pod in an earlier attempt.
pub fn made_before(pod: &PodInfo, cluster: &dyn Cluster) -> Option<Arc<Value>> {
    cluster.resource_claims().into_iter().find(|claim| {
        let meta = &claim["metadata"];
        let owners = meta["ownerReferences"].as_array();
        meta["annotations"][ANNOTATION] == "true"
            && owners.into_iter().flatten().any(|o| o["uid"] == pod.uid.as_str() && o["controller"] == true)
    })
}

/// What a container asks for, and the place of the resource among its requests by name.
fn asked(container: &Container, resource: &str) -> Option<(i64, usize)> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    let index = requests.keys().position(|name| name == resource)?;
    let amount: coracle_api::quantity::Quantity = requests.get(resource)?.0.parse().ok()?;
    Some((amount.units(), index)).filter(|(amount, _)| *amount > 0)
}

/// A request of the claim, by the index of the container that it is made for.
struct Request {
    name: String,
    count: i64,
}

/// Requests of the claim, and which container's resource is served by which of them.
#[derive(Default)]
pub struct Mapped {
    pub requests: Vec<Value>,
    pub mappings: Vec<Value>,
}

/// Init containers run one after the other before the rest, so they use what later containers are going to have, and
/// share one request for what they need beyond that.
pub fn map(pod: &PodInfo, resources: &BTreeMap<String, String>) -> Mapped {
    let mut mapped = Mapped::default();
    let Some(spec) = pod.spec() else { return mapped };
    let initial = spec.init_containers.as_deref().unwrap_or_default();
    let containers: Vec<&Container> = initial.iter().chain(&spec.containers).collect();
    let passes =
        |i: usize| i < initial.len() && !restarts_as_sidecar(containers[i].restart_policy.as_deref());
    for (resource, class) in resources {
        let mapping = |i: usize, request: &str| json!({ "containerName": containers[i].name, "resourceName": resource, "requestName": request });
        let mut lasting: Vec<Option<Request>> = Vec::new();
        for (i, container) in containers.iter().enumerate() {
            let wanted = if passes(i) { None } else { asked(container, resource) };
            let request =
                wanted.map(|(count, at)| Request { name: format!("container-{i}-request-{at}"), count });
            mapped.mappings.extend(request.iter().map(|r| mapping(i, &r.name)));
            lasting.push(request);
        }
        let mut passing: Vec<(usize, Request)> = Vec::new();
        let mut borrowed = Vec::new();
        for i in (0..initial.len()).filter(|i| passes(*i)) {
            let Some((count, at)) = asked(containers[i], resource) else { continue };
            let mut missing = count;
            for later in lasting[i..].iter().flatten() {
                if missing <= 0 {
                    break;
                }
                missing -= later.count;
                borrowed.push(mapping(i, &later.name));
            }
            if missing > 0 {
                let name = format!("container-{i}-request-{at}");
                passing.push((i, Request { name, count: missing }));
            }
        }
        mapped.mappings.extend(borrowed);
        let largest = passing.iter().map(|(_, r)| r.count).max();
        let shared = passing.iter().find(|(_, r)| Some(r.count) == largest).map(|(_, r)| r.name.clone());
        if let Some(name) = &shared {
            mapped.mappings.extend(passing.iter().map(|(i, _)| mapping(*i, name)));
        }
        let shared = passing.into_iter().map(|(_, r)| r).find(|r| Some(&r.name) == shared.as_ref());
        for request in lasting.into_iter().flatten().chain(shared) {
            mapped.requests.push(json!({ "name": request.name, "exactly": {
                "deviceClassName": class, "allocationMode": "ExactCount", "count": request.count } }));
        }
    }
    mapped.requests.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    mapped
}

/// The claim for these requests, as it is going to be created.
pub fn claim(pod: &PodInfo, requests: Vec<Value>) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "name": UNMADE,
            "namespace": pod.key.namespace,
            "generateName": format!("{}-extended-resources-", pod.key.name),
            "annotations": { ANNOTATION: "true" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": pod.key.name, "uid": pod.uid,
                "controller": true }],
        },
        "spec": { "devices": { "requests": requests } },
    })
}

/// Names of resources that no plugin of the node provides.
pub fn lacking(node: &NodeInfo, resources: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let lacking = resources.iter().filter(|(name, _)| !has_plugin(node, name));
    lacking.map(|(name, class)| (name.clone(), class.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::pod;

    #[test]
    fn init_containers_use_what_others_will_have() {
        let container = |name: &str, amount: i64| json!({"name": name, "resources": {"requests": {"cpu": "1", "example.com/gpu": amount.to_string()}}});
        let pod = pod(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {
            "initContainers": [container("small", 1), container("large", 5), container("larger", 6)],
            "containers": [container("main", 2), container("other", 1)]}}));
        let resources = BTreeMap::from([("example.com/gpu".to_owned(), "gpu".to_owned())]);
        let mapped = map(&pod, &resources);
        let requests: Vec<(&str, i64)> = mapped
            .requests
            .iter()
            .map(|r| (r["name"].as_str().unwrap_or(""), r["exactly"]["count"].as_i64().unwrap_or(0)))
            .collect();
        let expected =
            [("container-2-request-1", 3), ("container-3-request-1", 2), ("container-4-request-1", 1)];
        assert_eq!(requests, expected);
        let of = |name: &str| -> Vec<&str> {
            let own = mapped.mappings.iter().filter(|m| m["containerName"] == name);
            own.filter_map(|m| m["requestName"].as_str()).collect()
        };
        assert_eq!(of("small"), ["container-3-request-1"]);
        assert_eq!(of("large"), ["container-3-request-1", "container-4-request-1", "container-2-request-1"]);
        assert_eq!(of("main"), ["container-3-request-1"]);
    }
}

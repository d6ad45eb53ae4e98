//! What a node can give, what its pods have of it, and what is missing for one more.

use crate::pod_facts::resources::requests;
use coracle_api::Quantity;
use coracle_api::validation::is_extended_resource;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::BTreeSet;

/// Too little of one resource, in its own unit: thousandths for CPU, else whole ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsufficientResource {
    pub resource: String,
    pub requested: i128,
    pub used: i128,
    pub capacity: i128,
}

impl InsufficientResource {
    pub fn missing(&self) -> i128 {
        self.requested - (self.capacity - self.used)
    }

    pub fn message(&self) -> String {
        let Self { resource, requested, used, capacity } = self;
        format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }
}

/// What a pod asks for of one resource.
pub fn requested(pod: &Pod, resource: &str) -> i128 {
    in_units(requests(pod, resource), resource)
}

/// What the node can give; `None` of what it does not know.
fn allocatable(node: &Node, resource: &str) -> Option<i128> {
    let amount = node.status.as_ref()?.allocatable.as_ref()?.get(resource)?.0.parse().ok()?;
    Some(in_units(amount, resource))
}

fn in_units(amount: Quantity, resource: &str) -> i128 {
    i128::from(if resource == "cpu" { amount.milli() } else { amount.units() })
}

/// The resources that a pod asks for, those first that every node has.
fn names(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let of_containers = containers.filter_map(|c| c.resources.as_ref()?.requests.as_ref());
    let own = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    let all: BTreeSet<&str> =
        of_containers.chain(own).chain(&spec.overhead).flatten().map(|(name, _)| name.as_str()).collect();
    let common = ["cpu", "memory", "ephemeral-storage"];
    let rest = all.iter().filter(|name| !common.contains(name) && !from_devices(pod, name)).copied();
    common.into_iter().chain(rest).map(str::to_owned).collect()
}

/// Whether devices of a claim stand in for the resource.
fn from_devices(pod: &Pod, resource: &str) -> bool {
    let claim = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
    claim.is_some_and(|c| c.request_mappings.iter().any(|m| m.resource_name == resource))
}

/// All that there is too little of for the pod beside the others.
pub fn shortages(pod: &Pod, others: &[&Pod], node: &Node) -> Vec<InsufficientResource> {
    let mut all = Vec::new();
    let count = i128::try_from(others.len()).unwrap_or(i128::MAX);
    let capacity = allocatable(node, "pods").unwrap_or(0);
    if count + 1 > capacity {
        all.push(InsufficientResource { resource: "pods".to_owned(), requested: 1, used: count, capacity });
    }
    for resource in names(pod) {
        let requested = self::requested(pod, &resource);
        let known = allocatable(node, &resource);
        // Who gives an extended resource that the node does not know is not the kubelet's business.
        if requested == 0 || (known.is_none() && is_extended_resource(&resource)) {
            continue;
        }
        let capacity = known.unwrap_or(0);
        let used: i128 = others.iter().map(|other| self::requested(other, &resource)).sum();
        if requested > capacity - used {
            all.push(InsufficientResource { resource, requested, used, capacity });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(requests: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": {}, "spec": { "containers": [
            { "name": "c", "resources": { "requests": requests } }] } }))
        .unwrap()
    }

    fn node() -> Node {
        let amounts = json!({ "cpu": "2", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "3", "example.com/foo": "3" });
        serde_json::from_value(json!({ "metadata": {}, "status": { "allocatable": amounts } })).unwrap()
    }

    fn words(requests: Value, others: &[Pod]) -> Vec<String> {
        let others: Vec<&Pod> = others.iter().collect();
        shortages(&pod(requests), &others, &node()).iter().map(InsufficientResource::message).collect()
    }

    #[test]
    fn what_is_missing_is_told_as_upstream_tells_it() {
        let one = || pod(json!({ "cpu": "1500m", "memory": "512Mi", "example.com/foo": 2 }));
        assert_eq!(
            words(json!({ "cpu": "500m", "memory": "512Mi", "example.com/foo": 1 }), &[one()]),
            [""; 0]
        );
        assert_eq!(
            words(json!({ "cpu": "501m", "memory": "513Mi", "example.com/foo": 2 }), &[one()]),
            [
                "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
                "Node didn't have enough resource: memory, requested: 537919488, used: 536870912, capacity: 1073741824",
                "Node didn't have enough resource: example.com/foo, requested: 2, used: 2, capacity: 3",
            ]
        );
        let three = [pod(json!({})), pod(json!({})), pod(json!({}))];
        assert_eq!(
            words(json!({}), &three),
            ["Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"]
        );
    }

    #[test]
    fn resources_of_others_are_let_be() {
        assert_eq!(words(json!({ "example.com/bar": 1 }), &[]), [""; 0]);
        assert_eq!(
            words(json!({ "hugepages-2Mi": "2Mi" }), &[]),
            ["Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0"]
        );
    }
}

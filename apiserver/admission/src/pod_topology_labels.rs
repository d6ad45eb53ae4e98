//! PodTopologyLabels: a pod carries the zone and region of its node, so that it can read them by the downward API
//! (KEP-4742).

use super::{Operation, Plugin, Request};
use coracle_api::well_known;
use coracle_api::{ApiError, Object};
use serde_json::json;

pub(super) struct PodTopologyLabels;

const LABELS: [&str; 2] = [well_known::ZONE, well_known::REGION];

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    /// Of a Binding the labels become the pod's.
    fn mutate(&self, request: &Request, object: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if request.operation != Operation::Create || !request.group.is_empty() || request.resource != "pods" {
            return Ok(());
        }
        let node = match request.subresource {
            "" => object["spec"]["nodeName"].as_str(),
            "binding" => {
                let target = &object["target"];
                let is_node = matches!(target["kind"].as_str(), None | Some("" | "Node"));
                target["name"].as_str().filter(|_| is_node)
            }
            _ => None,
        };
        let Some(name) = node.filter(|name| !name.is_empty()) else { return Ok(()) };
        // A pod may name a node that is yet to come.
        for (label, value) in request.read.labels("nodes.", "", name, &LABELS) {
            if !object["metadata"]["labels"].is_object() {
                object["metadata"]["labels"] = json!({});
            }
            object["metadata"]["labels"][label] = value.into();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn bindings_carry_the_nodes_topology() {
        let world = World::new();
        let labels = json!({ "topology.kubernetes.io/zone": "z", "kubernetes.io/arch": "arm64" });
        world.put("nodes.", json!({ "metadata": { "name": "n", "labels": labels } }));
        let binding = json!({ "metadata": { "name": "web", "namespace": "a" }, "target": { "kind": "Node", "name": "n" } });
        let bound = Try::create(&world, "pods./binding").mutate(&PodTopologyLabels, binding.clone()).unwrap();
        assert_eq!(bound["metadata"]["labels"], json!({ "topology.kubernetes.io/zone": "z" }));
        let mut pod = pod();
        let plain = Try::create(&world, "pods.").mutate(&PodTopologyLabels, pod.clone()).unwrap();
        assert_eq!(plain, pod);
        pod["spec"]["nodeName"] = "n".into();
        let placed = Try::create(&world, "pods.").mutate(&PodTopologyLabels, pod).unwrap();
        assert_eq!(placed["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
    }
}

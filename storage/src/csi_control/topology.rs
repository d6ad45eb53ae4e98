//! Where a volume may be, as the driver is told it, and where it is, as the scheduler is told it.
//!
//! By the rules of upstream's external-provisioner without `--strict-topology`.

use crate::csi::controller_messages::TopologyRequirement;
use crate::csi::messages::Topology;
use crate::facts;
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorTerm, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::CSINode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub type Segment = BTreeMap<String, String>;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    #[error("error generating accessibility requirements: no topology key found on CSINode {0}")]
    NoKeys(String),
    #[error(
        "error generating accessibility requirements: topology of selected node \"{0}\" is not in the class's allowedTopologies"
    )]
    NotAllowed(String),
}

/// The nodes that a driver is on, with what it calls their places.
pub struct Places {
    segments: BTreeMap<String, Segment>,
}

impl Places {
    /// Nodes whose labels do not say all that the driver's keys ask for are left out.
    pub fn of(driver: &str, nodes: &[Arc<Node>], csi_nodes: &[Arc<CSINode>]) -> Self {
        let segment = |csi: &Arc<CSINode>| {
            let name = csi.metadata.name.clone()?;
            let keys = csi.spec.drivers.iter().find(|d| d.name == driver)?.topology_keys.clone()?;
            let node = nodes.iter().find(|node| node.metadata.name.as_ref() == Some(&name))?;
            let labels = node.metadata.labels.as_ref()?;
            let pairs: Option<Segment> =
                keys.into_iter().map(|key| labels.get(&key).cloned().map(|value| (key, value))).collect();
            Some((name, pairs.filter(|pairs| !pairs.is_empty())?))
        };
        Self { segments: csi_nodes.iter().filter_map(segment).collect() }
    }

    /// All places, each once.
    pub fn all(&self) -> BTreeSet<Segment> {
        self.segments.values().cloned().collect()
    }

    /// What the driver is told: where the volume may be, the best place first. `None` where nothing is known of places.
    pub fn requirement(
        &self,
        selected: Option<&str>,
        allowed: &[TopologySelectorTerm],
        claim_uid: &str,
    ) -> Result<Option<TopologyRequirement>, TopologyError> {
        let requisite: Vec<Segment> =
            if allowed.is_empty() { self.all().into_iter().collect() } else { flattened(allowed) };
        let first = match selected {
            Some(node) => {
                let own = self.segments.get(node).ok_or_else(|| TopologyError::NoKeys(node.to_owned()))?;
                let found =
                    requisite.iter().position(|segment| segment.iter().all(|(k, v)| own.get(k) == Some(v)));
                found.ok_or_else(|| TopologyError::NotAllowed(node.to_owned()))?
            }
            None if requisite.is_empty() => return Ok(None),
            // Claims that wait for no pod are spread.
            None => claim_uid.bytes().map(usize::from).sum::<usize>() % requisite.len(),
        };
        let mut preferred = requisite.clone();
        preferred.rotate_left(first);
        let told =
            |segments: Vec<Segment>| segments.into_iter().map(|segments| Topology { segments }).collect();
        Ok(Some(TopologyRequirement { requisite: told(requisite), preferred: told(preferred) }))
    }
}

/// Every combination of the values that a term allows; terms are alternatives.
fn flattened(terms: &[TopologySelectorTerm]) -> Vec<Segment> {
    let mut all = BTreeSet::new();
    for term in terms {
        let mut segments = vec![Segment::new()];
        for wanted in term.match_label_expressions.iter().flatten() {
            let with = |segment: &Segment| {
                let values = wanted.values.iter().map(|value| {
                    let mut segment = segment.clone();
                    segment.insert(wanted.key.clone(), value.clone());
                    segment
                });
                values.collect::<Vec<_>>()
            };
            segments = segments.iter().flat_map(with).collect();
        }
        all.extend(segments);
    }
    all.into_iter().collect()
}

/// The nodes that reach a volume. `None` where all do.
pub fn affinity(places: &[Topology]) -> Option<VolumeNodeAffinity> {
    let term = |place: &Topology| {
        let requirement = |(key, value): (&String, &String)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        };
        let expressions = place.segments.iter().map(requirement).collect();
        NodeSelectorTerm { match_expressions: Some(expressions), match_fields: None }
    };
    let terms: Vec<_> = places.iter().filter(|place| !place.segments.is_empty()).map(term).collect();
    let required = NodeSelector { node_selector_terms: terms };
    if required.node_selector_terms.is_empty() {
        return None;
    }
    Some(VolumeNodeAffinity { required: Some(required) })
}

/// The driver's name for a node, from its CSINode.
pub fn node_id(csi: &CSINode, driver: &str) -> Option<String> {
    csi.spec.drivers.iter().find(|d| d.name == driver).map(|d| d.node_id.clone())
}

/// The node that the scheduler has chosen for the claim's pod.
pub fn selected(claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> Option<&str> {
    facts::annotation(claim, facts::SELECTED_NODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn places() -> Places {
        let node = |name: &str, zone: &str| {
            Arc::new(
                serde_json::from_value(json!({ "metadata": { "name": name, "labels": { "zone": zone } } }))
                    .unwrap(),
            )
        };
        let csi = |name: &str| {
            Arc::new(
                serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "drivers": [
                { "name": "d", "nodeID": "i", "topologyKeys": ["zone"] }] } }))
                .unwrap(),
            )
        };
        let nodes = [node("n1", "a"), node("n2", "b"), node("n3", "b")];
        Places::of("d", &nodes, &[csi("n1"), csi("n2"), csi("n3")])
    }

    fn zones(topologies: &[Topology]) -> Vec<&str> {
        topologies.iter().map(|t| t.segments["zone"].as_str()).collect()
    }

    #[test]
    fn the_selected_nodes_place_comes_first() {
        let told = places().requirement(Some("n2"), &[], "u").unwrap().unwrap();
        assert_eq!((zones(&told.requisite), zones(&told.preferred)), (vec!["a", "b"], vec!["b", "a"]));
        assert_eq!(places().requirement(Some("n9"), &[], "u"), Err(TopologyError::NoKeys("n9".to_owned())));
        let empty = Places::of("other", &[], &[]);
        assert_eq!(empty.requirement(None, &[], "u"), Ok(None));
    }

    #[test]
    fn a_class_allows_some_places() {
        let allowed: Vec<TopologySelectorTerm> = serde_json::from_value(json!([
            { "matchLabelExpressions": [{ "key": "zone", "values": ["b", "c"] }] }]))
        .unwrap();
        let told = places().requirement(Some("n3"), &allowed, "u").unwrap().unwrap();
        assert_eq!(zones(&told.requisite), ["b", "c"]);
        let refused = places().requirement(Some("n1"), &allowed, "u");
        assert_eq!(refused, Err(TopologyError::NotAllowed("n1".to_owned())));
        let affinity = affinity(&told.preferred).unwrap().required.unwrap();
        assert_eq!(affinity.node_selector_terms.len(), 2);
    }
}

//! Devices that drivers publish in ResourceSlices.

use crate::cache::NodeInfo;
use coracle_api::quantity::Quantity;
use coracle_client::placement::any_term_matches;
use k8s_openapi::api::core::v1::NodeSelector;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Driver, pool and name: unique in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: String,
    pub pool: String,
    pub name: String,
}

impl DeviceId {
    /// Of a result in an allocation.
    pub fn of(result: &Value) -> Self {
        let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
        Self { driver: text("driver"), pool: text("pool"), name: text("device") }
    }
}

/// A device with the slice that it stands in.
#[derive(Clone)]
pub struct Device {
    pub id: DeviceId,
    pub(super) slice: Arc<Value>,
    pub(super) index: usize,
    /// How much it takes of which of the inventory's counters.
    pub draws: Vec<(usize, Quantity)>,
}

impl Device {
    pub fn value(&self) -> &Value {
        &self.slice["spec"]["devices"][self.index]
    }

    /// Whether several claims may use it, each a part of its capacity.
    pub fn is_shared(&self) -> bool {
        self.value()["allowMultipleAllocations"] == true
    }

    /// An attribute by its full or (the driver's own) short name.
    pub fn attribute(&self, name: &str) -> Option<&Value> {
        let attributes = &self.value()["attributes"];
        let own = || Some(&attributes[name.strip_prefix(&format!("{}/", self.id.driver))?]);
        Some(&attributes[name]).filter(|v| !v.is_null()).or_else(own).filter(|v| !v.is_null())
    }

    /// Taints that keep it from being allocated.
    pub fn taints(&self) -> impl Iterator<Item = &Value> {
        let taints = self.value()["taints"].as_array();
        taints.into_iter().flatten().filter(|t| t["effect"] == "NoSchedule" || t["effect"] == "NoExecute")
    }

    /// The part of an allocation's node selector that says where it can be used; `None` for everywhere. `node` is where
    /// it is going to be used, which binds some devices.
    pub fn node_selector(&self, node: &str) -> Option<Value> {
        let named = |name: &str| {
            let field = json!({ "key": "metadata.name", "operator": "In", "values": [name] });
            json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] })
        };
        if self.value()["bindsToNode"] == true {
            return Some(named(node));
        }
        let spec = &self.slice["spec"];
        let place = if spec["perDeviceNodeSelection"] == true { self.value() } else { spec };
        match place["nodeName"].as_str() {
            Some(name) => Some(named(name)),
            None => Some(place["nodeSelector"].clone()).filter(|s| !s.is_null()),
        }
    }
}

/// Where devices can be used. Read once, asked about every node.
#[derive(Clone)]
pub enum Place {
    Everywhere,
    Node(String),
    /// One that cannot be read is nowhere.
    Selected(Option<NodeSelector>),
}

impl Place {
    /// Of a slice, or of a device that says its own nodes.
    pub fn of(value: &Value) -> Self {
        if value["allNodes"] == true {
            return Self::Everywhere;
        }
        match value["nodeName"].as_str() {
            Some(name) => Self::Node(name.to_owned()),
            None => Self::selected(&value["nodeSelector"]),
        }
    }

    /// By a node selector.
    pub fn selected(selector: &Value) -> Self {
        Self::Selected(NodeSelector::deserialize(selector).ok())
    }

    pub fn has(&self, node: &NodeInfo) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Node(name) => *name == node.name,
            Self::Selected(selector) => {
                selector.as_ref().is_some_and(|s| any_term_matches(&s.node_selector_terms, node))
            }
        }
    }
}

/// One selector that holds where all of them do; each has one term, as upstream's have.
pub fn all_of(selectors: &[Value]) -> Option<Value> {
    let mut term = serde_json::Map::new();
    for selector in selectors {
        for field in ["matchExpressions", "matchFields"] {
            let requirements = selector["nodeSelectorTerms"][0][field].as_array();
            for requirement in requirements.into_iter().flatten() {
                let list = term.entry(field).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut().filter(|list| !list.contains(requirement)) {
                    list.push(requirement.clone());
                }
            }
        }
    }
    (!term.is_empty()).then(|| json!({ "nodeSelectorTerms": [term] }))
}

//! Devices that drivers publish in ResourceSlices, and which of them a node can use.

use crate::cache::NodeInfo;
use crate::plugins::affinity;
use k8s_openapi::api::core::v1::NodeSelector;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Driver, pool and name: unique in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: String,
    pub pool: String,
    pub name: String,
}

/// A device with the slice that it stands in.
#[derive(Clone)]
pub struct Device {
    pub id: DeviceId,
    slice: Arc<Value>,
    index: usize,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Device {
    pub fn value(&self) -> &Value {
        &self.slice["spec"]["devices"][self.index]
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

    /// The part of an allocation's node selector that says where it can be used; `None` for everywhere.
    pub fn node_selector(&self) -> Option<Value> {
        let spec = &self.slice["spec"];
        let place = if spec["perDeviceNodeSelection"] == true { self.value() } else { spec };
        match place["nodeName"].as_str() {
            Some(name) => Some(serde_json::json!({ "nodeSelectorTerms": [{ "matchFields":
                [{ "key": "metadata.name", "operator": "In", "values": [name] }] }] })),
            None => Some(place["nodeSelector"].clone()).filter(|s| !s.is_null()),
        }
    }
}

/// Whether a node selector in JSON matches the node; one that cannot be read matches none.
pub fn selects(selector: &Value, node: &NodeInfo) -> bool {
    let typed: Option<NodeSelector> = serde_json::from_value(selector.clone()).ok();
    typed.is_some_and(|s| affinity::any_term_matches(&s.node_selector_terms, node))
}

fn usable(place: &Value, node: &NodeInfo) -> bool {
    if place["allNodes"] == true {
        return true;
    }
    match place["nodeName"].as_str() {
        Some(name) => name == node.name,
        None => !place["nodeSelector"].is_null() && selects(&place["nodeSelector"], node),
    }
}

/// Slices of complete pools: of the newest generation, and all of them there.
fn complete(slices: &[Arc<Value>]) -> Vec<Arc<Value>> {
    let mut pools: HashMap<(String, String), Vec<&Arc<Value>>> = HashMap::new();
    for slice in slices {
        let spec = &slice["spec"];
        pools.entry((text(&spec["driver"]), text(&spec["pool"]["name"]))).or_default().push(slice);
    }
    let mut whole = Vec::new();
    for slices in pools.into_values() {
        let generation = |s: &Arc<Value>| s["spec"]["pool"]["generation"].as_i64().unwrap_or(0);
        let newest = slices.iter().map(|s| generation(s)).max().unwrap_or(0);
        let current: Vec<_> = slices.into_iter().filter(|s| generation(s) == newest).collect();
        let wanted = current[0]["spec"]["pool"]["resourceSliceCount"].as_u64().unwrap_or(0);
        let names: HashSet<&str> = current
            .iter()
            .flat_map(|s| s["spec"]["devices"].as_array())
            .flatten()
            .filter_map(|d| d["name"].as_str())
            .collect();
        let devices =
            current.iter().filter_map(|s| s["spec"]["devices"].as_array()).map(Vec::len).sum::<usize>();
        if u64::try_from(current.len()).unwrap_or(0) == wanted && names.len() == devices {
            whole.extend(current.into_iter().cloned());
        }
    }
    whole
}

/// The devices that a node can use, in the order of driver, pool and name. Devices that draw on counters shared with
/// others (partitionable devices, KEP-4815) are left out: they cannot be accounted for here.
pub fn on_node(slices: &[Arc<Value>], node: &NodeInfo) -> Vec<Device> {
    let mut devices = Vec::new();
    for slice in complete(slices) {
        let spec = &slice["spec"];
        let each = spec["perDeviceNodeSelection"] == true;
        if !each && !usable(spec, node) {
            continue;
        }
        for (index, device) in spec["devices"].as_array().into_iter().flatten().enumerate() {
            let counted = device["consumesCounters"].as_array().is_some_and(|c| !c.is_empty());
            if counted || (each && !usable(device, node)) {
                continue;
            }
            let id = DeviceId {
                driver: text(&spec["driver"]),
                pool: text(&spec["pool"]["name"]),
                name: text(&device["name"]),
            };
            devices.push(Device { id, slice: slice.clone(), index });
        }
    }
    devices.sort_by(|a, b| a.id.cmp(&b.id));
    devices
}

/// The devices that an allocation names, those for administrators' access left out: they stay free.
pub fn allocated(claim: &Value) -> impl Iterator<Item = DeviceId> {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    results.into_iter().flatten().filter(|r| r["adminAccess"] != true).map(|r| DeviceId {
        driver: text(&r["driver"]),
        pool: text(&r["pool"]),
        name: text(&r["device"]),
    })
}

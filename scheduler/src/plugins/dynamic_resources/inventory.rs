//! All devices that are published, ready to be asked for by node; and the counters that partitions of a device draw on
//! (KEP-4815). Made once a cycle.

use super::capacity::quantity;
use super::devices::{Device, DeviceId, Place};
use super::taken::Taken;
use crate::cache::NodeInfo;
use coracle_api::quantity::Quantity;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A slice of a complete pool, and which counters its pool has.
#[derive(Clone)]
struct Shelf {
    slice: Arc<Value>,
    /// Of all its devices, or of each.
    places: Places,
    /// Indices into [`Inventory::left`] by counter set and counter.
    counters: Arc<HashMap<(String, String), usize>>,
}

#[derive(Clone)]
enum Places {
    One(Place),
    Each(Vec<Place>),
}

impl Places {
    fn of(slice: &Value) -> Self {
        let spec = &slice["spec"];
        if spec["perDeviceNodeSelection"] == true {
            return Self::Each(devices(slice).map(Place::of).collect());
        }
        Self::One(Place::of(spec))
    }
}

#[derive(Default)]
pub struct Inventory {
    by_node: HashMap<String, Vec<Shelf>>,
    elsewhere: Vec<Shelf>,
    /// What is left of each counter.
    left: Vec<Quantity>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn devices(slice: &Value) -> impl Iterator<Item = &Value> {
    slice["spec"]["devices"].as_array().into_iter().flatten()
}

/// Slices by pool: of the newest generation, and only where all of them are there.
fn complete(slices: Vec<Arc<Value>>) -> Vec<Vec<Arc<Value>>> {
    let mut pools: HashMap<(String, String), Vec<Arc<Value>>> = HashMap::new();
    for slice in slices {
        let spec = &slice["spec"];
        let pool = (text(&spec["driver"]), text(&spec["pool"]["name"]));
        pools.entry(pool).or_default().push(slice);
    }
    let mut whole = Vec::new();
    for mut slices in pools.into_values() {
        let generation = |s: &Arc<Value>| s["spec"]["pool"]["generation"].as_i64().unwrap_or(0);
        let newest = slices.iter().map(generation).max().unwrap_or(0);
        slices.retain(|s| generation(s) == newest);
        let wanted = slices[0]["spec"]["pool"]["resourceSliceCount"].as_u64().unwrap_or(0);
        let names = || slices.iter().flat_map(|s| devices(s)).filter_map(|d| d["name"].as_str());
        let distinct: HashSet<&str> = names().collect();
        if u64::try_from(slices.len()).unwrap_or(0) == wanted && distinct.len() == names().count() {
            whole.push(slices);
        }
    }
    whole
}

impl Inventory {
    pub fn new(slices: Vec<Arc<Value>>, taken: &Taken) -> Self {
        let mut inventory = Self::default();
        for pool in complete(slices) {
            inventory.stock(pool, taken);
        }
        inventory
    }

    fn stock(&mut self, pool: Vec<Arc<Value>>, taken: &Taken) {
        let mut counters = HashMap::new();
        for set in pool.iter().filter_map(|s| s["spec"]["sharedCounters"].as_array()).flatten() {
            for (name, counter) in set["counters"].as_object().into_iter().flatten() {
                counters.insert((text(&set["name"]), name.clone()), self.left.len());
                self.left.push(quantity(&counter["value"]).unwrap_or_default());
            }
        }
        let counters = Arc::new(counters);
        for slice in pool {
            let places = Places::of(&slice);
            let shelf = Shelf { slice: slice.clone(), places, counters: counters.clone() };
            if !counters.is_empty() {
                for (index, device) in devices(&slice).enumerate() {
                    let draws = shelf.draws(device).unwrap_or_default();
                    if taken.holds(&shelf.device(index, Vec::new()).id) {
                        draws.into_iter().for_each(|(counter, amount)| self.left[counter] -= amount);
                    }
                }
            }
            match &shelf.places {
                Places::One(Place::Node(name)) => {
                    self.by_node.entry(name.clone()).or_default().push(shelf);
                }
                _ => self.elsewhere.push(shelf),
            }
        }
    }

    /// What is left of each counter; devices' `draws` are indices into it.
    pub fn left(&self) -> &[Quantity] {
        &self.left
    }

    /// The devices that a node can use, in the order of driver, pool and name. Those that draw on counters which their
    /// pool has not are left out.
    pub fn on_node(&self, node: &NodeInfo) -> Vec<Device> {
        let mut found = Vec::new();
        let own = self.by_node.get(&node.name).into_iter().flatten();
        for shelf in own.chain(&self.elsewhere) {
            let each = match &shelf.places {
                Places::One(place) if !place.has(node) => continue,
                Places::One(_) => None,
                Places::Each(places) => Some(places),
            };
            for (index, device) in devices(&shelf.slice).enumerate() {
                if each.is_some_and(|places| !places[index].has(node)) {
                    continue;
                }
                if let Some(draws) = shelf.draws(device) {
                    found.push(shelf.device(index, draws));
                }
            }
        }
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }
}

impl Shelf {
    /// How much the device takes of which counter; `None` when one of them does not exist.
    fn draws(&self, device: &Value) -> Option<Vec<(usize, Quantity)>> {
        let mut draws = Vec::new();
        for set in device["consumesCounters"].as_array().into_iter().flatten() {
            for (name, counter) in set["counters"].as_object().into_iter().flatten() {
                let key = (text(&set["counterSet"]), name.clone());
                draws.push((*self.counters.get(&key)?, quantity(&counter["value"])?));
            }
        }
        Some(draws)
    }

    fn device(&self, index: usize, draws: Vec<(usize, Quantity)>) -> Device {
        let spec = &self.slice["spec"];
        let id = DeviceId {
            driver: text(&spec["driver"]),
            pool: text(&spec["pool"]["name"]),
            name: text(&spec["devices"][index]["name"]),
        };
        Device { id, slice: self.slice.clone(), index, draws }
    }
}

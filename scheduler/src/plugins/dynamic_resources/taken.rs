//! What allocations hold: whole devices, and shares of devices that several claims may use.

use super::capacity::{self, Amounts};
use super::devices::DeviceId;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub struct Taken {
    whole: HashSet<DeviceId>,
    shares: HashMap<DeviceId, Amounts>,
}

impl Taken {
    /// Adds what an allocation (`status.allocation`) holds. Administrators' access holds nothing.
    pub fn add(&mut self, allocation: &Value) {
        let results = allocation["devices"]["results"].as_array();
        for result in results.into_iter().flatten().filter(|r| r["adminAccess"] != true) {
            let id = DeviceId::of(result);
            if result["shareID"].is_null() {
                self.whole.insert(id);
                continue;
            }
            let consumed = capacity::consumed_by(&id.driver, result);
            let share = self.shares.entry(id).or_default();
            for (name, amount) in consumed {
                *share.entry(name).or_default() += amount;
            }
        }
    }

    pub fn is_whole(&self, id: &DeviceId) -> bool {
        self.whole.contains(id)
    }

    pub fn share(&self, id: &DeviceId) -> Option<&Amounts> {
        self.shares.get(id)
    }

    /// Whether anybody uses the device, or a part of it.
    pub fn holds(&self, id: &DeviceId) -> bool {
        self.whole.contains(id) || self.shares.contains_key(id)
    }
}

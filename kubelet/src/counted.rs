//! How many pods and containers this process has started, and how its containers ended, for `/metrics`.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A family of upstream's, with the values of its labels in their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    StartedPods,
    StartedPodsErrors,
    StartedContainers { container_type: &'static str },
    StartedContainersErrors { container_type: &'static str, code: String },
    TerminatedContainers { container_type: &'static str, exit_code: i32, reason: String },
    RuntimeErrors { operation: &'static str },
    Evictions { signal: &'static str },
}

static COUNTS: Mutex<BTreeMap<Counted, u64>> = Mutex::new(BTreeMap::new());

pub fn add(what: Counted) {
    *COUNTS.lock().entry(what).or_default() += 1;
}

pub fn all() -> BTreeMap<Counted, u64> {
    COUNTS.lock().clone()
}

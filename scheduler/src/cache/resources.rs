//! Amounts of resources, in the units the scheduler counts in.

use coracle_api::pod::{self, ContainerView, Counted, PodView, QuantityMap, ResourceList};
use coracle_api::quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use std::collections::BTreeMap;

/// CPU in millicores, everything else in units (bytes for memory).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory_bytes: i64,
    pub ephemeral_storage_bytes: i64,
    /// Huge pages and extended resources, by name.
    pub scalar: BTreeMap<String, i64>,
}

/// What a container without a request counts for in scores, as upstream: 100 m of CPU, 200 MB of memory.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

const OF_SPEC: Counted<'static> = Counted { overhead: true, status: false, missing: &[] };
const IN_FORCE: Counted<'static> = Counted { status: true, ..OF_SPEC };

fn in_units(name: &str, quantity: Amount) -> i64 {
    if name == "cpu" { quantity.milli() } else { quantity.units() }
}

impl Resources {
    pub fn of(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let mut sum = Self::default();
        for (name, quantity) in QuantityMap::from(list).iter() {
            *sum.slot(name) += in_units(name, quantity);
        }
        sum
    }

    /// The amount of one resource by its Kubernetes name, in the units of this type.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory_bytes,
            "ephemeral-storage" => self.ephemeral_storage_bytes,
            other => self.scalar.get(other).copied().unwrap_or(0),
        }
    }

    /// Every resource of which there is some, by its Kubernetes name, in the units of this type.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        let own = ["cpu", "ephemeral-storage", "memory"].map(|name| (name, self.get(name)));
        let scalar = self.scalar.iter().map(|(name, amount)| (name.as_str(), *amount));
        own.into_iter().chain(scalar).filter(|(_, amount)| *amount != 0)
    }

    fn slot(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.milli_cpu,
            "memory" => &mut self.memory_bytes,
            "ephemeral-storage" => &mut self.ephemeral_storage_bytes,
            other => self.scalar.entry(other.to_owned()).or_insert(0),
        }
    }

    /// Whether there is more of anything here.
    pub fn exceed(&self, other: &Self) -> bool {
        self.milli_cpu > other.milli_cpu
            || self.memory_bytes > other.memory_bytes
            || self.ephemeral_storage_bytes > other.ephemeral_storage_bytes
            || self.scalar.iter().any(|(name, amount)| *amount > other.get(name))
    }

    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    /// The larger of both, resource by resource.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, f: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = f(self.milli_cpu, other.milli_cpu);
        self.memory_bytes = f(self.memory_bytes, other.memory_bytes);
        self.ephemeral_storage_bytes = f(self.ephemeral_storage_bytes, other.ephemeral_storage_bytes);
        for (name, value) in &other.scalar {
            let slot = self.slot(name);
            *slot = f(*slot, *value);
        }
    }
}

impl From<&ResourceList<'_>> for Resources {
    fn from(list: &ResourceList<'_>) -> Self {
        let mut sum = Self::default();
        for (name, quantity) in list.iter() {
            *sum.slot(name) += in_units(name, quantity);
        }
        sum
    }
}

/// What a pod requests by its spec alone, overhead included.
pub fn requests_of_spec(pod: &Pod) -> Resources {
    (&pod::requests(pod, OF_SPEC)).into()
}

/// The most that a pod may use by its spec, overhead included.
pub fn limits_of_spec(pod: &Pod) -> Resources {
    (&pod::limits(pod, OF_SPEC)).into()
}

/// What a pod requests of its node, also while it is resized: fits are computed with it.
pub fn requests_in_force(pod: &Pod) -> Resources {
    (&pod::requests(pod, IN_FORCE)).into()
}

/// As [`requests_in_force`], which found `requests`, with small requests assumed where a pod makes none (upstream's
/// `NonZeroRequested`): scores are computed with it.
pub fn non_zero_requests(pod: &Pod, requests: &Resources) -> Resources {
    let names_both = |container: ContainerView<'_>| {
        let names = |name| container.resources.requests.names().any(|own| own == name);
        names("cpu") && names("memory")
    };
    let complete = pod.containers().chain(pod.init_containers()).all(names_both);
    if complete && !pod.is_resize_infeasible() {
        return requests.clone();
    }
    let assumed = [
        ("cpu", Amount::from_milli(DEFAULT_MILLI_CPU)),
        ("memory", Amount::from_bytes(DEFAULT_MEMORY_BYTES)),
    ];
    // A pod that requests something as a whole lacks only what it requests nowhere.
    let whole = pod::has_pod_level_requests(pod);
    let lacks = |name: &str| !whole || requests.get(name) == 0;
    let missing: Vec<(&'static str, Amount)> = assumed.into_iter().filter(|(name, _)| lacks(name)).collect();
    (&pod::requests(pod, Counted { missing: &missing, ..IN_FORCE })).into()
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::pod;
    use serde_json::{Value, json};

    fn counted(spec: &Value) -> (i64, i64) {
        let counted = pod(json!({ "spec": spec })).counted.clone();
        (counted.milli_cpu, counted.memory_bytes >> 20)
    }

    #[test]
    fn scores_assume_small_requests_where_there_are_none() {
        let of = |requests: Value| json!({ "name": "c", "resources": { "requests": requests } });
        let (none, cpu) = (of(json!({})), of(json!({ "cpu": "1" })));
        let whole =
            |requests: Value| json!({ "containers": [none, cpu], "resources": { "requests": requests } });
        for (spec, expected) in [
            (json!({ "containers": [none] }), (100, 200)),
            (json!({ "containers": [none, cpu] }), (1100, 400)),
            (json!({ "containers": [of(json!({ "cpu": "1", "memory": "1Mi" }))] }), (1000, 1)),
            (json!({ "containers": [of(json!({ "cpu": "0", "memory": "0" }))] }), (0, 0)),
            (whole(json!({ "cpu": "2", "memory": "8Mi" })), (2000, 8)),
            (whole(json!({ "memory": "8Mi" })), (1000, 8)),
            (whole(json!({ "cpu": "2" })), (2000, 400)),
        ] {
            assert_eq!(counted(&spec), expected, "{spec}");
        }
    }
}

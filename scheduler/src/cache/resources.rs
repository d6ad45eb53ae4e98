//! Amounts of resources, in the units the scheduler counts in.

use coracle_api::quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::{Container, PodSpec};
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

fn amount(name: &str, quantity: &Quantity) -> i64 {
    let parsed = quantity.0.parse::<Amount>().ok();
    parsed.map_or(0, |q| if name == "cpu" { q.milli() } else { q.units() })
}

impl Resources {
    pub fn of(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let mut sum = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            *sum.slot(name) += amount(name, quantity);
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

    fn slot(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.milli_cpu,
            "memory" => &mut self.memory_bytes,
            "ephemeral-storage" => &mut self.ephemeral_storage_bytes,
            other => self.scalar.entry(other.to_owned()).or_insert(0),
        }
    }

    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0
            && self.memory_bytes == 0
            && self.ephemeral_storage_bytes == 0
            && self.scalar.values().all(|amount| *amount == 0)
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

/// What a pod asks of its node: the containers together, or the largest init container if that is more, restartable
/// init containers counted with everything that runs beside them, plus overhead; pod-level requests win where given.
/// `request` says what one container counts for.
fn of_pod(spec: &PodSpec, request: impl Fn(&Container) -> Resources) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&request(container));
    }
    let mut sidecars = Resources::default();
    let mut initial = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let wanted = request(container);
        if container.restart_policy.as_deref() == Some("Always") {
            running.add(&wanted);
            sidecars.add(&wanted);
            initial.raise_to(&sidecars);
        } else {
            let mut with_sidecars = sidecars.clone();
            with_sidecars.add(&wanted);
            initial.raise_to(&with_sidecars);
        }
    }
    running.raise_to(&initial);
    if let Some(pod_level) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        for (name, quantity) in pod_level {
            *running.slot(name) = amount(name, quantity);
        }
    }
    running.add(&Resources::of(spec.overhead.as_ref()));
    running
}

fn requests(container: &Container) -> Resources {
    Resources::of(container.resources.as_ref().and_then(|r| r.requests.as_ref()))
}

/// What fits are computed with.
pub fn requested_by(spec: &PodSpec) -> Resources {
    of_pod(spec, requests)
}

/// What scores are computed with: containers without a request count for a small one.
pub fn counted_for(spec: &PodSpec) -> Resources {
    of_pod(spec, |container| {
        let asked = container.resources.as_ref().and_then(|r| r.requests.as_ref());
        let has = |name: &str| asked.is_some_and(|a| a.contains_key(name));
        let mut counted = requests(container);
        if !has("cpu") {
            counted.milli_cpu = DEFAULT_MILLI_CPU;
        }
        if !has("memory") {
            counted.memory_bytes = DEFAULT_MEMORY_BYTES;
        }
        counted
    })
}

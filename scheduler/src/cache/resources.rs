//! Amounts of resources, in the units the scheduler counts in.

use coracle_api::quantity::Quantity as Amount;
use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};
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

/// The containers together, or the largest init container if that is more, restartable init containers counted with
/// everything that runs beside them. `of` says what one container counts for.
fn at_once(spec: &PodSpec, of: impl Fn(&Container) -> Resources) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&of(container));
    }
    let mut sidecars = Resources::default();
    let mut initial = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let wanted = of(container);
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
    running
}

/// What a pod asks of its node: what its containers do, plus overhead; pod-level requests win where given. `request`
/// says what one container counts for.
fn of_pod(
    spec: &PodSpec,
    status: Option<&PodStatus>,
    request: impl Fn(&Container) -> Resources,
) -> Resources {
    let mut running = at_once(spec, request);
    if let Some(pod_level) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        let whole = PodLevel { asked: pod_level, status };
        for name in pod_level.keys() {
            *running.slot(name) = whole.in_force(name);
        }
    }
    running.add(&Resources::of(spec.overhead.as_ref()));
    running
}

/// The most that a pod may take: what its containers may, plus overhead of what is limited at all; pod-level limits win
/// where given.
pub fn limit_of(spec: &PodSpec) -> Resources {
    let limits =
        |container: &Container| Resources::of(container.resources.as_ref().and_then(|r| r.limits.as_ref()));
    let mut most = at_once(spec, limits);
    for (name, quantity) in spec.resources.iter().flat_map(|r| r.limits.iter().flatten()) {
        *most.slot(name) = amount(name, quantity);
    }
    for (name, quantity) in spec.overhead.iter().flatten() {
        if most.get(name) != 0 {
            *most.slot(name) += amount(name, quantity);
        }
    }
    most
}

fn requests(container: &Container) -> Resources {
    Resources::of(container.resources.as_ref().and_then(|r| r.requests.as_ref()))
}

/// Whether the node said that it will never have room for what the pod asks for now.
fn is_infeasible(status: &PodStatus) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions.into_iter().any(|c| {
        c.type_ == "PodResizePending" && c.status == "True" && c.reason.as_deref() == Some("Infeasible")
    })
}

/// Requests of a pod as a whole, which are resized in place like those of its containers (KEP-5419).
struct PodLevel<'a> {
    asked: &'a BTreeMap<String, Quantity>,
    status: Option<&'a PodStatus>,
}

impl PodLevel<'_> {
    /// The largest of what is asked for, what the node gave, and what the pod has.
    fn in_force(&self, name: &str) -> i64 {
        let of = |list: Option<&BTreeMap<String, Quantity>>| Some(amount(name, list?.get(name)?));
        let has = self.status.and_then(|s| of(s.resources.as_ref()?.requests.as_ref()));
        let given = self.status.and_then(|s| of(s.allocated_resources.as_ref()));
        let held = has.max(given);
        let asked = of(Some(self.asked));
        match held {
            Some(held) if self.status.is_some_and(is_infeasible) => held,
            held => held.max(asked).unwrap_or(0),
        }
    }
}

/// What a container counts for while it is resized in place (KEP-1287): the largest of what it asks for, what its node
/// gave it, and what it has; not what it asks for when that is infeasible.
fn in_force(container: &Container, status: Option<&PodStatus>) -> Resources {
    let asked = || requests(container);
    let Some(status) = status else { return asked() };
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut known = lists.into_iter().flatten().flatten();
    let Some(own) = known.find(|s| s.name == container.name) else { return asked() };
    let Some(has) = own.resources.as_ref().and_then(|r| r.requests.as_ref()) else { return asked() };
    let wanted = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    let given = own.allocated_resources.as_ref();
    if Some(has) == wanted && given.is_none_or(|given| Some(given) == wanted) {
        return asked();
    }
    let mut held = Resources::of(Some(has));
    held.raise_to(&Resources::of(given));
    if !is_infeasible(status) {
        held.raise_to(&asked());
    }
    held
}

/// What fits are computed with.
pub fn requested_by(spec: &PodSpec, status: Option<&PodStatus>) -> Resources {
    of_pod(spec, status, |container| in_force(container, status))
}

/// What scores are computed with: containers without a request count for a small one. `requested` is what
/// [`requested_by`] found for the same pod.
pub fn counted_for(spec: &PodSpec, status: Option<&PodStatus>, requested: &Resources) -> Resources {
    let has = |container: &Container, name: &str| {
        let asked = container.resources.as_ref().and_then(|r| r.requests.as_ref());
        asked.is_some_and(|a| a.contains_key(name))
    };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    if containers.all(|container| has(container, "cpu") && has(container, "memory")) {
        return requested.clone();
    }
    of_pod(spec, status, |container| {
        let mut counted = in_force(container, status);
        if !has(container, "cpu") {
            counted.milli_cpu = DEFAULT_MILLI_CPU;
        }
        if !has(container, "memory") {
            counted.memory_bytes = DEFAULT_MEMORY_BYTES;
        }
        counted
    })
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::pod;
    use serde_json::{Value, json};

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        let mut container = container("s", cpu);
        container["restartPolicy"] = json!("Always");
        container
    }

    fn milli_cpu(spec: Value, status: Value) -> i64 {
        pod(json!({"spec": spec, "status": status})).requests.milli_cpu
    }

    #[test]
    fn a_pod_asks_for_the_most_that_runs_at_once() {
        let (one, two) = (container("a", "1"), container("b", "2"));
        let cases = [
            (json!({"containers": [one, two]}), 3000),
            (json!({"containers": [one], "initContainers": [two]}), 2000),
            (json!({"containers": [one, two], "initContainers": [two, two]}), 3000),
            (json!({"containers": [one], "initContainers": [sidecar("500m")]}), 1500),
            (json!({"containers": [one], "initContainers": [sidecar("500m"), two]}), 2500),
            (json!({"containers": [one], "initContainers": [two, sidecar("500m")]}), 2000),
            (json!({"containers": [one], "overhead": {"cpu": "250m"}}), 1250),
            (json!({"containers": [one, two], "resources": {"requests": {"cpu": "5"}}}), 5000),
            (json!({"containers": [one], "resources": {"requests": {"memory": "1Gi"}}}), 1000),
        ];
        for (spec, expected) in cases {
            assert_eq!(milli_cpu(spec.clone(), Value::Null), expected, "{spec}");
        }
    }

    #[test]
    fn a_resize_counts_for_the_most_that_it_may_have() {
        let spec = || json!({"containers": [container("a", "2")]});
        let status = |has: &str, given: &str, reason: &str| {
            json!({"containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": given}}],
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]})
        };
        for (has, given, reason, expected) in [
            ("2", "2", "", 2000),
            ("3", "2", "Deferred", 3000),
            ("1", "1", "Deferred", 2000),
            ("1", "4", "Deferred", 4000),
            ("1", "1", "Infeasible", 1000),
            ("1", "1500m", "Infeasible", 1500),
        ] {
            assert_eq!(milli_cpu(spec(), status(has, given, reason)), expected, "{has} {given} {reason}");
        }
    }

    #[test]
    fn a_resize_of_the_whole_pod_counts_for_the_most_that_it_may_have() {
        let spec = || json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "2"}}});
        let status = |has: &str, given: &str, reason: &str| {
            json!({"resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": given},
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]})
        };
        assert_eq!(milli_cpu(spec(), Value::Null), 2000);
        for (has, given, reason, expected) in [
            ("2", "2", "", 2000),
            ("3", "2", "", 3000),
            ("1", "1", "Deferred", 2000),
            ("1", "4", "Deferred", 4000),
            ("1", "1", "Infeasible", 1000),
        ] {
            assert_eq!(milli_cpu(spec(), status(has, given, reason)), expected, "{has} {given} {reason}");
        }
    }
}

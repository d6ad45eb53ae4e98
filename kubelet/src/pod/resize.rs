//! CPU and memory of a pod that runs already: what its spec wants, what the node has granted, and what the runtime was
//! told (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>).
//!
//! The pod that a worker works on carries what was granted; what is wanted beyond it waits in a condition. What a running
//! container was told last survives a restart of this process: in an annotation of the container, and in a file once it
//! was told something else.

use super::ending::is_over;
use super::observed::{self, Observed};
use super::plan::is_sidecar;
use super::qos::amount_of;
use coracle_api::Quantity;
use coracle_api::pod::{self, Counted};
use coracle_storage::volumes::downward::Allocatable;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What can be changed while a container runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// Why what is wanted is not granted; the text is the condition's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// There is no room now.
    Deferred(String),
    /// The node will never have room.
    Infeasible(String),
}

impl Pending {
    /// The condition's reason and message.
    pub fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Deferred(message) => ("Deferred", message),
            Self::Infeasible(message) => ("Infeasible", message),
        }
    }
}

/// How a running container comes to what was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    InPlace,
    /// Its resize policy wants it started anew.
    Restart,
}

#[derive(Clone, Debug, Default)]
pub struct Resizes {
    /// By container name.
    granted: BTreeMap<String, ResourceRequirements>,
    /// By container id: only of those that were told something after their start.
    told: BTreeMap<String, ResourceRequirements>,
    /// Keeps `told`.
    file: PathBuf,
    pub pending: Option<Pending>,
    /// Why the runtime refused the last attempt.
    pub error: Option<String>,
}

/// Containers whose resources can change while they run.
fn resizable(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten().filter(|c| is_sidecar(c))))
}

/// The resources of which two differ.
fn difference(one: Option<&ResourceRequirements>, other: Option<&ResourceRequirements>) -> Vec<&'static str> {
    let same = |limits, resource| amount_of(one, limits, resource) == amount_of(other, limits, resource);
    RESIZABLE.into_iter().filter(|resource| !same(false, resource) || !same(true, resource)).collect()
}

impl Resizes {
    /// `directory` is the pod's own; what an earlier process left there counts.
    pub fn load(directory: &Path) -> Self {
        let file = directory.join("resized.json");
        let told = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self { told: told.unwrap_or_default(), file, ..Self::default() }
    }

    /// A container that is new here has what it was started with, or what its spec says if it does not run.
    pub fn meet(&mut self, pod: &Pod, observed: &Observed) {
        for container in resizable(pod).filter(|c| !self.granted.contains_key(&c.name)).collect::<Vec<_>>() {
            let running = observed.running().find(|seen| seen.name == container.name);
            let told = running.and_then(|seen| self.told(seen));
            let granted = told.or(container.resources.as_ref()).cloned().unwrap_or_default();
            self.granted.insert(container.name.clone(), granted);
        }
    }

    /// Whether the pod wants something else than was granted.
    pub fn wants_more(&self, pod: &Pod) -> bool {
        resizable(pod).any(|c| {
            let granted = self.granted.get(&c.name);
            granted.is_some() && !difference(c.resources.as_ref(), granted).is_empty()
        })
    }

    pub fn grant(&mut self, pod: &Pod) {
        self.pending = None;
        self.error = None;
        for container in resizable(pod) {
            self.granted.insert(container.name.clone(), container.resources.clone().unwrap_or_default());
        }
    }

    /// The pod with what was granted in place of what it wants.
    pub fn applied(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        if !self.wants_more(pod) {
            return pod.clone();
        }
        let mut applied = Pod::clone(pod);
        let spec = applied.spec.get_or_insert_default();
        let sidecars = spec.init_containers.iter_mut().flatten().filter(|c| is_sidecar(c));
        for container in spec.containers.iter_mut().chain(sidecars) {
            container.resources = self.granted.get(&container.name).cloned().or(container.resources.take());
        }
        Arc::new(applied)
    }

    /// What a running container was told; `None` where nobody noted it.
    fn told<'a>(&'a self, running: &'a observed::Container) -> Option<&'a ResourceRequirements> {
        self.told.get(&running.id).or(running.resources.as_ref())
    }

    /// What `wanted`, a container of the pod as granted, still has to be told.
    pub fn due(&self, wanted: &Container, running: &observed::Container) -> Option<Due> {
        let changed = difference(wanted.resources.as_ref(), Some(self.told(running)?));
        let restarts = |resource: &&str| {
            let mut policies = wanted.resize_policy.iter().flatten();
            policies.any(|p| p.resource_name == **resource && p.restart_policy == "RestartContainer")
        };
        match changed.as_slice() {
            [] => None,
            some if some.iter().any(restarts) => Some(Due::Restart),
            _ => Some(Due::InPlace),
        }
    }

    /// Whether a container of the pod as granted runs with something else.
    pub fn in_progress(&self, pod: &Pod, observed: &Observed) -> bool {
        resizable(pod).any(|c| {
            let running = observed.latest(&c.name).filter(|seen| seen.state == observed::State::Running);
            running.is_some_and(|seen| self.due(c, seen).is_some())
        })
    }

    /// What the status shows as a container's resources.
    pub fn shown(&self, spec: &Container, running: Option<&observed::Container>) -> ResourceRequirements {
        let due = running.filter(|seen| self.due(spec, seen).is_some());
        due.and_then(|seen| self.told(seen)).or(spec.resources.as_ref()).cloned().unwrap_or_default()
    }

    /// Notes what the runtime took. The error is about the file.
    pub fn done(&mut self, id: &str, resources: ResourceRequirements) -> std::io::Result<()> {
        self.error = None;
        self.told.insert(id.to_owned(), resources);
        let text = serde_json::to_vec(&self.told)?;
        let new = self.file.with_extension("new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, &self.file)
    }

    pub fn retain(&mut self, there: impl Fn(&String) -> bool) {
        self.told.retain(|id, _| there(id));
    }
}

/// What the pod requests, as the scheduler counts it: by its spec, which holds what the node has granted.
pub fn requests(pod: &Pod, resource: &str) -> Quantity {
    let counted = Counted { overhead: true, ..Counted::default() };
    pod::requests(pod, counted).get(resource).unwrap_or_default()
}

/// What the pod may use at most, counted in the same way; zero where nothing limits it.
pub fn limits(pod: &Pod, resource: &str) -> Quantity {
    let counted = Counted { overhead: true, ..Counted::default() };
    pod::limits(pod, counted).get(resource).unwrap_or_default()
}

/// Whether the node has room for `pod` beside the others, which carry what they were granted.
pub fn room<'p>(pod: &Pod, others: impl Iterator<Item = &'p Pod>, node: &Allocatable) -> Result<(), Pending> {
    let others: Vec<&Pod> = others.filter(|p| !is_over(p)).collect();
    // CPU counts in thousandths, memory in bytes.
    let amounts = |pod: &Pod| [requests(pod, "cpu").milli(), requests(pod, "memory").units()];
    let wanted = amounts(pod);
    let capacity = [node.cpu_millis, node.memory_bytes];
    for (index, resource) in RESIZABLE.into_iter().enumerate().rev() {
        let (wanted, capacity) = (wanted[index], capacity[index]);
        if wanted > capacity {
            return Err(Pending::Infeasible(format!(
                "Node didn't have enough capacity: {resource}, requested: {wanted}, capacity: {capacity}"
            )));
        }
    }
    for (index, resource) in RESIZABLE.into_iter().enumerate() {
        let used = others.iter().map(|p| amounts(p)[index]).fold(0, i64::saturating_add);
        let (wanted, capacity) = (wanted[index], capacity[index]);
        if wanted > 0 && used.saturating_add(wanted) > capacity {
            return Err(Pending::Deferred(format!(
                "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
            )));
        }
    }
    Ok(())
}

/// What events say: the resources and the generation, as JSON.
pub fn description(pod: &Pod, error: Option<&str>) -> String {
    let containers: Vec<_> =
        resizable(pod).map(|c| json!({ "name": c.name, "resources": c.resources })).collect();
    let mut text = json!({ "containers": containers, "generation": pod.metadata.generation });
    if let Some(error) = error {
        text["error"] = error.into();
    }
    text.to_string()
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;

//! CPU and memory of a pod that runs already: what its spec wants, what the node has granted, and what the runtime and the
//! pod's own cgroup were told (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/> and
//! <https://kubernetes.io/docs/tasks/configure-pod-container/resize-pod-resources/>).
//!
//! The pod that a worker works on carries what was granted; what is wanted beyond it waits in a condition. What a running
//! container was told last survives a restart of this process: in an annotation of the container, and in a file of the
//! pod once it was told something else.

use super::observed::{self, Observed};
use super::qos::amount_of;
use super::resize_order::Resized;
use super::resources::{RESIZABLE, effective};
use crate::kubelet::room::Pending;
use coracle_api::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a running container comes to what was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    InPlace,
    /// Its resize policy wants it started anew.
    Restart,
}

/// A pod's resources at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Snapshot {
    /// Of the object that wanted them.
    generation: Option<i64>,
    /// The pod's own.
    pod: Option<ResourceRequirements>,
    /// By container name.
    containers: BTreeMap<String, ResourceRequirements>,
}

impl Snapshot {
    fn of(pod: &Pod) -> Self {
        let containers = resizable(pod).map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default()));
        Self { generation: pod.metadata.generation, pod: own(pod).cloned(), containers: containers.collect() }
    }

    /// A container that one of them does not name was noted by a version that did not resize such containers.
    fn differs(&self, other: &Self) -> bool {
        let mut both =
            self.containers.iter().filter_map(|(name, one)| Some((one, other.containers.get(name)?)));
        !difference(self.pod.as_ref(), other.pod.as_ref()).is_empty()
            || both.any(|(one, other)| !difference(Some(one), Some(other)).is_empty())
    }
}

/// What a running container was told: its own resources, and those of its pod, whose limits it has where it has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Told {
    own: ResourceRequirements,
    pod: Option<ResourceRequirements>,
}

/// What outlives this process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Noted {
    granted: Option<Snapshot>,
    /// What the pod's own cgroup is made for.
    placed: Option<Snapshot>,
    /// By container id: only of those that were told something after their start, or lie in a pod with limits of its own.
    told: BTreeMap<String, Told>,
}

#[derive(Clone, Debug, Default)]
pub struct Resizes {
    noted: Noted,
    /// Keeps `noted`.
    file: PathBuf,
    pub pending: Option<Pending>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// The generation whose changes were counted last.
    counted: Option<i64>,
}

/// One amount of a container that shall change: `cpu` or `memory`, `requests` or `limits`, and `add`, `remove`, `increase` or
/// `decrease`.
pub type ResizeOperation = [&'static str; 3];

fn asked(from: Option<&ResourceRequirements>, to: Option<&ResourceRequirements>) -> Vec<ResizeOperation> {
    let each = RESIZABLE.into_iter().flat_map(|resource| [(resource, false), (resource, true)]);
    let changes = each.filter_map(|(resource, limits)| {
        let (from, to) = (amount_of(from, limits, resource), amount_of(to, limits, resource));
        let none = Quantity::default();
        let operation = match from.cmp(&to) {
            Ordering::Equal => return None,
            _ if from == none => "add",
            _ if to == none => "remove",
            Ordering::Less => "increase",
            Ordering::Greater => "decrease",
        };
        Some([resource, if limits { "limits" } else { "requests" }, operation])
    });
    changes.collect()
}

/// Containers whose resources can change while they run.
fn resizable(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()))
}

/// The resources of the pod as a whole.
fn own(pod: &Pod) -> Option<&ResourceRequirements> {
    pod.spec.as_ref()?.resources.as_ref()
}

/// The resources of which two differ.
fn difference(one: Option<&ResourceRequirements>, other: Option<&ResourceRequirements>) -> Vec<&'static str> {
    let same = |limits, resource| amount_of(one, limits, resource) == amount_of(other, limits, resource);
    RESIZABLE.into_iter().filter(|resource| !same(false, resource) || !same(true, resource)).collect()
}

/// `base` with one resource as `from` has it.
pub fn with(
    base: &ResourceRequirements,
    from: &ResourceRequirements,
    resource: &str,
) -> ResourceRequirements {
    let mut all = base.clone();
    for (to, from) in [(&mut all.requests, &from.requests), (&mut all.limits, &from.limits)] {
        match from.as_ref().and_then(|amounts| amounts.get(resource)) {
            Some(amount) => drop(to.get_or_insert_default().insert(resource.to_owned(), amount.clone())),
            None => drop(to.as_mut().and_then(|amounts| amounts.remove(resource))),
        }
    }
    all
}

impl Resizes {
    /// `directory` is the pod's own; what an earlier process left there counts.
    pub fn load(directory: &Path) -> Self {
        let file = directory.join("resized.json");
        let noted = std::fs::read(&file).ok().and_then(|text| read(&text)).unwrap_or_default();
        Self { noted, file, ..Self::default() }
    }

    /// What the pod's containers ask for beyond what was granted; once for each of its generations.
    pub fn newly_asked(&mut self, pod: &Pod) -> Vec<ResizeOperation> {
        let generation = pod.metadata.generation;
        if self.counted.is_some() && self.counted == generation {
            return Vec::new();
        }
        self.counted = generation;
        let granted = self.noted.granted.as_ref();
        let of =
            |c: &Container| asked(granted.and_then(|all| all.containers.get(&c.name)), c.resources.as_ref());
        resizable(pod).flat_map(of).collect()
    }

    /// A pod that is new here has what its containers were started with, or what its spec says where they do not run.
    pub fn meet(&mut self, pod: &Pod, observed: &Observed) {
        if self.noted.granted.is_some() {
            return;
        }
        let mut granted = Snapshot::of(pod);
        for (name, resources) in &mut granted.containers {
            let running = observed.running().find(|seen| seen.name == *name);
            if let Some(told) = running.and_then(|seen| self.told(seen)) {
                *resources = told.own;
            }
        }
        self.noted.placed.get_or_insert_with(|| granted.clone());
        self.noted.granted = Some(granted);
    }

    /// Whether the pod wants something else than was granted.
    pub fn wants_more(&self, pod: &Pod) -> bool {
        self.noted.granted.as_ref().is_some_and(|granted| granted.differs(&Snapshot::of(pod)))
    }

    /// The error is about the file: what is granted is granted all the same.
    pub fn grant(&mut self, pod: &Pod) -> io::Result<()> {
        self.pending = None;
        self.error = None;
        self.noted.granted = Some(Snapshot::of(pod));
        self.keep()
    }

    /// Of the object that wanted what was granted last.
    pub fn generation(&self) -> Option<i64> {
        self.noted.granted.as_ref()?.generation
    }

    /// The pod with what was granted in place of what it wants.
    pub fn applied(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let Some(granted) = self.noted.granted.as_ref().filter(|_| self.wants_more(pod)) else {
            return pod.clone();
        };
        let mut applied = Pod::clone(pod);
        let spec = applied.spec.get_or_insert_default();
        spec.resources.clone_from(&granted.pod);
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let own = granted.containers.get(&container.name).cloned();
            container.resources = own.or(container.resources.take());
        }
        Arc::new(applied)
    }

    /// What a running container was told; `None` where nobody noted it.
    fn told(&self, running: &observed::Container) -> Option<Told> {
        let noted = self.noted.told.get(&running.id).cloned();
        noted.or_else(|| {
            let pod = self.noted.placed.as_ref().and_then(|placed| placed.pod.clone());
            Some(Told { own: running.resources.clone()?, pod })
        })
    }

    fn of_pod(&self) -> Option<&ResourceRequirements> {
        self.noted.granted.as_ref()?.pod.as_ref()
    }

    /// A running container as it was told and as it is wanted, a container of the pod as granted.
    fn resized(&self, wanted: &Container, running: &observed::Container) -> Option<Resized> {
        let told = self.told(running)?;
        Some(Resized {
            id: running.id.clone(),
            name: wanted.name.clone(),
            told: effective(Some(&told.own), told.pod.as_ref()),
            wanted: effective(wanted.resources.as_ref(), self.of_pod()),
        })
    }

    /// How `wanted`, a container of the pod as granted, still has to be told something.
    pub fn due(&self, wanted: &Container, running: &observed::Container) -> Option<Due> {
        let resized = self.resized(wanted, running)?;
        let changed = difference(Some(&resized.wanted), Some(&resized.told));
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

    /// Whether the pod's own cgroup is not made for what was granted.
    pub fn is_pod_due(&self) -> bool {
        let (granted, placed) = (&self.noted.granted, &self.noted.placed);
        granted.as_ref().zip(placed.as_ref()).is_some_and(|(granted, placed)| granted.differs(placed))
    }

    /// The running containers that are told in place; `pod` is the pod as granted.
    pub fn unfinished(&self, pod: &Pod, observed: &Observed) -> Vec<Resized> {
        let due = |wanted| {
            let running = running(observed, wanted)?;
            self.due(wanted, running).filter(|due| *due == Due::InPlace)?;
            self.resized(wanted, running)
        };
        resizable(pod).filter_map(due).collect()
    }

    /// The running containers that end so that they start with what was granted.
    pub fn restarts<'a>(&self, pod: &'a Pod, observed: &'a Observed) -> Vec<&'a observed::Container> {
        let due =
            |wanted| running(observed, wanted).filter(|seen| self.due(wanted, seen) == Some(Due::Restart));
        resizable(pod).filter_map(due).collect()
    }

    /// Whether the pod as granted runs with something else.
    pub fn in_progress(&self, pod: &Pod, observed: &Observed) -> bool {
        let due = |wanted| running(observed, wanted).is_some_and(|seen| self.due(wanted, seen).is_some());
        self.is_pod_due() || resizable(pod).any(due)
    }

    /// What the status shows as a container's resources.
    pub fn shown(&self, spec: &Container, running: Option<&observed::Container>) -> ResourceRequirements {
        let due = running.filter(|seen| self.due(spec, seen).is_some());
        let told = due.and_then(|seen| self.told(seen)).map(|told| told.own);
        told.or(spec.resources.clone()).unwrap_or_default()
    }

    /// What the status shows as the pod's own; `None` where it has none.
    pub fn shown_of_pod(&self, pod: &Pod) -> Option<ResourceRequirements> {
        let wanted = own(pod)?;
        let placed = self.noted.placed.as_ref().and_then(|placed| placed.pod.clone());
        Some(placed.unwrap_or_else(|| wanted.clone()))
    }

    /// Notes that a container was told one resource of `wanted`. The error is about the file.
    pub fn done(
        &mut self,
        wanted: &Container,
        running: &observed::Container,
        resource: &str,
    ) -> io::Result<()> {
        let before = self.told(running).unwrap_or_default();
        let nothing = ResourceRequirements::default();
        let own = with(&before.own, wanted.resources.as_ref().unwrap_or(&nothing), resource);
        let pod = self.of_pod().map(|pod| with(before.pod.as_ref().unwrap_or(&nothing), pod, resource));
        self.noted.told.insert(running.id.clone(), Told { own, pod });
        self.keep()
    }

    /// Notes with what a container starts where its annotation does not say all of it. The error is about the file.
    pub fn started(&mut self, id: &str, spec: &Container) -> io::Result<()> {
        let Some(pod) = self.of_pod().cloned() else { return Ok(()) };
        let own = spec.resources.clone().unwrap_or_default();
        self.noted.told.insert(id.to_owned(), Told { own, pod: Some(pod) });
        self.keep()
    }

    /// Notes that the pod's own cgroup is made for what was granted. The error is about the file.
    pub fn placed(&mut self) -> io::Result<()> {
        self.error = None;
        let changed = self.is_pod_due() || self.of_pod().is_some();
        self.noted.placed.clone_from(&self.noted.granted);
        if changed { self.keep() } else { Ok(()) }
    }

    fn keep(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.noted)?;
        if let Some(directory) = self.file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let new = self.file.with_extension("new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, &self.file)
    }

    pub fn retain(&mut self, there: impl Fn(&String) -> bool) {
        self.noted.told.retain(|id, _| there(id));
    }
}

/// Earlier versions noted containers alone.
fn read(text: &[u8]) -> Option<Noted> {
    let containers = || {
        let all: BTreeMap<String, ResourceRequirements> = serde_json::from_slice(text).ok()?;
        let told = all.into_iter().map(|(id, own)| (id, Told { own, pod: None })).collect();
        Some(Noted { told, ..Noted::default() })
    };
    serde_json::from_slice(text).ok().or_else(containers)
}

fn running<'a>(observed: &'a Observed, wanted: &Container) -> Option<&'a observed::Container> {
    observed.latest(&wanted.name).filter(|seen| seen.state == observed::State::Running)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Description<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<&'a ResourceRequirements>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<OfContainer<'a>>,
    containers: Vec<OfContainer<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct OfContainer<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// What events say: the resources and the generation, as JSON.
pub fn description(pod: &Pod, error: Option<&str>) -> String {
    fn of(c: &Container) -> OfContainer<'_> {
        OfContainer { name: &c.name, resources: c.resources.clone().unwrap_or_default() }
    }
    let spec = pod.spec.iter();
    let init_containers = spec.clone().flat_map(|s| s.init_containers.iter().flatten()).map(of).collect();
    let containers = spec.flat_map(|s| &s.containers).map(of).collect();
    let generation = pod.metadata.generation.unwrap_or_default();
    let all = Description { resources: own(pod), init_containers, containers, generation, error };
    serde_json::to_string(&all).unwrap_or_default()
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;

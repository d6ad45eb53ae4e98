//! Which devices there are, how they are, and who has them.

use super::messages::{ContainerAllocateResponse, Device as Said, HEALTHY, Options};
use crate::placement::hints::{Hint, Hints, Mask, hints};
use crate::placement::{Given, Want};
use coracle_storage::csi::PluginClient;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// A plugin that is away so long has taken its resource with it; upstream's.
pub const AWAY: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub healthy: bool,
    /// NUMA nodes that it is near to; none where it does not matter.
    pub nodes: BTreeSet<u32>,
}

/// How to speak with a plugin.
#[derive(Clone)]
pub struct Plugin {
    pub client: PluginClient,
    pub options: Options,
    /// Which life of the plugin this is.
    pub life: u64,
}

#[derive(Default)]
pub struct Resource {
    /// `None`: it is away.
    pub plugin: Option<Plugin>,
    /// It has said what devices there are since it came.
    pub listed: bool,
    pub devices: BTreeMap<String, Device>,
    pub away_since: Option<Instant>,
}

impl Resource {
    /// What the plugin says now. Says whether anything is different.
    pub fn take_over(&mut self, said: Vec<Said>) -> bool {
        let read = |device: Said| {
            let nodes = device.topology.into_iter().flat_map(|topology| topology.nodes);
            let nodes = nodes.filter_map(|node| u32::try_from(node.id).ok()).collect();
            (device.id, Device { healthy: device.health == HEALTHY, nodes })
        };
        let devices: BTreeMap<String, Device> = said.into_iter().map(read).collect();
        let changed = !self.listed || devices != self.devices;
        (self.devices, self.listed) = (devices, true);
        changed
    }

    /// The plugin is away: nobody says any more that a device can be used.
    pub fn lose(&mut self) {
        self.plugin = None;
        self.listed = false;
        self.away_since = Some(Instant::now());
        self.devices.values_mut().for_each(|device| device.healthy = false);
    }

    fn healthy(&self) -> BTreeSet<String> {
        self.devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id.clone()).collect()
    }
}

/// What a container has of one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocated {
    pub devices: BTreeSet<String>,
    /// The NUMA nodes of each, as they were when it was given.
    pub nodes: BTreeMap<String, BTreeSet<u32>>,
    pub answer: ContainerAllocateResponse,
}

/// Why a container cannot have its devices; upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Few { resource: String, requested: usize, available: usize },
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    Unhealthy(String),
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}")]
    Lost(String),
    #[error("pod {pod} container {container} changed request for resource {resource} from {had} to {wanted}")]
    Changed { pod: String, container: String, resource: String, had: usize, wanted: usize },
    #[error("the device plugin of {resource} does not answer: {why}")]
    Plugin { resource: String, why: String },
    #[error("the device plugin of {0} answers for no container")]
    NoAnswer(String),
}

/// Devices a container is to get, and out of which its plugin may choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// These in any case: they are the same pod's, whose container before had them.
    pub must: BTreeSet<String>,
    /// Each list before the next.
    pub from: Vec<BTreeSet<String>>,
    pub count: usize,
}

#[derive(Default)]
pub struct Book {
    pub resources: BTreeMap<String, Resource>,
    pub given: Given<BTreeMap<String, Allocated>>,
    /// Counts plugins' lives.
    pub lives: u64,
}

impl Book {
    pub fn own(&self, pod: &str, container: &str, resource: &str) -> Option<&Allocated> {
        self.given.get(pod)?.get(container)?.get(resource)
    }

    /// The resources of a container that plugins give.
    pub fn known<'a>(&'a self, want: &'a Want) -> impl Iterator<Item = (&'a String, usize)> {
        want.devices
            .iter()
            .filter(|(name, _)| self.resources.contains_key(*name))
            .map(|(name, count)| (name, *count))
    }

    fn in_use(&self, resource: &str) -> BTreeSet<&String> {
        let containers = self.given.values().flat_map(BTreeMap::values);
        containers.filter_map(|all| all.get(resource)).flat_map(|one| &one.devices).collect()
    }

    fn free(&self, resource: &str) -> BTreeSet<String> {
        let used = self.in_use(resource);
        let healthy = self.resources.get(resource).map(Resource::healthy).unwrap_or_default();
        healthy.into_iter().filter(|id| !used.contains(id)).collect()
    }

    /// Devices that containers of the pod had which end before the next one begins.
    fn passing(&self, pod: &str, passing: &[String], resource: &str) -> BTreeSet<String> {
        let all = passing.iter().filter_map(|name| self.own(pod, name, resource));
        all.flat_map(|one| one.devices.iter().cloned()).collect()
    }

    pub fn hints(&self, want: &Want, passing: &[String], nodes: &[u32]) -> Hints {
        self.known(want)
            .map(|(name, count)| (name.clone(), self.list(want, passing, nodes, name, count)))
            .collect()
    }

    fn list(
        &self,
        want: &Want,
        passing: &[String],
        nodes: &[u32],
        name: &str,
        count: usize,
    ) -> Option<Vec<Hint>> {
        let resource = self.resources.get(name)?;
        if resource.devices.values().all(|device| device.nodes.is_empty()) {
            return None;
        }
        let near = |ids: &BTreeSet<String>, mask: Mask| {
            let is_near = |id: &&String| {
                resource.devices.get(*id).is_some_and(|d| d.nodes.iter().any(|n| mask.has(*n)))
            };
            ids.iter().filter(is_near).count()
        };
        let all: BTreeSet<String> = resource.devices.keys().cloned().collect();
        let usable = match self.own(&want.pod, &want.container, name) {
            Some(own) => own.devices.clone(),
            None => &self.free(name) | &self.passing(&want.pod, passing, name),
        };
        Some(hints(nodes, |mask| near(&usable, mask) >= count, |mask| near(&all, mask) >= count))
    }

    /// What a container may get of a resource; `None` if it has all already. `runs`: it goes on as it is, whatever became
    /// of its devices.
    pub fn choice(
        &self,
        want: &Want,
        (name, count): (&str, usize),
        passing: &[String],
        hint: Hint,
        runs: bool,
    ) -> Result<Option<Choice>, DeviceError> {
        let resource = self.resources.get(name).ok_or_else(|| DeviceError::Unregistered(name.to_owned()))?;
        if let Some(own) = self.own(&want.pod, &want.container, name) {
            return self.still(want, (name, count), own, runs).map(|()| None);
        }
        if !resource.listed {
            return Err(DeviceError::Unregistered(name.to_owned()));
        }
        let healthy = resource.healthy();
        if healthy.is_empty() && count > 0 {
            return Err(DeviceError::Unhealthy(name.to_owned()));
        }
        let mut must: BTreeSet<String> = &self.passing(&want.pod, passing, name) & &healthy;
        while must.len() > count {
            must.pop_last();
        }
        let free = self.free(name);
        if free.len() + must.len() < count {
            let (resource, available) = (name.to_owned(), free.len() + must.len());
            return Err(DeviceError::Few { resource, requested: count, available });
        }
        let is_near = |id: &String| {
            hint.nodes.is_some_and(|mask| resource.devices[id].nodes.iter().any(|node| mask.has(*node)))
        };
        let (near, far): (BTreeSet<String>, BTreeSet<String>) = free.into_iter().partition(is_near);
        // Those that are near to nobody rather than those that are near to somebody else.
        let (anywhere, far) = far.into_iter().partition(|id| resource.devices[id].nodes.is_empty());
        let all = [near, anywhere, far];
        let from = match hint.nodes {
            Some(_) => all.to_vec(),
            None => vec![all.into_iter().flatten().collect()],
        };
        Ok(Some(Choice { must, from, count }))
    }

    fn still(
        &self,
        want: &Want,
        (name, count): (&str, usize),
        own: &Allocated,
        runs: bool,
    ) -> Result<(), DeviceError> {
        if own.devices.len() != count {
            return Err(DeviceError::Changed {
                pod: want.pod.clone(),
                container: want.container.clone(),
                resource: name.to_owned(),
                had: own.devices.len(),
                wanted: count,
            });
        }
        let Some(resource) = self.resources.get(name).filter(|_| !runs) else { return Ok(()) };
        match resource.listed {
            false => Err(DeviceError::Unregistered(name.to_owned())),
            true if own.devices.is_subset(&resource.healthy().into_iter().collect()) => Ok(()),
            true => Err(DeviceError::Lost(name.to_owned())),
        }
    }

    /// Gives devices, for as long as the pod has not given them back.
    pub fn give(
        &mut self,
        want: &Want,
        name: &str,
        devices: BTreeSet<String>,
        answer: ContainerAllocateResponse,
    ) {
        let known = self.resources.get(name).map(|resource| &resource.devices);
        let node = |id: &String| Some((id.clone(), known?.get(id)?.nodes.clone()));
        let nodes = devices.iter().filter_map(node).collect();
        let container =
            self.given.entry(want.pod.clone()).or_default().entry(want.container.clone()).or_default();
        container.insert(name.to_owned(), Allocated { devices, nodes, answer });
    }

    /// Capacity and what can be given of each resource. One whose plugin is away for good has none.
    pub fn amounts(&self) -> BTreeMap<String, (usize, usize)> {
        let amount = |resource: &Resource| match resource.away_since {
            Some(since) if resource.plugin.is_none() && since.elapsed() >= AWAY => (0, 0),
            _ => (resource.devices.len(), resource.healthy().len()),
        };
        self.resources.iter().map(|(name, resource)| (name.clone(), amount(resource))).collect()
    }

    /// Pods that have devices of the resource.
    pub fn users(&self, resource: &str) -> Vec<String> {
        let uses = |containers: &BTreeMap<String, BTreeMap<String, Allocated>>| {
            containers.values().any(|all| all.contains_key(resource))
        };
        self.given.iter().filter(|(_, containers)| uses(containers)).map(|(uid, _)| uid.clone()).collect()
    }
}

/// Completes what a plugin prefers, which may be less than is wanted, and never more than there is.
pub fn completed(choice: &Choice, preferred: &BTreeSet<String>) -> BTreeSet<String> {
    let mut chosen = choice.must.clone();
    for list in &choice.from {
        let (first, then): (Vec<&String>, Vec<&String>) = list.iter().partition(|id| preferred.contains(*id));
        let missing = choice.count.saturating_sub(chosen.len());
        chosen.extend(first.into_iter().chain(then).take(missing).cloned());
    }
    chosen
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;

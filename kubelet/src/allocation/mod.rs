//! What of the node's CPUs, memory and devices each container has: decided when its pod comes, kept until it has ended.
//!
//! One pod after the other is placed ([`Allocation::place`]); the decisions are those of `placement` and `devices`.

mod aligned;
mod state;
mod wants;

pub use state::StateFileError;

use crate::blocking;
use crate::checkpoint::CheckpointError;
use crate::devices::{Allocated, Devices, Tell};
use crate::metrics::{Metric, Metrics};
use crate::placement::cpus::{CpuError, Cpus};
use crate::placement::hints::{Hint, Hints};
use crate::placement::machine::Machine;
use crate::placement::memory::{Block, Memory};
use crate::placement::settings::Settings;
use crate::placement::topology::{Policy, Scope};
use crate::placement::{CpuSet, Want};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use state::File;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Why a kubelet cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    #[error(transparent)]
    State(#[from] StateFileError),
    #[error("what devices were given is not known")]
    Devices(#[from] CheckpointError),
    #[error("cannot write {}", path.display())]
    Write {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "cpuManagerPolicy: the static policy requires systemReserved.cpu + kubeReserved.cpu to be greater than zero"
    )]
    NothingReserved,
    #[error("reservedSystemCPUs: {0} are not all CPUs of this machine")]
    ForeignCpus(CpuSet),
    #[error("reservedMemory: the machine has no NUMA node {0}")]
    ForeignNode(u32),
    #[error(
        "reservedMemory: the total amount {said} of type {kind:?} is not equal to the value {needed} determined by Node \
         Allocatable feature"
    )]
    ReservedMemory { kind: String, said: u64, needed: u64 },
    #[error("topologyManagerPolicy: unsupported on machines with more than {0} NUMA Nodes")]
    ManyNodes(usize),
}

/// Why a pod cannot run here: reason and message of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: &'static str,
    pub message: String,
}

impl Rejection {
    fn unexpected(error: impl std::fmt::Display) -> Self {
        let message = format!("Allocate failed due to {error}, which is unexpected");
        Self { reason: "UnexpectedAdmissionError", message }
    }

    fn of_cpus(error: &CpuError) -> Self {
        match error {
            CpuError::HalfCores { .. } | CpuError::FewCores { .. } => {
                Self { reason: "SMTAlignmentError", message: error.to_string() }
            }
            CpuError::Few { .. } => Self::unexpected(error),
        }
    }

    fn disagreement() -> Self {
        let message = "Resources cannot be allocated with Topology locality".to_owned();
        Self { reason: "TopologyAffinityError", message }
    }
}

/// What there is, for [`Allocation::open`].
pub struct Parts<'a> {
    pub root: &'a Path,
    pub settings: Settings,
    pub machine: Machine,
    /// For the system, in thousandths.
    pub reserved_cpu_millis: u64,
    /// For the system, and to keep from eviction, in bytes.
    pub reserved_memory_bytes: u64,
    pub tell: Tell,
    pub metrics: Metrics,
}

#[derive(Default)]
struct Held {
    cpus: Option<Cpus>,
    memory: Option<Memory>,
}

pub struct Allocation {
    settings: Settings,
    machine: Arc<Machine>,
    /// One pod after the other is placed.
    turn: tokio::sync::Mutex<()>,
    writing: tokio::sync::Mutex<()>,
    held: Mutex<Held>,
    pub devices: Arc<Devices>,
    files: (File, File),
    metrics: Metrics,
}

/// What a container is given of CPUs, memory and devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForContainer {
    /// The CPUs that it may run on; `None`: all.
    pub cpus: Option<CpuSet>,
    /// The NUMA nodes that its memory is on; `None`: all.
    pub memory_nodes: Option<CpuSet>,
    pub devices: BTreeMap<String, Allocated>,
}

impl Allocation {
    /// Goes on with what was given before. Must be called inside the tokio runtime.
    ///
    /// # Errors
    /// If the machine does not allow the settings, or what was kept does not fit to them.
    pub fn open(parts: Parts<'_>) -> Result<Self, AllocationError> {
        let Parts { root, settings, machine, reserved_cpu_millis, reserved_memory_bytes, tell, metrics } =
            parts;
        let machine = Arc::new(machine);
        check(&settings, &machine, reserved_memory_bytes)?;
        let cpu_policy = if settings.cpus.is_some() { "static" } else { "none" };
        let memory_policy = if settings.memory { "Static" } else { "None" };
        let files = (File::cpus(root, cpu_policy), File::memory(root, memory_policy));
        let held = Held {
            cpus: cpus(&settings, &machine, reserved_cpu_millis, &files.0)?,
            memory: memory(&settings, &machine, &files.1)?,
        };
        let this = Self {
            devices: Arc::new(Devices::open(root, tell, metrics.clone())?),
            settings,
            machine,
            turn: tokio::sync::Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            held: Mutex::new(held),
            files,
            metrics,
        };
        for (file, text) in this.texts() {
            file.write(&text).map_err(|source| AllocationError::Write { path: file.path.clone(), source })?;
        }
        this.show();
        Ok(this)
    }

    fn texts(&self) -> [(File, String); 2] {
        let held = self.held.lock();
        let (cpus, memory) = &self.files;
        [
            (cpus.clone(), cpus.text_of_cpus(held.cpus.as_ref().map(Cpus::state))),
            (memory.clone(), memory.text_of_memory(held.memory.as_ref())),
        ]
    }

    /// Writes down who has what.
    async fn save(&self) {
        self.devices.save().await;
        if self.settings.cpus.is_none() && !self.settings.memory {
            return;
        }
        let _writing = self.writing.lock().await;
        let texts = self.texts();
        let written = blocking::reading("state of CPUs and memory", move || {
            for (file, text) in texts {
                if let Err(error) = file.write(&text) {
                    tracing::error!(path = %file.path.display(), %error, "who has which CPUs and memory is not written down");
                }
            }
        });
        written.await;
    }

    /// Gives the containers of the pod what they want of their own; what they have they keep. `runs`: some of them run
    /// already, and go on whatever became of their devices. Returns whether the CPUs that others share have changed.
    ///
    /// May be called again for the same pod. One that is dropped half-way has taken some of it.
    ///
    /// # Errors
    /// Why the pod cannot run here; then it has nothing.
    pub async fn place(&self, pod: &Pod, runs: bool) -> Result<bool, Rejection> {
        let wants = wants::wants(pod, &self.settings);
        let matters = |want: &Want| want.cpus > 0 || !want.memory.is_empty() || self.devices.matters(want);
        let by_topology = self.settings.topology.policy != Policy::None;
        if !wants.iter().any(matters) {
            // Who wants nothing that is placed is at home everywhere, and counts all the same.
            if by_topology && !runs {
                self.metrics.add(Metric::TopologyRequests, &[]);
            }
            return Ok(false);
        }
        let _turn = self.turn.lock().await;
        if !runs {
            self.devices.returned(&wants).await;
        }
        let began = Instant::now();
        let before = self.shared();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let new = !self.has(uid);
        let placed = self.place_all(pod, &wants, runs).await;
        if by_topology {
            self.metrics.add(Metric::TopologyRequests, &[]);
            self.metrics.took_millis(Metric::TopologyAdmission, &[], began.elapsed());
        }
        if placed.is_err() && new {
            self.forget(uid);
        }
        self.save().await;
        self.show();
        placed.map(|()| before != self.shared())
    }

    async fn place_all(&self, pod: &Pod, wants: &[Want], runs: bool) -> Result<(), Rejection> {
        let new = !self.has(pod.metadata.uid.as_deref().unwrap_or_default());
        let scope = self.settings.topology.scope;
        let whole = match scope {
            Scope::Pod if new => Some(self.decide(&wants::together(pod, wants), &[])?),
            _ => None,
        };
        let mut passing = Vec::new();
        for want in wants {
            let hint = match whole {
                Some(hint) => hint,
                None => self.decide(want, &passing)?,
            };
            self.devices.allocate(want, &passing, hint, runs).await.map_err(Rejection::unexpected)?;
            self.take(want, hint, &passing)?;
            if new && scope == Scope::Container {
                self.on_one_node(Metric::Aligned);
            }
            if want.passes {
                passing.push(want.container.clone());
            } else {
                self.keep(want, &mut passing);
            }
        }
        if whole.is_some() {
            self.on_one_node(Metric::Aligned);
        }
        Ok(())
    }

    /// What a container that stays has taken over from those that pass, none after it can.
    fn keep(&self, want: &Want, passing: &mut Vec<String>) {
        let held = self.held.lock();
        let own = held.cpus.as_ref().and_then(|cpus| cpus.own(&want.pod, &want.container)).cloned();
        let devices = self.devices.of_container(&want.pod, &want.container);
        passing.retain(|name| {
            let cpus = held.cpus.as_ref().and_then(|cpus| cpus.own(&want.pod, name));
            let shares_cpus = cpus.zip(own.as_ref()).is_some_and(|(one, other)| !one.and(other).is_empty());
            let other = self.devices.of_container(&want.pod, name);
            let shares = |(resource, one): (&String, &Allocated)| {
                other.get(resource).is_some_and(|other| !one.devices.is_disjoint(&other.devices))
            };
            !shares_cpus && !devices.iter().any(shares)
        });
    }

    fn passing_cpus(held: &Held, pod: &str, passing: &[String]) -> CpuSet {
        let own = |name: &String| held.cpus.as_ref().and_then(|cpus| cpus.own(pod, name));
        passing.iter().filter_map(own).fold(CpuSet::default(), |all, set| all.or(set))
    }

    fn decide(&self, want: &Want, passing: &[String]) -> Result<Hint, Rejection> {
        let hints: Vec<Hints> = {
            let held = self.held.lock();
            let devices = self.devices.hints(want, passing, &self.machine.node_ids());
            let cpus = held.cpus.as_ref();
            let cpus = cpus.map(|cpus| cpus.hints(want, &Self::passing_cpus(&held, &want.pod, passing)));
            let memory = held.memory.as_ref().map(|memory| memory.hints(want, passing));
            [Some(devices), cpus, memory].into_iter().flatten().collect()
        };
        self.settings.topology.decide(&self.machine, &hints).ok_or_else(|| {
            self.metrics.add(Metric::TopologyErrors, &[]);
            self.on_one_node(Metric::AlignedFailures);
            Rejection::disagreement()
        })
    }

    fn take(&self, want: &Want, hint: Hint, passing: &[String]) -> Result<(), Rejection> {
        let mut held = self.held.lock();
        let passing_cpus = Self::passing_cpus(&held, &want.pod, passing);
        if let Some(cpus) = held.cpus.as_mut().filter(|_| want.cpus > 0) {
            self.metrics.add(Metric::CpuPinningRequests, &[]);
            let new = cpus.own(&want.pod, &want.container).is_none();
            let taken = cpus.take(want, hint, &passing_cpus);
            if new {
                let of_caches = cpus.own(&want.pod, &want.container).map(|own| self.machine.caches(own));
                self.count_aligned(taken.is_ok(), of_caches == Some(1));
            }
            taken.map_err(|error| {
                self.metrics.add(Metric::CpuPinningErrors, &[]);
                Rejection::of_cpus(&error)
            })?;
        }
        if let Some(memory) = held.memory.as_mut().filter(|_| !want.memory.is_empty()) {
            self.metrics.add(Metric::MemoryPinningRequests, &[]);
            memory.take(want, hint, passing).map_err(|error| {
                self.metrics.add(Metric::MemoryPinningErrors, &[]);
                Rejection::unexpected(error)
            })?;
        }
        Ok(())
    }

    /// Whether the pod has anything of its own.
    pub fn has(&self, pod: &str) -> bool {
        let held = self.held.lock();
        self.devices.has(pod)
            || held.cpus.as_ref().is_some_and(|cpus| cpus.state().given.contains_key(pod))
            || held.memory.as_ref().is_some_and(|memory| memory.given().contains_key(pod))
    }

    /// Pods that have anything of their own, by UID.
    pub fn pods(&self) -> Vec<String> {
        let held = self.held.lock();
        let cpus = held.cpus.iter().flat_map(|cpus| cpus.state().given.keys());
        let memory = held.memory.iter().flat_map(|memory| memory.given().keys());
        cpus.chain(memory).cloned().chain(self.devices.pods()).collect()
    }

    fn forget(&self, pod: &str) {
        let mut held = self.held.lock();
        if let Some(cpus) = &mut held.cpus {
            cpus.release(pod);
        }
        if let Some(memory) = &mut held.memory {
            memory.release(pod);
        }
        self.devices.release(pod);
    }

    /// Takes back what a pod has that has ended. Returns whether the CPUs that others share have changed.
    pub async fn release(&self, pod: &str) -> bool {
        if !self.has(pod) {
            return false;
        }
        let before = self.shared();
        self.forget(pod);
        self.save().await;
        self.show();
        before != self.shared()
    }

    fn shared(&self) -> Option<CpuSet> {
        self.held.lock().cpus.as_ref().map(|cpus| cpus.shared().clone())
    }

    /// The CPUs that a container may run on; `None`: all.
    pub fn cpus_of(&self, pod: &str, container: &str) -> Option<CpuSet> {
        let held = self.held.lock();
        let cpus = held.cpus.as_ref()?;
        let set = cpus.own(pod, container).unwrap_or_else(|| cpus.shared());
        // None at all would mean all of them to the runtime too.
        Some(set.clone()).filter(|set| !set.is_empty())
    }

    /// Whether any container of the pod has CPUs of its own.
    pub fn has_cpus(&self, pod: &str) -> bool {
        let held = self.held.lock();
        let given = held.cpus.as_ref().and_then(|cpus| cpus.state().given.get(pod));
        given.is_some_and(|all| all.values().any(|own| !own.is_empty()))
    }

    /// A container's own CPUs, empty where it has none, and memory.
    pub fn own(&self, pod: &str, container: &str) -> (CpuSet, Vec<Block>) {
        let held = self.held.lock();
        let cpus = held.cpus.as_ref().and_then(|cpus| cpus.own(pod, container)).cloned();
        let memory = held.memory.as_ref().and_then(|memory| memory.own(pod, container)).cloned();
        (cpus.unwrap_or_default(), memory.unwrap_or_default())
    }

    /// All CPUs and memory that can be had as one's own, given or not.
    pub fn allocatable(&self) -> (CpuSet, Vec<Block>) {
        let held = self.held.lock();
        let cpus = held.cpus.as_ref().map(Cpus::allocatable);
        let memory = held.memory.as_ref().map(Memory::allocatable_blocks);
        (cpus.unwrap_or_default(), memory.unwrap_or_default())
    }

    pub fn of_container(&self, pod: &str, container: &str) -> ForContainer {
        let (_, blocks) = self.own(pod, container);
        let nodes: CpuSet = blocks.iter().flat_map(|block| block.nodes.iter().copied()).collect();
        ForContainer {
            cpus: self.cpus_of(pod, container),
            memory_nodes: (!nodes.is_empty()).then_some(nodes),
            devices: self.devices.of_container(pod, container),
        }
    }

    fn show(&self) {
        let held = self.held.lock();
        let Some(cpus) = &held.cpus else { return };
        self.metrics.set(Metric::CpuSharedPool, &[], cpus.shared().len() * 1000);
        let by_node = cpus.given_by_node();
        self.metrics.set(Metric::CpuExclusive, &[], by_node.values().sum());
        by_node
            .into_iter()
            .for_each(|(node, count)| self.metrics.set(Metric::CpuPerNode, &[&node.to_string()], count));
    }
}

/// Whether the machine allows the settings.
fn check(settings: &Settings, machine: &Machine, reserved_memory: u64) -> Result<(), AllocationError> {
    let topology = &settings.topology;
    if topology.policy != Policy::None && machine.nodes.len() > topology.most_nodes {
        return Err(AllocationError::ManyNodes(topology.most_nodes));
    }
    if let Some(set) = settings.reserved_cpus.as_ref().filter(|set| !machine.all().has_all(set)) {
        return Err(AllocationError::ForeignCpus(set.clone()));
    }
    if !settings.memory {
        return Ok(());
    }
    let mut totals = BTreeMap::from([("memory".to_owned(), 0)]);
    for (node, amounts) in &settings.reserved_memory {
        if !machine.nodes.contains_key(node) {
            return Err(AllocationError::ForeignNode(*node));
        }
        amounts.iter().for_each(|(kind, bytes)| *totals.entry(kind.clone()).or_insert(0) += bytes);
    }
    for (kind, said) in totals {
        let needed = if kind == "memory" { reserved_memory } else { 0 };
        if said != needed {
            return Err(AllocationError::ReservedMemory { kind, said, needed });
        }
    }
    Ok(())
}

fn cpus(
    settings: &Settings,
    machine: &Arc<Machine>,
    reserved_millis: u64,
    file: &File,
) -> Result<Option<Cpus>, AllocationError> {
    let kept = file.read_cpus()?;
    let Some(options) = settings.cpus else { return Ok(None) };
    let count = usize::try_from(reserved_millis.div_ceil(1000)).unwrap_or(usize::MAX);
    if count == 0 && settings.reserved_cpus.is_none() {
        return Err(AllocationError::NothingReserved);
    }
    let mut cpus = Cpus::new(machine.clone(), options, settings.reserved_cpus.clone(), count);
    if let Some(kept) = kept {
        let restored = cpus.restore(kept);
        restored.map_err(|source| StateFileError::Cpus { path: file.path.clone(), source })?;
    }
    Ok(Some(cpus))
}

fn memory(
    settings: &Settings,
    machine: &Arc<Machine>,
    file: &File,
) -> Result<Option<Memory>, AllocationError> {
    let kept = file.read_memory()?;
    if !settings.memory {
        return Ok(None);
    }
    let mut memory = Memory::new(machine.clone(), settings.reserved_memory.clone());
    if kept.is_some_and(|kept| !memory.restore(kept)) {
        return Err(StateFileError::Memory { path: file.path.clone() }.into());
    }
    Ok(Some(memory))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

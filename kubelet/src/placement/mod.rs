//! Which CPUs and which NUMA nodes' memory a container gets: pure decisions about a machine and what was given before.
//!
//! <https://kubernetes.io/docs/concepts/policy/node-resource-managers/>. What carries them out is `allocation`.

pub mod cpus;
pub mod cpuset;
pub mod hints;
pub mod machine;
pub mod memory;
mod pick;
pub mod settings;
pub mod topology;

pub use cpuset::CpuSet;

use std::collections::BTreeMap;

/// What one container wants of what is placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// UID of its pod.
    pub pod: String,
    pub container: String,
    /// It ends before the containers after it begin, so that they may have what it had.
    pub passes: bool,
    /// CPUs of its own; 0 for a share of the others'.
    pub cpus: usize,
    /// Bytes of memory of its own, by kind: `memory`, `hugepages-2Mi`.
    pub memory: BTreeMap<String, u64>,
    /// How many devices, by resource.
    pub devices: BTreeMap<String, usize>,
}

/// What containers have, by pod UID and container name.
pub type Given<T> = BTreeMap<String, BTreeMap<String, T>>;

/// What one container has.
pub fn of<'a, T>(given: &'a Given<T>, pod: &str, container: &str) -> Option<&'a T> {
    given.get(pod)?.get(container)
}

//! How containers are placed, as the configuration says.

use super::cpus::Options;
use super::memory::Amounts;
use super::{CpuSet, topology};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between attempts to tell a container its CPUs; upstream's.
pub const RECONCILE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `None`: all containers share all CPUs.
    pub cpus: Option<Options>,
    /// CPUs for the system, by name.
    pub reserved_cpus: Option<CpuSet>,
    /// Between attempts to tell a container which CPUs it may run on.
    pub reconcile: Duration,
    /// Whether containers get memory of their own.
    pub memory: bool,
    /// Memory for the system, by NUMA node.
    pub reserved_memory: BTreeMap<u32, Amounts>,
    pub topology: topology::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cpus: None,
            reserved_cpus: None,
            reconcile: RECONCILE,
            memory: false,
            reserved_memory: BTreeMap::new(),
            topology: topology::Settings::default(),
        }
    }
}

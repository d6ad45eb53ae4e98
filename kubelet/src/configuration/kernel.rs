//! What the kernel is asked for on behalf of pods, and of the kubelet itself.

use super::documents::Written;
use super::reader::Reader;
use crate::cri::CgroupDriver;
use coracle_api::duration::written;
use serde_json::json;
use std::time::Duration;

pub const DRIVERS: [(&str, CgroupDriver); 2] =
    [("cgroupfs", CgroupDriver::Cgroupfs), ("systemd", CgroupDriver::Systemd)];

/// What cgroup v2 keeps for pods of the memory that they ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryReservation {
    None,
    /// `memory.min` for guaranteed pods, `memory.low` for burstable ones.
    Tiered,
}

const RESERVATIONS: [(&str, MemoryReservation); 2] =
    [("None", MemoryReservation::None), ("TieredReservation", MemoryReservation::Tiered)];

/// Whether containers get swap where the machine has some.
const SWAP: [(&str, bool); 2] = [("NoSwap", false), ("LimitedSwap", true)];

/// The kernel's period in which it counts what a cgroup takes of CPUs; upstream's.
const CFS_PERIOD: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq)]
pub struct KernelSettings {
    /// `None`: what the runtime says, else cgroupfs.
    pub cgroup_driver: Option<CgroupDriver>,
    /// Whether limits of CPU are kept.
    pub cfs_quota: bool,
    pub cfs_period: Duration,
    /// Whether the kernel kills one process of a container that has no memory left; `None`: all of them, where it can
    /// (cgroup v2).
    pub single_process_oom_kill: Option<bool>,
    /// From which part of its limit on a container is slowed down to give memory back (`memory.high` of cgroup v2).
    pub throttling_factor: Option<f64>,
    pub reservation: MemoryReservation,
    /// Whether the kubelet refuses to run on cgroup v1, and where there is swap.
    pub fail_cgroup_v1: bool,
    pub fail_swap_on: bool,
    /// Whether burstable containers get a part of the machine's swap (cgroup v2).
    pub limited_swap: bool,
    /// How readily the kernel kills the kubelet's process. `None`: it is left as it is.
    pub oom_score_adj: Option<i32>,
    /// Parameters that pods may set though they may harm others: names, or beginnings with a `*`.
    pub allowed_sysctls: Vec<String>,
}

impl Default for KernelSettings {
    fn default() -> Self {
        Self {
            cgroup_driver: None,
            cfs_quota: true,
            cfs_period: CFS_PERIOD,
            single_process_oom_kill: None,
            throttling_factor: None,
            reservation: MemoryReservation::None,
            fail_cgroup_v1: false,
            fail_swap_on: false,
            limited_swap: false,
            oom_score_adj: None,
            allowed_sysctls: Vec::new(),
        }
    }
}

impl KernelSettings {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let all = Self::default();
        let period = reader.duration("cpuCFSQuotaPeriod").unwrap_or(all.cfs_period);
        if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&period) {
            reader.mistake("cpuCFSQuotaPeriod", "it is not between 1ms and 1s");
        }
        let factor: Option<f64> = reader.get("memoryThrottlingFactor");
        if factor.is_some_and(|factor| !(factor > 0.0 && factor <= 1.0)) {
            reader.mistake("memoryThrottlingFactor", "it is not more than 0 and at most 1");
        }
        let sysctls: Vec<String> = reader.get("allowedUnsafeSysctls").unwrap_or_default();
        for pattern in &sysctls {
            if !crate::pod_facts::sysctls::can_be_allowed(pattern) {
                reader.mistake("allowedUnsafeSysctls", format!("{pattern:?} is in no namespace of its own"));
            }
        }
        reader.only("memorySwap", &["swapBehavior"]);
        Self {
            cgroup_driver: reader.word("cgroupDriver", &DRIVERS),
            cfs_quota: reader.get("cpuCFSQuota").unwrap_or(all.cfs_quota),
            cfs_period: period,
            single_process_oom_kill: reader.get("singleProcessOOMKill"),
            throttling_factor: factor,
            reservation: reader.word("memoryReservationPolicy", &RESERVATIONS).unwrap_or(all.reservation),
            fail_cgroup_v1: reader.get("failCgroupV1").unwrap_or(all.fail_cgroup_v1),
            fail_swap_on: reader.get("failSwapOn").unwrap_or(all.fail_swap_on),
            limited_swap: reader.word("memorySwap.swapBehavior", &SWAP).unwrap_or(all.limited_swap),
            oom_score_adj: reader.whole("oomScoreAdj", -1000..=1000),
            allowed_sysctls: sysctls,
        }
    }

    /// 0 where nobody is slowed down.
    pub fn throttling_thousandths(&self) -> u32 {
        let text = format!("{:.0}", self.throttling_factor.unwrap_or(0.0) * 1000.0);
        text.parse().unwrap_or(0)
    }

    pub fn show(&self, all: &mut Written) {
        let reservation = RESERVATIONS.iter().find(|(_, known)| *known == self.reservation);
        let swap = SWAP.iter().find(|(_, known)| *known == self.limited_swap);
        let entries = [
            ("memorySwap", swap.map(|(name, _)| json!({ "swapBehavior": name }))),
            ("cpuCFSQuota", Some(json!(self.cfs_quota))),
            ("cpuCFSQuotaPeriod", Some(json!(written(self.cfs_period)))),
            ("failCgroupV1", Some(json!(self.fail_cgroup_v1))),
            ("failSwapOn", Some(json!(self.fail_swap_on))),
            ("memoryReservationPolicy", reservation.map(|(name, _)| json!(name))),
            ("cgroupDriver", self.cgroup_driver.and_then(name_of).map(|name| json!(name))),
            ("singleProcessOOMKill", self.single_process_oom_kill.map(|one| json!(one))),
            ("memoryThrottlingFactor", self.throttling_factor.map(|factor| json!(factor))),
            ("oomScoreAdj", self.oom_score_adj.map(|score| json!(score))),
            ("allowedUnsafeSysctls", (!self.allowed_sysctls.is_empty()).then(|| json!(self.allowed_sysctls))),
        ];
        all.extend(entries.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
}

fn name_of(driver: CgroupDriver) -> Option<&'static str> {
    DRIVERS.iter().find(|(_, known)| *known == driver).map(|(name, _)| *name)
}

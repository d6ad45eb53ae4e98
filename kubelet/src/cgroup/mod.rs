//! The cgroups of pods: all of them, those of a class of service and each pod's own, below which the runtime puts
//! containers. What is not given to pods is kept for the machine and for the control plane that may live on it
//! (<https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/>).

pub mod files;
pub mod limits;
pub mod processes;
mod systemd;

use crate::blocking::reading;
use crate::cgroup_names::Names;
use crate::configuration::config::Config;
use crate::cri::CgroupDriver;
use crate::cri::{Runtime, RuntimeError};
use crate::facts::{self, Facts};
use crate::pod_facts::qos::QosClass;
use crate::signal::Signal;
use files::{Files, Groups, WriteError};
use k8s_openapi::api::core::v1::Pod;
use limits::{Limits, Part, Policy};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use systemd::Slices;
use tokio::sync::OnceCell;

#[derive(Debug, thiserror::Error)]
pub enum CgroupsError {
    #[error("the runtime does not say which cgroup driver it has")]
    Runtime(#[source] RuntimeError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Slice(#[from] systemd::SliceError),
    #[error("a task panicked")]
    Panicked,
}

/// Makes and limits them.
pub struct PodCgroups {
    files: Files,
    slices: Slices,
    policy: Policy,
    /// What somebody chose; else the runtime is asked.
    driver: Option<CgroupDriver>,
    /// Known once all that is above pods has been made.
    names: OnceCell<Names>,
    /// For all pods together, and for the cgroups of others.
    all: Part,
    others: Vec<(String, Part)>,
    /// What pods were limited to last, by UID.
    known: Mutex<HashMap<String, Limits>>,
}

impl PodCgroups {
    /// `root` is where the kernel shows cgroups.
    pub fn new(root: &Path, config: &Config, facts: &Facts) -> Self {
        let reserved = &config.reserved;
        let part = |amounts: &crate::configuration::reserved::Amounts| Part {
            cpu_millis: amounts.cpu_millis,
            memory_bytes: Some(amounts.memory_bytes).filter(|bytes| *bytes > 0),
            pids: amounts.pids,
        };
        let others = [(&reserved.system_cgroup, &reserved.system), (&reserved.kube_cgroup, &reserved.kube)];
        let others =
            others.into_iter().filter_map(|(cgroup, amounts)| Some((cgroup.clone()?, part(amounts))));
        Self {
            files: Files::at(root),
            slices: Slices::default(),
            policy: Policy {
                kernel: config.kernel.clone(),
                pod_pids: config.node.pod_pids_limit,
                page_sizes: facts.hugepages.keys().cloned().collect(),
            },
            driver: config.kernel.cgroup_driver,
            names: OnceCell::new(),
            all: if reserved.enforce_pods { for_pods(config, facts) } else { Part::default() },
            others: others.collect(),
            known: Mutex::default(),
        }
    }

    /// As far as they are known; else as upstream has them by default.
    pub fn names(&self) -> Names {
        self.names.get().copied().unwrap_or_default()
    }

    /// Makes what is above pods, once.
    pub async fn ready(&self, runtime: &dyn Runtime) -> Result<Names, CgroupsError> {
        let make = async || {
            let names = Names(match self.driver {
                Some(driver) => driver,
                None => ask(runtime).await?,
            });
            self.set_at(names, &names.all(), &self.all.limits()).await?;
            for class in [QosClass::Burstable, QosClass::BestEffort] {
                let limits = limits::of_class(class, std::iter::empty(), &self.policy.kernel);
                self.set_at(names, &names.tier(class), &limits).await?;
            }
            for (cgroup, part) in &self.others {
                let (files, cgroup, limits) = (self.files.clone(), cgroup.clone(), part.limits());
                let written = reading("cgroups of others", move || files.limit(&cgroup, &limits)).await;
                written.ok_or(CgroupsError::Panicked)??;
            }
            Ok(names)
        };
        self.names.get_or_try_init(make).await.copied()
    }

    /// Makes the pod's own and limits it, before the runtime puts containers there. `own_cpus`: whether any of them has.
    pub async fn set(&self, runtime: &dyn Runtime, pod: &Pod, own_cpus: bool) -> Result<(), CgroupsError> {
        let names = self.ready(runtime).await?;
        let limits = self.wanted(pod, own_cpus);
        self.set_at(names, &names.pod(pod), &limits).await?;
        self.known.lock().insert(pod.metadata.uid.clone().unwrap_or_default(), limits);
        Ok(())
    }

    /// What the pod is to be limited to.
    pub fn wanted(&self, pod: &Pod, own_cpus: bool) -> Limits {
        limits::of_pod(pod, own_cpus, &self.policy)
    }

    /// What the pod is limited to now: as it was told last, or by an earlier process. Of that only CPU and memory are
    /// read.
    pub async fn current(&self, runtime: &dyn Runtime, pod: &Pod) -> Result<Limits, CgroupsError> {
        let names = self.ready(runtime).await?;
        let known = self.known.lock().get(pod.metadata.uid.as_deref().unwrap_or_default()).cloned();
        if let Some(limits) = known {
            return Ok(limits);
        }
        let (files, path) = (self.files.clone(), names.pod(pod));
        let read = reading("a pod's cgroup", move || files.read(&path)).await;
        Ok(read.flatten().unwrap_or_default())
    }

    /// Limits the pod while its containers are resized.
    pub async fn limit(&self, runtime: &dyn Runtime, pod: &Pod, limits: Limits) -> Result<(), CgroupsError> {
        let names = self.ready(runtime).await?;
        self.set_at(names, &names.pod(pod), &limits).await?;
        self.known.lock().insert(pod.metadata.uid.clone().unwrap_or_default(), limits);
        Ok(())
    }

    /// Bytes that the pod's processes use, with what the kernel could drop; `None` where the kernel does not say.
    pub async fn memory_in_use(&self, pod: &Pod) -> Option<u64> {
        let (files, path) = (self.files.clone(), self.names().pod(pod));
        reading("a pod's memory", move || files.memory_in_use(&path)).await.flatten()
    }

    /// Weighs a class by what its pods ask for, and forgets pods that are gone.
    pub async fn weigh(&self, pods: &[Arc<Pod>]) -> Result<(), CgroupsError> {
        let there: HashSet<&str> = pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        self.known.lock().retain(|uid, _| there.contains(uid.as_str()));
        let Some(names) = self.names.get().copied() else { return Ok(()) };
        let running = pods.iter().map(Arc::as_ref).filter(|pod| !crate::pod_facts::termination::is_over(pod));
        let limits = limits::of_class(QosClass::Burstable, running, &self.policy.kernel);
        self.set_at(names, &names.tier(QosClass::Burstable), &limits).await
    }

    async fn set_at(&self, names: Names, path: &str, limits: &Limits) -> Result<(), CgroupsError> {
        if names.0 == CgroupDriver::Systemd {
            self.slices.set(path, limits).await?;
            // systemd has no property for these.
            let pages = Limits { huge_pages: limits.huge_pages.clone(), ..Limits::default() };
            if pages.huge_pages.is_empty() {
                return Ok(());
            }
        }
        let (files, path, limits) = (self.files.clone(), path.to_owned(), limits.clone());
        let set = reading("cgroups", move || match names.0 {
            CgroupDriver::Cgroupfs => files.set(&path, &limits),
            CgroupDriver::Systemd => files.limit(&path, &limits),
        });
        Ok(set.await.ok_or(CgroupsError::Panicked)??)
    }
}

/// What is not reserved for others. Of processes neither what eviction keeps free, so that the machine can always start
/// one; memory that eviction keeps free may be used for as long as it takes to evict somebody.
fn for_pods(config: &Config, facts: &Facts) -> Part {
    let reserved = config.reserved.all();
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processes = facts::most_processes(&text(facts::PID_MAX), &text(facts::THREADS_MAX));
    let kept = |most: u64| config.eviction.kept_free(Signal::PidAvailable, most) + reserved.pids.unwrap_or(0);
    Part {
        cpu_millis: facts.cpus.saturating_mul(1000).saturating_sub(reserved.cpu_millis),
        memory_bytes: Some(facts.memory_bytes.saturating_sub(reserved.memory_bytes))
            .filter(|bytes| *bytes > 0),
        pids: processes.map(|most| most.saturating_sub(kept(most)).max(1)),
    }
}

/// Runtimes before containerd 2 and CRI-O 1.28 do not say; then it is as upstream's default has it.
async fn ask(runtime: &dyn Runtime) -> Result<CgroupDriver, CgroupsError> {
    match runtime.cgroup_driver().await {
        Ok(driver) => Ok(driver.unwrap_or(CgroupDriver::Cgroupfs)),
        Err(error) if error.is_unimplemented() => Ok(CgroupDriver::Cgroupfs),
        Err(error) => Err(CgroupsError::Runtime(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_get_what_is_not_reserved() {
        let mut config = Config::new("n1", [192, 0, 2, 1].into());
        let written = json!({ "systemReserved": { "cpu": "200m", "memory": "1Gi", "pid": "100" },
            "enforceNodeAllocatable": ["pods", "system-reserved"], "systemReservedCgroup": "system" });
        config.apply(written.as_object().unwrap()).unwrap();
        let facts = Facts { cpus: 4, memory_bytes: 8 << 30, ..Facts::default() };
        let groups = PodCgroups::new(Path::new("/nonexistent"), &config, &facts);
        assert_eq!((groups.all.cpu_millis, groups.all.memory_bytes), (3800, Some(7 << 30)));
        assert_eq!(groups.all.limits().cpu_shares, Some(3891));
        let system = Part { cpu_millis: 200, memory_bytes: Some(1 << 30), pids: Some(100) };
        assert_eq!(groups.others, [("/system".to_owned(), system)]);
        config.reserved.enforce_pods = false;
        assert_eq!(PodCgroups::new(Path::new("/nonexistent"), &config, &facts).all, Part::default());
    }
}

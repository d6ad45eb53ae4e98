//! Wiring.

use crate::allocation::{self, Allocation, AllocationError};
use crate::cgroup::PodCgroups;
use crate::cgroup::processes::{self, PidsLimit};
use crate::components::Components;
use crate::configuration::config::Config;
use crate::configuration::kernel::{KernelSettings, MemoryReservation};
use crate::container::resources::NodeResources;
use crate::container::security::Confinement;
use crate::container::swap::Swap;
use crate::cri::shims::{LinuxShims, Shims};
use crate::cri::{CriClient, Runtime};
use crate::dra::{self, Dra};
use crate::images::gc::Images;
use crate::images::import::{Ctr, ImageImporter};
use crate::images::pause;
use crate::images::pull::Puller;
use crate::images::records::Records;
use crate::kubelet::{Kubelet, PodTable};
use crate::last_seen::{LastSeen, LastSeenError};
use crate::logind;
use crate::metrics::{Metric, Metrics};
use crate::node::kernel::{self, KernelError};
use crate::objects::ObjectCache;
use crate::observer::Observer;
use crate::placement::machine::Machine;
use crate::pod::crowded;
use crate::pod_facts::userns::UserRanges;
use crate::pods_api::PodsApi;
use crate::server::Configz;
use crate::signal::Signal;
use crate::volume_stats::VolumeStats;
use crate::{
    cgroup_upkeep, eviction, image_upkeep, logs, lost_shims, manager, node, own_node, plugins, pod_resources,
    shutdown,
};
use coracle_client::{Context, Recorder};
use coracle_storage::volumes::{LinuxMounter, Listener, MEASURE, Mounter, Volumes, VolumesConfig};
use k8s_openapi::api::core::v1::Service;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Between looks whether a runtime that was down is there to take images.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long calls that have been begun may take when the kubelet stops; the process gives its components ten seconds. A
/// container that has minutes to stop is stopped by the next kubelet.
const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot create {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("what the cluster says cannot be kept")]
    LastSeen(#[from] LastSeenError),
    #[error("{0}")]
    Reserved(String),
    #[error("CPUs, memory and devices cannot be given")]
    Allocation(#[from] AllocationError),
    #[error("failCgroupV1: the machine has cgroup v1")]
    CgroupV1,
    #[error("failSwapOn: the machine has swap")]
    Swap,
    #[error("memorySwap.swapBehavior: LimitedSwap needs cgroup v2, the machine has v1")]
    SwapV1,
    #[error("memorySwap.swapBehavior: LimitedSwap needs a kernel that counts swap by cgroup")]
    SwapUncounted,
    #[error("singleProcessOOMKill: with cgroup v1 the kernel always kills one process")]
    OomKill,
}

/// What a kubelet is made of; tests bring their own runtime and mounts.
pub struct Parts {
    pub runtime: Arc<dyn Runtime>,
    pub mounter: Arc<dyn Mounter>,
    pub importer: Option<Arc<dyn ImageImporter>>,
    /// What holds containers for the runtime.
    pub shims: Arc<dyn Shims>,
    /// Where the kernel shows cgroups.
    pub cgroup_root: PathBuf,
    /// Where the kernel shows the machine.
    pub sys: PathBuf,
    /// Who tells that the machine ends.
    pub logind: logind::Paths,
}

impl Parts {
    /// The real ones. Must be called inside the tokio runtime.
    pub fn real(config: &Config) -> Self {
        let address = config.runtime_endpoint.trim_start_matches("unix://");
        Self {
            runtime: Arc::new(CriClient::of(config)),
            mounter: Arc::new(LinuxMounter),
            importer: Some(Arc::new(Ctr { address: PathBuf::from(address) })),
            shims: Arc::new(LinuxShims::new(&config.runtime_endpoint)),
            cgroup_root: PathBuf::from(processes::ROOT),
            sys: PathBuf::from("/sys"),
            logind: logind::Paths::default(),
        }
    }
}

/// A kubelet that is ready to run; its server finds pods in it.
pub struct Built {
    kubelet: Arc<Kubelet>,
    importer: Option<Arc<dyn ImageImporter>>,
    facts: crate::facts::Facts,
    own: own_node::OwnNodeSender,
    live: watch::Sender<Arc<Config>>,
    stop: CancellationToken,
}

/// Why a kubelet ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// It has other settings now that take another kubelet.
    Reconfigured,
}

impl Built {
    /// What `/configz` shows.
    pub fn configz(&self) -> Configz {
        let live = self.live.subscribe();
        Arc::new(move || live.borrow().configuration().into())
    }

    /// For the kubelet's server.
    pub fn pods_api(&self) -> Arc<dyn PodsApi> {
        self.kubelet.clone()
    }

    /// Runs until stopped. Containers go on running afterwards, and the next kubelet takes them over; what the runtime has
    /// been told to change has a moment to be changed.
    pub async fn run(self) -> Ended {
        let Self { kubelet, importer, facts, own, live, stop: told } = self;
        // The end of one task is the end of all.
        let stop = told.child_token();
        let calls = kubelet.calls.clone();
        let (due, evictions) = watch::channel(None);
        tokio::join!(
            node::run(kubelet.clone(), facts, own, due, stop.clone()),
            eviction::run(kubelet.clone(), evictions, stop.clone()),
            eviction::local::run(kubelet.clone(), stop.clone()),
            image_upkeep::run(kubelet.clone(), stop.clone()),
            manager::run(kubelet.clone(), stop.clone()),
            manager::follow_runtime(kubelet.clone(), stop.clone()),
            manager::follow_clock(kubelet.clone(), stop.clone()),
            lost_shims::run(kubelet.clone(), stop.clone()),
            logs::run(kubelet.clone(), stop.clone()),
            plugins::run(kubelet.clone(), stop.clone()),
            kubelet.dra.run(stop.clone()),
            logs::keep_links(kubelet.clone(), stop.clone()),
            kubelet.components.run(&kubelet.config, &kubelet.client, kubelet.own.clone(), stop.clone()),
            kubelet.allocation.devices.run(stop.clone()),
            pod_resources::run(kubelet.clone(), stop.clone()),
            shutdown::run(kubelet.clone(), stop.clone()),
            crowded::run(kubelet.clone(), stop.clone()),
            cgroup_upkeep::run(kubelet.clone(), stop.clone()),
            crate::live_configuration::run(kubelet.clone(), live, stop.clone(), stop.clone()),
            stop.run_until_cancelled(async {
                bring_images(&kubelet, importer).await;
                kubelet.images.all_kept();
            }),
        );
        calls.close();
        if tokio::time::timeout(LAST_CALLS_TIMEOUT, calls.wait()).await.is_err() {
            tracing::warn!(calls = calls.len(), "the runtime is left in the middle of calls");
        }
        if told.is_cancelled() { Ended::Stopped } else { Ended::Reconfigured }
    }
}

/// Puts the parts together. Nothing is started but the informers that `context` shares.
pub fn build(context: &Context, config: Config, parts: Parts) -> Result<Built, Error> {
    let pods_dir = config.pods_dir();
    make_directories(&[&pods_dir, &config.log_dir])?;
    config.metrics.startup.began(crate::facts::booted());
    let mut facts = crate::facts::read(&config.data_dir);
    let machine = machine(&config, &mut facts, &parts.sys);
    can_be(&config, &facts)?;
    let register = PodTable::default();
    let allocation = allocation(&config, &facts, machine, told(&register))?;
    let last_seen = Arc::new(LastSeen::open(&config.root().join("last-seen"))?);
    let changed = objects_changed(&register);
    let objects = Arc::new(ObjectCache::new(context.client.clone(), last_seen.clone(), changed));
    let records = Records::new(config.root(), config.node.verification.clone());
    // Who was registered with the last kubelet registers again.
    let drivers = config.drivers.clone();
    drivers.clear();
    let (own, node_object) = watch::channel(None);
    let (live, now) = watch::channel(Arc::new(config.clone()));
    let kubelet = Kubelet {
        dra: Arc::new(Dra::open(dra_parts(context, &config, node_object.clone(), told(&register)))),
        allocation: Arc::new(allocation),
        own: node_object,
        logind: parts.logind,
        shutting_down: watch::Sender::new(false),
        apparmor: crate::facts::apparmor(),
        client: context.client.clone(),
        users: users(&pods_dir, config.node.max_pods),
        volumes: Volumes::new(of_volumes(&config), parts.mounter, objects.clone(), drivers.clone())
            .told_to(volumes_timed(config.metrics.clone())),
        drivers,
        objects,
        last_seen,
        puller: Puller::new(parts.runtime.clone(), Arc::new(records), &config.images, config.metrics.clone()),
        confinement: confinement(&config),
        cgroups: PodCgroups::new(&parts.cgroup_root, &config, &facts),
        pids: PidsLimit::of(&parts.cgroup_root, config.node.pod_pids_limit),
        cgroup_root: parts.cgroup_root,
        recorder: Recorder::paced(context.client.clone(), "kubelet", &config.node_name, config.events),
        services: context.informers.of::<Service>(),
        node: node_resources(&config.kernel, &facts),
        allocatable: facts.allocatable(&config),
        observer: Observer::new(parts.runtime.clone(), config.data_dir.clone()),
        images: Images::default(),
        volume_stats: Arc::new(VolumeStats::new(config.metrics.clone())),
        named: OnceCell::new(),
        runtime: parts.runtime,
        calls: TaskTracker::new(),
        shims: parts.shims,
        register,
        static_pod_ended: Notify::new(),
        components: Arc::new(Components::new(&config)),
        live: now,
        metrics: config.metrics.clone(),
        config,
    };
    let (kubelet, importer, stop) = (Arc::new(kubelet), parts.importer, context.stop.clone());
    Ok(Built { kubelet, importer, facts, own, live, stop })
}

fn confinement(config: &Config) -> Confinement {
    Confinement {
        root: config.root(),
        seccomp_default: config.node.seccomp_default.unwrap_or_else(crate::facts::seccomp),
        masked: crate::facts::thermal_throttles(),
    }
}

fn make_directories(paths: &[&Path]) -> Result<(), Error> {
    paths.iter().try_for_each(|path| {
        std::fs::create_dir_all(path).map_err(|source| Error::Directory { path: (*path).to_owned(), source })
    })
}

/// Has the worker of a pod look again at the objects that it uses.
fn objects_changed(register: &PodTable) -> Arc<dyn Fn(&str) + Send + Sync> {
    let register = register.clone();
    Arc::new(move |uid| {
        if let Some(slot) = register.lock().get(uid) {
            slot.inbox.put(|mail| mail.objects = true);
        }
    })
}

/// Counts work on volumes.
fn volumes_timed(metrics: Metrics) -> Listener {
    Arc::new(move |timed| {
        if timed.operation == MEASURE {
            let driver = timed.plugin.split_once(':').map_or(&*timed.plugin, |(_, driver)| driver);
            return metrics.took(Metric::VolumeMeasurements, &[driver], timed.time);
        }
        let status = if timed.failed { "fail-unknown" } else { "success" };
        let labels = ["false", timed.operation, status, &timed.plugin];
        metrics.took(Metric::VolumeOperations, &labels, timed.time);
    })
}

fn of_volumes(config: &Config) -> VolumesConfig {
    VolumesConfig {
        root: config.root(),
        node_name: config.node_name.clone(),
        local_path: config.local_path(),
        machine: "/".into(),
    }
}

fn dra_parts(
    context: &Context,
    config: &Config,
    node: own_node::OwnNode,
    changed: Arc<dyn Fn(&str) + Send + Sync>,
) -> dra::Parts {
    dra::Parts {
        client: context.client.clone(),
        node_name: config.node_name.clone(),
        standalone: config.standalone,
        node,
        root: config.root(),
        patience: config.dra_patience,
        changed,
        metrics: config.metrics.clone(),
    }
}

fn node_resources(kernel: &KernelSettings, facts: &crate::facts::Facts) -> NodeResources {
    let whole = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    NodeResources {
        cgroup_v2: facts.cgroup_v2,
        memory_bytes: whole(facts.memory_bytes),
        cfs_period: i64::try_from(kernel.cfs_period.as_micros()).unwrap_or(i64::MAX),
        cfs_quota: kernel.cfs_quota,
        single_process_oom_kill: kernel.single_process_oom_kill == Some(true),
        throttling_thousandths: kernel.throttling_thousandths(),
        keeps_memory: kernel.reservation == MemoryReservation::Tiered,
        swap: match facts.swap_counted {
            false => Swap::Uncounted,
            true if kernel.limited_swap => Swap::Limited(whole(facts.swap_bytes)),
            true => Swap::Nothing,
        },
    }
}

/// The machine's CPUs and memory. Where CPUs are given by their numbers, all that are online count.
fn machine(config: &Config, facts: &mut crate::facts::Facts, sys: &Path) -> Machine {
    let machine = Machine::read(sys, u32::try_from(facts.cpus).unwrap_or(u32::MAX), facts.memory_bytes);
    if config.placement.cpus.is_some() {
        facts.cpus = u64::try_from(machine.cpus.len()).unwrap_or(u64::MAX);
    }
    machine
}

fn allocation(
    config: &Config,
    facts: &crate::facts::Facts,
    machine: Machine,
    tell: Arc<dyn Fn(&str) + Send + Sync>,
) -> Result<Allocation, AllocationError> {
    let reserved = config.reserved.all();
    let kept_free = config.eviction.kept_free(Signal::MemoryAvailable, facts.memory_bytes);
    Allocation::open(allocation::Parts {
        root: &config.root(),
        settings: config.placement.clone(),
        machine,
        reserved_cpu_millis: reserved.cpu_millis,
        reserved_memory_bytes: reserved.memory_bytes.saturating_add(kept_free),
        tell,
        metrics: config.metrics.clone(),
    })
}

/// Has the worker of a pod look again.
fn told(register: &PodTable) -> Arc<dyn Fn(&str) + Send + Sync> {
    let register = register.clone();
    Arc::new(move |uid| {
        if let Some(slot) = register.lock().get(uid) {
            slot.inbox.put(|mail| mail.runtime = true);
        }
    })
}

/// Whether the machine is one that the settings ask for.
fn can_be(config: &Config, facts: &crate::facts::Facts) -> Result<(), Error> {
    if let Some(why) = facts.cannot_reserve(config) {
        return Err(Error::Reserved(why));
    }
    let kernel = &config.kernel;
    match facts.cgroup_v2 {
        false if kernel.fail_cgroup_v1 => Err(Error::CgroupV1),
        false if kernel.limited_swap => Err(Error::SwapV1),
        _ if kernel.limited_swap && !facts.swap_counted => Err(Error::SwapUncounted),
        false if kernel.single_process_oom_kill == Some(false) => Err(Error::OomKill),
        _ if kernel.fail_swap_on && facts.swap_bytes > 0 => Err(Error::Swap),
        _ => Ok(()),
    }
}

/// The ranges of this machine's user `kubelet`, if it has any.
fn users(pods_dir: &Path, max_pods: u32) -> UserRanges {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    UserRanges::new(pods_dir.to_owned(), max_pods, &text("/etc/subuid"), &text("/etc/subgid"))
}

/// Sets the kernel as the kubelet wants it, or with protectKernelDefaults checks that it is so. For real nodes, once, before
/// [`build`].
pub fn prepare_kernel(config: &Config) -> Result<(), KernelError> {
    for (path, error) in kernel::prepare(Path::new("/proc/sys"), config.node.protect_kernel_defaults)? {
        tracing::warn!(path = %path.display(), %error, "kernel setting not changed");
    }
    if let Some(score) = config.kernel.oom_score_adj
        && let Err(error) = std::fs::write("/proc/self/oom_score_adj", score.to_string())
    {
        tracing::warn!(score, %error, "oomScoreAdj not set");
    }
    Ok(())
}

/// Runs a kubelet without its server.
pub async fn run(context: Context, config: Config) -> Result<(), Error> {
    let parts = Parts::real(&config);
    Box::pin(build(&context, config, parts)?.run()).await;
    Ok(())
}

/// Imports the sandbox image where it is missing, and every archive in `<data-dir>/images`, once the runtime is there.
async fn bring_images(kubelet: &Kubelet, importer: Option<Arc<dyn ImageImporter>>) {
    let Some(importer) = importer else { return };
    let (config, runtime) = (&kubelet.config, &kubelet.runtime);
    let present = loop {
        match runtime.image_status(&config.pause_image).await {
            Ok(image) => break image.is_some(),
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    };
    if !present && let Some(archive) = pause::archive(&config.pause_image, std::env::consts::ARCH) {
        match importer.import(archive).await {
            Ok(()) => tracing::info!(image = %config.pause_image, "sandbox image imported"),
            Err(error) => tracing::warn!(image = %config.pause_image, %error, "sandbox image not imported"),
        }
    }
    for entry in std::fs::read_dir(config.data_dir.join("images")).into_iter().flatten().flatten() {
        match importer.import_file(&entry.path()).await {
            Ok(names) => {
                tracing::info!(path = %entry.path().display(), "image archive imported");
                kubelet.images.keep(names);
            }
            Err(error) => {
                tracing::warn!(path = %entry.path().display(), %error, "image archive not imported")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use serde_json::json;

    #[test]
    fn swap_is_given_where_the_kernel_can_bound_it() {
        let mut config = Config::new("n", [192, 0, 2, 1].into());
        let v2 = Facts { cgroup_v2: true, swap_counted: true, swap_bytes: 7, ..Facts::default() };
        let swap = |config: &Config, facts: &Facts| node_resources(&config.kernel, facts).swap;
        assert_eq!(swap(&config, &v2), Swap::Nothing);
        let written = json!({ "memorySwap": { "swapBehavior": "LimitedSwap" } });
        config.apply(written.as_object().unwrap()).unwrap();
        assert_eq!(swap(&config, &v2), Swap::Limited(7));
        assert!(can_be(&config, &v2).is_ok());
        let uncounted = Facts { swap_counted: false, ..v2.clone() };
        let v1 = Facts { cgroup_v2: false, ..v2 };
        for (facts, words) in [(v1, "needs cgroup v2"), (uncounted, "counts swap by cgroup")] {
            let error = can_be(&config, &facts).unwrap_err().to_string();
            assert!(error.starts_with("memorySwap.swapBehavior: ") && error.contains(words), "{error}");
        }
    }
}

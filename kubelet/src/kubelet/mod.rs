//! What all pod workers share, and the register in which the server finds pods.

pub mod inbox;
pub mod room;

use crate::allocation::Allocation;
use crate::cgroup::PodCgroups;
use crate::cgroup::processes::PidsLimit;
use crate::cgroup_names::Names;
use crate::components::Components;
use crate::configuration::config::Config;
use crate::container::resources::NodeResources;
use crate::container::security::Confinement;
use crate::cri::shims::Shims;
use crate::cri::{self, Runtime};
use crate::dra::{self, Dra};
use crate::images::gc::Images;
use crate::images::pull::Puller;
use crate::last_seen::LastSeen;
use crate::logind;
use crate::metrics::Metrics;
use crate::objects::ObjectCache;
use crate::observer::Observer;
use crate::own_node::OwnNode;
use crate::pod_facts::observed::{Observed, State};
use crate::pod_facts::userns::UserRanges;
use crate::pods_api::{ContainerHandle, PodHandle, PodsApi};
use crate::volume_stats::VolumeStats;
use coracle_client::{Informer, Recorder};
use coracle_storage::csi::Drivers;
use coracle_storage::volumes::downward::Allocatable;
use coracle_storage::volumes::{Count, Volumes};
use inbox::Inbox;
use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::Mutex;
use room::{Granted, Trigger, Waiting};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, OnceCell, watch};
use tokio_util::task::TaskTracker;

/// A pod in the register.
#[derive(Clone)]
pub struct PodEntry {
    pub inbox: Arc<Inbox>,
    /// With the status that was last computed.
    pub pod: Arc<Pod>,
    pub observed: Arc<Observed>,
    /// It waits for room to be resized.
    pub waiting: Option<Waiting>,
    /// It has got the room that it waited for, and its worker has not seen it yet: `pod` has the resources already.
    pub granted: Option<Granted>,
}

impl PodEntry {
    /// Of a pod that nothing has been done about yet.
    pub fn new(pod: Arc<Pod>) -> Self {
        Self { inbox: Arc::default(), pod, observed: Arc::default(), waiting: None, granted: None }
    }
}

/// Pods by UID.
pub type PodEntries = HashMap<String, PodEntry>;
pub type PodTable = Arc<Mutex<PodEntries>>;

pub struct Kubelet {
    /// As it was when the kubelet began.
    pub config: Config,
    /// As it is now.
    pub live: watch::Receiver<Arc<Config>>,
    pub client: kube::Client,
    pub runtime: Arc<dyn Runtime>,
    /// As the runtime says it: `containerd`, `cri-o`. It stays while this process runs.
    pub named: OnceCell<Arc<str>>,
    /// All calls that change something in the runtime and have not come to their end.
    pub calls: TaskTracker,
    pub shims: Arc<dyn Shims>,
    pub volumes: Volumes,
    /// The CSI drivers that have offered themselves.
    pub drivers: Drivers,
    /// CPUs, memory and devices that pods have as their own.
    pub allocation: Arc<Allocation>,
    /// The claims of pods, and the drivers that prepare them.
    pub dra: Arc<Dra>,
    pub objects: Arc<ObjectCache>,
    /// What the cluster said last.
    pub last_seen: Arc<LastSeen>,
    pub puller: Puller,
    pub recorder: Recorder,
    pub services: Informer<Service>,
    pub node: NodeResources,
    pub confinement: Confinement,
    pub cgroups: PodCgroups,
    /// What a pod's processes are limited to.
    pub pids: Option<PidsLimit>,
    /// What pods with users of their own are given.
    pub users: UserRanges,
    /// Where the kernel shows cgroups.
    pub cgroup_root: PathBuf,
    pub allocatable: Allocatable,
    pub register: PodTable,
    /// Told when the last of a static pod's task is done.
    pub static_pod_ended: Notify,
    /// The parts of this process that are shown as pods.
    pub components: Arc<Components>,
    pub observer: Observer,
    pub images: Images,
    pub volume_stats: Arc<VolumeStats>,
    /// The Node object.
    pub own: OwnNode,
    /// Where logind is found.
    pub logind: logind::Paths,
    /// Whether the machine is about to be shut down.
    pub shutting_down: watch::Sender<bool>,
    /// Whether the kernel confines by AppArmor.
    pub apparmor: bool,
    pub metrics: Metrics,
}

impl Kubelet {
    /// The kubelet's own directory.
    pub fn root(&self) -> PathBuf {
        self.config.root()
    }

    /// What the ids of containers begin with.
    pub async fn runtime_name(&self) -> cri::Result<Arc<str>> {
        let ask = async || Ok(Arc::from(self.runtime.version().await?.runtime_name));
        self.named.get_or_try_init(ask).await.cloned()
    }

    /// The settings in force, where they may change while the kubelet runs.
    pub fn now(&self) -> Arc<Config> {
        self.live.borrow().clone()
    }

    /// Lets pods that may wait for a driver look again.
    pub fn drivers_changed(&self) {
        let waits = |pod: &Pod| {
            let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            volumes.into_iter().any(|volume| {
                volume.csi.is_some() || volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
            })
        };
        for slot in self.register.lock().values().filter(|slot| waits(&slot.pod)) {
            slot.inbox.put(|mail| mail.objects = true);
        }
    }

    /// Lets pods that may wait for a DRA driver look again.
    pub fn claims_changed(&self) {
        for slot in self.register.lock().values().filter(|slot| dra::has_any(&slot.pod)) {
            slot.inbox.put(|mail| mail.objects = true);
        }
    }

    /// Lets all pods look which CPUs they may run on.
    pub fn cpus_changed(&self) {
        self.register.lock().values().for_each(|slot| slot.inbox.put(|mail| mail.runtime = true));
    }

    /// Gives the pods that wait for room what there is.
    pub fn room_changed(&self, trigger: Trigger) {
        room::give(&mut self.register.lock(), &self.allocatable, trigger);
    }
}

impl PodsApi for Kubelet {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.register.lock().values().map(|slot| slot.pod.clone()).collect()
    }

    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<PodHandle> {
        if let Some(component) = self.components.find(namespace, name) {
            return Some(component);
        }
        let register = self.register.lock();
        let same = |pod: &Pod| {
            pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
        };
        let mut found = register.iter().filter(|(id, slot)| same(&slot.pod) && uid.is_none_or(|u| u == *id));
        let all: Vec<_> = found.by_ref().collect();
        // While one pod of the name ends, the next of the same name may have come.
        let newest = all.into_iter().max_by_key(|(_, slot)| {
            (slot.pod.metadata.deletion_timestamp.is_none(), slot.pod.metadata.creation_timestamp.clone())
        });
        newest.map(|(uid, slot)| handle(uid, slot))
    }

    fn volume_stats(&self) -> Arc<VolumeStats> {
        self.volume_stats.clone()
    }

    fn orphans(&self) -> HashSet<String> {
        let register = self.register.lock();
        let gone = register.iter().filter(|(_, slot)| slot.inbox.is_removed());
        gone.map(|(uid, _)| uid.clone()).collect()
    }

    fn sandbox_image(&self) -> String {
        self.config.pause_image.clone()
    }

    fn volumes(&self) -> BTreeMap<String, Count> {
        self.volumes.counts()
    }

    fn claims_in_use(&self) -> BTreeMap<String, usize> {
        self.dra.in_use()
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.runtime.clone()
    }

    fn cgroup_names(&self) -> Names {
        self.cgroups.names()
    }
}

fn handle(uid: &str, slot: &PodEntry) -> PodHandle {
    let spec = slot.pod.spec.clone().unwrap_or_default();
    let status = slot.pod.status.clone().unwrap_or_default();
    let ephemeral =
        spec.ephemeral_containers.iter().flatten().map(crate::pod_facts::containers::as_container);
    let all = spec.init_containers.iter().flatten().chain(&spec.containers).cloned().chain(ephemeral);
    let containers = all.filter_map(|wanted| {
        let last = slot.observed.latest(&wanted.name)?;
        Some(ContainerHandle {
            name: wanted.name.clone(),
            id: last.id.clone(),
            attempt: last.attempt,
            running: last.state == State::Running,
            log_path: last.log_path.clone(),
            previous_log_path: slot.observed.previous(&wanted.name).map(|c| c.log_path.clone()),
            stdin: wanted.stdin == Some(true),
            tty: wanted.tty == Some(true),
        })
    });
    PodHandle {
        uid: uid.to_owned(),
        sandbox_id: slot.observed.sandbox().map(|s| s.id.clone()),
        host_network: spec.host_network == Some(true),
        ips: status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect(),
        containers: containers.collect(),
        pod: slot.pod.clone(),
    }
}

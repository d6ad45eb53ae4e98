//! Volumes that one pod (or one node) at a time can use.

use super::kinds;
use super::lookup::is_ours;
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{Cluster, ClusterEvent, CycleState, ObjectKind, Plugin, Point, Status};
use k8s_openapi::api::core::v1::Volume;
use std::collections::HashSet;
use std::sync::Arc;

const NAME: &str = "VolumeRestrictions";
pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];
const DISK_CONFLICT: &str = "node(s) had no available disk";
const EXCLUSIVE_CONFLICT: &str =
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

pub struct VolumeRestrictions {
    cluster: Arc<dyn Cluster>,
}

struct Exclusive {
    /// Claims with ReadWriteOncePod.
    claims: HashSet<String>,
    /// Pods that use one of them, on any node.
    users: i64,
    /// What the node has to be able to mount.
    kinds: Vec<&'static str>,
}

impl Exclusive {
    fn is_used_by(&self, other: &PodInfo, namespace: &str) -> bool {
        other.key.namespace == namespace && other.claim_names().any(|n| self.claims.contains(&n))
    }
}

/// Whether both volumes are one disk that cannot be mounted twice on a node (in-tree volumes only).
fn conflict(a: &Volume, b: &Volume) -> bool {
    if let (Some(a), Some(b)) = (&a.gce_persistent_disk, &b.gce_persistent_disk) {
        return a.pd_name == b.pd_name && !(a.read_only == Some(true) && b.read_only == Some(true));
    }
    if let (Some(a), Some(b)) = (&a.aws_elastic_block_store, &b.aws_elastic_block_store) {
        return a.volume_id == b.volume_id;
    }
    if let (Some(a), Some(b)) = (&a.iscsi, &b.iscsi) {
        return a.iqn == b.iqn && !(a.read_only == Some(true) && b.read_only == Some(true));
    }
    if let (Some(a), Some(b)) = (&a.rbd, &b.rbd) {
        let pool = |p: &Option<String>| p.clone().unwrap_or_else(|| "rbd".to_owned());
        return a.monitors.iter().any(|m| b.monitors.contains(m))
            && pool(&a.pool) == pool(&b.pool)
            && a.image == b.image
            && !(a.read_only == Some(true) && b.read_only == Some(true));
    }
    false
}

impl VolumeRestrictions {
    pub fn new(cluster: Arc<dyn Cluster>) -> Self {
        Self { cluster }
    }

    fn exclusive(&self, pod: &PodInfo) -> Result<HashSet<String>, Status> {
        let mut claims = HashSet::new();
        // The claim of an ephemeral volume is its pod's alone.
        let named = pod.placing_volumes().filter_map(|v| v.persistent_volume_claim.as_ref());
        for name in named.map(|source| source.claim_name.clone()) {
            let Some(claim) = self.cluster.claim(&pod.key.namespace, &name) else {
                return Err(Status::unresolvable(format!("persistentvolumeclaim \"{name}\" not found")));
            };
            let modes = claim.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
            if modes.iter().any(|m| m == "ReadWriteOncePod") {
                claims.insert(name);
            }
        }
        Ok(claims)
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        if pod.placing_volumes().next().is_none() {
            return Status::Skip;
        }
        let claims = match self.exclusive(pod) {
            Ok(claims) => claims,
            Err(status) => return status,
        };
        let disks =
            pod.placing_volumes().any(|v| v.persistent_volume_claim.is_none() && v.ephemeral.is_none());
        let kinds = kinds::of_pod(self.cluster.as_ref(), pod);
        let mut exclusive = Exclusive { claims, users: 0, kinds };
        if !exclusive.claims.is_empty() {
            let pods = snapshot.nodes().flat_map(|n| &n.pods);
            let users = pods.filter(|p| exclusive.is_used_by(p, &pod.key.namespace)).count();
            exclusive.users = i64::try_from(users).unwrap_or(i64::MAX);
        }
        let idle = !disks && exclusive.users == 0 && exclusive.kinds.is_empty();
        state.put(NAME, exclusive);
        if idle { Status::Skip } else { Status::Success }
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, _node: &NodeInfo) {
        if let Some(exclusive) = state.get_mut::<Exclusive>(NAME) {
            exclusive.users += i64::from(exclusive.is_used_by(added, &pod.key.namespace));
        }
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, _node: &NodeInfo) {
        if let Some(exclusive) = state.get_mut::<Exclusive>(NAME) {
            exclusive.users -= i64::from(exclusive.is_used_by(removed, &pod.key.namespace));
        }
    }

    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let kinds = state.get::<Exclusive>(NAME).map(|known| kinds::check(&known.kinds, node));
        if let Some(refused) = kinds.filter(|status| !status.is_success()) {
            return refused;
        }
        let twice = |v: &Volume| {
            let mut theirs = node.pods.iter().flat_map(|p| p.placing_volumes());
            theirs.any(|t| conflict(v, t))
        };
        if pod.placing_volumes().any(twice) {
            return Status::unschedulable(DISK_CONFLICT);
        }
        // Used on any node, the claim is used everywhere.
        if state.get::<Exclusive>(NAME).is_some_and(|exclusive| exclusive.users > 0) {
            return Status::unschedulable(EXCLUSIVE_CONFLICT);
        }
        Status::Success
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::PodGone { pod: gone, .. } => {
                let shared = |n: &String| pod.claim_names().any(|own| own == *n);
                (gone.key.namespace == pod.key.namespace && gone.claim_names().any(|n| shared(&n)))
                    || gone.placing_volumes().any(|a| pod.placing_volumes().any(|b| conflict(a, b)))
            }
            ClusterEvent::NodeUpdated { changed, .. } => changed.annotations,
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::Object { kind: ObjectKind::PersistentVolumeClaim, namespace, name } => {
                is_ours(pod, namespace, name)
            }
            _ => false,
        }
    }
}

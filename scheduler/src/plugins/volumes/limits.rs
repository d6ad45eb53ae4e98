//! A node takes only as many volumes of a CSI driver as its CSINode says.

use super::lookup::{class_name, volume_name};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{Cluster, ClusterEvent, CycleState, ObjectKind, Plugin, Point, Status};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];
const EXCEEDED: &str = "node(s) exceed max volume count";

pub struct NodeVolumeLimits {
    cluster: Arc<dyn Cluster>,
}

/// Volumes by their handle, or by their claim while they have none; with their driver.
type Volumes = HashMap<String, String>;

impl NodeVolumeLimits {
    pub fn new(cluster: Arc<dyn Cluster>) -> Self {
        Self { cluster }
    }

    /// The CSI volumes of a pod. A claim that is unknown counts for nothing: VolumeBinding speaks of it.
    fn volumes(&self, pod: &PodInfo, into: &mut Volumes) {
        for name in pod.claim_names() {
            let Some(claim) = self.cluster.claim(&pod.key.namespace, &name) else { continue };
            let volume = volume_name(&claim).and_then(|v| self.cluster.volume(v));
            let csi = volume.as_ref().and_then(|v| v.spec.as_ref()?.csi.as_ref());
            if let Some(csi) = csi {
                into.insert(format!("{}/{}", csi.driver, csi.volume_handle), csi.driver.clone());
            } else if let Some(class) =
                self.cluster.storage_class(class_name(&claim)).filter(|_| volume.is_none())
            {
                let unique = format!("{}/{}/{name}", class.provisioner, pod.key.namespace);
                into.insert(unique, class.provisioner.clone());
            }
        }
    }

    fn limits(&self, node: &str) -> HashMap<String, usize> {
        let Some(csi_node) = self.cluster.csi_node(node) else { return HashMap::new() };
        let drivers = csi_node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        let limit = |d: &serde_json::Value| {
            let count = usize::try_from(d["allocatable"]["count"].as_u64()?).ok()?;
            Some((d["name"].as_str()?.to_owned(), count))
        };
        drivers.iter().filter_map(limit).collect()
    }
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn pre_filter(&self, _state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        if pod.claim_names().next().is_none() { Status::Skip } else { Status::Success }
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let limits = self.limits(&node.name);
        if limits.is_empty() {
            return Status::Success;
        }
        let (mut wanted, mut present) = (Volumes::new(), Volumes::new());
        self.volumes(pod, &mut wanted);
        node.pods.iter().for_each(|p| self.volumes(p, &mut present));
        let drivers: HashSet<&String> = wanted.values().collect();
        for driver in drivers {
            let Some(limit) = limits.get(driver) else { continue };
            let new = wanted.iter().filter(|(id, d)| *d == driver && !present.contains_key(*id)).count();
            let old = present.values().filter(|d| *d == driver).count();
            if new > 0 && old + new > *limit {
                return Status::unschedulable(EXCEEDED);
            }
        }
        Status::Success
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::PodGone { pod: gone, .. } => gone.claim_names().next().is_some(),
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::Object { kind: ObjectKind::PersistentVolumeClaim, namespace, name } => {
                super::lookup::is_ours(pod, namespace, name)
            }
            ClusterEvent::Object { kind, .. } => *kind == ObjectKind::CsiNode,
            _ => false,
        }
    }

    fn advice(&self, _pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        Some(format!("{} has as many volumes of this driver as it can attach", node.name))
    }
}

//! Volumes with zone labels are used from nodes of that zone.

use super::lookup::{class_name, is_bound, named, volume_name, waits_for_consumer};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{Cluster, ClusterEvent, CycleState, ObjectKind, Plugin, Point, Status};
use coracle_api::well_known;
use std::sync::Arc;

const NAME: &str = "VolumeZone";
pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];
const CONFLICT: &str = "node(s) had no available volume zone";
const KEYS: [&str; 4] =
    [well_known::ZONE, well_known::REGION, well_known::BETA_ZONE, well_known::BETA_REGION];

pub struct VolumeZone {
    cluster: Arc<dyn Cluster>,
}

/// A label that the node must have, with one of these values.
struct Demand {
    key: &'static str,
    values: Vec<String>,
}

/// The newer name of a label, which nodes may carry instead.
fn newer(key: &str) -> &str {
    match key {
        well_known::BETA_ZONE => well_known::ZONE,
        well_known::BETA_REGION => well_known::REGION,
        other => other,
    }
}

impl VolumeZone {
    pub fn new(cluster: Arc<dyn Cluster>) -> Self {
        Self { cluster }
    }

    fn demands(&self, pod: &PodInfo) -> Result<Vec<Demand>, Status> {
        let mut demands = Vec::new();
        for claim in named(self.cluster.as_ref(), pod)? {
            if !is_bound(&claim) {
                let class = self.cluster.storage_class(class_name(&claim));
                match class {
                    Some(class) if waits_for_consumer(&class) => continue,
                    _ => return Err(Status::unresolvable("PersistentVolume had no name")),
                }
            }
            let name = volume_name(&claim).unwrap_or_default();
            let Some(volume) = self.cluster.volume(name) else {
                return Err(Status::unresolvable(format!("persistentvolume \"{name}\" not found")));
            };
            for key in KEYS {
                if let Some(value) = volume.metadata.labels.as_ref().and_then(|l| l.get(key)) {
                    // Several zones are written with two underscores between them.
                    let values = value.split("__").map(str::to_owned).collect();
                    demands.push(Demand { key, values });
                }
            }
        }
        Ok(demands)
    }
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        if pod.claim_names().next().is_none() {
            return Status::Skip;
        }
        match self.demands(pod) {
            Ok(demands) if demands.is_empty() => Status::Skip,
            Ok(demands) => {
                state.put(NAME, demands);
                Status::Success
            }
            Err(status) => status,
        }
    }

    fn filter(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Status {
        let Some(demands) = state.get::<Vec<Demand>>(NAME) else { return Status::Success };
        // A cluster of one zone does not label its nodes.
        if KEYS.iter().all(|key| node.label(key).is_none()) {
            return Status::Success;
        }
        let met = demands.iter().all(|demand| {
            let value = node.label(demand.key).or_else(|| node.label(newer(demand.key)));
            value.is_some_and(|v| demand.values.iter().any(|wanted| wanted == v))
        });
        if met { Status::Success } else { Status::unresolvable(CONFLICT) }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeUpdated { changed, .. } => changed.labels,
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::Object { kind: ObjectKind::PersistentVolumeClaim, namespace, name } => {
                super::lookup::is_ours(pod, namespace, name)
            }
            ClusterEvent::Object { kind, .. } => {
                matches!(kind, ObjectKind::PersistentVolume | ObjectKind::StorageClass)
            }
            _ => false,
        }
    }
}

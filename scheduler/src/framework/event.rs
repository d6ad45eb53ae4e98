//! Changes in the cluster that may help a pod which could not be scheduled.

use crate::cache::{NodeChange, NodeInfo, PodInfo};
use k8s_openapi::api::core::v1::Node;

/// Objects beside nodes and pods that plugins read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    Namespace,
    /// Services and the owners of pods, which default topology spread counts by.
    Workload,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
}

impl ObjectKind {
    /// Upstream's name of the resource in an event's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::PersistentVolume => "PersistentVolume",
            Self::StorageClass => "StorageClass",
            Self::CsiNode => "CSINode",
            Self::CsiDriver => "CSIDriver",
            Self::CsiStorageCapacity => "CSIStorageCapacity",
            Self::Namespace => "Namespace",
            Self::Workload => "Workload",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::ResourceClaim => "ResourceClaim",
            Self::ResourceSlice => "ResourceSlice",
            Self::DeviceClass => "DeviceClass",
        }
    }
}

/// One change, borrowed while the queue is asked whom it can help.
#[derive(Clone, Copy)]
pub enum ClusterEvent<'a> {
    NodeAdded(&'a NodeInfo),
    NodeUpdated {
        node: &'a NodeInfo,
        changed: NodeChange,
    },
    NodeGone(&'a Node),
    /// A pod was bound, by us or by somebody else.
    PodAssigned(&'a PodInfo),
    /// A bound pod's labels changed, or it asks for less (`shrank`).
    PodChanged {
        pod: &'a PodInfo,
        shrank: bool,
    },
    /// A bound or assumed pod went away, or finished; or one that waits gave up the room that was kept for it on the
    /// node, which pods of higher priority are not told.
    PodGone {
        pod: &'a PodInfo,
        node: &'a str,
    },
    /// The waiting pod itself was changed.
    PodUpdated(&'a PodInfo),
    /// Another object was added, changed or removed. The namespace is empty for objects without one.
    Object {
        kind: ObjectKind,
        namespace: &'a str,
        name: &'a str,
    },
    /// The pod waited long enough to be looked at again whatever happened.
    Timeout,
}

impl ClusterEvent<'_> {
    /// Upstream's label of the event in `scheduler_queue_incoming_pods_total`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NodeAdded(_) => "NodeAdd",
            Self::NodeUpdated { changed, .. } if changed.allocatable => "NodeAllocatableChange",
            Self::NodeUpdated { changed, .. } if changed.labels => "NodeLabelChange",
            Self::NodeUpdated { changed, .. } if changed.taints || changed.unschedulable => "NodeTaintChange",
            Self::NodeUpdated { changed, .. } if changed.features => "NodeDeclaredFeatureChange",
            Self::NodeUpdated { .. } => "NodeUpdate",
            Self::NodeGone(_) => "NodeDelete",
            Self::PodAssigned(_) => "AssignedPodAdd",
            Self::PodChanged { .. } => "AssignedPodUpdate",
            Self::PodGone { .. } => "AssignedPodDelete",
            Self::PodUpdated(_) => "UnscheduledPodUpdate",
            Self::Object { kind, .. } => kind.name(),
            Self::Timeout => "UnschedulableTimeout",
        }
    }
}

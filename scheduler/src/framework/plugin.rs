//! The plugin trait and what its extension points answer.

use super::CycleState;
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::time::Duration;

/// Where a plugin wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

/// An answer of an extension point, upstream's `fwk.Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Success,
    /// This plugin has nothing to say about this pod: its Filter (or Score) is left out in this cycle.
    Skip,
    /// The pod does not fit now; taking other pods away could help. Reasons are worded as upstream's.
    Unschedulable(Vec<Cow<'static, str>>),
    /// The pod does not fit, and taking other pods away would not help.
    Unresolvable(Vec<Cow<'static, str>>),
    /// Something failed that says nothing about the pod; it is tried again.
    Error(String),
}

impl Status {
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unschedulable(vec![reason.into()])
    }

    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unresolvable(vec![reason.into()])
    }

    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success | Self::Skip)
    }

    pub fn reasons(&self) -> &[Cow<'static, str>] {
        match self {
            Self::Unschedulable(reasons) | Self::Unresolvable(reasons) => reasons,
            _ => &[],
        }
    }
}

/// What Permit decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    Approve,
    Deny(Status),
    /// Bind only after somebody approves within this time.
    Wait(Duration),
}

/// A score of one node; after normalization 0 to [`MAX_NODE_SCORE`](super::MAX_NODE_SCORE).
#[derive(Clone, Debug)]
pub struct NodeScore {
    /// Index into the snapshot's nodes.
    pub node: usize,
    pub score: i64,
}

/// A change in the cluster that may help a pod which could not be scheduled.
#[derive(Clone, Copy)]
pub enum ClusterEvent<'a> {
    NodeAdded(&'a NodeInfo),
    NodeUpdated {
        old: &'a NodeInfo,
        new: &'a NodeInfo,
    },
    /// A bound pod went away, or finished.
    PodGone(&'a PodInfo),
    /// The waiting pod itself was changed.
    PodUpdated(&'a PodInfo),
    /// A claim, volume, class or CSI object was added or changed.
    StorageChanged,
    /// The pod waited long enough to be looked at again whatever happened.
    Timeout,
}

/// A scheduler plugin: implements what it names in [`points`](Self::points), nothing else is called.
///
/// Synchronous functions do no I/O and do not block: they run on the scheduler's one task.
#[async_trait::async_trait]
pub trait Plugin: Send + Sync + 'static {
    /// Upstream's name, as in a `KubeSchedulerConfiguration`.
    fn name(&self) -> &'static str;

    fn points(&self) -> &'static [Point];

    /// May the pod enter the queue? `Unresolvable` keeps it out until the pod itself changes.
    fn pre_enqueue(&self, _pod: &PodInfo) -> Status {
        Status::Success
    }

    /// The order of the queue: `Less` is scheduled first. Exactly one plugin of a profile sorts.
    fn less(&self, a: &PodInfo, b: &PodInfo) -> Ordering {
        a.queued_at.cmp(&b.queued_at)
    }

    fn pre_filter(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        Status::Success
    }

    fn filter(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> Status {
        Status::Success
    }

    /// Called when no node fits. `Success` says that the pod was helped (a node was nominated).
    fn post_filter(&self, _state: &CycleState, _pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        Status::unschedulable("")
    }

    fn pre_score(&self, _state: &mut CycleState, _pod: &PodInfo, _nodes: &[&NodeInfo]) -> Status {
        Status::Success
    }

    fn score(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> i64 {
        0
    }

    /// Brings the raw scores of all nodes into 0 to `MAX_NODE_SCORE`.
    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, _scores: &mut [NodeScore]) {}

    /// Takes what the pod will use on the node. [`unreserve`](Self::unreserve) follows when anything later fails.
    fn reserve(&self, _state: &CycleState, _pod: &PodInfo, _node: &str) -> Status {
        Status::Success
    }

    /// Idempotent; also called for a reservation that was never made.
    fn unreserve(&self, _pod: &PodInfo, _node: &str) {}

    fn permit(&self, _state: &CycleState, _pod: &PodInfo, _node: &str) -> Permission {
        Permission::Approve
    }

    async fn pre_bind(&self, _pod: &PodInfo, _node: &str) -> Status {
        Status::Success
    }

    /// `Skip` leaves the binding to the next plugin.
    async fn bind(&self, _pod: &PodInfo, _node: &str) -> Status {
        Status::Skip
    }

    async fn post_bind(&self, _pod: &PodInfo, _node: &str) {}

    /// Whether `event` can help a pod that this plugin rejected (a queueing hint, KEP-4247). Called for every
    /// waiting pod: it must be cheap, and wrongly answering `true` only costs an attempt.
    fn helps(&self, _pod: &PodInfo, _event: &ClusterEvent<'_>) -> bool {
        true
    }
}

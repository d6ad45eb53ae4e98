//! The plugin trait.

use super::{Attempt, ClusterEvent, CycleState, PostFilter, Status};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A waiting pod with what orders it.
#[derive(Clone)]
pub struct QueuedPod {
    pub pod: Arc<PodInfo>,
    /// When it last came into the queue.
    pub since: Instant,
}

/// The highest normalized score of one plugin.
pub const MAX_NODE_SCORE: i64 = 100;

/// Where a plugin wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

impl Point {
    pub const ALL: [Self; 12] = [
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
    ];

    /// Its field in a configuration's `plugins`.
    pub fn field(self) -> &'static str {
        match self {
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
        }
    }
}

/// What Permit decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    Approve,
    Deny(Status),
    /// Bind only after this plugin approves through [`WaitingPods`](super::WaitingPods), within this time.
    Wait(Duration),
}

/// A score of one node; after normalization 0 to [`MAX_NODE_SCORE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeScore {
    /// The node's slot in the snapshot.
    pub node: usize,
    pub score: i64,
}

/// How long a plugin's answers stay true. It is what makes scheduling fast, and it is a promise: the scheduler does
/// not ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Ask every time.
    Never,
    /// PreFilter, Filter and Score depend on nothing but the pod's [class](PodInfo::class) and the one node. They are
    /// asked again when that node changed.
    Node,
    /// What PreFilter and PreScore put into the state stays true while [`Plugin::add_pod`] and
    /// [`Plugin::remove_pod`] are told of every pod that comes and goes, and labels, taints and the set of nodes stay
    /// as they are. Filter and Score are asked every time.
    State,
}

/// A scheduler plugin: implements what it names in [`points`](Self::points), nothing else is called.
///
/// Synchronous functions do no I/O and do not block: they run on the scheduler's one task. Only `name` and `points`
/// must be given.
#[async_trait::async_trait]
pub trait Plugin: Send + Sync + 'static {
    /// Its name in a `KubeSchedulerConfiguration`.
    fn name(&self) -> &'static str;

    fn points(&self) -> &'static [Point];

    fn reuse(&self) -> Reuse {
        Reuse::Never
    }

    /// May the pod enter the queue? A refusal keeps it out until an event [`queueing_hint`](Self::queueing_hint).
    fn pre_enqueue(&self, _pod: &PodInfo) -> Status {
        Status::Success
    }

    /// The order of the queue: `Less` is scheduled first. Exactly one plugin of a profile sorts.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> Ordering {
        a.since.cmp(&b.since)
    }

    /// Looks at the pod and the whole cluster once a cycle. `Skip` leaves its Filter out.
    fn pre_filter(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        Status::Success
    }

    /// Corrects the state of PreFilter and PreScore: `added` is on `node` now. Exactly undone by `remove_pod`.
    fn add_pod(&self, _state: &mut CycleState, _pod: &PodInfo, _added: &PodInfo, _node: &NodeInfo) {}

    fn remove_pod(&self, _state: &mut CycleState, _pod: &PodInfo, _removed: &PodInfo, _node: &NodeInfo) {}

    fn filter(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> Status {
        Status::Success
    }

    /// What [`filter`](Self::filter) would say, as a small number: 0 for success, and for equal refusals of one plugin
    /// the same number, so that their words are made once and not for each of thousands of nodes. `None`: ask `filter`.
    /// Only asked where [`reuse`](Self::reuse) is not [`Reuse::Node`].
    fn filter_code(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> Option<u8> {
        None
    }

    /// Called when no node fits.
    fn post_filter(&self, _attempt: &mut Attempt<'_>) -> PostFilter {
        PostFilter::nothing("")
    }

    /// `nodes` are the slots of those that fit. `Skip` leaves its Score out.
    fn pre_score(
        &self,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _snapshot: &Snapshot,
        _nodes: &[usize],
    ) -> Status {
        Status::Success
    }

    fn score(&self, _state: &CycleState, _pod: &PodInfo, _node: &NodeInfo) -> i64 {
        0
    }

    /// NormalizeScore: brings the raw scores of all nodes into 0 to `MAX_NODE_SCORE`.
    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, _scores: &mut [NodeScore]) {}

    /// Takes what the pod will use on the node. [`unreserve`](Self::unreserve) follows when anything later fails.
    fn reserve(&self, _state: &mut CycleState, _pod: &PodInfo, _node: &NodeInfo) -> Status {
        Status::Success
    }

    /// Idempotent; also called for a reservation that was never made.
    fn unreserve(&self, _pod: &PodInfo, _node: &str) {}

    fn permit(&self, _state: &CycleState, _pod: &PodInfo, _node: &str) -> Permission {
        Permission::Approve
    }

    /// Whether [`pre_bind`](Self::pre_bind) has something to do for the pod (upstream's PreBindPreFlight). If so, the pod
    /// says in `status.nominatedNodeName` where it is going to run while that takes its time (KEP-5278).
    fn pre_bind_pre_flight(&self, _pod: &PodInfo, _node: &str) -> bool {
        true
    }

    /// May wait as long as it takes: other pods are scheduled and bound meanwhile.
    async fn pre_bind(&self, _pod: &PodInfo, _node: &str) -> Status {
        Status::Success
    }

    /// `Skip` leaves the binding to the next plugin.
    async fn bind(&self, _pod: &PodInfo, _node: &str) -> Status {
        Status::Skip
    }

    async fn post_bind(&self, _pod: &PodInfo, _node: &str) {}

    /// Whether `event` can help a pod that this plugin refused (a queueing hint, KEP-4247). Asked once for all
    /// waiting pods of a class: wrongly answering `true` only costs attempts.
    fn queueing_hint(&self, _pod: &PodInfo, _event: &ClusterEvent<'_>) -> bool {
        true
    }

    /// What would have to change for this node to be accepted, for `coracle why`.
    fn advice(&self, _pod: &PodInfo, _node: &NodeInfo) -> Option<String> {
        None
    }
}

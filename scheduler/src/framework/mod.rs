//! The scheduling framework: extension points in upstream's order, and what passes between them.
//!
//! One pod at a time goes through the synchronous part (PreFilter to Permit) on the scheduler's own task; the
//! asynchronous part (PreBind, Bind, PostBind) runs beside the next pods. Mirrors
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/>.
//!
//! A plugin is a trait object ([`Plugin`]), made by a factory that is kept in a
//! [`Registry`]; `scheduler/examples/rack_limit.rs` is one from end to end.

mod attempt;
mod cluster;
mod diagnosis;
mod event;
mod plugin;
mod probe;
mod profile;
mod registry;
mod state;
mod status;
mod waiting;

pub use attempt::{Attempt, Candidate, PostFilter, Rank, Unhelpful};
pub(crate) use attempt::{fits, nominated_pods};
pub use cluster::{Cluster, NoCluster};
pub use diagnosis::Diagnosis;
pub use event::{ClusterEvent, ObjectKind};
pub use plugin::{MAX_NODE_SCORE, NodeScore, Permission, Plugin, Point, QueuedPod, Reuse};
pub use profile::{Framework, Profile, ProfileError};
pub use registry::{ArgumentErrors, Handle, Registry};
pub use state::CycleState;
pub use status::Status;
pub use waiting::{Ended, Permit, Preparing, WaitingPods};

pub(crate) use probe::{Meter, Probe, timed};
pub(crate) use profile::Refusal;

//! The scheduling framework: extension points in upstream's order, and what passes between them.
//!
//! One pod at a time goes through the synchronous part (PreFilter to Permit) on the scheduler's own task; the
//! asynchronous part (PreBind, Bind, PostBind) runs beside the next pods. Mirrors
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/>.

mod plugin;
mod profile;
mod state;

pub use plugin::{ClusterEvent, NodeScore, Permission, Plugin, Point, Status};
pub use profile::{Framework, MAX_NODE_SCORE, ProfileError};
pub use state::CycleState;

//! What the scheduler knows of nodes and of the pods on them, kept up to date by events and owned by one task.

mod node;
mod pod;
mod resources;
mod snapshot;

pub use node::NodeInfo;
pub use pod::{HostPort, PodInfo};
pub use resources::Resources;
pub use snapshot::Snapshot;

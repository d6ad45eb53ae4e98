//! What the scheduler knows of nodes and of the pods on them, kept up to date by events and owned by one task.

mod affinity;
mod changes;
mod class;
mod labels;
mod node;
mod pod;
pub(crate) mod resources;
mod snapshot;
mod topology;

pub use affinity::{AffinityTerm, PodAffinities, Spread, WhenUnsatisfiable};
pub use changes::{Change, Changes};
pub use class::rare_kind;
pub use labels::SharedLabels;
pub use node::{Image, NodeChange, NodeInfo};
pub use pod::{HostPort, PodInfo};
pub use resources::Resources;
pub use snapshot::{Place, Snapshot};
pub use topology::Topology;

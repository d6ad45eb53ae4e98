//! Aggregation: groups and versions that other servers answer for
//! (<https://kubernetes.io/docs/concepts/extend-kubernetes/api-extension/apiserver-aggregation/>).

mod foreign;
mod merge;
mod ranking;

pub use foreign::{Foreign, ForeignVersion, NoForeign};
pub use merge::merge_v2;
pub use ranking::{CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY, Ranking, newer_first};

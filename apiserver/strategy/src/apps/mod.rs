//! apps/v1.

mod controllerrevisions;
mod daemonsets;
mod deployments;
mod replicasets;
mod statefulsets;
#[cfg(test)]
mod tests;

pub use controllerrevisions::ControllerRevisions;
pub use daemonsets::DaemonSets;
pub use deployments::Deployments;
pub use replicasets::ReplicaSets;
pub use statefulsets::StatefulSets;

use super::{
    Column, CreateStrategy, Env, ResetFieldsStrategy, ResourceFacts, SelectableFields, StatusStrategy,
    TableConvertor, UpdateStrategy, copy_field, rules, table, value::*, workloads,
};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

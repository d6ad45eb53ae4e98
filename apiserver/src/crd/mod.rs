//! The keeper of CustomResourceDefinitions: which names are accepted, whether resources are served, and what happens when
//! a definition is deleted.
//!
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>. One task follows
//! the definitions in the watch cache and writes their status as a client of this server; upstream spreads the same over
//! five controllers. Names are given to whoever was first; a resource is served as soon as its names are accepted, in the
//! same write, because the catalogue is read from the definitions themselves and can never lag behind them.
//!
//! A deleted definition stays until its instances are gone ([`finalize`]); each has a task of its own, so that the
//! finalizers of one never hold up another.

mod conditions;
mod finalize;
mod instances;
mod keeper;
mod names;
mod status;
mod write;

pub use keeper::maintain;

use crate::strategy::value::object_at;
use coracle_api::Object;
use jiff::Timestamp;
use serde_json::Value;

/// Where definitions are kept.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Keeps a definition until its instances are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What the first deletion of a definition adds to it: the finalizer, and the condition that says what is to come.
pub fn begin_delete(definition: &mut Object, now: Timestamp) {
    let Some(metadata) = object_at(definition, "metadata") else { return };
    if !metadata["finalizers"].is_array() {
        metadata["finalizers"] = Value::Array(Vec::new());
    }
    if let Some(list) =
        metadata["finalizers"].as_array_mut().filter(|list| !list.iter().any(|f| f == FINALIZER))
    {
        list.push(FINALIZER.into());
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let condition = conditions::Condition::new("Terminating", true, "InstanceDeletionPending", message);
    conditions::set(definition, &condition, now);
}

//! The beginning of the end of a definition.

use super::conditions;
use coracle_api::Object;
use coracle_requests::value::object_at;
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

//! FlowSchemas and PriorityLevelConfigurations
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/flow-schema-v1/>).

pub mod defaults;
pub mod entropy;
mod levels;
mod rules;
mod schemas;
#[cfg(test)]
mod tests;

pub use levels::PriorityLevelConfigurations;
pub use schemas::FlowSchemas;

use super::value::*;
use coracle_api::Object;

/// The conditions of a status: each of a type of its own.
fn status(object: &Object, errors: &mut Errors) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, condition) in list_at(object, "status.conditions").iter().enumerate() {
        let kind = str_at(condition, "type");
        let here = Path::root("status").field("conditions").index(index).field("type");
        if !seen.insert(kind) {
            errors.duplicate(&here, kind);
        }
        if kind.is_empty() {
            errors.required(&here, "");
        }
    }
}

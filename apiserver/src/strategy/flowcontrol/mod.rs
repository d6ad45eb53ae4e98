//! FlowSchemas and PriorityLevelConfigurations
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/flow-schema-v1/>).

mod levels;
mod rules;
mod schemas;
#[cfg(test)]
mod tests;

pub use levels::PriorityLevelConfigurations;
pub use schemas::FlowSchemas;

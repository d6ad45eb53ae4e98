//! Administrators' policies as the API has them: AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy,
//! while their CustomResourceDefinitions are there. See <https://network-policy-api.sigs.k8s.io>.

mod conditions;
mod follow;
mod read;

pub use conditions::{Conditions, reference};
pub use follow::AdminPolicies;

#[cfg(test)]
pub use read::read;

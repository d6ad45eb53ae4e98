//! Authorization: who may do what.
//!
//! [`Chain`] asks the node authorizer, then RBAC, as `--authorization-mode=Node,RBAC` does
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/>); `system:masters` may do everything.

mod attributes;
pub mod devices;
pub mod escalation;
mod go;
pub mod node;
pub mod params;
pub mod rbac;
pub mod rules;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use attributes::Attributes;
pub use rbac::Rbac;

use coracle_api::{ApiError, UserInfo};
use std::sync::Arc;

/// The group whose members nothing is denied to.
pub const MASTERS: &str = "system:masters";

/// What one authorizer says. The text is its reason, possibly empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow(String),
    /// Nobody else is asked.
    Deny(String),
    NoOpinion(String),
}

/// Synchronous and free of I/O: decisions are made from cached state.
pub trait Authorizer: Send + Sync {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// The rules of a user in a namespace, for SelfSubjectRulesReview and escalation checks.
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> rules::Resolved;
}

/// A number that changes whenever an object of any RBAC resource changes, for example the sum of the revisions at which
/// `roles.`, `rolebindings.`, `clusterroles.` and `clusterrolebindings.rbac.authorization.k8s.io` last changed. It is
/// read on every request, so it must be as cheap as a few atomic loads.
pub type Generation = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The authorizers of the API server.
pub struct Chain {
    node: node::NodeAuthorizer,
    rbac: Rbac,
}

impl Chain {
    pub fn new(read: Arc<dyn crate::strategy::Reader>, generation: Generation) -> Self {
        Self { node: node::NodeAuthorizer::new(read.clone()), rbac: Rbac::new(read, generation) }
    }
}

impl Authorizer for Chain {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.in_group(MASTERS) {
            return Decision::Allow(String::new());
        }
        let mut reasons = Vec::new();
        for authorizer in [&self.node as &dyn Authorizer, &self.rbac] {
            match authorizer.authorize(attributes) {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> rules::Resolved {
        let mut resolved = self.rbac.rules_for(user, namespace);
        resolved.errors.extend(self.node.rules_for(user, namespace).errors);
        resolved
    }
}

/// The request goes on, or the 403 that upstream words.
pub fn require(authorizer: &dyn Authorizer, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    match authorizer.authorize(attributes) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(attributes.forbidden(&reason)),
    }
}

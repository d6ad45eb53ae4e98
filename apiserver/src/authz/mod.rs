//! Authorization: who may do what.
//!
//! The server asks its [`Gate`], behind which stands a [`Chain`]: by default the node authorizer, then RBAC, as
//! `--authorization-mode=Node,RBAC` does (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/>), or
//! whatever [`config`] says; `system:masters` may do everything before anybody is asked.
//!
//! Authorizers of this process ([`Authorizer`]) answer at once from cached state. Webhooks have to be waited for, so the
//! gate can only be asked asynchronously; what decides synchronously is given an [`Asking`] and repeated until every
//! question it has put is answered.

mod always;
mod attributes;
mod chain;
pub mod config;
pub mod devices;
pub mod escalation;
mod gate;
pub mod node;
pub mod params;
pub mod rbac;
pub mod rules;
mod webhook;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use attributes::Attributes;
pub use chain::{Chain, Locals};
pub use gate::{Asking, Decide, Gate, Pending};
pub use rbac::Rbac;

use coracle_api::{ApiError, UserInfo};
use std::sync::Arc;

pub use coracle_pki::MASTERS;

/// What one authorizer says. The text is its reason, possibly empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow(String),
    /// Nobody else is asked.
    Deny(String),
    NoOpinion(String),
}

/// A decision, and what went wrong on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    /// Of webhooks that did not answer, or not in order. What is allowed is allowed nevertheless.
    pub error: Option<String>,
}

impl From<Decision> for Verdict {
    fn from(decision: Decision) -> Self {
        Self { decision, error: None }
    }
}

/// Synchronous and free of I/O: decisions are made from cached state.
pub trait Authorizer: Send + Sync {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// As [`authorize`](Self::authorize), with what went wrong.
    fn judge(&self, attributes: &Attributes<'_>) -> Verdict {
        self.authorize(attributes).into()
    }

    /// The rules of a user in a namespace, for SelfSubjectRulesReview.
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> rules::Resolved;

    /// The rules that RBAC alone gives a user in a namespace: what nobody may exceed in what they grant, whoever else
    /// would let them.
    fn granted(&self, user: &UserInfo, namespace: &str) -> rules::Resolved {
        self.rules_for(user, namespace)
    }
}

/// A number that changes whenever an object of any RBAC resource changes, for example the sum of the revisions at which
/// `roles.`, `rolebindings.`, `clusterroles.` and `clusterrolebindings.rbac.authorization.k8s.io` last changed. It is
/// read on every request, so it must be as cheap as a few atomic loads.
pub type Generation = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The request goes on, or the 403 that upstream words.
pub fn require(authorizer: &dyn Authorizer, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    match authorizer.authorize(attributes) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(attributes.forbidden(&reason)),
    }
}

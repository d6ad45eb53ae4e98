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
mod chain;
pub mod config;
pub mod devices;
pub mod escalation;
mod gate;
pub mod node;
pub mod params;
pub mod rbac;
mod webhook;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use chain::{Chain, Locals};
pub use gate::{Asking, Decide, Gate, Pending};
pub use rbac::Rbac;

pub use coracle_requests::authorizer::{Attributes, Authorizer, Decision, Verdict, rules};

use coracle_api::ApiError;
use std::sync::Arc;

pub use coracle_pki::MASTERS;

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

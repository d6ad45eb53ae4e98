//! Admission webhooks: MutatingWebhookConfigurations and ValidatingWebhookConfigurations
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>).
//!
//! A write that no webhook is configured for compares one number for each sort. What concerns which request is decided by
//! [`super::matching`], how a webhook is reached by [`coracle_webhook`]; here is what it is asked and what follows.

mod ask;
mod audit;
mod denial;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod hook;
mod hooks;
mod metrics;
mod mutating;
mod review;
#[cfg(test)]
mod tests;
mod validating;

pub use mutating::Mutating;
pub use validating::Validating;

/// Upstream's names of the two steps.
pub const MUTATING: &str = "MutatingAdmissionWebhook";
pub const VALIDATING: &str = "ValidatingAdmissionWebhook";

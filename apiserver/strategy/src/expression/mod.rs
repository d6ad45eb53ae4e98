//! CEL as admission speaks it: `object`, `oldObject`, `request`, `params`, `namespaceObject`, `authorizer` and
//! `variables`, for match conditions of webhooks and for policies.
//! <https://kubernetes.io/docs/reference/using-api/cel/>
//!
//! What is compiled is compiled once for each state of a configuration; what is evaluated borrows the request.

mod authorizer;
mod conditions;
mod environment;
mod evaluate;
mod request;
mod types;
mod variables;

#[cfg(test)]
mod tests;

pub use authorizer::Asker;
pub use conditions::{MatchConditions, MatchError, Matched};
pub use environment::{Declared, Typing, environment};
pub use evaluate::{Expression, ExpressionError, OutOfBudget, Outcome, Run};
pub use request::{RequestFacts, namespace_object};
pub use types::{json_patches, structure};
pub use variables::Composed;

use coracle_api::Object;
use coracle_component_base::metrics::Metrics;

/// Upstream's limits, in units of CEL's cost model: of one expression, of all expressions of one kind of one policy,
/// of all match conditions of one webhook or policy.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
pub const POLICY_BUDGET: u64 = 10_000_000;
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// What expressions see of one request. Absent objects are `null`.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// In the version that the rules matched.
    pub object: Option<&'a Object>,
    pub old_object: Option<&'a Object>,
    /// [`RequestFacts::to_json`]
    pub request: &'a serde_json::Value,
    pub params: Option<&'a Object>,
    /// [`namespace_object`]; absent for cluster-scoped requests.
    pub namespace: Option<&'a Object>,
    /// Who is asked by `authorizer`; `None` where expressions have no authorizer.
    pub authorizer: Option<&'a Asker>,
    /// Where evaluations are counted, if anywhere.
    pub metrics: Option<&'a Metrics>,
}

//! What authorization is asked, and what it answers: the contract between those who ask and the authorizers.

mod attributes;
pub mod rules;

pub use attributes::Attributes;

use coracle_api::{ApiError, UserInfo};

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

impl Verdict {
    pub fn is_allowed(&self) -> bool {
        matches!(self.decision, Decision::Allow(_))
    }

    /// Whether the request goes on; `forbidden` is told the reason for a refusal, and words it.
    ///
    /// # Errors
    /// 500 where one was not asked who may well have allowed it.
    pub fn into_result(self, forbidden: impl FnOnce(&str) -> ApiError) -> Result<(), ApiError> {
        match (self.decision, self.error) {
            (Decision::Allow(_), _) => Ok(()),
            (_, Some(why)) => Err(ApiError::internal(format!("the request could not be authorized: {why}"))),
            (Decision::Deny(reason) | Decision::NoOpinion(reason), None) => Err(forbidden(&reason)),
        }
    }
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

//! `matchConditions`: whether a webhook or a policy wants a request at all.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>

use super::environment::{Declared, Typing};
use super::evaluate::{Expression, ExpressionError, OutOfBudget, Run};
use super::variables::Composed;
use super::{Input, MATCH_CONDITIONS_BUDGET};
use coracle_cel::{Type, Value};
use serde_json::Value as Json;

/// Compiled conditions of one webhook or policy.
#[derive(Debug, Default)]
pub struct MatchConditions {
    conditions: Vec<(String, Expression)>,
}

/// What the conditions say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    Yes,
    /// The condition of this name is false: the webhook or policy is not asked.
    No(String),
}

/// Why the conditions do not say whether they match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchError {
    OutOfBudget(OutOfBudget),
    /// Of each condition that has no value.
    Expressions(Vec<ExpressionError>),
}

impl std::fmt::Display for MatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutOfBudget(spent) => spent.fmt(f),
            Self::Expressions(errors) => match errors.as_slice() {
                [one] => one.fmt(f),
                many => {
                    let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
                    write!(f, "[{}]", texts.join(", "))
                }
            },
        }
    }
}

impl MatchConditions {
    /// Of a webhook: `matchConditions` as it stands in the configuration; absent ones match everything. What does not
    /// compile is an error when it is evaluated.
    pub fn compile(conditions: &Json) -> Self {
        Self::compile_with(conditions, Declared { authorizer: true, ..Declared::default() }, None)
    }

    /// Of a policy: its conditions may name its parameters and variables.
    pub fn compile_with(conditions: &Json, declared: Declared, composed: Option<&Composed>) -> Self {
        let list = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
        let one = |condition: &Json| {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            let wanted = [Type::Bool];
            let compiled =
                Expression::compile(text("expression"), declared, composed, &wanted, &Typing::default());
            (text("name").to_owned(), compiled)
        };
        Self { conditions: list.iter().map(one).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.conditions.iter().map(|(_, expression)| expression)
    }

    /// One false condition decides, whatever the others say.
    ///
    /// # Errors
    /// All errors of expressions, when none was false; the caller's failure policy says what that means: `Fail` refuses
    /// the request without a call, `Ignore` skips the webhook or policy.
    pub fn matches(&self, input: &Input<'_>) -> Result<Matched, MatchError> {
        self.matches_with(input, None)
    }

    /// # Errors
    /// As [`matches`](Self::matches).
    pub fn matches_with(
        &self,
        input: &Input<'_>,
        composed: Option<&Composed>,
    ) -> Result<Matched, MatchError> {
        let mut run = Run::new(input, composed, MATCH_CONDITIONS_BUDGET);
        let mut values = Vec::with_capacity(self.conditions.len());
        for (name, expression) in &self.conditions {
            values.push((name, run.eval(expression).map_err(MatchError::OutOfBudget)?));
        }
        let mut errors = Vec::new();
        for (name, value) in values {
            match value {
                Ok(Value::Bool(false)) => return Ok(Matched::No(name.clone())),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(Matched::Yes) } else { Err(MatchError::Expressions(errors)) }
    }
}

//! What one ValidatingAdmissionPolicy says of one request with one parameter.

use super::compiled::{Validating, Validation};
use coracle_cel::Value;
use coracle_strategy::expression::{
    Composed, ExpressionError, Input, MatchError, Matched, OutOfBudget, Outcome, POLICY_BUDGET, Run,
};

/// Longer messages of an expression are not shown.
const MESSAGE_MAX_BYTES: usize = 5 << 10;

/// What one validation came to. Errors are counted under upstream's words: `no_error`, `compile_error`,
/// `invalid_error`, `out_of_budget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Admit,
    /// It failed, and `failurePolicy: Ignore` lets the request through.
    Ignore(&'static str),
    Deny {
        message: String,
        reason: &'static str,
        error: &'static str,
    },
}

impl Decision {
    fn of_error(policy: &Validating, error: &'static str, message: String) -> Self {
        if policy.common.fail { Self::Deny { message, reason: "", error } } else { Self::Ignore(error) }
    }
}

const OUT_OF_BUDGET: &str = "out_of_budget";

/// Under which words an error is counted.
fn class(error: &ExpressionError) -> &'static str {
    match error {
        ExpressionError::Compile(_) => "compile_error",
        ExpressionError::Evaluate { error, .. } if error.is_cost_limit() => OUT_OF_BUDGET,
        ExpressionError::Evaluate { .. } => "invalid_error",
    }
}

/// As [`class`], of all conditions together.
fn class_of_match(error: &MatchError) -> &'static str {
    match error {
        MatchError::OutOfBudget(_) => OUT_OF_BUDGET,
        MatchError::Expressions(errors) => match errors.as_slice() {
            [one] => class(one),
            many if many.iter().any(|error| class(error) == OUT_OF_BUDGET) => OUT_OF_BUDGET,
            _ => "invalid_error",
        },
    }
}

/// What one audit annotation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    Publish {
        key: String,
        value: String,
    },
    Exclude,
    /// With `failurePolicy: Fail` the request is denied.
    Error(String),
}

#[derive(Debug, Default)]
pub struct Verdict {
    /// One for each validation, or the one error that kept all of them from running.
    pub decisions: Vec<Decision>,
    pub annotations: Vec<Annotation>,
}

impl Verdict {
    fn error(policy: &Validating, error: &'static str, message: String) -> Self {
        Self { decisions: vec![Decision::of_error(policy, error, message)], annotations: Vec::new() }
    }
}

/// `input` has an authorizer; messages are evaluated without one.
pub fn validate(policy: &Validating, input: &Input<'_>) -> Verdict {
    let composed = &policy.common.composed;
    // Conditions see no namespace, as upstream's see none.
    let bare = Input { namespace: None, ..*input };
    match policy.common.conditions.matches_with(&bare, Some(composed)) {
        Ok(Matched::Yes) => {}
        Ok(Matched::No(_)) => return Verdict::default(),
        Err(_) if !policy.common.fail => return Verdict::default(),
        Err(error) => return Verdict::error(policy, class_of_match(&error), error.to_string()),
    }
    let mut run = Run::new(input, Some(composed), POLICY_BUDGET);
    let mut outcomes = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        match run.eval(&validation.check) {
            Ok(outcome) => outcomes.push(outcome),
            Err(spent) => return Verdict::error(policy, OUT_OF_BUDGET, spent.to_string()),
        }
    }
    let quiet = Input { authorizer: None, ..*input };
    let decisions = decide(policy, &outcomes, &quiet, composed, run.remaining);
    match annotate(policy, input, composed) {
        Ok(annotations) => Verdict { decisions, annotations },
        Err(spent) => Verdict::error(policy, OUT_OF_BUDGET, spent.to_string()),
    }
}

fn decide<'a>(
    policy: &Validating,
    outcomes: &[Outcome<'a>],
    input: &Input<'_>,
    composed: &Composed,
    budget: u64,
) -> Vec<Decision> {
    if outcomes.iter().all(|outcome| matches!(outcome, Ok(Value::Bool(true)))) {
        return vec![Decision::Admit; outcomes.len()];
    }
    let messages = messages(policy, input, composed, budget);
    let one = |(index, outcome): (usize, &Outcome<'a>)| match (outcome, &messages) {
        (Err(error), _) => Decision::of_error(policy, class(error), error.to_string()),
        (Ok(_), Err(spent)) => {
            Decision::of_error(policy, OUT_OF_BUDGET, format!("failed messageExpression: {spent}"))
        }
        (Ok(Value::Bool(true)), _) => Decision::Admit,
        (Ok(_), Ok(messages)) => {
            let validation = &policy.validations[index];
            let own = messages.get(index).cloned().flatten();
            Decision::Deny { message: message(validation, own), reason: validation.reason, error: "no_error" }
        }
    };
    outcomes.iter().enumerate().map(one).collect()
}

/// What the message expressions say, where they say something that can be shown. All of them are evaluated, because
/// they share what is left of the budget.
fn messages(
    policy: &Validating,
    input: &Input<'_>,
    composed: &Composed,
    budget: u64,
) -> Result<Vec<Option<String>>, OutOfBudget> {
    let mut run = Run::new(input, Some(composed), budget);
    let mut found = Vec::with_capacity(policy.validations.len());
    for validation in &policy.validations {
        let outcome =
            validation.message_expression.as_ref().map(|expression| run.eval(expression)).transpose()?;
        let text = outcome.and_then(Result::ok).and_then(|value| value.as_str().map(|t| t.trim().to_owned()));
        found.push(text.filter(|t| !t.is_empty() && t.len() <= MESSAGE_MAX_BYTES && !t.contains('\n')));
    }
    Ok(found)
}

fn message(validation: &Validation, own: Option<String>) -> String {
    let plain = validation.message.trim();
    own.unwrap_or_else(|| match plain {
        "" => format!("failed expression: {}", validation.check.source.trim()),
        plain => plain.to_owned(),
    })
}

fn annotate(
    policy: &Validating,
    input: &Input<'_>,
    composed: &Composed,
) -> Result<Vec<Annotation>, OutOfBudget> {
    let mut run = Run::new(input, Some(composed), POLICY_BUDGET);
    let mut found = Vec::with_capacity(policy.annotations.len());
    for (key, expression) in &policy.annotations {
        found.push(match run.eval(expression)? {
            Err(_) if !policy.common.fail => Annotation::Exclude,
            Err(error) => Annotation::Error(error.to_string()),
            Ok(Value::Null) => Annotation::Exclude,
            Ok(Value::String(text)) => match text.trim() {
                "" => Annotation::Exclude,
                value => Annotation::Publish { key: key.clone(), value: value.to_owned() },
            },
            Ok(other) => Annotation::Error(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                expression.source,
                other.type_name()
            )),
        });
    }
    Ok(found)
}

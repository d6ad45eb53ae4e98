//! One expression: compiled with the type it must have, run against an [`Input`] within a budget.

use super::environment::{Declared, NAMESPACE, REQUEST, Typing};
use super::variables::{Composed, Memo};
use super::{Input, PER_CALL_LIMIT};
use coracle_cel::{Budget, EvalError, Program, Type, Value, Variables, typed};
use coracle_component_base::metrics::Metrics;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An expression, or why it is none.
#[derive(Debug)]
pub struct Expression {
    pub source: String,
    pub program: Result<Program, String>,
    compiled_in: Duration,
}

impl Expression {
    /// `wanted`: the types that the value may have; empty for any.
    pub fn compile(
        source: &str,
        declared: Declared,
        composed: Option<&Composed>,
        wanted: &[Type],
        typing: &Typing,
    ) -> Self {
        let env = super::environment::environment(declared, typing);
        let env = match composed {
            Some(composed) => env.variable("variables", composed.of()),
            None => env,
        };
        let began = Instant::now();
        let program =
            Program::compile(source, &env).map_err(|issues| format!("compilation failed: {issues}"));
        let compiled_in = began.elapsed();
        let program = program.and_then(|program| {
            let found = program.result();
            if wanted.is_empty() || wanted.iter().any(|wanted| exactly(wanted, found)) {
                return Ok(program);
            }
            let shown: Vec<String> = wanted.iter().map(runtime_name).collect();
            let found = runtime_name(found);
            Err(match shown.as_slice() {
                [one] => format!("must evaluate to {one} but got {found}"),
                many => format!("must evaluate to one of [{}] but got {found}", many.join(" ")),
            })
        });
        Self { source: source.to_owned(), program, compiled_in }
    }

    /// How long it took to compile it. By who puts it to use: it does not count itself, so that validation, which
    /// compiles as well, stays a function of the object.
    pub fn count_compilation(&self, metrics: &Metrics) {
        metrics.cel_compiled(self.compiled_in);
    }

    /// Whether it names this variable.
    pub fn mentions(&self, variable: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.mentions(variable))
    }
}

fn exactly(wanted: &Type, found: &Type) -> bool {
    match (wanted, found) {
        (Type::String(_), Type::String(_)) => true,
        (Type::List(a), Type::List(b)) => exactly(&a.element, &b.element),
        (Type::Object(a), Type::Object(b)) => a.name == b.name,
        (a, b) => a == b,
    }
}

fn runtime_name(of: &Type) -> String {
    match of {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        other => other.to_string(),
    }
}

/// What one expression came to.
pub type Outcome<'a> = Result<Value<'a>, ExpressionError>;

/// Why an expression has no value, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("compilation error: {0}")]
    Compile(String),
    #[error("expression '{expression}' resulted in error: {error}")]
    Evaluate { expression: String, error: EvalError },
}

/// The budget of all expressions is spent: nothing more runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("validation failed due to running out of cost budget, no further validation rules will be run")]
pub struct OutOfBudget;

/// Expressions of one kind of one policy, one after the other: they share a budget and what `variables` are worth.
pub struct Run<'a> {
    input: &'a Input<'a>,
    memo: Option<Arc<Memo<'a>>>,
    pub remaining: u64,
}

impl<'a> Run<'a> {
    pub fn new(input: &'a Input<'a>, composed: Option<&'a Composed>, budget: u64) -> Self {
        let composed = composed.filter(|composed| !composed.is_empty());
        Self { input, memo: composed.map(|composed| Memo::new(input, composed)), remaining: budget }
    }

    /// # Errors
    /// [`OutOfBudget`] when this expression was one too much.
    pub fn eval(&mut self, expression: &'a Expression) -> Result<Outcome<'a>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(ExpressionError::Compile(error.clone()))),
        };
        let mut own = Budget::of(PER_CALL_LIMIT);
        let scope = Scope { input: self.input, memo: self.memo.as_ref() };
        let began = Instant::now();
        let outcome = program.eval(&scope, &mut own);
        if let Some(metrics) = self.input.metrics {
            metrics.cel_evaluated(began.elapsed());
        }
        let composed = self.memo.as_ref().map_or(0, |memo| memo.take_cost());
        let spent = own.spent.min(PER_CALL_LIMIT).saturating_add(composed);
        self.remaining = self.remaining.checked_sub(spent).ok_or(OutOfBudget)?;
        let expression = || expression.source.clone();
        Ok(outcome.map_err(|error| ExpressionError::Evaluate { expression: expression(), error }))
    }
}

/// The variables of one evaluation.
pub(super) struct Scope<'a, 's> {
    pub input: &'a Input<'a>,
    pub memo: Option<&'s Arc<Memo<'a>>>,
}

impl<'a> Variables<'a> for Scope<'a, '_> {
    fn get(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let plain =
            |object: Option<&'a serde_json::Value>| object.map_or(Value::Null, |o| typed(o, &Type::Dyn));
        Some(Ok(match name {
            "object" => plain(self.input.object),
            "oldObject" => plain(self.input.old_object),
            "params" => plain(self.input.params),
            "request" => typed(self.input.request, &REQUEST),
            "namespaceObject" => self.input.namespace.map_or(Value::Null, |o| typed(o, &NAMESPACE)),
            "authorizer" => self.input.authorizer?.value(),
            "variables" => self.memo?.value(),
            _ => return None,
        }))
    }
}

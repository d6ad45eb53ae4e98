//! `variables`: expressions that others use by name, evaluated when first asked for and once for each run.

use super::Input;
use super::PER_CALL_LIMIT;
use super::environment::{Declared, Typing};
use super::evaluate::{Expression, Scope};
use coracle_cel::{Budget, EvalError, Field, Fields, ObjectType, Type, Value, lazy};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The variables of a policy, compiled in order: each sees those before it.
#[derive(Debug)]
pub struct Composed {
    of: Arc<ObjectType>,
    expressions: HashMap<String, Expression>,
}

impl Default for Composed {
    fn default() -> Self {
        let of = ObjectType { name: "kubernetes.variables".to_owned(), ..ObjectType::default() };
        Self { of: Arc::new(of), expressions: HashMap::new() }
    }
}

impl Composed {
    /// `variables`: name and expression.
    pub fn compile(variables: &[(&str, &str)], declared: Declared, typing: &Typing) -> Self {
        let mut composed = Self::default();
        for (name, source) in variables {
            composed.add(name, source, declared, typing);
        }
        composed
    }

    /// One more variable, which sees those before it.
    pub fn add(&mut self, name: &str, source: &str, declared: Declared, typing: &Typing) -> &Expression {
        let expression = Expression::compile(source, declared, Some(self), &[], typing);
        let of = expression.program.as_ref().map_or(Type::Dyn, |program| outer(program.result()));
        // A copy where compiled expressions hold the type as it was.
        Arc::make_mut(&mut self.of).fields.insert(name.to_owned(), Field { json: name.to_owned(), of });
        let entry = self.expressions.entry(name.to_owned());
        entry.insert_entry(expression).into_mut()
    }

    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.expressions.values()
    }

    pub fn of(&self) -> Type {
        Type::Object(self.of.clone())
    }
}

/// The type by which others see a variable: structures and libraries' values are dynamic there.
fn outer(of: &Type) -> Type {
    match of {
        Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::Null
        | Type::Timestamp
        | Type::Duration => of.clone(),
        Type::String(_) => Type::STRING,
        Type::Bytes(_) => Type::BYTES,
        Type::List(list) => Type::list(outer(&list.element)),
        Type::Map(map) => Type::map(outer(&map.key), outer(&map.value)),
        _ => Type::Dyn,
    }
}

/// Values of variables in one run.
pub(super) struct Memo<'a> {
    input: &'a Input<'a>,
    composed: &'a Composed,
    known: Mutex<HashMap<&'a str, Result<Value<'a>, EvalError>>>,
    /// Spent since [`take_cost`](Self::take_cost) was last called.
    cost: AtomicU64,
    own: Weak<Self>,
}

impl fmt::Debug for Memo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

impl<'a> Memo<'a> {
    pub fn new(input: &'a Input<'a>, composed: &'a Composed) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            input,
            composed,
            known: Mutex::default(),
            cost: AtomicU64::new(0),
            own: own.clone(),
        })
    }

    pub fn take_cost(&self) -> u64 {
        self.cost.swap(0, Ordering::Relaxed)
    }

    pub fn value(&self) -> Value<'a> {
        match self.own.upgrade() {
            Some(own) => lazy(own),
            // Whoever evaluates holds it.
            None => Value::Null,
        }
    }

    fn evaluate(&self, name: &str, expression: &'a Expression) -> Result<Value<'a>, EvalError> {
        let program = expression.program.as_ref().map_err(|error| {
            EvalError::Message(format!("composited variable \"{name}\" fails to compile: {error}"))
        })?;
        let mut own = Budget::of(PER_CALL_LIMIT);
        let shared = self.own.upgrade();
        let scope = Scope { input: self.input, memo: shared.as_ref() };
        let outcome = program.eval(&scope, &mut own);
        self.cost.fetch_add(own.spent.min(PER_CALL_LIMIT), Ordering::Relaxed);
        outcome.map_err(|error| EvalError::Variable { name: name.to_owned(), error: Box::new(error) })
    }
}

impl<'a> Fields<'a> for Memo<'a> {
    fn get(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let (name, expression) = self.composed.expressions.get_key_value(name)?;
        if let Some(known) = self.known.lock().get(name.as_str()) {
            return Some(known.clone());
        }
        // Not locked meanwhile: the expression may ask for other variables.
        let value = self.evaluate(name, expression);
        self.known.lock().insert(name, value.clone());
        Some(value)
    }
}

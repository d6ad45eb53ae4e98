//! The rules of a schema at work: which of them an object breaks, and in which words that is said.

use super::{Compiled, RUN_LIMIT, Rules};
use crate::error::EvalError;
use crate::eval::Budget;
use crate::types::Type;
use crate::value::{Value, typed};
use crate::{Program, Variables};
use coracle_api::FieldError;
use coracle_api::schema::ListType;
use coracle_api::structural::{Rule, join};
use serde_json::Value as Json;

/// Bytes of the longest message of an expression that is shown; upstream's number. A longer one is left out for the
/// message that is written out.
const MESSAGE_BYTES: usize = 5 << 10;

const OUT_OF_BUDGET: &str =
    "failed due to running out of cost budget, no further validation rules will be run";

/// What is wrong with an object.
#[derive(Debug, Default)]
pub struct Broken {
    pub errors: Vec<FieldError>,
    /// What an update left as wrong as it was: nobody is refused for that, but told.
    pub kept: Vec<FieldError>,
}

/// A value on the way through an object.
#[derive(Clone, Copy)]
struct Here<'v> {
    value: &'v Json,
    /// What rules know as `oldSelf`.
    old: Option<&'v Json>,
    /// What stood here before the update, as far as that can be told, else the nearest above of which it can.
    compared: Option<(&'v Json, &'v Json)>,
}

impl<'v> Here<'v> {
    fn is_unchanged(&self) -> bool {
        self.compared.is_some_and(|(new, old)| new == old)
    }

    /// A part of the value, which rules know as `old`, and which stood as `before`.
    fn part(&self, value: &'v Json, old: Option<&'v Json>, before: Option<&'v Json>) -> Self {
        let is_told = |value: &&Json| !value.is_null();
        let compared = before.filter(is_told).map(|before| (value, before)).or(self.compared);
        Self { value, old: old.filter(is_told), compared }
    }

    /// What stood here before the update, where that can be told: what is known of a place above tells nothing of its
    /// parts.
    fn before(&self) -> Option<&'v Json> {
        self.compared.filter(|(new, _)| std::ptr::eq(*new, self.value)).map(|(_, old)| old)
    }
}

/// One run over an object.
struct Run<'b> {
    budget: &'b mut Budget,
    broken: Broken,
}

impl Run<'_> {
    /// No rule runs after one that cost too much.
    fn is_over(&self) -> bool {
        self.budget.spent > self.budget.limit
    }

    fn end(&mut self) {
        self.budget.spent = self.budget.limit.saturating_add(1);
    }

    fn refuse(&mut self, error: FieldError) {
        self.broken.errors.push(error);
    }

    fn eval<'a>(
        &mut self,
        program: &'a Program,
        variables: &dyn Variables<'a>,
    ) -> Result<Value<'a>, EvalError> {
        let mut own = Budget::of(RUN_LIMIT);
        let outcome = program.eval(variables, &mut own);
        self.budget.spent = self.budget.spent.saturating_add(own.spent);
        outcome
    }
}

impl Rules {
    /// Every rule that an object breaks.
    pub fn check(&self, value: &Json, old: Option<&Json>, path: &str, budget: &mut Budget) -> Broken {
        let mut run = Run { budget, broken: Broken::default() };
        let here = Here { value, old, compared: old.map(|old| (value, old)) };
        self.visit(here, path, &mut run);
        run.broken
    }

    fn visit(&self, here: Here<'_>, path: &str, run: &mut Run<'_>) {
        if here.value.is_null() || run.is_over() {
            return;
        }
        for compiled in &self.own {
            let is_of_updates = compiled.transition && !compiled.rule.optional_old_self;
            if is_of_updates && here.old.is_none() {
                continue;
            }
            self.judge(compiled, here, path, run);
            if run.is_over() {
                return;
            }
        }
        match here.value {
            Json::Object(map) => {
                for (key, inner) in map {
                    let before = here.old.and_then(|old| old.get(key));
                    let known = here.before().and_then(|old| old.get(key));
                    let part = here.part(inner, before, known);
                    if let Some(below) = self.properties.get(key) {
                        below.visit(part, &join(path, key), run);
                    } else if let Some(below) = &self.additional {
                        below.visit(part, &format!("{path}[{key}]"), run);
                    }
                }
            }
            Json::Array(items) => {
                let Some(below) = &self.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let (old, known) =
                        (self.element(item, here.old), self.correlated(index, item, here.before()));
                    below.visit(here.part(item, old, known), &format!("{path}[{index}]"), run);
                }
            }
            _ => {}
        }
    }

    /// The element of the old list with the same keys.
    fn element<'o>(&self, item: &Json, old: Option<&'o Json>) -> Option<&'o Json> {
        if self.list_type != Some(ListType::Map) {
            return None;
        }
        let same = |known: &&Json| self.list_map_keys.iter().all(|key| known.get(key) == item.get(key));
        old?.as_array()?.iter().find(same)
    }

    /// The element that one goes on: that with the same keys, and in a list of which nothing is said that at the same
    /// place. Sets and atomic lists are one value each.
    fn correlated<'o>(&self, index: usize, item: &Json, old: Option<&'o Json>) -> Option<&'o Json> {
        match self.list_type {
            Some(ListType::Map) => self.element(item, old),
            Some(ListType::Set | ListType::Atomic) => None,
            None => old?.get(index),
        }
    }

    fn judge(&self, compiled: &Compiled, here: Here<'_>, path: &str, run: &mut Run<'_>) {
        let of = self.of.as_ref().unwrap_or(&Type::Dyn);
        let old_self = match (compiled.rule.optional_old_self, here.old) {
            (false, old) => old.map_or(Value::Null, |old| typed(old, of)),
            (true, None) => Value::Optional(None),
            (true, Some(old)) => Value::some(typed(old, of)),
        };
        let variables = [("self", typed(here.value, of)), ("oldSelf", old_self)];
        let outcome = run.eval(&compiled.check, &variables);
        let invalid = |detail: &str| FieldError::invalid(path, &Json::from(self.kind), detail);
        if run.is_over() {
            run.refuse(invalid(&format!("validation {OUT_OF_BUDGET}")));
            return;
        }
        let rule = compiled.rule.shown();
        match outcome {
            Ok(Value::Bool(true)) => {}
            Ok(_) => self.broken(compiled, here, path, &variables, run),
            Err(error @ EvalError::CostLimit) => {
                let why = "no further validation rules will be run due to call cost exceeds limit for rule";
                run.refuse(invalid(&format!("'{error}': {why}: {rule}")));
                run.end();
            }
            Err(error @ (EvalError::NoOverload | EvalError::NoOverloadOf(_))) => {
                let why =
                    "call arguments did not match a supported operator, function or macro signature for rule";
                run.refuse(invalid(&format!("'{error}': {why}: {rule}")));
            }
            Err(error) => run.refuse(invalid(&format!("{error} evaluating rule: {rule}"))),
        }
    }

    /// The error that a rule asks for, where it asks for it.
    fn broken<'a>(
        &self,
        compiled: &'a Compiled,
        here: Here<'_>,
        path: &str,
        variables: &dyn Variables<'a>,
        run: &mut Run<'_>,
    ) {
        let field = match compiled.field.as_str() {
            "" => path.to_owned(),
            below => join(path, below),
        };
        let error = match compiled.message(variables, run) {
            Ok(message) => self.error(&compiled.rule, field, here.value, &message),
            Err(why) => FieldError::invalid(field, &Json::from(self.kind), &why),
        };
        if !compiled.transition && here.is_unchanged() {
            run.broken.kept.push(error);
        } else {
            run.refuse(error);
        }
    }

    /// Structures and lists are not shown.
    fn error(&self, rule: &Rule, field: String, value: &Json, message: &str) -> FieldError {
        let is_shown = !matches!(self.kind, "object" | "array");
        match rule.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(field, message),
            "FieldValueRequired" => FieldError::required(field, message),
            "FieldValueDuplicate" if is_shown => FieldError::duplicate(field, value),
            "FieldValueDuplicate" => FieldError::duplicate_unshown(field),
            _ if is_shown => FieldError::invalid(field, value, message),
            _ => FieldError::invalid_unshown(field, message),
        }
    }
}

impl Compiled {
    /// What a client is told. A message that cannot be worked out gives way to that which is written out.
    ///
    /// # Errors
    /// It cost too much, and no further rule runs.
    fn message<'a>(&'a self, variables: &dyn Variables<'a>, run: &mut Run<'_>) -> Result<String, String> {
        let plain = || match self.rule.message.as_str() {
            "" => format!("failed rule: {}", self.rule.shown()),
            _ => self.rule.shown().to_owned(),
        };
        let Some(program) = &self.message else { return Ok(plain()) };
        let outcome = run.eval(program, variables);
        if run.is_over() {
            return Err(format!("messageExpression evaluation {OUT_OF_BUDGET}"));
        }
        if matches!(outcome, Err(EvalError::CostLimit)) {
            run.end();
            let why = "no further validation rules will be run due to call cost exceeds limit for messageExpression";
            return Err(format!("{why}: {:?}", self.rule.message_expression));
        }
        Ok(match outcome.as_ref().ok().and_then(Value::as_str).map(str::trim) {
            Some(text) if !text.is_empty() && text.len() <= MESSAGE_BYTES && !text.contains('\n') => {
                text.to_owned()
            }
            _ => plain(),
        })
    }
}

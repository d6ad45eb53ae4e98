//! The interpreter: goes through a checked tree and counts what it costs.

use crate::ast::{Entry, Expr, Fold, FoldKind, Literal, Node};
use crate::check::is_type_name;
use crate::error::EvalError;
use crate::functions::{self, Cost, Known};
use crate::types::ListKind;
use crate::value::{List, Map, Text, Value};
use std::sync::Arc;

/// Prices of cel-go's cost model.
pub const LIST: u64 = 10;
pub const MAP: u64 = 30;
pub const STRUCTURE: u64 = 40;
/// What one round of a macro costs by the calls and variables that cel-go expands it to, beside its body.
pub const ROUND_ALL: u64 = 3;
pub const ROUND_EXISTS: u64 = 4;
pub const ROUND_ONE: u64 = 1;
/// What a macro spends to add to its result: the list of one element that it joins to a list, an entry put into a map
/// under its key, a map of one entry.
pub const ADD_ELEMENT: u64 = LIST + 2;
pub const ADD_ENTRY: u64 = 3;
pub const MERGE_ENTRY: u64 = 2;

/// How much may still be spent. One budget can serve several expressions.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub spent: u64,
    pub limit: u64,
}

impl Budget {
    pub fn of(limit: u64) -> Self {
        Self { spent: 0, limit }
    }

    fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit { Err(EvalError::CostLimit) } else { Ok(()) }
    }
}

/// Gives the variables their values.
pub trait Variables<'a> {
    fn get(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;
}

impl<'a, const N: usize> Variables<'a> for [(&str, Value<'a>); N] {
    fn get(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| Ok(value.clone()))
    }
}

pub struct Run<'a, 'r> {
    /// The functions of call nodes, by the nodes' numbers.
    pub functions: &'a [Option<&'static Known>],
    pub variables: &'r dyn Variables<'a>,
    pub budget: &'r mut Budget,
    pub locals: Vec<(&'a str, Value<'a>)>,
}

type Outcome<'a> = Result<Value<'a>, EvalError>;

fn truth(value: &Value<'_>) -> Result<bool, EvalError> {
    if let Value::Bool(value) = value { Ok(*value) } else { Err(EvalError::NoOverload) }
}

fn literal(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(Arc::from(bytes.as_slice())),
    }
}

impl<'a> Run<'a, '_> {
    pub fn eval(&mut self, expr: &'a Expr) -> Outcome<'a> {
        match &expr.node {
            Node::Literal(value) => Ok(literal(value)),
            Node::Ident(name) => self.ident(name),
            Node::Select { of, field, optional, test } => {
                let of = self.eval(of)?;
                // Asking whether a field is there is free, as in Kubernetes since its beginnings.
                self.budget.spend(u64::from(!test))?;
                select(&of, field, *optional, *test)
            }
            Node::Index { of, index, optional } => {
                let (of, index) = (self.eval(of)?, self.eval(index)?);
                self.budget.spend(1)?;
                lookup(&of, &index, *optional)
            }
            Node::Call { function, arguments, .. } => self.call(expr.id, function, arguments),
            Node::And(a, b) => self.both(a, b, false),
            Node::Or(a, b) => self.both(a, b, true),
            Node::Choice(condition, yes, no) => {
                let condition = self.eval(condition)?;
                if truth(&condition)? { self.eval(yes) } else { self.eval(no) }
            }
            Node::List(entries) => self.list(entries),
            Node::Map(entries) => self.map(entries),
            Node::Object { name, fields } => self.structure(name, fields),
            Node::Fold(fold) => self.fold(fold),
            Node::Lift { of, name, body, flat } => self.lift(of, name, body, *flat),
            Node::Bind { name, value, body } => {
                // cel-go folds over an empty list.
                self.budget.spend(LIST)?;
                let value = self.eval(value)?;
                self.with(vec![(name, value)], body)
            }
        }
    }

    fn ident(&mut self, name: &'a str) -> Outcome<'a> {
        self.budget.spend(1)?;
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return Ok(value.clone());
        }
        match self.variables.get(name) {
            Some(value) => value,
            None if is_type_name(name) => Ok(Value::Type(Text::Borrowed(name))),
            None => EvalError::of(format!("no such attribute(s): {name}")),
        }
    }

    fn with(&mut self, locals: Vec<(&'a str, Value<'a>)>, body: &'a Expr) -> Outcome<'a> {
        let depth = self.locals.len();
        self.locals.extend(locals);
        let outcome = self.eval(body);
        self.locals.truncate(depth);
        outcome
    }

    fn call(&mut self, id: usize, function: &str, arguments: &'a [Expr]) -> Outcome<'a> {
        let known = self.functions.get(id).copied().flatten().ok_or(EvalError::NoOverload)?;
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            // What is there needs no replacement, nor may its cost or error count.
            if let (1, "or" | "orValue", Some(Value::Optional(Some(first)))) =
                (values.len(), function, values.first())
            {
                return Ok(if function == "or" {
                    Value::some(first.as_ref().clone())
                } else {
                    first.as_ref().clone()
                });
            }
            values.push(self.eval(argument)?);
        }
        let mut sizes = [1; 4];
        for (size, value) in sizes.iter_mut().zip(&values) {
            *size = value.size();
        }
        let cost = known.cost.of_lookup(matches!(values.get(1), Some(Value::Map(_))));
        let count = values.len().min(sizes.len());
        if cost == Cost::Result {
            let value = (known.run)(&values)?;
            self.budget.spend(cost.price(&sizes[..count], value.size()))?;
            return Ok(value);
        }
        self.budget.spend(cost.price(&sizes[..count], 1))?;
        (known.run)(&values).map_err(|error| match error {
            EvalError::NoOverload => functions::no_overload(function, &values),
            other => other,
        })
    }

    /// `&&` and `||`: when one side decides, an error of the other counts for nothing.
    fn both(&mut self, a: &'a Expr, b: &'a Expr, decides: bool) -> Outcome<'a> {
        let first = self.eval(a).and_then(|value| truth(&value));
        if first == Ok(decides) {
            return Ok(Value::Bool(decides));
        }
        if first == Err(EvalError::CostLimit) {
            return Err(EvalError::CostLimit);
        }
        let second = self.eval(b).and_then(|value| truth(&value));
        match (first, second) {
            (_, Ok(second)) if second == decides => Ok(Value::Bool(decides)),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decides)),
        }
    }

    /// `None` for an empty optional that is left out.
    fn entry(&mut self, optional: bool, value: &'a Expr) -> Result<Option<Value<'a>>, EvalError> {
        let value = self.eval(value)?;
        match (optional, value) {
            (false, value) => Ok(Some(value)),
            (true, Value::Optional(value)) => Ok(value.map(|v| v.as_ref().clone())),
            (true, _) => Err(EvalError::NoOverload),
        }
    }

    fn list(&mut self, entries: &'a [Entry<Expr>]) -> Outcome<'a> {
        self.budget.spend(LIST)?;
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            items.extend(self.entry(entry.optional, &entry.value)?);
        }
        Ok(Value::list(items))
    }

    fn map(&mut self, entries: &'a [Entry<(Expr, Expr)>]) -> Outcome<'a> {
        self.budget.spend(MAP)?;
        let mut all = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.eval(&entry.value.0)?;
            if let Some(value) = self.entry(entry.optional, &entry.value.1)? {
                insert(&mut all, key, value)?;
            }
        }
        Ok(Value::map(all))
    }

    fn structure(&mut self, name: &'a str, fields: &'a [Entry<(String, Expr)>]) -> Outcome<'a> {
        self.budget.spend(STRUCTURE)?;
        let mut all = Vec::with_capacity(fields.len());
        for entry in fields {
            let (field, value) = &entry.value;
            if let Some(value) = self.entry(entry.optional, value)? {
                all.push((Value::String(Text::Borrowed(field)), value));
            }
        }
        Ok(Value::Map(Map::Structure { name, fields: Arc::new(all) }))
    }

    fn lift(&mut self, of: &'a Expr, name: &'a str, body: &'a Expr, flat: bool) -> Outcome<'a> {
        let Value::Optional(of) = self.eval(of)? else { return Err(EvalError::NoOverload) };
        let Some(value) = of else { return Ok(Value::Optional(None)) };
        let result = self.with(vec![(name, value.as_ref().clone())], body)?;
        match (flat, result) {
            (false, value) => Ok(Value::some(value)),
            (true, Value::Optional(value)) => Ok(Value::Optional(value)),
            (true, _) => Err(EvalError::NoOverload),
        }
    }

    /// What the variables of a macro are bound to, round by round.
    fn rounds(&mut self, fold: &'a Fold) -> Result<Vec<Vec<(&'a str, Value<'a>)>>, EvalError> {
        let range = self.eval(&fold.range)?;
        let first = fold.first.as_str();
        let rounds = match (&range, fold.second.as_deref()) {
            (Value::List(list), None) => list.iter().map(|item| vec![(first, item)]).collect(),
            (Value::List(list), Some(second)) => {
                let index = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
                list.iter().enumerate().map(|(at, item)| vec![(first, index(at)), (second, item)]).collect()
            }
            (Value::Map(map), None) => map.entries().into_iter().map(|(key, _)| vec![(first, key)]).collect(),
            (Value::Map(map), Some(second)) => {
                map.entries().into_iter().map(|(key, value)| vec![(first, key), (second, value)]).collect()
            }
            _ => return Err(EvalError::NoOverload),
        };
        Ok(rounds)
    }

    fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let rounds = self.rounds(fold)?;
        self.budget.spend(accumulator(fold.kind))?;
        match fold.kind {
            FoldKind::All => self.quantify(fold, rounds, false),
            FoldKind::Exists => self.quantify(fold, rounds, true),
            FoldKind::ExistsOne => {
                let mut count = 0u64;
                for round in rounds {
                    let holds = self.holds(round, &fold.body, ROUND_ONE)?;
                    self.budget.spend(u64::from(holds))?;
                    count += u64::from(holds);
                }
                Ok(Value::Bool(count == 1))
            }
            FoldKind::Filter => {
                let mut kept = Vec::new();
                for round in rounds {
                    let item = round[0].1.clone();
                    if self.holds(round, &fold.body, ROUND_ONE)? {
                        self.budget.spend(ADD_ELEMENT)?;
                        kept.push(item);
                    }
                }
                Ok(Value::list(kept))
            }
            FoldKind::List | FoldKind::Map | FoldKind::MapEntry => self.transform(fold, rounds),
        }
    }

    /// `own`: what a round costs beside the body.
    fn holds(
        &mut self,
        round: Vec<(&'a str, Value<'a>)>,
        body: &'a Expr,
        own: u64,
    ) -> Result<bool, EvalError> {
        self.budget.spend(own)?;
        self.with(round, body).and_then(|value| truth(&value))
    }

    /// `all` and `exists`: an error counts only when no other element decides.
    fn quantify(
        &mut self,
        fold: &'a Fold,
        rounds: Vec<Vec<(&'a str, Value<'a>)>>,
        decides: bool,
    ) -> Outcome<'a> {
        let mut error = None;
        for round in rounds {
            match self.holds(round, &fold.body, if decides { ROUND_EXISTS } else { ROUND_ALL }) {
                Ok(holds) if holds == decides => return Ok(Value::Bool(decides)),
                Ok(_) => {}
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(wrong) => error = Some(wrong),
            }
        }
        error.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn transform(&mut self, fold: &'a Fold, rounds: Vec<Vec<(&'a str, Value<'a>)>>) -> Outcome<'a> {
        let mut items = Vec::new();
        let mut entries = Vec::new();
        for round in rounds {
            if let Some(filter) = &fold.filter
                && !self.holds(round.clone(), filter, 0)?
            {
                continue;
            }
            self.budget.spend(match fold.kind {
                FoldKind::List => ADD_ELEMENT,
                FoldKind::MapEntry => MERGE_ENTRY,
                _ => ADD_ENTRY,
            })?;
            let key = round[0].1.clone();
            let value = self.with(round, &fold.body)?;
            match (fold.kind, value) {
                (FoldKind::List, value) => items.push(value),
                (FoldKind::Map, value) => insert(&mut entries, key, value)?,
                (_, Value::Map(map)) => {
                    for (key, value) in map.entries() {
                        insert(&mut entries, key, value)?;
                    }
                }
                _ => return Err(EvalError::NoOverload),
            }
        }
        Ok(if fold.kind == FoldKind::List { Value::list(items) } else { Value::map(entries) })
    }
}

fn insert<'a>(
    entries: &mut Vec<(Value<'a>, Value<'a>)>,
    key: Value<'a>,
    value: Value<'a>,
) -> Result<(), EvalError> {
    if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_)) {
        return EvalError::of(format!("unsupported key type: {}", key.type_name()));
    }
    if entries.iter().any(|(known, _)| *known == key) {
        return EvalError::of("insert failed: key already exists");
    }
    entries.push((key, value));
    Ok(())
}

fn select<'a>(of: &Value<'a>, field: &str, optional: bool, test: bool) -> Outcome<'a> {
    match of {
        Value::Map(map) => {
            let found = map.field(field);
            match (test, optional, found) {
                (true, _, found) => Ok(Value::Bool(found.is_some())),
                (false, true, found) => Ok(found.transpose()?.map_or(Value::Optional(None), Value::some)),
                (false, false, Some(found)) => found,
                (false, false, None) => Err(EvalError::NoKey(field.to_owned())),
            }
        }
        Value::External(value) if !test => value.field(field).ok_or(EvalError::NoOverload),
        Value::Optional(Some(inner)) if test => select(inner, field, false, true),
        Value::Optional(None) if test => Ok(Value::Bool(false)),
        Value::Optional(Some(inner)) => select(inner, field, true, false),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::List(_) => Err(unsupported_index("string")),
        // What has no fields has none of this name, null above all.
        _ if test => Ok(Value::Bool(false)),
        _ if optional => Ok(Value::Optional(None)),
        _ => Err(EvalError::NoKey(field.to_owned())),
    }
}

fn unsupported_index(kind: &str) -> EvalError {
    EvalError::Message(format!("unsupported index type '{kind}' in list"))
}

fn position(index: &Value<'_>) -> Result<i64, EvalError> {
    #[allow(clippy::cast_possible_truncation, reason = "whole, and bounded far below")]
    match index {
        Value::Int(index) => Ok(*index),
        Value::Uint(index) => i64::try_from(*index).map_err(|_| EvalError::NoOverload),
        Value::Double(index) if index.fract() == 0.0 && index.abs() < 9e15 => Ok(*index as i64),
        Value::Double(index) => EvalError::of(format!("unsupported index value {index} in list")),
        other => Err(unsupported_index(other.type_name())),
    }
}

/// What the accumulator of a macro costs, as it begins and as it is read in the end.
pub fn accumulator(kind: FoldKind) -> u64 {
    match kind {
        FoldKind::All | FoldKind::Exists => 1,
        FoldKind::ExistsOne => 2,
        FoldKind::Filter | FoldKind::List => LIST + 1,
        FoldKind::Map | FoldKind::MapEntry => MAP + 1,
    }
}

fn lookup<'a>(of: &Value<'a>, index: &Value<'a>, optional: bool) -> Outcome<'a> {
    let (found, missing) = match of {
        Value::List(list) => {
            let at = position(index)?;
            let found = usize::try_from(at).ok().and_then(|at| list.get(at)).map(Ok);
            (found, EvalError::Message(format!("index out of bounds: {at}")))
        }
        Value::Map(map) => {
            let shown = crate::functions::shown_key(index);
            (map.get(index), EvalError::NoKey(shown))
        }
        Value::Optional(Some(inner)) => return lookup(inner, index, true),
        Value::Optional(None) => return Ok(Value::Optional(None)),
        _ => (None, EvalError::NoKey(crate::functions::shown_key(index))),
    };
    match (optional, found) {
        (true, found) => Ok(found.transpose()?.map_or(Value::Optional(None), Value::some)),
        (false, found) => found.ok_or(missing)?,
    }
}

/// A list that keeps the kind of the schema it is made after.
pub fn list_of<'a>(items: Vec<Value<'a>>, kind: &'a ListKind) -> Value<'a> {
    Value::List(List::Owned { items: Arc::new(items), kind })
}

/// A value that answers fields as they are asked for.
pub fn lazy<'a>(fields: Arc<dyn crate::value::Fields<'a> + 'a>) -> Value<'a> {
    Value::Map(Map::Lazy(fields))
}

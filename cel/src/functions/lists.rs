//! Kubernetes' list functions and cel-go's sets.

use super::{Cost, Function, Outcome};
use crate::error::EvalError;
use crate::value::compare::order;
use crate::value::{List, Value};
use jiff::SignedDuration;
use std::cmp::Ordering;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "isSorted",
        signatures: &["list<A>.isSorted(): bool"],
        run: |args| {
            let items: Vec<Value<'_>> = list(&args[0])?.iter().collect();
            let mut sorted = true;
            for pair in items.windows(2) {
                sorted &= order(&pair[0], &pair[1]).ok_or(EvalError::NoOverload)? != Ordering::Greater;
            }
            Ok(Value::Bool(sorted))
        },
        cost: Cost::Elements,
    },
    Function {
        name: "sum",
        signatures: &[
            "list<int>.sum(): int",
            "list<uint>.sum(): uint",
            "list<double>.sum(): double",
            "list<duration>.sum(): duration",
        ],
        run: |args| sum(list(&args[0])?),
        cost: Cost::Elements,
    },
    Function {
        name: "min",
        signatures: &["list<A>.min(): A"],
        run: |args| extreme(list(&args[0])?, Ordering::Less, "min"),
        cost: Cost::Elements,
    },
    Function {
        name: "max",
        signatures: &["list<A>.max(): A"],
        run: |args| extreme(list(&args[0])?, Ordering::Greater, "max"),
        cost: Cost::Elements,
    },
    Function {
        name: "sets.contains",
        signatures: &["sets.contains(list<A>, list<A>): bool"],
        run: |args| Ok(Value::Bool(contains(list(&args[0])?, list(&args[1])?))),
        cost: Cost::Pairs,
    },
    Function {
        name: "sets.equivalent",
        signatures: &["sets.equivalent(list<A>, list<A>): bool"],
        run: |args| {
            let (a, b) = (list(&args[0])?, list(&args[1])?);
            Ok(Value::Bool(contains(a, b) && contains(b, a)))
        },
        cost: Cost::Pairs,
    },
    Function {
        name: "sets.intersects",
        signatures: &["sets.intersects(list<A>, list<A>): bool"],
        run: |args| {
            let (a, b) = (list(&args[0])?, list(&args[1])?);
            Ok(Value::Bool(a.iter().any(|x| b.iter().any(|y| x == y))))
        },
        cost: Cost::Pairs,
    },
];

fn list<'v, 'a>(value: &'v Value<'a>) -> Result<&'v List<'a>, EvalError> {
    if let Value::List(list) = value { Ok(list) } else { Err(EvalError::NoOverload) }
}

fn contains<'a>(all: &List<'a>, some: &List<'a>) -> bool {
    some.iter().all(|wanted| all.iter().any(|item| item == wanted))
}

fn sum<'a>(list: &List<'a>) -> Outcome<'a> {
    let overflow = || EvalError::Message("integer overflow".to_owned());
    let mut total: Option<Value<'a>> = None;
    for item in list.iter() {
        total = Some(match (total, item) {
            (None, item) => item,
            (Some(Value::Int(a)), Value::Int(b)) => Value::Int(a.checked_add(b).ok_or_else(overflow)?),
            (Some(Value::Uint(a)), Value::Uint(b)) => Value::Uint(a.checked_add(b).ok_or_else(overflow)?),
            (Some(Value::Double(a)), Value::Double(b)) => Value::Double(a + b),
            (Some(Value::Duration(a)), Value::Duration(b)) => {
                let sum: SignedDuration = a.checked_add(b).ok_or_else(overflow)?;
                Value::Duration(sum)
            }
            _ => return Err(EvalError::NoOverload),
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn extreme<'a>(list: &List<'a>, wanted: Ordering, name: &str) -> Outcome<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        let better = match &best {
            None => true,
            Some(best) => order(&item, best).ok_or(EvalError::NoOverload)? == wanted,
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::Message(format!("{name} called on empty list")))
}

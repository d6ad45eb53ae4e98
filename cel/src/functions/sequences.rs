//! cel-go's extended list functions, which Kubernetes has since 1.34.

use super::{Cost, Function, Outcome, int};
use crate::error::EvalError;
use crate::value::compare::order;
use crate::value::{List, Value};
use std::cmp::Ordering;

/// Elements of a list that one call may make: as many as fit into what an expression may cost.
const RANGE_MAX: i64 = 1_000_000;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "slice",
        signatures: &["list<A>.slice(int, int): list<A>"],
        run: |args| slice(list(&args[0])?, int(&args[1])?, int(&args[2])?),
        cost: Cost::Elements,
    },
    Function {
        name: "flatten",
        signatures: &["list<list<A>>.flatten(): list<A>", "list<dyn>.flatten(int): list<dyn>"],
        run: |args| {
            let depth = args.get(1).map(int).transpose()?.unwrap_or(1);
            if depth < 0 {
                return EvalError::of("level must be non-negative");
            }
            let mut out = Vec::new();
            flatten(list(&args[0])?, depth, &mut out);
            Ok(Value::list(out))
        },
        cost: Cost::Elements,
    },
    Function {
        name: "distinct",
        signatures: &["list<A>.distinct(): list<A>"],
        run: |args| {
            let mut out: Vec<Value<'_>> = Vec::new();
            for item in list(&args[0])?.iter() {
                if !out.contains(&item) {
                    out.push(item);
                }
            }
            Ok(Value::list(out))
        },
        cost: Cost::Squared,
    },
    Function {
        name: "lists.range",
        signatures: &["lists.range(int): list<int>"],
        run: |args| {
            let end = int(&args[0])?;
            if end > RANGE_MAX {
                return Err(EvalError::CostLimit);
            }
            Ok(Value::list((0..end).map(Value::Int).collect()))
        },
        cost: Cost::Result,
    },
    Function {
        name: "sort",
        signatures: &["list<A>.sort(): list<A>"],
        run: |args| {
            let items: Vec<Value<'_>> = list(&args[0])?.iter().collect();
            sorted(items.iter().cloned().zip(items.iter().cloned()).collect())
        },
        cost: Cost::Squared,
    },
    Function {
        // What the macro `list.sortBy(e, key)` comes to.
        name: "@sortByAssociatedKeys",
        signatures: &["list<A>.@sortByAssociatedKeys(list<B>): list<A>"],
        run: |args| {
            let (items, keys) = (list(&args[0])?, list(&args[1])?);
            sorted(keys.iter().zip(items.iter()).collect())
        },
        cost: Cost::Squared,
    },
    Function {
        name: "first",
        signatures: &["list<A>.first(): optional<A>"],
        run: |args| Ok(list(&args[0])?.get(0).map_or(Value::Optional(None), Value::some)),
        cost: Cost::Flat,
    },
    Function {
        name: "last",
        signatures: &["list<A>.last(): optional<A>"],
        run: |args| {
            let list = list(&args[0])?;
            let last = list.len().checked_sub(1).and_then(|at| list.get(at));
            Ok(last.map_or(Value::Optional(None), Value::some))
        },
        cost: Cost::Flat,
    },
    Function {
        name: "optional.unwrap",
        signatures: &["optional.unwrap(list<optional<A>>): list<A>"],
        run: |args| unwrap(list(&args[0])?),
        cost: Cost::Elements,
    },
    Function {
        name: "unwrapOpt",
        signatures: &["list<optional<A>>.unwrapOpt(): list<A>"],
        run: |args| unwrap(list(&args[0])?),
        cost: Cost::Elements,
    },
];

fn list<'v, 'a>(value: &'v Value<'a>) -> Result<&'v List<'a>, EvalError> {
    if let Value::List(list) = value { Ok(list) } else { Err(EvalError::NoOverload) }
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Outcome<'a> {
    if start < 0 || end < 0 {
        return EvalError::of(format!("cannot slice({start}, {end}), negative indexes not supported"));
    }
    if start > end {
        return EvalError::of(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        ));
    }
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    if end > length {
        return EvalError::of(format!("cannot slice({start}, {end}), list is length {length}"));
    }
    let at = |index: i64| usize::try_from(index).unwrap_or(usize::MAX);
    Ok(Value::list((at(start)..at(end)).filter_map(|index| list.get(index)).collect()))
}

fn flatten<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) {
    for item in list.iter() {
        match item {
            Value::List(inner) if depth > 0 => flatten(&inner, depth - 1, out),
            other => out.push(other),
        }
    }
}

fn unwrap<'a>(list: &List<'a>) -> Outcome<'a> {
    let mut out = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(value)) => out.push(value.as_ref().clone()),
            Value::Optional(None) => {}
            _ => return Err(EvalError::NoOverload),
        }
    }
    Ok(Value::list(out))
}

/// The second of each pair in the order of the first, which must all be of one kind that has an order.
fn sorted<'a>(pairs: Vec<(Value<'a>, Value<'a>)>) -> Outcome<'a> {
    let mut pairs = pairs;
    if let Some((first, _)) = pairs.first() {
        if pairs.iter().any(|(key, _)| key.type_name() != first.type_name()) {
            return EvalError::of("list elements must have the same type");
        }
        if order(first, first).is_none() {
            return EvalError::of("list elements must be comparable");
        }
    }
    // Not-a-number has no order; it stays where it is.
    pairs.sort_by(|(a, _), (b, _)| order(a, b).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

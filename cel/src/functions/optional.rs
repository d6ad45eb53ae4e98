//! Values that may be missing.

use super::{Cost, Function};
use crate::error::EvalError;
use crate::value::Value;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "optional.of",
        signatures: &["optional.of(A): optional<A>"],
        run: |args| Ok(Value::some(args[0].clone())),
        cost: Cost::Flat,
    },
    Function {
        name: "optional.none",
        signatures: &["optional.none(): optional<A>"],
        run: |_| Ok(Value::Optional(None)),
        cost: Cost::Flat,
    },
    Function {
        name: "optional.ofNonZeroValue",
        signatures: &["optional.ofNonZeroValue(A): optional<A>"],
        run: |args| Ok(if args[0].is_zero() { Value::Optional(None) } else { Value::some(args[0].clone()) }),
        cost: Cost::Flat,
    },
    Function {
        name: "hasValue",
        signatures: &["optional<A>.hasValue(): bool"],
        run: |args| match &args[0] {
            Value::Optional(value) => Ok(Value::Bool(value.is_some())),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "value",
        signatures: &["optional<A>.value(): A"],
        run: |args| match &args[0] {
            Value::Optional(Some(value)) => Ok(value.as_ref().clone()),
            Value::Optional(None) => EvalError::of("optional.none() dereference"),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "or",
        signatures: &["optional<A>.or(optional<A>): optional<A>"],
        run: |args| match &args[0] {
            Value::Optional(Some(_)) => Ok(args[0].clone()),
            Value::Optional(None) => Ok(args[1].clone()),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "orValue",
        signatures: &["optional<A>.orValue(A): A"],
        run: |args| match &args[0] {
            Value::Optional(Some(value)) => Ok(value.as_ref().clone()),
            Value::Optional(None) => Ok(args[1].clone()),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
];

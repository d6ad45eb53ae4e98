//! Kubernetes' quantities.

use super::{Cost, Function, Outcome, text};
use crate::error::EvalError;
use crate::value::{Library, Value};
use coracle_api::quantity::Quantity;
use std::cmp::Ordering;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "quantity",
        signatures: &["quantity(string): kubernetes.Quantity"],
        run: |args| {
            let shown = text(&args[0])?;
            let parsed = shown.parse().map(made);
            parsed.unwrap_or_else(|_| {
                EvalError::of(format!("error parsing quantity \"{shown}\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"))
            })
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "isQuantity",
        signatures: &["isQuantity(string): bool"],
        run: |args| Ok(Value::Bool(text(&args[0])?.parse::<Quantity>().is_ok())),
        cost: Cost::Traverse,
    },
    Function {
        name: "isInteger",
        signatures: &["kubernetes.Quantity.isInteger(): bool"],
        run: |args| Ok(Value::Bool(quantity(&args[0])?.is_integer())),
        cost: Cost::Flat,
    },
    Function {
        name: "asInteger",
        signatures: &["kubernetes.Quantity.asInteger(): int"],
        run: |args| {
            let quantity = quantity(&args[0])?;
            if !quantity.is_integer() {
                return EvalError::of("cannot convert value to integer");
            }
            Ok(Value::Int(quantity.units()))
        },
        cost: Cost::Flat,
    },
    Function {
        name: "asApproximateFloat",
        signatures: &["kubernetes.Quantity.asApproximateFloat(): double"],
        #[allow(clippy::cast_precision_loss, reason = "approximate, as the name says")]
        run: |args| Ok(Value::Double(quantity(&args[0])?.nanos() as f64 / 1e9)),
        cost: Cost::Flat,
    },
    Function {
        name: "sign",
        signatures: &["kubernetes.Quantity.sign(): int"],
        run: |args| Ok(Value::Int(order(quantity(&args[0])?.cmp(&Quantity::default())))),
        cost: Cost::Flat,
    },
    Function {
        name: "add",
        signatures: &[
            "kubernetes.Quantity.add(kubernetes.Quantity): kubernetes.Quantity",
            "kubernetes.Quantity.add(int): kubernetes.Quantity",
        ],
        run: |args| made(quantity(&args[0])? + operand(&args[1])?),
        cost: Cost::Flat,
    },
    Function {
        name: "sub",
        signatures: &[
            "kubernetes.Quantity.sub(kubernetes.Quantity): kubernetes.Quantity",
            "kubernetes.Quantity.sub(int): kubernetes.Quantity",
        ],
        run: |args| made(quantity(&args[0])? - operand(&args[1])?),
        cost: Cost::Flat,
    },
    Function {
        name: "isLessThan",
        signatures: &[
            "kubernetes.Quantity.isLessThan(kubernetes.Quantity): bool",
            "kubernetes.Semver.isLessThan(kubernetes.Semver): bool",
        ],
        run: |args| Ok(Value::Bool(compare(args)? == Ordering::Less)),
        cost: Cost::Flat,
    },
    Function {
        name: "isGreaterThan",
        signatures: &[
            "kubernetes.Quantity.isGreaterThan(kubernetes.Quantity): bool",
            "kubernetes.Semver.isGreaterThan(kubernetes.Semver): bool",
        ],
        run: |args| Ok(Value::Bool(compare(args)? == Ordering::Greater)),
        cost: Cost::Flat,
    },
    Function {
        name: "compareTo",
        signatures: &[
            "kubernetes.Quantity.compareTo(kubernetes.Quantity): int",
            "kubernetes.Semver.compareTo(kubernetes.Semver): int",
        ],
        run: |args| Ok(Value::Int(order(compare(args)?))),
        cost: Cost::Flat,
    },
];

fn order(ordering: Ordering) -> i64 {
    match ordering {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    }
}

fn made<'a>(quantity: Quantity) -> Outcome<'a> {
    Ok(Value::library(Library::Quantity(quantity)))
}

fn quantity(value: &Value<'_>) -> Result<Quantity, EvalError> {
    match value {
        Value::Library(library) => match library.as_ref() {
            Library::Quantity(quantity) => Ok(*quantity),
            _ => Err(EvalError::NoOverload),
        },
        _ => Err(EvalError::NoOverload),
    }
}

fn operand(value: &Value<'_>) -> Result<Quantity, EvalError> {
    if let Value::Int(units) = value { Ok(Quantity::from_units(*units)) } else { quantity(value) }
}

/// Two quantities, or two versions.
fn compare(args: &[Value<'_>]) -> Result<Ordering, EvalError> {
    if let (Value::Library(a), Value::Library(b)) = (&args[0], &args[1])
        && let (Library::Semver(a), Library::Semver(b)) = (a.as_ref(), b.as_ref())
    {
        return Ok(a.order(b));
    }
    Ok(quantity(&args[0])?.cmp(&quantity(&args[1])?))
}

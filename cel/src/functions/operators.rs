//! Operators, under the names that cel-go gives them. `&&`, `||` and `?:` are no functions: they need not run both sides.

use super::{Cost, Function, Outcome, length};
use crate::error::EvalError;
use crate::types::ListKind;
use crate::value::compare::order;
use crate::value::{List, Value};
use jiff::{SignedDuration, Timestamp};
use std::cmp::Ordering;
use std::sync::Arc;

/// The same signatures serve all four: only what stands behind the name counts.
macro_rules! ordered {
    ($name:literal, $($ordering:pat_param)|+) => {
        Function {
            name: $name,
            signatures: &[
                concat!($name, "(int, int): bool"), concat!($name, "(int, uint): bool"),
                concat!($name, "(int, double): bool"), concat!($name, "(uint, int): bool"),
                concat!($name, "(uint, uint): bool"), concat!($name, "(uint, double): bool"),
                concat!($name, "(double, int): bool"), concat!($name, "(double, uint): bool"),
                concat!($name, "(double, double): bool"), concat!($name, "(string, string): bool"),
                concat!($name, "(bytes, bytes): bool"), concat!($name, "(bool, bool): bool"),
                concat!($name, "(timestamp, timestamp): bool"), concat!($name, "(duration, duration): bool"),
            ],
            run: |args| match order(&args[0], &args[1]) {
                Some($($ordering)|+) => Ok(Value::Bool(true)),
                Some(_) => Ok(Value::Bool(false)),
                // Not-a-number is neither smaller nor larger than anything.
                None if matches!((&args[0], &args[1]), (Value::Double(_), _) | (_, Value::Double(_))) => {
                    Ok(Value::Bool(false))
                }
                None => Err(EvalError::NoOverload),
            },
            cost: Cost::Smaller,
        }
    };
}

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "_==_",
        signatures: &["_==_(A, A): bool", "_==_(dyn, dyn): bool"],
        run: |args| Ok(Value::Bool(args[0] == args[1])),
        cost: Cost::Smaller,
    },
    Function {
        name: "_!=_",
        signatures: &["_!=_(A, A): bool", "_!=_(dyn, dyn): bool"],
        run: |args| Ok(Value::Bool(args[0] != args[1])),
        cost: Cost::Smaller,
    },
    ordered!("_<_", Ordering::Less),
    ordered!("_<=_", Ordering::Less | Ordering::Equal),
    ordered!("_>_", Ordering::Greater),
    ordered!("_>=_", Ordering::Greater | Ordering::Equal),
    Function {
        name: "_+_",
        signatures: &[
            "_+_(int, int): int",
            "_+_(uint, uint): uint",
            "_+_(double, double): double",
            "_+_(string, string): string",
            "_+_(bytes, bytes): bytes",
            "_+_(list<A>, list<A>): list<A>",
            "_+_(timestamp, duration): timestamp",
            "_+_(duration, timestamp): timestamp",
            "_+_(duration, duration): duration",
        ],
        run: |args| add(&args[0], &args[1]),
        cost: Cost::Concat,
    },
    Function {
        name: "_-_",
        signatures: &[
            "_-_(int, int): int",
            "_-_(uint, uint): uint",
            "_-_(double, double): double",
            "_-_(timestamp, timestamp): duration",
            "_-_(timestamp, duration): timestamp",
            "_-_(duration, duration): duration",
        ],
        run: |args| subtract(&args[0], &args[1]),
        cost: Cost::Flat,
    },
    Function {
        name: "_*_",
        signatures: &["_*_(int, int): int", "_*_(uint, uint): uint", "_*_(double, double): double"],
        run: |args| match (&args[0], &args[1]) {
            (Value::Int(a), Value::Int(b)) => whole(a.checked_mul(*b)).map(Value::Int),
            (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_mul(*b)).map(Value::Uint),
            (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "_/_",
        signatures: &["_/_(int, int): int", "_/_(uint, uint): uint", "_/_(double, double): double"],
        run: |args| match (&args[0], &args[1]) {
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
                EvalError::of("division by zero")
            }
            (Value::Int(a), Value::Int(b)) => whole(a.checked_div(*b)).map(Value::Int),
            (Value::Uint(a), Value::Uint(b)) => Ok(Value::Uint(a / b)),
            (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "_%_",
        signatures: &["_%_(int, int): int", "_%_(uint, uint): uint"],
        run: |args| match (&args[0], &args[1]) {
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
                EvalError::of("modulus by zero")
            }
            (Value::Int(a), Value::Int(b)) => whole(a.checked_rem(*b)).map(Value::Int),
            (Value::Uint(a), Value::Uint(b)) => Ok(Value::Uint(a % b)),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "-_",
        signatures: &["-_(int): int", "-_(double): double"],
        run: |args| match &args[0] {
            Value::Int(a) => whole(a.checked_neg()).map(Value::Int),
            Value::Double(a) => Ok(Value::Double(-a)),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "!_",
        signatures: &["!_(bool): bool"],
        run: |args| {
            if let Value::Bool(a) = &args[0] { Ok(Value::Bool(!a)) } else { Err(EvalError::NoOverload) }
        },
        cost: Cost::Flat,
    },
    Function {
        name: "@in",
        signatures: &["@in(A, list<A>): bool", "@in(A, map<A,B>): bool"],
        run: |args| match &args[1] {
            Value::List(list) => Ok(Value::Bool(list.iter().any(|item| item == args[0]))),
            Value::Map(map) => Ok(Value::Bool(map.has(&args[0]))),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Member,
    },
    Function {
        name: "size",
        signatures: &[
            "size(string): int",
            "size(bytes): int",
            "size(list<A>): int",
            "size(map<A,B>): int",
            "string.size(): int",
            "bytes.size(): int",
            "list<A>.size(): int",
            "map<A,B>.size(): int",
        ],
        run: |args| match &args[0] {
            Value::String(text) => Ok(length(text.chars().count())),
            Value::Bytes(bytes) => Ok(length(bytes.len())),
            Value::List(list) => Ok(length(list.len())),
            Value::Map(map) => Ok(length(map.len())),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
];

/// What is said of values that a function does not take. Of an operator cel-go names the operator only where its first
/// value takes part in none of its kind.
pub fn no_overload(function: &str, values: &[Value<'_>]) -> EvalError {
    use Value::{Bool, Bytes, Double, Duration, Int, List, String, Timestamp, Uint};
    let first = values.first();
    let takes_part = match function {
        "_+_" => matches!(
            first,
            Some(Int(_) | Uint(_) | Double(_) | String(_) | Bytes(_) | List(_) | Timestamp(_) | Duration(_))
        ),
        "_-_" => matches!(first, Some(Int(_) | Uint(_) | Double(_) | Timestamp(_) | Duration(_))),
        "_*_" | "_/_" => matches!(first, Some(Int(_) | Uint(_) | Double(_))),
        "_%_" => matches!(first, Some(Int(_) | Uint(_))),
        "_<_" | "_<=_" | "_>_" | "_>=_" => matches!(
            first,
            Some(Bool(_) | Int(_) | Uint(_) | Double(_) | String(_) | Bytes(_) | Timestamp(_) | Duration(_))
        ),
        "-_" | "!_" => matches!(first, Some(Bool(_) | Int(_) | Double(_) | Duration(_))),
        "@in" => true,
        _ => {
            let types: Vec<&str> = values.iter().map(Value::type_name).collect();
            return EvalError::NoOverloadOf(format!("{function}({})", types.join(", ")));
        }
    };
    if takes_part { EvalError::NoOverload } else { EvalError::NoOverloadOf(function.to_owned()) }
}

fn unsigned<T>(value: Option<T>) -> Result<T, EvalError> {
    value.ok_or_else(|| EvalError::Message("unsigned integer overflow".to_owned()))
}

fn whole<T>(value: Option<T>) -> Result<T, EvalError> {
    value.ok_or_else(|| EvalError::Message("integer overflow".to_owned()))
}

fn moment<'a>(time: Result<Timestamp, jiff::Error>) -> Outcome<'a> {
    time.map(Value::Timestamp).map_err(|_| EvalError::Message("timestamp overflow".to_owned()))
}

fn span<'a>(duration: Option<SignedDuration>) -> Outcome<'a> {
    duration.map(Value::Duration).ok_or_else(|| EvalError::Message("duration overflow".to_owned()))
}

fn add<'a>(a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => whole(a.checked_add(*b)).map(Value::Int),
        (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_add(*b)).map(Value::Uint),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => Ok(Value::text(format!("{}{}", &**a, &**b))),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&**a, &**b].concat().into())),
        (Value::List(a), Value::List(b)) => Ok(Value::List(join(a, b))),
        (Value::Timestamp(t), Value::Duration(d)) | (Value::Duration(d), Value::Timestamp(t)) => {
            moment(t.checked_add(*d))
        }
        (Value::Duration(a), Value::Duration(b)) => span(a.checked_add(*b)),
        _ => Err(EvalError::NoOverload),
    }
}

/// Joined as the left one's kind has it: a set keeps one of each, a keyed list replaces what has the same keys.
fn join<'a>(a: &List<'a>, b: &List<'a>) -> List<'a> {
    let mut items: Vec<Value<'a>> = a.iter().collect();
    let same_keys = |one: &Value<'a>, other: &Value<'a>, keys: &[String]| {
        let field =
            |value: &Value<'a>, key: &str| if let Value::Map(map) = value { map.field(key) } else { None };
        keys.iter().all(|key| field(one, key).and_then(Result::ok) == field(other, key).and_then(Result::ok))
    };
    for item in b.iter() {
        let known = match a.kind() {
            ListKind::Atomic => None,
            ListKind::Set => items.iter().position(|known| *known == item),
            ListKind::Map(keys) => items.iter().position(|known| same_keys(known, &item, keys)),
        };
        match known {
            Some(at) => items[at] = item,
            None => items.push(item),
        }
    }
    List::Owned { items: Arc::new(items), kind: a.kind() }
}

fn subtract<'a>(a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => whole(a.checked_sub(*b)).map(Value::Int),
        (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_sub(*b)).map(Value::Uint),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(Value::Duration(a.duration_since(*b))),
        (Value::Timestamp(t), Value::Duration(d)) => moment(t.checked_sub(*d)),
        (Value::Duration(a), Value::Duration(b)) => span(a.checked_sub(*b)),
        _ => Err(EvalError::NoOverload),
    }
}

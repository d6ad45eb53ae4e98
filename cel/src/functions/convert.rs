//! Conversions between types.

use super::{Cost, Function, Outcome};
use crate::error::EvalError;
use crate::value::render_duration;
use crate::value::{Text, Value};
use std::sync::Arc;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "int",
        signatures: &[
            "int(int): int",
            "int(uint): int",
            "int(double): int",
            "int(string): int",
            "int(timestamp): int",
        ],
        run: |args| match &args[0] {
            Value::Int(value) => Ok(Value::Int(*value)),
            Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
            Value::Double(value) => to_int(*value),
            Value::String(text) => parsed(text, "int").map(Value::Int),
            Value::Timestamp(time) => Ok(Value::Int(time.as_second())),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "uint",
        signatures: &["uint(uint): uint", "uint(int): uint", "uint(double): uint", "uint(string): uint"],
        run: |args| match &args[0] {
            Value::Uint(value) => Ok(Value::Uint(*value)),
            Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| unsigned_overflow()),
            Value::Double(value) => to_uint(*value),
            Value::String(text) => parsed(text, "uint").map(Value::Uint),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "double",
        signatures: &[
            "double(double): double",
            "double(int): double",
            "double(uint): double",
            "double(string): double",
        ],
        run: |args| match &args[0] {
            Value::Double(value) => Ok(Value::Double(*value)),
            #[allow(clippy::cast_precision_loss, reason = "the language converts so")]
            Value::Int(value) => Ok(Value::Double(*value as f64)),
            #[allow(clippy::cast_precision_loss, reason = "the language converts so")]
            Value::Uint(value) => Ok(Value::Double(*value as f64)),
            Value::String(text) => parsed(text, "double").map(Value::Double),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "bool",
        signatures: &["bool(bool): bool", "bool(string): bool"],
        run: |args| match &args[0] {
            Value::Bool(value) => Ok(Value::Bool(*value)),
            Value::String(text) => match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
                _ => EvalError::of("type conversion error from 'string' to 'bool'"),
            },
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Flat,
    },
    Function {
        name: "string",
        signatures: &[
            "string(string): string",
            "string(int): string",
            "string(uint): string",
            "string(double): string",
            "string(bool): string",
            "string(bytes): string",
            "string(timestamp): string",
            "string(duration): string",
            "string(net.IP): string",
            "string(net.CIDR): string",
        ],
        run: |args| string(&args[0]),
        cost: Cost::Traverse,
    },
    Function {
        name: "bytes",
        signatures: &["bytes(bytes): bytes", "bytes(string): bytes"],
        run: |args| match &args[0] {
            Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
            Value::String(text) => Ok(Value::Bytes(Arc::from(text.as_bytes()))),
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Traverse,
    },
    Function { name: "dyn", signatures: &["dyn(A): dyn"], run: |args| Ok(args[0].clone()), cost: Cost::Flat },
    Function {
        name: "type",
        signatures: &["type(A): type"],
        run: |args| Ok(Value::Type(Text::Shared(args[0].type_name().into()))),
        cost: Cost::Flat,
    },
];

fn overflow() -> EvalError {
    EvalError::Message("integer overflow".to_owned())
}

fn unsigned_overflow() -> EvalError {
    EvalError::Message("unsigned integer overflow".to_owned())
}

fn parsed<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, EvalError> {
    let error = || EvalError::Message(format!("type conversion error from 'string' to '{what}'"));
    text.parse().map_err(|_| error())
}

#[allow(clippy::cast_possible_truncation, reason = "bounded just before")]
fn to_int<'a>(value: f64) -> Outcome<'a> {
    // 2^63: every double below it fits.
    if value.abs() < 9_223_372_036_854_775_808.0 { Ok(Value::Int(value as i64)) } else { Err(overflow()) }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded just before")]
fn to_uint<'a>(value: f64) -> Outcome<'a> {
    let fits = value > -1.0 && value < 18_446_744_073_709_551_616.0;
    if fits { Ok(Value::Uint(value as u64)) } else { Err(unsigned_overflow()) }
}

/// A number as Go prints it.
pub fn double(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let small = value != 0.0 && value.abs() < 1e-4;
    if small || value.abs() >= 1e21 {
        let text = format!("{value:e}");
        // Go writes exponents with a sign and two digits.
        return match text.split_once('e') {
            Some((mantissa, exponent)) => {
                let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            None => text,
        };
    }
    value.to_string()
}

/// The value as text.
///
/// # Errors
/// [`EvalError::NoOverload`] for what has no text.
pub fn string<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(match value {
        Value::String(text) => Value::String(text.clone()),
        Value::Int(value) => Value::text(value.to_string()),
        Value::Uint(value) => Value::text(value.to_string()),
        Value::Double(value) => Value::text(double(*value)),
        Value::Bool(value) => Value::text(value.to_string()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::text(text),
            Err(_) => return EvalError::of("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Value::Timestamp(time) => Value::text(time.to_string()),
        Value::Duration(span) => Value::text(render_duration(*span)),
        Value::Library(library) => match library.as_ref() {
            crate::value::Library::Ip(address) => Value::text(address.to_string()),
            crate::value::Library::Cidr(net) => Value::text(net.to_string()),
            _ => return Err(EvalError::NoOverload),
        },
        _ => return Err(EvalError::NoOverload),
    })
}

//! Text: the standard functions, cel-go's extended strings, and Kubernetes' regular expressions.

use super::convert::string;
use super::pattern::compiled as regex;
use super::{Cost, Function, Outcome, int, length, text};
use crate::error::EvalError;
use crate::value::Value;
use std::fmt::Write;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "contains",
        signatures: &["string.contains(string): bool"],
        run: |args| Ok(Value::Bool(text(&args[0])?.contains(text(&args[1])?))),
        cost: Cost::Product,
    },
    Function {
        name: "startsWith",
        signatures: &["string.startsWith(string): bool"],
        run: |args| Ok(Value::Bool(text(&args[0])?.starts_with(text(&args[1])?))),
        cost: Cost::Affix,
    },
    Function {
        name: "endsWith",
        signatures: &["string.endsWith(string): bool"],
        run: |args| Ok(Value::Bool(text(&args[0])?.ends_with(text(&args[1])?))),
        cost: Cost::Affix,
    },
    Function {
        name: "matches",
        signatures: &["string.matches(string): bool", "matches(string, string): bool"],
        run: |args| Ok(Value::Bool(regex(text(&args[1])?)?.is_match(text(&args[0])?))),
        cost: Cost::Regex,
    },
    Function {
        name: "find",
        signatures: &["string.find(string): string"],
        run: |args| {
            let found = regex(text(&args[1])?)?.find(text(&args[0])?).map(|m| m.as_str().to_owned());
            Ok(Value::text(found.unwrap_or_default()))
        },
        cost: Cost::Regex,
    },
    Function {
        name: "findAll",
        signatures: &["string.findAll(string): list<string>", "string.findAll(string, int): list<string>"],
        run: |args| {
            let most =
                args.get(2).map(int).transpose()?.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
            let pattern = regex(text(&args[1])?)?;
            let found = pattern.find_iter(text(&args[0])?).take(most);
            Ok(Value::list(found.map(|m| Value::text(m.as_str())).collect()))
        },
        cost: Cost::Regex,
    },
    Function {
        name: "charAt",
        signatures: &["string.charAt(int): string"],
        run: |args| {
            let (text, index) = (text(&args[0])?, int(&args[1])?);
            let count = text.chars().count();
            let index = usize::try_from(index).ok().filter(|i| *i <= count);
            let index = index.ok_or_else(|| out_of_range(&args[1]))?;
            Ok(Value::text(text.chars().nth(index).map(String::from).unwrap_or_default()))
        },
        cost: Cost::Flat,
    },
    Function {
        name: "indexOf",
        signatures: &[
            "string.indexOf(string): int",
            "string.indexOf(string, int): int",
            "list<A>.indexOf(A): int",
        ],
        run: |args| match &args[0] {
            Value::List(list) => {
                let at = list.iter().position(|item| item == args[1]);
                Ok(at.map_or(Value::Int(-1), length))
            }
            other => position(text(other)?, text(&args[1])?, args.get(2), false),
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "lastIndexOf",
        signatures: &[
            "string.lastIndexOf(string): int",
            "string.lastIndexOf(string, int): int",
            "list<A>.lastIndexOf(A): int",
        ],
        run: |args| match &args[0] {
            Value::List(list) => {
                let found = list.iter().collect::<Vec<_>>().iter().rposition(|item| *item == args[1]);
                Ok(found.map_or(Value::Int(-1), length))
            }
            other => position(text(other)?, text(&args[1])?, args.get(2), true),
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "lowerAscii",
        signatures: &["string.lowerAscii(): string"],
        run: |args| Ok(Value::text(text(&args[0])?.to_ascii_lowercase())),
        cost: Cost::Traverse,
    },
    Function {
        name: "upperAscii",
        signatures: &["string.upperAscii(): string"],
        run: |args| Ok(Value::text(text(&args[0])?.to_ascii_uppercase())),
        cost: Cost::Traverse,
    },
    Function {
        name: "trim",
        signatures: &["string.trim(): string"],
        run: |args| Ok(Value::text(text(&args[0])?.trim())),
        cost: Cost::Traverse,
    },
    Function {
        name: "reverse",
        signatures: &["list<A>.reverse(): list<A>"],
        run: |args| match &args[0] {
            Value::List(list) => {
                let mut items: Vec<Value<'_>> = list.iter().collect();
                items.reverse();
                Ok(Value::list(items))
            }
            _ => Err(EvalError::NoOverload),
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "replace",
        signatures: &[
            "string.replace(string, string): string",
            "string.replace(string, string, int): string",
        ],
        run: |args| {
            let (of, from, to) = (text(&args[0])?, text(&args[1])?, text(&args[2])?);
            let most = args.get(3).map(int).transpose()?.unwrap_or(-1);
            Ok(Value::text(match usize::try_from(most) {
                Ok(most) => of.replacen(from, to, most),
                Err(_) => of.replace(from, to),
            }))
        },
        cost: Cost::Rewrite,
    },
    Function {
        name: "split",
        signatures: &["string.split(string): list<string>", "string.split(string, int): list<string>"],
        run: |args| split(text(&args[0])?, text(&args[1])?, args.get(2).map(int).transpose()?.unwrap_or(-1)),
        cost: Cost::Rewrite,
    },
    Function {
        name: "substring",
        signatures: &["string.substring(int): string", "string.substring(int, int): string"],
        run: |args| substring(text(&args[0])?, int(&args[1])?, args.get(2).map(int).transpose()?),
        cost: Cost::Traverse,
    },
    Function {
        name: "join",
        signatures: &["list<string>.join(): string", "list<string>.join(string): string"],
        run: |args| {
            let Value::List(list) = &args[0] else { return Err(EvalError::NoOverload) };
            let separator = args.get(1).map(text).transpose()?.unwrap_or_default();
            let parts: Vec<Value<'_>> = list.iter().collect();
            let parts: Vec<&str> = parts.iter().map(text).collect::<Result<_, _>>()?;
            Ok(Value::text(parts.join(separator)))
        },
        cost: Cost::Result,
    },
    Function {
        name: "strings.quote",
        signatures: &["strings.quote(string): string"],
        run: |args| Ok(Value::text(quote(text(&args[0])?))),
        cost: Cost::Traverse,
    },
    Function {
        name: "format",
        signatures: &["string.format(list<dyn>): string"],
        run: |args| {
            let Value::List(list) = &args[1] else { return Err(EvalError::NoOverload) };
            format(text(&args[0])?, &list.iter().collect::<Vec<_>>()).map(Value::text)
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "jsonpatch.escapeKey",
        signatures: &["jsonpatch.escapeKey(string): string"],
        run: |args| Ok(Value::text(text(&args[0])?.replace('~', "~0").replace('/', "~1"))),
        cost: Cost::Traverse,
    },
];

fn out_of_range(index: &Value<'_>) -> EvalError {
    let shown = string(index).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    EvalError::Message(format!("index out of range: {shown}"))
}

/// Positions count characters, not bytes.
fn position<'a>(of: &str, what: &str, from: Option<&Value<'a>>, last: bool) -> Outcome<'a> {
    let (of, what): (Vec<char>, Vec<char>) = (of.chars().collect(), what.chars().collect());
    let limit = match from {
        None => None,
        Some(value) => {
            let index = usize::try_from(int(value)?).ok().filter(|i| *i <= of.len());
            Some(index.ok_or_else(|| out_of_range(value))?)
        }
    };
    let ends = of.len().checked_sub(what.len());
    let Some(ends) = ends else { return Ok(Value::Int(-1)) };
    let here = |at: &usize| of[*at..].starts_with(&what);
    let found = if last {
        (0..=limit.unwrap_or(ends).min(ends)).rev().find(here)
    } else {
        (limit.unwrap_or(0)..=ends).find(here)
    };
    Ok(found.map_or(Value::Int(-1), length))
}

fn split<'a>(of: &str, by: &str, most: i64) -> Outcome<'a> {
    let owned = |parts: Vec<&str>| Value::list(parts.into_iter().map(Value::text).collect());
    if most == 0 {
        return Ok(owned(Vec::new()));
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if by.is_empty() {
        // Between all characters, the last part keeping what is left.
        let cuts: Vec<usize> = of.char_indices().map(|(at, _)| at).take(most).chain([of.len()]).collect();
        let mut parts: Vec<&str> = cuts.windows(2).map(|cut| &of[cut[0]..cut[1]]).collect();
        if let (Some(last), true) = (parts.last_mut(), of.chars().count() > most) {
            *last = &of[cuts[most - 1]..];
        }
        return Ok(owned(parts));
    }
    Ok(owned(of.splitn(most, by).collect()))
}

fn substring<'a>(of: &str, from: i64, to: Option<i64>) -> Outcome<'a> {
    let chars: Vec<char> = of.chars().collect();
    let end = chars.len();
    let at = |index: i64| usize::try_from(index).ok().filter(|i| *i <= end);
    let (Some(from), Some(to)) = (at(from), at(to.unwrap_or(i64::try_from(end).unwrap_or(i64::MAX)))) else {
        let wrong = if at(from).is_none() { from } else { to.unwrap_or(from) };
        return EvalError::of(format!("index out of range: {wrong}"));
    };
    if from > to {
        return EvalError::of(format!("invalid substring range. start: {from}, end: {to}"));
    }
    Ok(Value::text(chars[from..to].iter().collect::<String>()))
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// `%s %d %f %e %b %x %X %o %%`, with a precision for `%f` and `%e`.
fn format(pattern: &str, arguments: &[Value<'_>]) -> Result<String, EvalError> {
    let mut out = String::new();
    let (mut arguments, mut used) = (arguments.iter(), 0);
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut precision = None;
        if rest.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse::<usize>().ok().filter(|p| *p <= 1000);
        }
        let Some(verb) = rest.next() else {
            return EvalError::of("could not parse formatting clause: unexpected end of string");
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(argument) = arguments.next() else {
            return EvalError::of(format!("index {used} out of range"));
        };
        used += 1;
        out.push_str(&clause(verb, precision.unwrap_or(6), argument)?);
    }
    Ok(out)
}

fn clause(verb: char, precision: usize, value: &Value<'_>) -> Result<String, EvalError> {
    let wrong = |takes: &str| {
        EvalError::of(format!("error during formatting: {takes}, was given {}", value.type_name()))
    };
    Ok(match (verb, value) {
        ('s', _) => shown(value)?,
        ('d', Value::Int(v)) => v.to_string(),
        ('d', Value::Uint(v)) => v.to_string(),
        ('d' | 'f' | 'e', Value::Double(v)) if !v.is_finite() => extreme(*v).to_owned(),
        ('f', Value::Double(v)) => format!("{v:.precision$}"),
        ('e', Value::Double(v)) => {
            let text = format!("{v:.precision$e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        ('b', Value::Bool(v)) => u8::from(*v).to_string(),
        ('b', Value::Int(v)) => signed(*v, |n| format!("{n:b}")),
        ('b', Value::Uint(v)) => format!("{v:b}"),
        ('o', Value::Int(v)) => signed(*v, |n| format!("{n:o}")),
        ('o', Value::Uint(v)) => format!("{v:o}"),
        ('x', Value::Int(v)) => signed(*v, |n| format!("{n:x}")),
        ('x', Value::Uint(v)) => format!("{v:x}"),
        ('X', Value::Int(v)) => signed(*v, |n| format!("{n:X}")),
        ('X', Value::Uint(v)) => format!("{v:X}"),
        ('x' | 'X', Value::String(v)) => hex(v.as_bytes(), verb),
        ('x' | 'X', Value::Bytes(v)) => hex(v, verb),
        ('d', _) => return wrong("decimal clause can only be used on integers"),
        ('f', _) => return wrong("fixed-point clause can only be used on doubles"),
        ('e', _) => return wrong("scientific clause can only be used on doubles"),
        ('b', _) => return wrong("only integers and bools can be formatted as binary"),
        ('o', _) => return wrong("octal clause can only be used on integers"),
        ('x' | 'X', _) => {
            return wrong("only integers, byte buffers, and strings can be formatted as hex");
        }
        _ => {
            let what = "could not parse formatting clause: unrecognized formatting clause";
            return EvalError::of(format!("{what} \"{verb}\""));
        }
    })
}

fn signed(value: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

fn hex(bytes: &[u8], verb: char) -> String {
    let mut out = String::new();
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = if verb == 'x' { write!(out, "{byte:02x}") } else { write!(out, "{byte:02X}") };
    }
    out
}

fn extreme(value: f64) -> &'static str {
    match value {
        v if v.is_nan() => "NaN",
        v if v > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

/// A value as `%s` shows it; inside of lists and maps too.
fn shown(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Null => Ok("null".to_owned()),
        Value::Type(name) => Ok(name.to_string()),
        Value::Double(value) if !value.is_finite() => Ok(extreme(*value).to_owned()),
        Value::List(list) => {
            let parts: Vec<String> = list.iter().map(|item| shown(&item)).collect::<Result<_, _>>()?;
            Ok(format!("[{}]", parts.join(", ")))
        }
        Value::Map(map) => {
            let one =
                |(key, value): &(Value<'_>, Value<'_>)| Ok(format!("{}: {}", shown(key)?, shown(value)?));
            let mut parts: Vec<String> = map.entries().iter().map(one).collect::<Result<_, EvalError>>()?;
            parts.sort();
            Ok(format!("{{{}}}", parts.join(", ")))
        }
        other => string(other).and_then(|v| text(&v).map(str::to_owned)).map_err(|_| {
            EvalError::Message(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                 lists, types, durations, and timestamps, was given {}",
                other.type_name()
            ))
        }),
    }
}

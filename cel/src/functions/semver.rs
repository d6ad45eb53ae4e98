//! Kubernetes' semantic versions. <https://semver.org>

use super::{Cost, Function, Outcome, text};
use crate::error::EvalError;
use crate::value::{Library, Value, Version};
use std::cmp::Ordering;

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "semver",
        signatures: &["semver(string): kubernetes.Semver", "semver(string, bool): kubernetes.Semver"],
        run: |args| {
            let shown = text(&args[0])?;
            let made = parse(args)?.map(|version| Value::library(Library::Semver(version)));
            made.ok_or_else(|| EvalError::Message(format!("invalid semantic version \"{shown}\"")))
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "isSemver",
        signatures: &["isSemver(string): bool", "isSemver(string, bool): bool"],
        run: |args| Ok(Value::Bool(parse(args)?.is_some())),
        cost: Cost::Traverse,
    },
    Function {
        name: "major",
        signatures: &["kubernetes.Semver.major(): int"],
        run: |args| number(args, 0),
        cost: Cost::Flat,
    },
    Function {
        name: "minor",
        signatures: &["kubernetes.Semver.minor(): int"],
        run: |args| number(args, 1),
        cost: Cost::Flat,
    },
    Function {
        name: "patch",
        signatures: &["kubernetes.Semver.patch(): int"],
        run: |args| number(args, 2),
        cost: Cost::Flat,
    },
];

fn number<'a>(args: &[Value<'a>], index: usize) -> Outcome<'a> {
    match &args[0] {
        Value::Library(library) => match library.as_ref() {
            Library::Semver(version) => {
                Ok(Value::Int(i64::try_from(version.numbers[index]).unwrap_or(i64::MAX)))
            }
            _ => Err(EvalError::NoOverload),
        },
        _ => Err(EvalError::NoOverload),
    }
}

fn parse(args: &[Value<'_>]) -> Result<Option<Version>, EvalError> {
    let normalize = matches!(args.get(1), Some(Value::Bool(true)));
    let shown = text(&args[0])?;
    Ok(if normalize { Version::parse(&normalized(shown)) } else { Version::parse(shown) })
}

/// Without a leading `v`, with missing numbers as 0 and without leading zeros.
fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<&str> = numbers.split('.').collect();
    for part in &mut parts {
        let trimmed = part.trim_start_matches('0');
        *part = if trimmed.is_empty() && !part.is_empty() { "0" } else { trimmed };
    }
    while parts.len() < 3 && rest.is_empty() {
        parts.push("0");
    }
    format!("{}{rest}", parts.join("."))
}

impl Version {
    pub fn parse(text: &str) -> Option<Self> {
        let word =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let (text, build) = text.split_once('+').map_or((text, None), |(t, b)| (t, Some(b)));
        if build.is_some_and(|build| !build.split('.').all(word)) {
            return None;
        }
        let (numbers, pre) = text.split_once('-').map_or((text, None), |(t, p)| (t, Some(p)));
        let plain =
            |part: &str| part.chars().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
        let parts: Vec<u64> =
            numbers.split('.').map(|p| p.parse().ok().filter(|_| plain(p))).collect::<Option<_>>()?;
        let pre: Vec<String> = pre.map(|p| p.split('.').map(str::to_owned).collect()).unwrap_or_default();
        let digits = |part: &String| part.chars().all(|c| c.is_ascii_digit());
        let good = pre.iter().all(|part| word(part) && (!digits(part) || plain(part)));
        good.then_some(Self { numbers: parts.try_into().ok()?, pre })
    }

    pub fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => before(&self.pre, &other.pre),
        })
    }
}

fn before(a: &[String], b: &[String]) -> Ordering {
    let one = |a: &String, b: &String| match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    };
    let first = a.iter().zip(b).map(|(a, b)| one(a, b)).find(|o| *o != Ordering::Equal);
    first.unwrap_or_else(|| a.len().cmp(&b.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_in_order() {
        let ordered =
            ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.2.0"];
        let parsed: Vec<Version> = ordered.iter().map(|t| Version::parse(t).unwrap()).collect();
        assert!(parsed.windows(2).all(|pair| pair[0].order(&pair[1]) == Ordering::Less));
        for wrong in ["1.0", "v1.0.0", "1.0.0-", "01.0.0", "1.0.0-01", "1.0.0+"] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
        assert!(Version::parse(&normalized("v01.2")).is_some());
    }
}

//! The standard functions and Kubernetes' libraries: what may be called with what, what it does, what it costs.
//! <https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries>

mod authorizer;
mod convert;
mod formats;
mod lists;
mod net;
mod operators;
mod optional;
mod pattern;
mod quantity;
mod semver;
mod sequences;
mod strings;
mod time;
mod url;

use crate::error::EvalError;
use crate::types::{self, Type};
use crate::value::Value;
use std::collections::HashMap;
use std::sync::OnceLock;

pub use operators::no_overload;
pub use pattern::compiled as compiled_pattern;

pub type Outcome<'a> = Result<Value<'a>, EvalError>;
pub type Run = for<'a> fn(&[Value<'a>]) -> Outcome<'a>;

/// What a call costs beside its arguments; the model of cel-go and of Kubernetes' libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// One unit.
    Flat,
    /// A tenth of the size of the first argument: text is gone through once.
    Traverse,
    /// Twice that: what is found is made anew.
    Rewrite,
    /// A tenth of the size of the second argument, which text begins or ends with.
    Affix,
    /// A tenth of the sizes of both: text is put together.
    Concat,
    /// A tenth of the smaller size: what is compared ends there.
    Smaller,
    /// A fifth of the result's size, for text that is joined; lists that are made cost as many elements.
    Result,
    /// As many as the first has pairs of elements.
    Squared,
    /// A tenth of the size of the first times a tenth of the size of the second.
    Product,
    /// As a product, a pattern's share being a quarter of its length.
    Regex,
    /// One unit for each element of the first argument.
    Elements,
    /// One for each element of the last: `x in list`.
    Member,
    /// One for each pair of elements.
    Pairs,
    /// As Kubernetes prices a question to the authorizer.
    Authorize,
}

impl Cost {
    /// As it is where a key is looked up in a map: that is no search.
    pub fn of_lookup(self, in_map: bool) -> Self {
        if self == Self::Member && in_map { Self::Flat } else { self }
    }

    /// Units for arguments of these sizes, and, where only that tells, a result of this one.
    pub fn price(self, sizes: &[u64], result: u64) -> u64 {
        let tenth = |size: u64| size.div_ceil(10);
        let at = |index: usize| sizes.get(index).copied().unwrap_or(1);
        match self {
            Self::Flat => 1,
            Self::Traverse => tenth(at(0)),
            Self::Affix => tenth(at(1)),
            Self::Rewrite => at(0).saturating_mul(2).div_ceil(10),
            Self::Concat => tenth(at(0).saturating_add(at(1))),
            Self::Smaller => tenth(at(0).min(at(1))),
            Self::Result => result.saturating_mul(2).div_ceil(10),
            Self::Squared => at(0).saturating_mul(at(0)).max(1),
            Self::Product => tenth(at(0)).saturating_mul(tenth(at(1))),
            Self::Regex => tenth(at(0).saturating_add(1)).saturating_mul(at(1).div_ceil(4)),
            Self::Elements => at(0),
            Self::Member => at(1),
            Self::Pairs => at(0).saturating_mul(at(1)),
            Self::Authorize => 350_000,
        }
    }
}

/// One name with all it may be called with.
pub struct Function {
    pub name: &'static str,
    /// `string.contains(string): bool`; a name before the parenthesis with a type before its dot is a member function.
    pub signatures: &'static [&'static str],
    pub run: Run,
    pub cost: Cost,
}

/// A parsed signature; of a member function the first argument is the receiver.
#[derive(Debug)]
pub struct Signature {
    pub member: bool,
    pub arguments: Vec<Type>,
    pub result: Type,
}

#[derive(Debug)]
pub struct Known {
    pub signatures: Vec<Signature>,
    pub run: Run,
    pub cost: Cost,
}

const ALL: [&[Function]; 13] = [
    operators::FUNCTIONS,
    convert::FUNCTIONS,
    strings::FUNCTIONS,
    lists::FUNCTIONS,
    sequences::FUNCTIONS,
    time::FUNCTIONS,
    optional::FUNCTIONS,
    url::FUNCTIONS,
    net::FUNCTIONS,
    quantity::FUNCTIONS,
    semver::FUNCTIONS,
    formats::FUNCTIONS,
    authorizer::FUNCTIONS,
];

/// The function of that name.
pub fn find(name: &str) -> Option<&'static Known> {
    static TABLE: OnceLock<HashMap<&'static str, Known>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let known = |f: &'static Function| Known {
            signatures: f.signatures.iter().filter_map(|text| signature(f.name, text)).collect(),
            run: f.run,
            cost: f.cost,
        };
        ALL.iter().flat_map(|functions| functions.iter()).map(|f| (f.name, known(f))).collect()
    });
    table.get(name)
}

/// Parses `TYPE.name(TYPE, ...): TYPE` or `name(TYPE, ...): TYPE`.
fn signature(name: &'static str, text: &'static str) -> Option<Signature> {
    let (call, result) = text.rsplit_once("): ")?;
    let (before, arguments) = call.split_at(call.find(&format!("{name}("))?);
    let receiver = before.strip_suffix('.');
    let arguments = &arguments[name.len() + 1..];
    let split = arguments.split(", ").filter(|argument| !argument.is_empty());
    Some(Signature {
        member: receiver.is_some(),
        arguments: receiver.into_iter().chain(split).map(types::parse).collect(),
        result: types::parse(result),
    })
}

/// The text of an argument that the checker could not see the type of.
fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, EvalError> {
    value.as_str().ok_or(EvalError::NoOverload)
}

fn int(value: &Value<'_>) -> Result<i64, EvalError> {
    match value {
        Value::Int(value) => Ok(*value),
        Value::Uint(value) => i64::try_from(*value).map_err(|_| EvalError::NoOverload),
        _ => Err(EvalError::NoOverload),
    }
}

fn length<'a>(length: usize) -> Value<'a> {
    Value::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

/// A key as an error message shows it.
pub fn shown_key(key: &Value<'_>) -> String {
    convert::string(key).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_can_be_read() {
        for function in ALL.iter().flat_map(|functions| functions.iter()) {
            let known = find(function.name).unwrap();
            assert_eq!(known.signatures.len(), function.signatures.len(), "{}", function.name);
        }
    }
}

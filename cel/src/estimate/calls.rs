//! What calls cost at most, and how large what they make can be. Where a function is not named here, one unit and the
//! size of its type; what an argument's type leaves open costs as the dearest of what it may turn out to be.

use super::{Bound, Entry, Estimate, Path, Size};
use crate::ast::{Expr, Literal, Node};
use crate::functions::Cost;
use crate::sizes::Step;
use crate::types::Type;

/// Bytes of the longest address, as which addresses of networks are compared.
const ADDRESS: u64 = 16;
/// Length of the longest pattern of a named format over the four characters that a pattern's step takes.
const FORMAT_STEPS: u64 = 32;
/// A tenth of the longest value that a named format allows for its description.
const FORMAT: u64 = 7;

/// The price of a call, and what is known of its result.
#[derive(Clone, Copy, Default)]
struct Price {
    cost: u64,
    size: Option<Size>,
    entry: Option<Entry>,
}

impl Price {
    fn flat() -> Self {
        Self::of(1)
    }

    fn of(cost: u64) -> Self {
        Self { cost, ..Self::default() }
    }

    fn sized(cost: u64, size: Size) -> Self {
        Self { cost, size: Some(size), entry: None }
    }

    /// For an argument that may be of the type that costs this, or of another.
    fn or_flat(self) -> Self {
        Self { cost: self.cost.max(1), ..self }
    }
}

fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

fn fifth(size: u64) -> u64 {
    size.saturating_mul(2).div_ceil(10)
}

fn pattern(text: Size, pattern: Size) -> u64 {
    tenth(text.max.saturating_add(1)).saturating_mul(pattern.max.div_ceil(4))
}

/// The types and bounds of a call's arguments, the receiver first.
struct Arguments<'a, 's> {
    exprs: &'s [Expr],
    types: Vec<&'s Type>,
    bounds: &'a [Bound<'s>],
}

impl<'s> Arguments<'_, 's> {
    fn of(&self, index: usize) -> &'s Type {
        self.types.get(index).copied().unwrap_or(&Type::Dyn)
    }

    fn size(&self, index: usize) -> Size {
        self.bounds.get(index).map_or(Size::UNKNOWN, Bound::size)
    }

    fn tenth(&self, index: usize) -> u64 {
        tenth(self.size(index).max)
    }

    fn smaller(&self) -> u64 {
        tenth(self.size(0).max.min(self.size(1).max))
    }
}

impl<'s> Estimate<'s> {
    pub(super) fn call(&mut self, expr: &'s Expr, function: &str, exprs: &'s [Expr]) -> Bound<'s> {
        let bounds: Vec<Bound<'s>> = exprs.iter().map(|argument| self.of(argument)).collect();
        let types = exprs.iter().map(|argument| self.type_of(argument)).collect();
        let arguments = Arguments { exprs, types, bounds: &bounds };
        let known = self.functions.get(expr.id).copied().flatten().map_or(Cost::Flat, |known| known.cost);
        let price = match function {
            "dyn" => Price { cost: 1, size: bounds[0].size, entry: bounds[0].entry },
            "join" => self.join(&arguments),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                Price::of(self.compared(&arguments))
            }
            _ => price(function, known, &arguments),
        };
        let cost = bounds.iter().fold(price.cost, |sum, bound| sum.saturating_add(bound.cost));
        Bound { entry: price.entry, ..self.made(expr, cost, Path::None, price.size) }
    }

    /// The size of a list's elements: what the schema says; one that an expression makes may have any.
    fn element(&self, list: &Bound<'s>) -> Size {
        match list.path {
            Path::None => Size::UNKNOWN,
            at => match self.step(at, Step::Elements) {
                Path::At(Some(shape)) => Size::up_to(shape.most()),
                _ => Size::UNKNOWN,
            },
        }
    }

    fn join(&self, arguments: &Arguments<'_, 's>) -> Price {
        let (list, element) = (arguments.size(0), self.element(&arguments.bounds[0]));
        let mut size =
            Size { min: list.min.saturating_mul(element.min), max: list.max.saturating_mul(element.max) };
        if arguments.bounds.len() > 1 {
            let separator = arguments.size(1);
            size = size.plus(Size {
                min: separator.min.saturating_mul(list.min.saturating_sub(1)),
                max: separator.max.saturating_mul(list.max.saturating_sub(1)),
            });
        }
        Price::sized(tenth(size.max), size)
    }

    /// Each element is looked at, and its text gone through.
    fn compared(&self, arguments: &Arguments<'_, 's>) -> u64 {
        let Type::List(list) = arguments.of(0) else { return arguments.tenth(0) };
        let text = matches!(list.element, Type::String(_) | Type::Bytes(_));
        let each = if text { tenth(self.element(&arguments.bounds[0]).max) } else { 0 };
        arguments.size(0).max.saturating_mul(each.saturating_add(1))
    }
}

fn price(function: &str, known: Cost, arguments: &Arguments<'_, '_>) -> Price {
    let size = arguments.size(0);
    match function {
        "_==_" => Price::of(equality(arguments)),
        "_!=_" => Price::of(arguments.smaller()),
        "_<_" | "_<=_" | "_>_" | "_>=_" => ordered(arguments),
        "_+_" => added(arguments),
        "@in" => match arguments.of(1) {
            Type::Map(_) => Price::flat(),
            Type::List(_) => Price::of(arguments.size(1).max),
            _ => Price::of(arguments.size(1).max).or_flat(),
        },
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey" => {
            Price::sized(tenth(size.max), size)
        }
        "replace" => Price::sized(fifth(size.max), replaced(size, arguments.size(1), arguments.size(2))),
        "split" => {
            Price::sized(fifth(size.max), Size::up_to(most_parts(arguments.exprs).unwrap_or(size.max)))
        }
        "find" | "findAll" => Price::sized(pattern(size, arguments.size(1)), Size::up_to(size.max)),
        "matches" => Price::of(pattern(size, arguments.size(1))),
        "contains" => Price::of(tenth(size.max).saturating_mul(arguments.tenth(1))),
        "string" => converted(arguments, &Type::BYTES, Size { min: size.min / 4, max: size.max }),
        "bytes" => {
            converted(arguments, &Type::STRING, Size { min: size.min, max: size.max.saturating_mul(4) })
        }
        "strings.quote" => {
            let twice = Size { min: size.min, max: size.max.saturating_mul(2) };
            Price::sized(tenth(size.max), twice.plus(Size::exactly(2)))
        }
        "ip" if *arguments.of(0) == Type::Opaque("net.CIDR") => Price::flat(),
        "containsIP" => Price::of(tenth(2 * ADDRESS).saturating_add(read(arguments))),
        "containsCIDR" => {
            Price::of((tenth(2 * ADDRESS) + tenth(ADDRESS) + 1).saturating_add(read(arguments)))
        }
        "validate" => Price::of(arguments.tenth(1).saturating_mul(FORMAT_STEPS)),
        "sets.contains" | "sets.intersects" => Price::of(pairs(arguments).saturating_add(1)),
        "sets.equivalent" => Price::of(pairs(arguments).saturating_mul(2).saturating_add(1)),
        _ => by_model(known, arguments),
    }
}

fn pairs(arguments: &Arguments<'_, '_>) -> u64 {
    arguments.size(0).max.saturating_mul(arguments.size(1).max)
}

/// What reading an address costs that is given as text.
fn read(arguments: &Arguments<'_, '_>) -> u64 {
    if matches!(arguments.of(1), Type::Opaque(_)) { 0 } else { arguments.tenth(1) }
}

/// As it costs when it runs, at the largest arguments. What is made of a list has no more than all that went in.
fn by_model(known: Cost, arguments: &Arguments<'_, '_>) -> Price {
    let sizes: Vec<u64> = arguments.bounds.iter().map(|bound| bound.size().max).collect();
    let all = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
    let size = matches!(known, Cost::Elements | Cost::Squared | Cost::Result).then_some(Size::up_to(all));
    Price { cost: known.price(&sizes, all), size, entry: None }
}

/// Values of libraries are compared at once; only `==` knows them.
fn equality(arguments: &Arguments<'_, '_>) -> u64 {
    match (arguments.of(0), arguments.of(1)) {
        (Type::Opaque("kubernetes.NamedFormat"), Type::Opaque("kubernetes.NamedFormat")) => FORMAT,
        (Type::Opaque("kubernetes.URL"), Type::Opaque("kubernetes.URL")) => {
            tenth(arguments.bounds[1].size.unwrap_or(Size::ONE).max)
        }
        (Type::Opaque(a), Type::Opaque(b)) if a == b => 1,
        _ => arguments.smaller(),
    }
}

fn ordered(arguments: &Arguments<'_, '_>) -> Price {
    match (arguments.of(0), arguments.of(1)) {
        (Type::String(_) | Type::Bytes(_), _) | (_, Type::String(_) | Type::Bytes(_)) => {
            Price::of(arguments.smaller())
        }
        (Type::Dyn, Type::Dyn) => Price::of(arguments.smaller()).or_flat(),
        _ => Price::flat(),
    }
}

fn added(arguments: &Arguments<'_, '_>) -> Price {
    let size = arguments.size(0).plus(arguments.size(1));
    let text = Price::sized(tenth(size.max), size);
    match (arguments.of(0), arguments.of(1)) {
        (Type::String(_) | Type::Bytes(_), _) | (_, Type::String(_) | Type::Bytes(_)) => text,
        (Type::List(_), _) | (_, Type::List(_)) => {
            let entry = arguments.bounds[0].entry.zip(arguments.bounds[1].entry);
            Price { cost: 1, size: Some(size), entry: entry.map(|(a, b)| a.union(b)) }
        }
        (Type::Dyn, Type::Dyn) => text.or_flat(),
        _ => Price::flat(),
    }
}

/// Text and bytes are gone through, other values converted at once.
fn converted(arguments: &Arguments<'_, '_>, from: &Type, size: Size) -> Price {
    let through = Price::sized(arguments.tenth(0), size);
    match arguments.of(0) {
        Type::Dyn => through.or_flat(),
        of if of.is_equivalent(from) => through,
        _ => Price::flat(),
    }
}

/// Text with as many of the shortest pieces replaced by the longest as there can be.
fn replaced(text: Size, old: Size, new: Size) -> Size {
    let (count, kept) = match old.min {
        0 => (text.max.saturating_add(1), text.max),
        old if new.max <= old => (0, text.max),
        old => (text.max.div_ceil(old), 0),
    };
    let max = count.saturating_mul(new.max).saturating_add(kept);
    let (count, kept) = match old.max {
        0 => (text.min.saturating_add(1), text.min),
        old if old <= new.min => (0, text.min),
        old => (text.min.div_ceil(old), 0),
    };
    Size { min: count.saturating_mul(new.min).saturating_add(kept), max }
}

/// The last argument of `split`, where it is written out.
fn most_parts(exprs: &[Expr]) -> Option<u64> {
    match &exprs.get(2)?.node {
        Node::Literal(Literal::Int(most)) => u64::try_from(*most).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of upstream's tests.
    #[test]
    fn what_is_replaced_grows_and_shrinks() {
        let of = |min: u64, max: u64| Size { min, max };
        for (text, old, new, wanted) in [
            (of(3, 3), of(0, 0), of(1, 1), of(7, 7)),
            (of(3, 3), of(1, 1), of(0, 0), of(0, 3)),
            (of(4, 4), of(2, 2), of(4, 4), of(4, 8)),
            (of(4, 4), of(0, 1), of(0, 2), of(0, 14)),
            (of(4, 4), of(1, 1), of(1, 2), of(4, 8)),
            (of(4, 4), of(1, 2), of(1, 1), of(2, 4)),
        ] {
            assert_eq!(replaced(text, old, new), wanted, "{text:?} {old:?} {new:?}");
        }
    }
}

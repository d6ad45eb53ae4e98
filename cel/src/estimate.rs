//! What an expression can cost at most, from the limits that schemas give: the check of a rule when it is created.
//! The model is cel-go's: sizes go up the tree, a macro's body counts once for each element there can be.

use crate::ast::{Expr, Fold, FoldKind, Node};
use crate::eval::{
    ADD_ELEMENT, ADD_ENTRY, LIST, MAP, ROUND_ALL, ROUND_EXISTS, ROUND_ONE, STRUCTURE, accumulator,
};
use crate::functions::{Cost, Known};
use crate::types::Type;

/// Where a schema sets no limit: what fits into a request (3 MiB) at the smallest form of a value.
const REQUEST_BYTES: u64 = 3 << 20;

/// The largest size that a value of this type can have: bytes of text, elements, entries.
pub fn largest(of: &Type) -> u64 {
    match of {
        Type::String(max) | Type::Bytes(max) => max.unwrap_or(REQUEST_BYTES - 2),
        Type::List(list) => list.max_items.unwrap_or(REQUEST_BYTES / (smallest(&list.element) + 1)),
        // A key takes at least two quotes and a colon.
        Type::Map(map) => map.max_properties.unwrap_or(REQUEST_BYTES / (smallest(&map.value) + 5)),
        Type::Dyn => REQUEST_BYTES,
        _ => 1,
    }
}

/// The fewest bytes that a value of this type takes as JSON.
fn smallest(of: &Type) -> u64 {
    match of {
        Type::Bool => 4,
        Type::Null => 4,
        Type::Timestamp => 22,
        Type::String(_)
        | Type::Bytes(_)
        | Type::List(_)
        | Type::Map(_)
        | Type::Object(_)
        | Type::Duration => 2,
        _ => 1,
    }
}

pub struct Estimate<'p> {
    pub types: &'p [Type],
    pub functions: &'p [Option<&'static Known>],
    /// The largest value of unknown type.
    unknown: u64,
    /// Sizes of the variables that macros bind.
    locals: Vec<(&'p str, u64)>,
}

/// What evaluating a node costs at most, and how large its value can be.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub cost: u64,
    pub size: u64,
}

impl<'p> Estimate<'p> {
    pub fn new(types: &'p [Type], functions: &'p [Option<&'static Known>], unknown_max: Option<u64>) -> Self {
        Self { types, functions, unknown: unknown_max.unwrap_or(REQUEST_BYTES), locals: Vec::new() }
    }

    fn size(&self, expr: &Expr) -> u64 {
        self.types.get(expr.id).map_or(self.unknown, |of| self.largest(of))
    }

    fn is_map(&self, expr: &Expr) -> bool {
        matches!(self.types.get(expr.id), Some(Type::Map(_)))
    }

    fn largest(&self, of: &Type) -> u64 {
        if *of == Type::Dyn { self.unknown } else { largest(of) }
    }

    pub fn of(&mut self, expr: &'p Expr) -> Bound {
        match &expr.node {
            Node::Literal(_) => Bound { cost: 0, size: self.size(expr) },
            Node::Ident(name) => {
                let local = self.locals.iter().rev().find(|(local, _)| local == name).map(|(_, size)| *size);
                Bound { cost: 1, size: local.unwrap_or_else(|| self.size(expr)) }
            }
            Node::Select { of, test, .. } => {
                let cost = self.of(of).cost.saturating_add(u64::from(!test));
                Bound { cost, size: if *test { 1 } else { self.size(expr) } }
            }
            Node::Index { of, index, .. } => {
                let cost = self.of(of).cost.saturating_add(self.of(index).cost).saturating_add(1);
                Bound { cost, size: self.size(expr) }
            }
            Node::Call { arguments, .. } => self.call(expr, arguments),
            Node::And(a, b) | Node::Or(a, b) => {
                Bound { cost: self.of(a).cost.saturating_add(self.of(b).cost), size: 1 }
            }
            Node::Choice(condition, yes, no) => {
                let (condition, yes, no) = (self.of(condition), self.of(yes), self.of(no));
                Bound {
                    cost: condition.cost.saturating_add(yes.cost.max(no.cost)),
                    size: yes.size.max(no.size),
                }
            }
            Node::List(entries) => self.sum(LIST, entries.iter().map(|e| &e.value), entries.len() as u64),
            Node::Map(entries) => {
                let parts = entries.iter().flat_map(|e| [&e.value.0, &e.value.1]);
                self.sum(MAP, parts, entries.len() as u64)
            }
            Node::Object { fields, .. } => self.sum(STRUCTURE, fields.iter().map(|f| &f.value.1), 1),
            Node::Fold(fold) => self.fold(fold),
            Node::Lift { of, name, body, .. } => {
                let of = self.of(of);
                let body = self.within(&[(name, of.size)], body);
                Bound { cost: of.cost.saturating_add(body.cost), size: body.size }
            }
            Node::Bind { name, value, body } => {
                let value = self.of(value);
                let body = self.within(&[(name, value.size)], body);
                Bound { cost: LIST.saturating_add(value.cost).saturating_add(body.cost), size: body.size }
            }
        }
    }

    fn within(&mut self, locals: &[(&'p str, u64)], body: &'p Expr) -> Bound {
        let depth = self.locals.len();
        self.locals.extend_from_slice(locals);
        let bound = self.of(body);
        self.locals.truncate(depth);
        bound
    }

    fn sum(&mut self, base: u64, parts: impl Iterator<Item = &'p Expr>, size: u64) -> Bound {
        let cost = parts.fold(base, |sum, part| sum.saturating_add(self.of(part).cost));
        Bound { cost, size }
    }

    fn call(&mut self, expr: &Expr, arguments: &'p [Expr]) -> Bound {
        let bounds: Vec<Bound> = arguments.iter().map(|argument| self.of(argument)).collect();
        let sizes: Vec<u64> = bounds.iter().map(|bound| bound.size).collect();
        let known = self.functions.get(expr.id).copied().flatten();
        // What is joined is as large as all its elements.
        let result = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
        let result = match arguments.first().and_then(|first| self.types.get(first.id)) {
            Some(Type::List(list)) => {
                sizes[0].saturating_mul(self.largest(&list.element)).saturating_add(result)
            }
            _ => result,
        };
        let in_map = arguments.get(1).is_some_and(|of| self.is_map(of));
        let own = known.map_or(Cost::Flat, |known| known.cost.of_lookup(in_map)).price(&sizes, result);
        let cost = bounds.iter().fold(own, |sum, bound| sum.saturating_add(bound.cost));
        let taken = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
        let size = match self.types.get(expr.id) {
            // What a function makes is at most as large as all that went in.
            Some(Type::String(_) | Type::Bytes(_) | Type::List(_)) => taken,
            // The limit holds for what is read; `dyn(x)` is as large as `x`.
            Some(Type::Dyn) => taken.max(self.unknown),
            _ => self.size(expr),
        };
        Bound { cost, size }
    }

    fn fold(&mut self, fold: &'p Fold) -> Bound {
        let range = self.of(&fold.range);
        let (first, second) = match self.types.get(fold.range.id) {
            Some(Type::List(list)) => (self.largest(&list.element), self.largest(&list.element)),
            Some(Type::Map(map)) => (self.largest(&map.key), self.largest(&map.value)),
            _ => (self.unknown, self.unknown),
        };
        let mut locals = vec![(fold.first.as_str(), first)];
        locals.extend(fold.second.as_deref().map(|name| (name, second)));
        let filter = fold.filter.as_ref().map_or(0, |filter| self.within(&locals, filter).cost);
        let body = self.within(&locals, &fold.body);
        let (own, size) = match fold.kind {
            FoldKind::All => (ROUND_ALL, 1),
            FoldKind::Exists => (ROUND_EXISTS, 1),
            FoldKind::ExistsOne => (ROUND_ONE + 1, 1),
            FoldKind::Filter => (ROUND_ONE + ADD_ELEMENT, range.size),
            FoldKind::List => (ADD_ELEMENT, range.size),
            FoldKind::Map | FoldKind::MapEntry => (ADD_ENTRY, range.size),
        };
        let round = body.cost.saturating_add(filter).saturating_add(own);
        let rounds = round.saturating_mul(range.size);
        Bound { cost: range.cost.saturating_add(rounds).saturating_add(accumulator(fold.kind)), size }
    }
}

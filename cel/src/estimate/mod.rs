//! What an expression can cost at most, from the limits that schemas give: the check of a rule when it is created.
//! The model is cel-go's, its oddities among it, since definitions everywhere are written for what upstream accepts:
//! a size is what the expression itself says, else what the schema says at the end of the path, else that of a scalar.

mod calls;
#[cfg(test)]
mod tests;

use crate::ast::{Entry as Item, Expr, Fold, FoldKind, Literal, Node};
use crate::eval::{
    ADD_ELEMENT, ADD_ENTRY, LIST, MAP, MERGE_ENTRY, ROUND_ALL, ROUND_EXISTS, ROUND_ONE, STRUCTURE,
    accumulator,
};
use crate::functions::Known;
use crate::sizes::{Shape, Step};
use crate::types::Type;

/// The fewest and the most bytes of text, elements or entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    const ONE: Self = Self::exactly(1);

    const fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    const fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }
}

/// Sizes of what is in a list or a map that the expression itself makes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    list: bool,
    key: Size,
    value: Size,
}

impl Entry {
    fn union(self, other: Self) -> Self {
        Self { key: self.key.union(other.key), value: self.value.union(other.value), ..self }
    }
}

/// Where a value is found in the declaration of the variables.
#[derive(Clone, Copy, Debug)]
enum Path<'s> {
    /// Made by the expression.
    None,
    /// `None` where the declaration says nothing.
    At(Option<&'s Shape>),
}

/// What evaluating a node costs at most, and what is known of its value.
#[derive(Clone, Copy, Debug)]
struct Bound<'s> {
    cost: u64,
    path: Path<'s>,
    size: Option<Size>,
    entry: Option<Entry>,
}

impl Bound<'_> {
    fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }
}

struct Local<'s> {
    name: &'s str,
    path: Path<'s>,
    size: Option<Size>,
    entry: Option<Entry>,
}

/// Sizes of the variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes<'s> {
    /// Of each of them; rules see what is and what was, of one shape.
    pub variables: Option<&'s Shape>,
    /// Whether a path that begins nowhere leads on from there, too: with rules of schemas, the elements of a list that an
    /// expression makes are taken to be as large as `self`.
    pub anywhere: bool,
}

pub struct Estimate<'s> {
    pub types: &'s [Type],
    pub functions: &'s [Option<&'static Known>],
    pub sizes: Sizes<'s>,
    locals: Vec<Local<'s>>,
}

impl<'s> Estimate<'s> {
    pub fn new(types: &'s [Type], functions: &'s [Option<&'static Known>], sizes: Sizes<'s>) -> Self {
        Self { types, functions, sizes, locals: Vec::new() }
    }

    pub fn cost(&mut self, expr: &'s Expr) -> u64 {
        self.of(expr).cost
    }

    fn type_of(&self, expr: &Expr) -> &'s Type {
        self.types.get(expr.id).unwrap_or(&Type::Dyn)
    }

    fn step(&self, path: Path<'s>, step: Step<'_>) -> Path<'s> {
        match path {
            Path::None if self.sizes.anywhere => Path::At(self.sizes.variables),
            Path::None => Path::At(None),
            Path::At(shape) => Path::At(shape.and_then(|shape| shape.step(step))),
        }
    }

    /// A node that says nothing of its value but its type and path.
    fn plain(&self, expr: &Expr, cost: u64, path: Path<'s>) -> Bound<'s> {
        self.made(expr, cost, path, None)
    }

    fn made(&self, expr: &Expr, cost: u64, path: Path<'s>, size: Option<Size>) -> Bound<'s> {
        let declared = || match path {
            Path::At(Some(shape)) => Some(Size::up_to(shape.most())),
            _ => None,
        };
        let scalar = || is_scalar(self.type_of(expr)).then_some(Size::ONE);
        Bound { cost, path, size: size.or_else(declared).or_else(scalar), entry: None }
    }

    fn of(&mut self, expr: &'s Expr) -> Bound<'s> {
        match &expr.node {
            Node::Literal(literal) => self.made(expr, 0, Path::None, Some(Size::exactly(length(literal)))),
            Node::Ident(name) => self.ident(expr, name),
            Node::Select { of, test: true, .. } => {
                let cost = self.of(of).cost;
                self.plain(expr, cost, Path::None)
            }
            Node::Select { of, optional: true, .. } => {
                let cost = self.of(of).cost.saturating_add(1);
                self.plain(expr, cost, Path::None)
            }
            Node::Select { of, field, .. } => {
                let target = self.of(of);
                let own = u64::from(matches!(self.type_of(of), Type::Map(_) | Type::Object(_)));
                let path = self.step(target.path, Step::Field(field));
                self.plain(expr, target.cost.saturating_add(own), path)
            }
            Node::Index { of, index, optional } => self.index(expr, of, index, *optional),
            Node::Call { function, arguments, .. } => self.call(expr, function, arguments),
            Node::And(a, b) | Node::Or(a, b) => {
                let cost = self.of(a).cost.saturating_add(self.of(b).cost);
                self.plain(expr, cost, Path::None)
            }
            Node::Choice(condition, yes, no) => {
                let (condition, yes, no) = (self.of(condition), self.of(yes), self.of(no));
                choice(condition.cost, &yes, &no)
            }
            Node::List(entries) => self.list(entries),
            Node::Map(entries) => self.map(entries),
            Node::Object { fields, .. } => {
                let parts = fields.iter().map(|field| &field.value.1);
                let cost = parts.fold(STRUCTURE, |sum, part| sum.saturating_add(self.of(part).cost));
                self.plain(expr, cost, Path::None)
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Lift { of, name, body, flat } => self.lift(expr, of, name, body, *flat),
            Node::Bind { name, value, body } => {
                let value = self.of(value);
                self.bind(name, value, body)
            }
        }
    }

    fn ident(&self, expr: &Expr, name: &str) -> Bound<'s> {
        match self.locals.iter().rev().find(|local| local.name == name) {
            Some(local) => {
                let plain = self.plain(expr, 1, local.path);
                Bound { size: plain.size.or(local.size), entry: local.entry, ..plain }
            }
            None => self.plain(expr, 1, Path::At(self.sizes.variables)),
        }
    }

    fn index(&mut self, expr: &'s Expr, of: &'s Expr, index: &'s Expr, optional: bool) -> Bound<'s> {
        let (target, index) = (self.of(of), self.of(index));
        let cost = target.cost.saturating_add(index.cost).saturating_add(1);
        if optional || matches!(self.type_of(of), Type::Optional(_)) {
            return self.plain(expr, cost, Path::None);
        }
        let path = self.step(target.path, Step::Elements);
        self.made(expr, cost, path, target.entry.map(|entry| entry.value))
    }

    fn list(&mut self, entries: &'s [Item<Expr>]) -> Bound<'s> {
        let (mut cost, mut value) = (LIST, None);
        for entry in entries {
            let bound = self.of(&entry.value);
            cost = cost.saturating_add(bound.cost);
            value = joined(value, &bound);
        }
        let value = value.unwrap_or(Size::exactly(0));
        let entry = Some(Entry { list: true, key: Size::ONE, value });
        Bound { cost, path: Path::None, size: Some(Size::exactly(entries.len() as u64)), entry }
    }

    fn map(&mut self, entries: &'s [Item<(Expr, Expr)>]) -> Bound<'s> {
        let (mut cost, mut key, mut value) = (MAP, None, None);
        for entry in entries {
            let (of_key, of_value) = (self.of(&entry.value.0), self.of(&entry.value.1));
            cost = cost.saturating_add(of_key.cost).saturating_add(of_value.cost);
            (key, value) = (joined(key, &of_key), joined(value, &of_value));
        }
        let none = Size::exactly(0);
        let entry = Some(Entry { list: false, key: key.unwrap_or(none), value: value.unwrap_or(none) });
        Bound { cost, path: Path::None, size: Some(Size::exactly(entries.len() as u64)), entry }
    }

    fn within(&mut self, locals: Vec<Local<'s>>, body: &'s Expr) -> Bound<'s> {
        let depth = self.locals.len();
        self.locals.extend(locals);
        let bound = self.of(body);
        self.locals.truncate(depth);
        bound
    }

    /// The variables of a macro.
    fn variables(&self, fold: &'s Fold, range: &Bound<'s>) -> Vec<Local<'s>> {
        let list = range.entry.map_or(matches!(self.type_of(&fold.range), Type::List(_)), |entry| entry.list);
        let value = |name: &'s str| Local {
            name,
            path: self.step(range.path, Step::Elements),
            size: range.entry.map(|entry| entry.value),
            entry: None,
        };
        let key = |name: &'s str| Local {
            name,
            path: self.step(range.path, if list { Step::Indices } else { Step::Keys }),
            size: range.entry.map(|entry| entry.key),
            entry: None,
        };
        match &fold.second {
            Some(second) => vec![key(&fold.first), value(second)],
            None if list => vec![value(&fold.first)],
            None => vec![key(&fold.first)],
        }
    }

    fn fold(&mut self, fold: &'s Fold) -> Bound<'s> {
        let range = self.of(&fold.range);
        let filter = fold.filter.as_ref().map(|filter| self.within(self.variables(fold, &range), filter));
        let body = self.within(self.variables(fold, &range), &fold.body);
        // Of a filter the variable itself is the element that is kept.
        let kept = match fold.kind {
            FoldKind::Filter => self.variables(fold, &range)[0].size_of(self.type_of(&fold.range)),
            _ => body.size(),
        };
        let own = match fold.kind {
            FoldKind::All => ROUND_ALL,
            FoldKind::Exists => ROUND_EXISTS,
            FoldKind::ExistsOne => ROUND_ONE + 1,
            FoldKind::Filter => ROUND_ONE + ADD_ELEMENT,
            FoldKind::List => ADD_ELEMENT,
            FoldKind::Map => ADD_ENTRY,
            FoldKind::MapEntry => MERGE_ENTRY,
        };
        let round = body.cost.saturating_add(filter.map_or(0, |filter| filter.cost)).saturating_add(own);
        let count = range.size();
        let cost = range.cost.saturating_add(round.saturating_mul(count.max));
        let cost = cost.saturating_add(accumulator(fold.kind));
        let (size, list) = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => (Size::ONE, false),
            FoldKind::Filter | FoldKind::List => (count, true),
            FoldKind::Map | FoldKind::MapEntry => (count, false),
        };
        let value = Size::exactly(0).union(kept);
        let entry = list.then_some(Entry { list, key: Size::ONE, value });
        Bound { cost, path: Path::None, size: Some(size), entry }
    }

    /// cel-go folds over an empty list.
    fn bind(&mut self, name: &'s str, value: Bound<'s>, body: &'s Expr) -> Bound<'s> {
        let local = Local { name, path: value.path, size: value.size, entry: value.entry };
        let body = self.within(vec![local], body);
        let cost = LIST.saturating_add(value.cost).saturating_add(body.cost);
        Bound { cost, path: Path::None, ..body }
    }

    /// `of.hasValue() ? optional.of(bind(name, of.value(), body)) : optional.none()`, flat without the second `optional`.
    fn lift(&mut self, expr: &'s Expr, of: &'s Expr, name: &'s str, body: &'s Expr, flat: bool) -> Bound<'s> {
        let target = self.of(of);
        let size = match self.type_of(of) {
            Type::Optional(inner) if is_scalar(inner) => Some(Size::ONE),
            _ => None,
        };
        let asked = target.cost.saturating_add(1);
        let value = Bound { cost: asked, path: Path::None, size, entry: None };
        let mut yes = self.bind(name, value, body);
        if !flat {
            yes = self.plain(expr, yes.cost.saturating_add(1), Path::None);
        }
        let no = self.plain(expr, 1, Path::None);
        choice(asked, &yes, &no)
    }
}

impl Local<'_> {
    /// As the size of a node that names this variable of a list of `range`'s type.
    fn size_of(&self, range: &Type) -> Size {
        let declared = match self.path {
            Path::At(Some(shape)) => Some(Size::up_to(shape.most())),
            _ => None,
        };
        let scalar = || matches!(range, Type::List(list) if is_scalar(&list.element)).then_some(Size::ONE);
        declared.or_else(scalar).or(self.size).unwrap_or(Size::UNKNOWN)
    }
}

fn choice<'s>(condition: u64, yes: &Bound<'s>, no: &Bound<'s>) -> Bound<'s> {
    Bound {
        cost: condition.saturating_add(yes.cost.max(no.cost)),
        path: Path::None,
        size: Some(yes.size().union(no.size())),
        entry: yes.entry.zip(no.entry).map(|(yes, no)| yes.union(no)),
    }
}

fn joined(known: Option<Size>, bound: &Bound<'_>) -> Option<Size> {
    Some(known.map_or(bound.size(), |known| known.union(bound.size())))
}

fn length(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}

/// Values of these types are of one size.
fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}

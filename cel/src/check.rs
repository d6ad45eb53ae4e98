//! The checker: gives every node a type, and finds what cannot work before it runs.

use crate::ast::{Entry, Expr, Fold, FoldKind, Literal, Node};
use crate::error::SyntaxError;
use crate::functions::{self, Signature};
use crate::types::{ObjectType, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an expression may name.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<String, Type>,
    /// Structures that an expression may make, by name: `Object.spec`.
    structures: BTreeMap<String, Arc<ObjectType>>,
    /// Whether `Object...{}` of any name may be made, its fields unchecked.
    pub free_structures: bool,
    /// Whether `cel.bind` is there, which Kubernetes switches on for selectors of devices alone.
    bindings: bool,
}

impl Env {
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, of: Type) -> Self {
        self.variables.insert(name.into(), of);
        self
    }

    /// With `cel.bind`.
    #[must_use]
    pub fn with_bindings(self) -> Self {
        Self { bindings: true, ..self }
    }

    #[must_use]
    pub fn structure(mut self, of: Arc<ObjectType>) -> Self {
        self.structures.insert(of.name.clone(), of);
        self
    }

    pub fn type_of(&self, variable: &str) -> Option<&Type> {
        self.variables.get(variable)
    }
}

/// The types of all nodes, by their numbers, or all mistakes.
pub fn check(expr: &Expr, nodes: usize, env: &Env) -> Result<Vec<Type>, Vec<SyntaxError>> {
    let mut checker =
        Checker { env, locals: Vec::new(), types: vec![Type::Dyn; nodes], errors: Vec::new(), mixed: false };
    checker.expr(expr);
    if !checker.errors.is_empty() {
        return Err(checker.errors);
    }
    // What nothing has said by now may be anything.
    Ok(checker.types.iter().map(|of| of.bind(&BTreeMap::new())).collect())
}

struct Checker<'e> {
    env: &'e Env,
    locals: Vec<(String, Type)>,
    types: Vec<Type>,
    errors: Vec<SyntaxError>,
    /// Within the arguments of `format`, which may be of any types.
    mixed: bool,
}

/// Of the elements of an empty list or map: whatever they are taken for.
const UNKNOWN: Type = Type::Param('?');

/// Names of types that stand for themselves in `type(x) == int`.
const TYPE_NAMES: [&str; 11] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"];

pub fn is_type_name(name: &str) -> bool {
    TYPE_NAMES.contains(&name) || matches!(name, "google.protobuf.Timestamp" | "google.protobuf.Duration")
}

impl Checker<'_> {
    fn fail(&mut self, at: usize, message: String) -> Type {
        self.errors.push(SyntaxError::new(at, message));
        Type::Dyn
    }

    fn expr(&mut self, expr: &Expr) -> Type {
        let of = self.node(expr);
        self.types[expr.id] = of.clone();
        of
    }

    fn node(&mut self, expr: &Expr) -> Type {
        match &expr.node {
            Node::Literal(literal) => literal_type(literal),
            Node::Ident(name) => self.ident(expr.at, name),
            Node::Select { of, field, optional, test } => self.select(expr.at, of, field, *optional, *test),
            Node::Index { of, index, optional } => self.index(expr.at, of, index, *optional),
            Node::Call { function, member, arguments } => self.call(expr.at, function, *member, arguments),
            Node::And(a, b) | Node::Or(a, b) => {
                let name = if matches!(expr.node, Node::And(..)) { "_&&_" } else { "_||_" };
                let (a, b) = (self.expr(a), self.expr(b));
                if !is_bool(&a) || !is_bool(&b) {
                    return self.no_overload(expr.at, name, &[a, b], false);
                }
                Type::Bool
            }
            Node::Choice(condition, yes, no) => {
                let (condition, yes, no) = (self.expr(condition), self.expr(yes), self.expr(no));
                match yes.merge(&no) {
                    Some(joined) if is_bool(&condition) => joined,
                    _ => self.no_overload(expr.at, "_?_:_", &[condition, yes, no], false),
                }
            }
            Node::List(entries) => self.list(entries),
            Node::Map(entries) => self.map(entries),
            Node::Object { name, fields } => self.object(expr.at, name, fields),
            Node::Fold(fold) => self.fold(expr.at, fold),
            Node::Lift { of, name, body, flat } => {
                let inner = match self.expr(of) {
                    Type::Optional(of) => of.as_ref().clone(),
                    Type::Dyn | Type::Param(_) => Type::Dyn,
                    other => return self.no_overload(expr.at, "optMap", &[other], true),
                };
                let body = self.within(&[(name, inner)], |checker| checker.expr(body));
                if *flat { body } else { Type::optional(body) }
            }
            Node::Bind { .. } if !self.env.bindings => {
                self.fail(expr.at, "undeclared reference to 'cel' (in container '')".to_owned())
            }
            Node::Bind { name, value, body } => {
                let value = self.expr(value);
                self.within(&[(name, value)], |checker| checker.expr(body))
            }
        }
    }

    fn within<T>(&mut self, locals: &[(&String, Type)], run: impl FnOnce(&mut Self) -> T) -> T {
        let depth = self.locals.len();
        self.locals.extend(locals.iter().map(|(name, of)| ((*name).clone(), of.clone())));
        let result = run(self);
        self.locals.truncate(depth);
        result
    }

    fn ident(&mut self, at: usize, name: &str) -> Type {
        if let Some((_, of)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return of.clone();
        }
        if let Some(of) = self.env.variables.get(name) {
            return of.clone();
        }
        if is_type_name(name) {
            return Type::Kind;
        }
        self.fail(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    /// The variable that is declared under the dotted name `of.field`.
    fn dotted(&mut self, of: &Expr, field: &str) -> Option<Type> {
        let Node::Ident(name) = &of.node else { return None };
        if self.locals.iter().any(|(local, _)| local == name) {
            return None;
        }
        let found = self.env.variables.get(&format!("{name}.{field}")).cloned()?;
        self.expr(of);
        Some(found)
    }

    fn select(&mut self, at: usize, of: &Expr, field: &str, optional: bool, test: bool) -> Type {
        if let Some(found) = self.dotted(of, field).filter(|_| !test && !optional) {
            return found;
        }
        let mut target = self.expr(of);
        let mut lifted = optional;
        if let Type::Optional(inner) = &target {
            target = inner.as_ref().clone();
            lifted = true;
        }
        let found = match &target {
            Type::Dyn | Type::Param(_) => Type::Dyn,
            Type::Map(map) => map.value.clone(),
            Type::Object(object) => match object.fields.get(field) {
                Some(field) => field.of.clone(),
                None => return self.fail(at, format!("undefined field '{field}'")),
            },
            other => {
                let message = format!("type '{other}' does not support field selection");
                return self.fail(at, message);
            }
        };
        match (test, lifted) {
            (true, _) => Type::Bool,
            (false, true) => {
                if let Type::Optional(_) = found {
                    found
                } else {
                    Type::optional(found)
                }
            }
            (false, false) => found,
        }
    }

    fn index(&mut self, at: usize, of: &Expr, index: &Expr, optional: bool) -> Type {
        let (mut target, index) = (self.expr(of), self.expr(index));
        let mut lifted = optional;
        if let Type::Optional(inner) = &target {
            target = inner.as_ref().clone();
            lifted = true;
        }
        let mut bound = BTreeMap::new();
        let found = match &target {
            Type::Dyn | Type::Param(_) => Type::Dyn,
            Type::List(list) if index.fits(&Type::Int, &mut bound) => list.element.clone(),
            Type::Map(map) if index.fits(&map.key, &mut bound) => map.value.clone(),
            _ => return self.no_overload(at, "_[_]", &[target, index], false),
        };
        if lifted { Type::optional(found) } else { found }
    }

    /// A literal that could only fail when it runs.
    fn literal_argument(&mut self, function: &str, arguments: &[Expr]) {
        let Some(Expr { node: Node::Literal(Literal::String(text)), at, .. }) = arguments.last() else {
            return;
        };
        let good = match (function, arguments.len()) {
            ("matches", 2) => functions::compiled_pattern(text).is_ok(),
            ("timestamp", 1) => crate::value::parse_timestamp(text).is_some(),
            ("duration", 1) => crate::value::parse_duration(text).is_some(),
            _ => true,
        };
        if !good {
            self.fail(*at, format!("invalid {function} argument"));
        }
    }

    fn call(&mut self, at: usize, function: &str, member: bool, arguments: &[Expr]) -> Type {
        self.literal_argument(function, arguments);
        let mixed = self.mixed;
        self.mixed |= function == "format";
        let arguments: Vec<Type> = arguments.iter().map(|argument| self.expr(argument)).collect();
        self.mixed = mixed;
        let Some(known) = functions::find(function) else {
            return self.fail(at, format!("undeclared reference to '{function}' (in container '')"));
        };
        let strict = matches!(function, "_==_" | "_!=_");
        let mut results: Vec<Type> = Vec::new();
        for signature in &known.signatures {
            // Two values that can never be equal are a mistake; only what is not known before compares freely.
            let loose = strict && signature.arguments.iter().all(|a| *a == Type::Dyn);
            if loose && !arguments.contains(&Type::Dyn) {
                continue;
            }
            if let Some(result) = fits(signature, member, &arguments) {
                results.push(result);
            }
        }
        match results.split_first() {
            None => self.no_overload(at, function, &arguments, member),
            Some((first, rest)) => {
                rest.iter().fold(first.clone(), |all, other| if all == *other { all } else { Type::Dyn })
            }
        }
    }

    fn no_overload(&mut self, at: usize, function: &str, arguments: &[Type], member: bool) -> Type {
        let shown: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let applied = match shown.split_first() {
            Some((receiver, rest)) if member => format!("{receiver}.({})", rest.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        self.fail(at, format!("found no matching overload for '{function}' applied to '{applied}'"))
    }

    /// An entry's type: of an optional one what it holds.
    fn entry(&mut self, optional: bool, value: &Expr) -> Type {
        match self.expr(value) {
            Type::Optional(of) if optional => of.as_ref().clone(),
            other if !optional || other == Type::Dyn => other,
            other => self.fail(value.at, format!("expected type 'optional_type' but found '{other}'")),
        }
    }

    /// Elements must be of one type, as Kubernetes demands, and of the same where that is not known before it runs, but
    /// for the arguments of `format`.
    fn joined(&mut self, known: Option<Type>, of: Type, at: usize) -> Type {
        let Some(known) = known else { return of };
        match known.merge(&of) {
            Some(both) if self.mixed || known.is_equivalent(&of) => both,
            None if self.mixed => Type::Dyn,
            _ => self.fail(at, format!("expected type '{known}' but found '{of}'")),
        }
    }

    fn list(&mut self, entries: &[Entry<Expr>]) -> Type {
        let mut element: Option<Type> = None;
        for entry in entries {
            let of = self.entry(entry.optional, &entry.value);
            element = Some(self.joined(element, of, entry.value.at));
        }
        Type::list(element.unwrap_or(UNKNOWN))
    }

    fn map(&mut self, entries: &[Entry<(Expr, Expr)>]) -> Type {
        let mut joined: Option<(Type, Type)> = None;
        for entry in entries {
            let (key, value) = (self.expr(&entry.value.0), self.entry(entry.optional, &entry.value.1));
            let (k, v) = joined.unzip();
            joined = Some((self.joined(k, key, entry.value.0.at), self.joined(v, value, entry.value.1.at)));
        }
        let (key, value) = joined.unwrap_or((UNKNOWN, UNKNOWN));
        Type::map(key, value)
    }

    fn object(&mut self, at: usize, name: &str, fields: &[Entry<(String, Expr)>]) -> Type {
        let Some(of) = self.env.structures.get(name).cloned() else {
            let free = self.env.free_structures && (name == "Object" || name.starts_with("Object."));
            if !free {
                return self.fail(at, format!("undeclared reference to '{name}' (in container '')"));
            }
            for field in fields {
                self.entry(field.optional, &field.value.1);
            }
            return Type::Object(Arc::new(ObjectType { name: name.to_owned(), ..ObjectType::default() }));
        };
        for entry in fields {
            let (field, value) = &entry.value;
            let found = self.entry(entry.optional, value);
            match of.fields.get(field) {
                None => drop(self.fail(value.at, format!("undefined field '{field}'"))),
                Some(declared) if found.fits(&declared.of, &mut BTreeMap::new()) => {}
                Some(declared) => {
                    let message = format!(
                        "expected type of field '{field}' is '{}' but provided type is '{found}'",
                        declared.of
                    );
                    self.fail(value.at, message);
                }
            }
        }
        Type::Object(of)
    }

    fn fold(&mut self, at: usize, fold: &Fold) -> Type {
        let range = self.expr(&fold.range);
        let (key, value) = match &range {
            Type::Dyn | Type::Param(_) => (Type::Dyn, Type::Dyn),
            Type::List(list) => (Type::Int, list.element.clone()),
            Type::Map(map) => (map.key.clone(), map.value.clone()),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return self.fail(at, message);
            }
        };
        let locals = match &fold.second {
            Some(second) => vec![(&fold.first, key.clone()), (second, value.clone())],
            // One variable is a list's element, and a map's key.
            None if matches!(range, Type::Map(_)) => vec![(&fold.first, key.clone())],
            None => vec![(&fold.first, value.clone())],
        };
        let element = locals[0].1.clone();
        let body = self.within(&locals, |checker| {
            if let Some(filter) = &fold.filter {
                checker.condition(filter);
            }
            if matches!(fold.kind, FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne | FoldKind::Filter)
            {
                checker.condition(&fold.body);
                return Type::Bool;
            }
            checker.expr(&fold.body)
        });
        match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Type::Bool,
            FoldKind::Filter => match range {
                Type::List(_) | Type::Dyn => range,
                _ => Type::list(element),
            },
            FoldKind::List => Type::list(body),
            FoldKind::Map => Type::map(key, body),
            FoldKind::MapEntry => match body {
                Type::Map(_) => body,
                _ => Type::map(Type::Dyn, Type::Dyn),
            },
        }
    }

    fn condition(&mut self, expr: &Expr) {
        let of = self.expr(expr);
        if !is_bool(&of) {
            self.fail(expr.at, format!("expected type 'bool' but found '{of}'"));
        }
    }
}

fn is_bool(of: &Type) -> bool {
    matches!(of, Type::Bool | Type::Dyn | Type::Param(_))
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(text) => Type::String(Some(text.len() as u64)),
        Literal::Bytes(bytes) => Type::Bytes(Some(bytes.len() as u64)),
    }
}

/// The result of a call that this signature takes.
fn fits(signature: &Signature, member: bool, arguments: &[Type]) -> Option<Type> {
    if signature.member != member || signature.arguments.len() != arguments.len() {
        return None;
    }
    let mut bound = BTreeMap::new();
    let all = arguments.iter().zip(&signature.arguments).all(|(is, wanted)| is.fits(wanted, &mut bound));
    all.then(|| signature.result.bind(&bound))
}

//! The language's macros: calls whose arguments are names and bodies rather than values.

use super::Parser;
use crate::ast::{Expr, Fold, FoldKind, Node};
use crate::error::SyntaxError;

/// `has(a.b)`, `cel.bind(x, v, e)`, or an ordinary function.
pub fn global(
    parser: &mut Parser<'_>,
    at: usize,
    name: &str,
    mut arguments: Vec<Expr>,
) -> Result<Expr, SyntaxError> {
    match (name, arguments.len()) {
        ("has", 1) => {
            let argument = arguments.remove(0);
            let Node::Select { of, field, test: false, optional: false } = argument.node else {
                return Err(SyntaxError::new(argument.at, "invalid argument to has() macro"));
            };
            Ok(parser.make(at, Node::Select { of, field, optional: false, test: true }))
        }
        ("cel.bind", 3) => {
            let (body, value) = (arguments.remove(2), arguments.remove(1));
            let name = variable(&arguments[0])?;
            Ok(parser.make(at, Node::Bind { name, value: value.into(), body: body.into() }))
        }
        _ => Ok(parser.make(at, Node::Call { function: name.to_owned(), member: false, arguments })),
    }
}

fn variable(expr: &Expr) -> Result<String, SyntaxError> {
    match &expr.node {
        Node::Ident(name) => Ok(name.clone()),
        _ => Err(SyntaxError::new(expr.at, "argument must be a simple name")),
    }
}

/// What `of.name(arguments)` expands to, or `None` when it is an ordinary call.
pub fn member(
    parser: &mut Parser<'_>,
    at: usize,
    of: &Expr,
    name: &str,
    arguments: &mut Vec<Expr>,
) -> Result<Option<Expr>, SyntaxError> {
    use FoldKind::{All, Exists, ExistsOne, Filter, List, Map, MapEntry};
    if let ("optMap" | "optFlatMap", 2) = (name, arguments.len()) {
        let (body, of) = (arguments.remove(1), of.clone());
        let lift = Node::Lift {
            of: of.into(),
            name: variable(&arguments[0])?,
            body: body.into(),
            flat: name == "optFlatMap",
        };
        return Ok(Some(parser.make(at, lift)));
    }
    if let ("sortBy", 2) = (name, arguments.len()) {
        let (body, first) = (arguments.remove(1), variable(&arguments[0])?);
        let fold = Fold { kind: List, range: of.clone(), first, second: None, filter: None, body };
        let keys = parser.make(at, Node::Fold(fold.into()));
        let arguments = vec![of.clone(), keys];
        let sorted = Node::Call { function: "@sortByAssociatedKeys".to_owned(), member: true, arguments };
        return Ok(Some(parser.make(at, sorted)));
    }
    // Kind, whether there are two variables, whether a filter stands before the body.
    let (kind, two, filtered) = match (name, arguments.len()) {
        ("all", 2) => (All, false, false),
        ("all", 3) => (All, true, false),
        ("exists", 2) => (Exists, false, false),
        ("exists", 3) => (Exists, true, false),
        ("exists_one" | "existsOne", 2) => (ExistsOne, false, false),
        ("exists_one" | "existsOne", 3) => (ExistsOne, true, false),
        ("filter", 2) => (Filter, false, false),
        ("map", 2) => (List, false, false),
        ("map", 3) => (List, false, true),
        ("transformList", 3) => (List, true, false),
        ("transformList", 4) => (List, true, true),
        ("transformMap", 3) => (Map, true, false),
        ("transformMap", 4) => (Map, true, true),
        ("transformMapEntry", 3) => (MapEntry, true, false),
        ("transformMapEntry", 4) => (MapEntry, true, true),
        _ => return Ok(None),
    };
    let mut arguments = std::mem::take(arguments).into_iter();
    let mut next = || arguments.next().ok_or_else(|| SyntaxError::new(at, "too few arguments of a macro"));
    let first = variable(&next()?)?;
    let second = if two { Some(variable(&next()?)?) } else { None };
    if second.as_ref() == Some(&first) {
        return Err(SyntaxError::new(at, "duplicate iteration variable"));
    }
    let filter = if filtered { Some(next()?) } else { None };
    let fold = Fold { kind, range: of.clone(), first, second, filter, body: next()? };
    Ok(Some(parser.make(at, Node::Fold(fold.into()))))
}

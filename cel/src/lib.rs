//! CEL, the Common Expression Language, as Kubernetes speaks it: parser, checker, interpreter and libraries, with
//! the costs that limit what a rule of a user may do. No I/O.
//!
//! ```
//! use coracle_cel::{Budget, Env, Program, Type, typed};
//! let env = Env::default().variable("self", Type::map(Type::STRING, Type::Int));
//! let program = Program::compile("self.replicas <= 3 && self.all(k, self[k] > 0)", &env).unwrap();
//! let object = serde_json::json!({ "replicas": 2 });
//! let own = Type::map(Type::STRING, Type::Int);
//! let variables = [("self", typed(&object, &own))];
//! let value = program.eval(&variables, &mut Budget::of(1_000_000)).unwrap();
//! assert_eq!(value, coracle_cel::Value::Bool(true));
//! ```

mod ast;
mod check;
pub mod declare;
pub mod devices;
mod error;
mod estimate;
mod eval;
mod functions;
mod lexer;
mod parser;
pub mod rules;
pub mod sizes;
pub mod types;
pub mod value;

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod tests;

use ast::{Expr, Node};
use functions::Known;

pub use check::Env;
pub use error::{EvalError, Issues};
pub use estimate::Sizes;
pub use eval::{Budget, Variables, lazy, list_of};
pub use types::{Field, ListKind, ListType, MapType, ObjectType, Type};
pub use value::{External, Fields, List, Map, Value, to_json, typed};

/// A checked expression, ready to run as often as wanted.
#[derive(Debug)]
pub struct Program {
    source: String,
    expr: Expr,
    types: Vec<Type>,
    functions: Vec<Option<&'static Known>>,
}

impl Program {
    /// Parses and checks.
    ///
    /// # Errors
    /// All mistakes, each with its place in the source.
    pub fn compile(source: &str, env: &Env) -> Result<Self, Issues> {
        let (expr, nodes) = parser::parse(source).map_err(|error| Issues::of(source, &[error]))?;
        let types = check::check(&expr, nodes, env).map_err(|errors| Issues::of(source, &errors))?;
        let mut functions = vec![None; nodes];
        resolve(&expr, &mut functions);
        Ok(Self { source: source.to_owned(), expr, types, functions })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type of the value.
    pub fn result(&self) -> &Type {
        &self.types[self.expr.id]
    }

    /// Whether the expression names this variable anywhere.
    pub fn mentions(&self, variable: &str) -> bool {
        let mut found = false;
        walk(&self.expr, &mut |expr| found |= matches!(&expr.node, Node::Ident(name) if name == variable));
        found
    }

    /// Whether the expression names this field of this variable anywhere: `variable.field`, `has(variable.field)`,
    /// `variable.?field`.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        let mut found = false;
        walk(&self.expr, &mut |expr| {
            if let Node::Select { of, field: named, .. } = &expr.node {
                found |= named == field && matches!(&of.node, Node::Ident(name) if name == variable);
            }
        });
        found
    }

    /// What one run can cost at most, with variables of these sizes.
    pub fn cost<'s>(&'s self, sizes: Sizes<'s>) -> u64 {
        estimate::Estimate::new(&self.types, &self.functions, sizes).cost(&self.expr)
    }

    /// # Errors
    /// What went wrong while it ran, the budget's end among it.
    pub fn eval<'a>(
        &'a self,
        variables: &dyn Variables<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, EvalError> {
        let mut run = eval::Run { functions: &self.functions, variables, budget, locals: Vec::new() };
        run.eval(&self.expr)
    }
}

fn resolve(expr: &Expr, functions: &mut [Option<&'static Known>]) {
    walk(expr, &mut |expr| {
        if let Node::Call { function, .. } = &expr.node {
            functions[expr.id] = functions::find(function);
        }
    });
}

/// Every node, from the outside in.
fn walk(expr: &Expr, see: &mut dyn FnMut(&Expr)) {
    see(expr);
    expr.parts().into_iter().for_each(|part| walk(part, see));
}

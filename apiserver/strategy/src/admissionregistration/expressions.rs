//! Expressions of webhooks and policies, compiled to see whether they can be.

use super::*;
use crate::expression::{Composed, Declared, Expression, Typing};
use coracle_cel::Type;

/// What the expressions of one policy may name.
pub struct Expressions {
    declared: Declared,
    composed: Composed,
}

impl Expressions {
    pub fn new(params: bool) -> Self {
        Self::with(Declared { params, authorizer: true, ..Declared::default() })
    }

    pub fn with(declared: Declared) -> Self {
        Self { declared, composed: Composed::default() }
    }

    pub fn declared(&self) -> Declared {
        self.declared
    }

    /// One more of `spec.variables`, which those behind it may name.
    pub fn variable(&mut self, name: &str, source: &str, path: &Path, errors: &mut Errors) {
        let expression = self.composed.add(name, source, self.declared, &Typing::default());
        if let Err(why) = &expression.program {
            errors.invalid(path, source, why);
        }
    }

    /// Compiles; `wanted` are the types that the value may have, empty for any.
    pub fn check(&self, source: &str, declared: Declared, wanted: &[Type], path: &Path, errors: &mut Errors) {
        let composed = Some(&self.composed);
        let expression = Expression::compile(source, declared, composed, wanted, &Typing::default());
        if let Err(why) = &expression.program {
            errors.invalid(path, source, why);
        }
    }
}

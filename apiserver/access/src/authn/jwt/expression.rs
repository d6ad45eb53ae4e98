//! CEL over the claims of a token, and over the user that they make.

use coracle_api::UserInfo;
use coracle_cel::{Budget, Env, Field, ObjectType, Program, Type, to_json, typed};
use serde_json::{Value as Json, json};
use std::sync::{Arc, LazyLock};

/// Of one expression, in units of CEL's cost model: what admission allows one.
const COST: u64 = 1_000_000;

/// What expressions speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// `claims`: a map from names to anything.
    Claims,
    /// `user`: `username`, `uid`, `groups`, `extra`.
    User,
}

static CLAIMS: LazyLock<Type> = LazyLock::new(|| Type::map(Type::STRING, Type::Dyn));

static USER: LazyLock<Type> = LazyLock::new(|| {
    let texts = Type::list(Type::STRING);
    let fields = [
        ("username", Type::STRING),
        ("uid", Type::STRING),
        ("groups", texts.clone()),
        ("extra", Type::map(Type::STRING, texts)),
    ];
    let field = |(name, of): (&str, Type)| (name.to_owned(), Field { json: name.to_owned(), of });
    let fields = fields.into_iter().map(field).collect();
    Type::Object(Arc::new(ObjectType { name: "kubernetes.UserInfo".to_owned(), fields }))
});

impl Of {
    fn variable(self) -> (&'static str, &'static Type) {
        match self {
            Self::Claims => ("claims", &CLAIMS),
            Self::User => ("user", &USER),
        }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    of: Of,
}

impl Expression {
    /// `condition`: it must be a bool.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn compile(source: &str, of: Of, condition: bool) -> Result<Self, String> {
        let (name, declared) = of.variable();
        let env = Env::default().variable(name, declared.clone());
        let program =
            Program::compile(source, &env).map_err(|issues| format!("compilation failed: {issues}"))?;
        if condition && *program.result() != Type::Bool {
            return Err("must evaluate to bool".to_owned());
        }
        Ok(Self { program, of })
    }

    pub fn source(&self) -> &str {
        self.program.source()
    }

    /// Whether it names this claim.
    pub fn names_claim(&self, claim: &str) -> bool {
        self.of == Of::Claims && self.program.selects("claims", claim)
    }

    /// # Errors
    /// What went wrong while it ran.
    pub fn eval(&self, value: &Json) -> Result<Json, String> {
        let (name, declared) = self.of.variable();
        let outcome = self.program.eval(&[(name, typed(value, declared))], &mut Budget::of(COST));
        let outcome = outcome.and_then(|value| to_json(&value));
        outcome.map_err(|error| format!("expression '{}' resulted in error: {error}", self.source()))
    }
}

/// The user as expressions see it: every field is there.
pub fn user_value(user: &UserInfo) -> Json {
    json!({ "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra })
}

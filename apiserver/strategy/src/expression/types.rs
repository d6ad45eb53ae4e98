//! The types that expressions of mutations return.

use coracle_cel::{ObjectType, Type};
use std::sync::Arc;

/// The type of `JSONPatch` expressions; fields are checked where one is made.
pub fn json_patches() -> Type {
    Type::list(structure("JSONPatch"))
}

/// An object whose fields nobody checks here.
pub fn structure(name: &str) -> Type {
    Type::Object(Arc::new(ObjectType { name: name.to_owned(), ..ObjectType::default() }))
}

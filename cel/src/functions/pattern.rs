//! Regular expressions, compiled once ([`coracle_api::re2`] says how they are read).

use crate::error::EvalError;
use coracle_api::re2;
use regex::Regex;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A pattern of a user may not take more memory than this when it is compiled.
const COMPILED_MAX_BYTES: usize = 1 << 20;
/// Compiled patterns that are kept; most patterns are literals of rules, of which there are few.
const KEPT: usize = 256;

/// The compiled pattern.
///
/// # Errors
/// What is wrong with it.
pub fn compiled(pattern: &str) -> Result<Regex, EvalError> {
    static KNOWN: OnceLock<Mutex<HashMap<String, Regex>>> = OnceLock::new();
    let known = || KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known().get(pattern) {
        return Ok(found.clone());
    }
    let built = re2::compile(pattern, COMPILED_MAX_BYTES);
    let built = built.map_err(|error| EvalError::Message(error.to_string()))?;
    let mut kept = known();
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), built.clone());
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_once_is_found_again() {
        assert!(compiled("^a+$").unwrap().is_match("aa"));
        assert!(compiled("^a+$").unwrap().is_match("a"));
        let wrong = compiled("(").map(|_| ()).unwrap_err();
        assert_eq!(wrong.to_string(), "error parsing regexp: missing closing ): `(`");
    }
}

//! Regular expressions as Go's RE2 reads them (<https://github.com/google/re2/wiki/Syntax>), run by the `regex` crate:
//! neither goes back on its tracks, both take the leftmost match. The differences in notation are translated, and what is
//! wrong is said in Go's words, which people search for.

mod class;
#[cfg(test)]
mod tests;
mod translate;

use regex::{Regex, RegexBuilder};
use std::fmt;

/// Go's bound of nested groups.
const DEEPEST: u32 = 1_000;

/// What is wrong with an expression, and the piece of it that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    why: &'static str,
    piece: String,
}

impl PatternError {
    fn new(why: &'static str, piece: &str) -> Self {
        Self { why, piece: piece.to_owned() }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.why, self.piece)
    }
}

impl std::error::Error for PatternError {}

/// Compiles an expression, which may take `max_bytes` of memory.
///
/// # Errors
/// In Go's words, where Go refuses it too; `expression too large` where only the bound does.
pub fn compile(pattern: &str, max_bytes: usize) -> Result<Regex, PatternError> {
    let translated = translate::translate(pattern)?;
    let built = RegexBuilder::new(&translated).size_limit(max_bytes).nest_limit(DEEPEST * 2).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::new("expression too large", pattern),
        _ => PatternError::new("internal error", pattern),
    })
}

//! `pattern`: regular expressions as Go reads them.

use crate::re2::compile;
use regex::Regex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

/// Memory that the compiled form of one may take: classes of Unicode that are repeated take megabytes.
const MAX_BYTES: usize = 10 << 20;

/// Compiled when it is first asked. Definitions repeat a few expressions many hundred times (the one of quantities above
/// all), and a compiled one takes tens of kilobytes: equal ones are one.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Option<Arc<Regex>>>,
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    /// Whether it is an expression, as [`is_match`](Self::is_match) would read it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(text: &str) -> Result<(), String> {
        compile(text, MAX_BYTES).map(drop).map_err(|error| error.to_string())
    }

    /// What no engine can read refuses nothing; definitions with such patterns are refused themselves.
    pub fn is_match(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| shared(&self.text));
        compiled.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn shared(text: &str) -> Option<Arc<Regex>> {
    static KNOWN: LazyLock<Mutex<HashMap<Box<str>, Weak<Regex>>>> = LazyLock::new(Mutex::default);
    // Plain data, whole after a panic.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = known.get(text).and_then(Weak::upgrade) {
        return Some(regex);
    }
    let regex = Arc::new(compile(text, MAX_BYTES).ok()?);
    known.retain(|_, regex| regex.strong_count() > 0);
    known.insert(text.into(), Arc::downgrade(&regex));
    Some(regex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_are_one() {
        let (one, two) = (Pattern::new("^same$"), Pattern::new("^same$"));
        assert!(one.is_match("same") && two.is_match("same"));
        let of = |pattern: &Pattern| pattern.compiled.get().cloned().flatten().unwrap();
        assert!(Arc::ptr_eq(&of(&one), &of(&two)));
    }

    #[test]
    fn what_cannot_be_read_refuses_nothing() {
        assert!(Pattern::new("a(").is_match("b"));
    }
}

//! `pattern`: regular expressions as Go reads them.

use regex::Regex;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

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
        Regex::new(&as_ascii(text)).map(drop).map_err(|error| {
            let text = error.to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })
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
    let regex = Arc::new(Regex::new(&as_ascii(text)).ok()?);
    known.retain(|_, regex| regex.strong_count() > 0);
    known.insert(text.into(), Arc::downgrade(&regex));
    Some(regex)
}

/// Go's `\d`, `\w`, `\s` and their opposites know ASCII alone; those of the engine here know all scripts.
fn as_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(class) => escape(class, in_class, &mut out),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                out.push('[');
            }
            // Plain in a class of Go's, the beginning of another one here.
            '[' if !out.ends_with('[') || !chars.as_str().starts_with(':') => {
                out.push_str(if chars.as_str().starts_with(':') { "[" } else { "\\[" });
            }
            ']' if in_class && !out.ends_with('[') && !out.ends_with("[^") && !out.ends_with(':') => {
                in_class = false;
                out.push(']');
            }
            // Stands for itself in Go where it says no number of times.
            '{' if !in_class && !is_repetition(chars.as_str()) => out.push_str("\\{"),
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// `2}`, `2,}` or `2,3}`
fn is_repetition(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once('}') else { return false };
    let (least, most) = inside.split_once(',').unwrap_or((inside, "0"));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

fn escape(class: char, in_class: bool, out: &mut String) {
    let (inside, opposite) = match class {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("0-9A-Za-z_", true),
        's' => ("\\t\\n\\f\\r ", false),
        'S' => ("\\t\\n\\f\\r ", true),
        // Edges of words for the engine here.
        '<' | '>' => return out.push(class),
        'b' if !in_class => return out.push_str("(?-u:\\b)"),
        other => {
            out.push('\\');
            return out.push(other);
        }
    };
    match (in_class, opposite) {
        (true, false) => out.push_str(inside),
        _ => out.push_str(&format!("[{}{inside}]", if opposite { "^" } else { "" })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_go() {
        for (pattern, fits, fails) in [
            (r"^\d+$", "12", "١٢"),
            (r"^[\w.-]+$", "a_b-c.d", "é"),
            (r"^\S+$", "é", "a b"),
            (r"^[^\s]+$", "ab", "a b"),
            (r"^[[:alpha:]]+$", "ab", "a1"),
            (r"^[a[]+$", "a[", "b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^\[x\]$", "[x]", "x"),
            (r"^{a{2}{}$", "{aa{}", "aa"),
            (r"^\<a\>$", "<a>", "a"),
            (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(Ki|Mi|m|)$", "1.5Mi", "x"),
        ] {
            let pattern = Pattern::new(pattern);
            assert!(pattern.is_match(fits), "{pattern} {fits}");
            assert!(!pattern.is_match(fails), "{pattern} {fails}");
        }
    }

    #[test]
    fn equal_ones_are_one() {
        let (one, two) = (Pattern::new("^same$"), Pattern::new("^same$"));
        assert!(one.is_match("same") && two.is_match("same"));
        let of = |pattern: &Pattern| pattern.compiled.get().cloned().flatten().unwrap();
        assert!(Arc::ptr_eq(&of(&one), &of(&two)));
    }
}

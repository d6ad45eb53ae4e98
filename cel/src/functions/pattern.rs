//! Regular expressions as Go's RE2 reads them, run by the `regex` crate: neither goes back on its tracks, both take the
//! leftmost match, and the differences in notation are translated here. <https://github.com/google/re2/wiki/Syntax>

use crate::error::EvalError;
use regex::{Regex, RegexBuilder};
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
    let built = RegexBuilder::new(&translate(pattern)).size_limit(COMPILED_MAX_BYTES).build();
    let built =
        built.map_err(|error| EvalError::Message(format!("error parsing regexp: {}", why(&error))))?;
    let mut kept = known();
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), built.clone());
    Ok(built)
}

/// The last line of the crate's many.
fn why(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// RE2's notation in the crate's: `\d`, `\w`, `\s` and `\b` know ASCII only, `\Q...\E` quotes, and in a class neither `[`
/// nor doubled signs mean anything.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut class = Class::Outside;
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                let Some(next) = rest.next() else {
                    out.push('\\');
                    break;
                };
                escape(next, class != Class::Outside, &mut rest, &mut out);
                class = class.inside();
            }
            '[' if class == Class::Outside => {
                out.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                class = Class::First;
            }
            '[' if rest.peek() == Some(&':') => {
                // `[:alpha:]`, which both know.
                out.push('[');
                for c in rest.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
                class = Class::Inside;
            }
            ']' if class == Class::First => {
                out.push_str("\\]");
                class = Class::Inside;
            }
            ']' if class == Class::Inside => {
                out.push(']');
                class = Class::Outside;
            }
            '[' | '&' | '~' if class != Class::Outside => {
                out.push('\\');
                out.push(c);
                class = Class::Inside;
            }
            other => {
                out.push(other);
                class = class.inside();
            }
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Outside,
    /// Just behind the bracket, where another one stands for itself.
    First,
    Inside,
}

impl Class {
    fn inside(self) -> Self {
        if self == Self::Outside { Self::Outside } else { Self::Inside }
    }
}

fn escape(
    letter: char,
    in_class: bool,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    out: &mut String,
) {
    let set = match letter {
        'd' => Some(("0-9", false)),
        'D' => Some(("0-9", true)),
        'w' => Some(("0-9A-Za-z_", false)),
        'W' => Some(("0-9A-Za-z_", true)),
        's' => Some(("\\t\\n\\x0c\\r ", false)),
        'S' => Some(("\\t\\n\\x0c\\r ", true)),
        _ => None,
    };
    match (letter, set) {
        (_, Some((set, negative))) => {
            // Within a class the crate takes classes; outside of one it is one of its own.
            let plain = in_class && !negative;
            out.push_str(match (plain, negative) {
                (true, _) => "",
                (false, false) => "[",
                (false, true) => "[^",
            });
            out.push_str(set);
            out.push_str(if plain { "" } else { "]" });
        }
        ('b', _) if !in_class => out.push_str("(?-u:\\b)"),
        ('Q', _) if !in_class => {
            let mut quoted = String::new();
            while let Some(c) = rest.next() {
                if c == '\\' && rest.next_if_eq(&'E').is_some() {
                    break;
                }
                quoted.push(c);
            }
            out.push_str(&regex::escape(&quoted));
        }
        _ => {
            out.push('\\');
            out.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_re2_means() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d$", "٣", false),
            (r"^\w$", "é", false),
            (r"^[\w.]+$", "a.b", true),
            (r"^[^\d]$", "5", false),
            (r"^[\D]$", "x", true),
            (r"^\s$", "\u{a0}", false),
            (r"^[[]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]$", "&", true),
            (r"^[[:alpha:]-]$", "-", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"\bfoo\b", "a foo b", true),
            (r"(?i)^STRASSE$", "strasse", true),
            (r"^\pL$", "é", true),
        ] {
            let found = compiled(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(found.is_match(text), matches, "{pattern} {text}");
        }
        for wrong in ["(", r"\", "[a", "(?=a)", r"(a)\1", "x{2000}{2000}"] {
            assert!(compiled(wrong).is_err(), "{wrong}");
        }
    }
}

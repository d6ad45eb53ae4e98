//! Classes of characters, and characters in disguise.

use super::PatternError;
use super::translate::{Translation, literal};
use regex::Regex;
use std::fmt::Write;

type Read<T> = Result<T, PatternError>;

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// The set of `\d`, `\w`, `\s` and their opposites, which know ASCII alone; true for an opposite.
pub(super) fn perl(letter: char) -> Option<(&'static str, bool)> {
    Some(match letter {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("0-9A-Za-z_", true),
        's' => ("\\t\\n\\x0c\\r ", false),
        'S' => ("\\t\\n\\x0c\\r ", true),
        _ => return None,
    })
}

/// `[...]`
pub(super) fn bracketed(t: &mut Translation<'_>) -> Read<()> {
    let begin = t.rest;
    t.take(1);
    t.out.push('[');
    if t.rest.starts_with('^') {
        t.take(1);
        t.out.push('^');
    }
    let mut first = true;
    while first || !t.rest.starts_with(']') {
        first = false;
        member(t, begin)?;
    }
    t.take(1);
    t.out.push(']');
    Ok(())
}

/// One member of a class that begins at `begin`.
fn member(t: &mut Translation<'_>, begin: &str) -> Read<()> {
    if t.rest.starts_with("[:")
        && let Some(end) = t.rest[2..].find(":]")
    {
        let name = t.take(end + 4);
        let plain = name[2..end + 2].trim_start_matches('^');
        if !POSIX.contains(&plain) {
            return Err(PatternError::new("invalid character class range", name));
        }
        t.out.push_str(name);
        return Ok(());
    }
    if t.rest.starts_with("\\p") || t.rest.starts_with("\\P") {
        return unicode(t);
    }
    let mut chars = t.rest.chars();
    if let (Some('\\'), Some((set, negative))) = (chars.next(), chars.next().and_then(perl)) {
        t.take(2);
        let _ = if negative { write!(t.out, "[^{set}]") } else { write!(t.out, "{set}") };
        return Ok(());
    }
    let range = t.rest;
    let low = one(t, begin)?;
    let mut rest = t.rest.chars();
    if rest.next() != Some('-') || matches!(rest.next(), None | Some(']')) {
        literal(low, &mut t.out);
        return Ok(());
    }
    t.take(1);
    let high = one(t, begin)?;
    if high < low {
        let piece = &range[..range.len() - t.rest.len()];
        return Err(PatternError::new("invalid character class range", piece));
    }
    literal(low, &mut t.out);
    t.out.push('-');
    literal(high, &mut t.out);
    Ok(())
}

fn one(t: &mut Translation<'_>, begin: &str) -> Read<char> {
    match t.rest.chars().next() {
        None => Err(PatternError::new("missing closing ]", begin)),
        Some('\\') => escaped(t),
        Some(c) => {
            t.take(c.len_utf8());
            Ok(c)
        }
    }
}

/// `\pL`, `\p{Greek}`, `\P{^Greek}`
pub(super) fn unicode(t: &mut Translation<'_>) -> Read<()> {
    let length = match t.rest[2..].chars().next() {
        Some('{') => t.rest.find('}').map(|end| end + 1),
        Some(c) => Some(2 + c.len_utf8()),
        None => None,
    };
    let Some(length) = length else {
        return Err(PatternError::new("invalid character class range", t.rest));
    };
    let sequence = t.take(length);
    // The crate's tables know which names there are; `^` in braces is the other way to say the opposite.
    let plain = sequence.replacen("{^", "{", 1);
    let turned = match (plain != sequence, plain.starts_with("\\p")) {
        (false, _) => plain,
        (true, true) => plain.replacen("\\p", "\\P", 1),
        (true, false) => plain.replacen("\\P", "\\p", 1),
    };
    if Regex::new(&turned).is_err() {
        return Err(PatternError::new("invalid character class range", sequence));
    }
    t.out.push_str(&turned);
    Ok(())
}

/// The character that a backslash and what follows it stand for.
pub(super) fn escaped(t: &mut Translation<'_>) -> Read<char> {
    let begin = t.rest;
    t.take(1);
    let Some(c) = t.rest.chars().next() else {
        return Err(PatternError::new("trailing backslash at end of expression", ""));
    };
    t.take(c.len_utf8());
    let octal = |t: &Translation<'_>| t.rest.chars().next().and_then(|c| c.to_digit(8));
    let found = match c {
        '0' => Some(octal_digits(t, 0)),
        '1'..='7' if octal(t).is_some() => Some(octal_digits(t, c.to_digit(8).unwrap_or_default())),
        'x' => hexadecimal(t),
        'a' => Some(7),
        'f' => Some(12),
        'n' => Some(10),
        'r' => Some(13),
        't' => Some(9),
        'v' => Some(11),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => return Ok(c),
        _ => None,
    };
    let wrong = || PatternError::new("invalid escape sequence", &begin[..begin.len() - t.rest.len()]);
    found.and_then(char::from_u32).ok_or_else(wrong)
}

/// Up to two digits more.
fn octal_digits(t: &mut Translation<'_>, first: u32) -> u32 {
    let mut number = first;
    for _ in 0..2 {
        let Some(digit) = t.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
        t.take(1);
        number = number * 8 + digit;
    }
    number
}

/// `41` or `{1F600}`, behind `\x`.
fn hexadecimal(t: &mut Translation<'_>) -> Option<u32> {
    let mut next = || {
        let c = t.rest.chars().next()?;
        t.take(c.len_utf8());
        Some(c)
    };
    let first = next()?;
    if first != '{' {
        return Some(first.to_digit(16)? * 16 + next()?.to_digit(16)?);
    }
    let (mut number, mut any) = (0_u32, false);
    loop {
        match next()? {
            '}' => return any.then_some(number),
            c => {
                number = number.checked_mul(16)?.checked_add(c.to_digit(16)?)?;
                any = true;
            }
        }
    }
}

//! From Go's notation to the crate's, in one pass that knows where it is.

use super::{DEEPEST, PatternError, class};
use std::fmt::Write;

/// Most repetitions that may be asked for.
const MOST_TIMES: u32 = 1_000;

type Read<T> = Result<T, PatternError>;

/// What is still to be read and what was written of it.
pub(super) struct Translation<'p> {
    pub whole: &'p str,
    pub rest: &'p str,
    pub out: String,
    depth: u32,
    /// Whether something stands before that can be repeated.
    repeatable: bool,
    /// The repetition just before, from its first sign on.
    repeated: Option<&'p str>,
}

pub(super) fn translate(pattern: &str) -> Read<String> {
    let mut t = Translation {
        whole: pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len() + 16),
        depth: 0,
        repeatable: false,
        repeated: None,
    };
    while let Some(c) = t.rest.chars().next() {
        t.token(c)?;
    }
    if t.depth > 0 {
        return Err(PatternError::new("missing closing )", pattern));
    }
    Ok(t.out)
}

/// A character that stands for itself wherever it is.
pub(super) fn literal(c: char, out: &mut String) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{{{:x}}}", u32::from(c));
    }
}

impl<'p> Translation<'p> {
    pub fn take(&mut self, bytes: usize) -> &'p str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn token(&mut self, c: char) -> Read<()> {
        let before = self.repeated.take();
        let known = self.repeatable;
        self.repeatable = true;
        match c {
            '(' => self.open()?,
            ')' => self.close()?,
            '|' => {
                self.take(1);
                self.out.push('|');
                self.repeatable = false;
            }
            '[' => class::bracketed(self)?,
            '\\' => self.escape()?,
            '*' | '+' | '?' => self.repetition(1, known, before)?,
            '{' => match counts(self.rest) {
                None => literal_of(self),
                Some((length, least, most)) => {
                    let wrong =
                        least > MOST_TIMES || most.is_some_and(|most| most > MOST_TIMES || most < least);
                    if wrong {
                        return Err(PatternError::new("invalid repeat count", &self.rest[..length]));
                    }
                    self.repetition(length, known, before)?;
                }
            },
            '.' | '^' | '$' => {
                self.take(1);
                self.out.push(c);
            }
            _ => literal_of(self),
        }
        Ok(())
    }

    /// A sign that repeats what stands before it, `length` bytes long.
    fn repetition(&mut self, length: usize, repeatable: bool, before: Option<&'p str>) -> Read<()> {
        let begin = self.rest;
        let sign = self.take(length);
        self.out.push_str(sign);
        if self.rest.starts_with('?') {
            self.take(1);
            self.out.push('?');
        }
        if let Some(first) = before {
            let piece = &first[..first.len() - self.rest.len()];
            return Err(PatternError::new("invalid nested repetition operator", piece));
        }
        if !repeatable {
            let piece = &begin[..begin.len() - self.rest.len()];
            return Err(PatternError::new("missing argument to repetition operator", piece));
        }
        self.repeated = Some(begin);
        Ok(())
    }

    fn open(&mut self) -> Read<()> {
        self.repeatable = false;
        if self.rest.starts_with("(?") {
            return self.flags();
        }
        self.take(1);
        self.out.push('(');
        self.deeper()
    }

    fn deeper(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(PatternError::new("expression nests too deeply", self.whole));
        }
        Ok(())
    }

    fn close(&mut self) -> Read<()> {
        if self.depth == 0 {
            return Err(PatternError::new("unexpected )", self.whole));
        }
        self.depth -= 1;
        self.take(1);
        self.out.push(')');
        Ok(())
    }

    /// `(?i)`, `(?s-m:`, `(?P<name>`, `(?<name>`
    fn flags(&mut self) -> Read<()> {
        let begin = self.rest;
        if let Some(head) = ["(?P<", "(?<"].into_iter().find(|head| begin.starts_with(head)) {
            let Some(end) = begin.find('>') else {
                return Err(PatternError::new("invalid named capture", begin));
            };
            let name = &begin[head.len()..end];
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return Err(PatternError::new("invalid named capture", &begin[..=end]));
            }
            // Nobody asks for a group by its name, and the names of the crate are others.
            self.take(end + 1);
            self.out.push('(');
            return self.deeper();
        }
        self.take(2);
        let (mut negative, mut any) = (false, false);
        while let Some(c) = self.rest.chars().next() {
            self.take(c.len_utf8());
            match c {
                'i' | 'm' | 's' | 'U' => any = true,
                '-' if !negative => (negative, any) = (true, false),
                ':' | ')' if any || !negative => {
                    let flags = &begin[..begin.len() - self.rest.len()];
                    // The crate knows no flags at all only with a colon.
                    self.out.push_str(if flags == "(?)" { "(?:)" } else { flags });
                    return if c == ':' { self.deeper() } else { Ok(()) };
                }
                _ => break,
            }
        }
        let piece = &begin[..begin.len() - self.rest.len()];
        Err(PatternError::new("invalid or unsupported Perl syntax", piece))
    }

    fn escape(&mut self) -> Read<()> {
        let mut chars = self.rest.chars();
        chars.next();
        match chars.next() {
            Some('A' | 'z') => {
                let anchor = self.take(2);
                self.out.push_str(anchor);
            }
            // Edges of words of ASCII.
            Some('b') => {
                self.take(2);
                self.out.push_str("(?-u:\\b)");
            }
            Some('B') => {
                let edge = self.take(2);
                self.out.push_str(edge);
            }
            Some('Q') => {
                self.take(2);
                let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.repeatable = !quoted.is_empty();
                quoted.chars().for_each(|c| literal(c, &mut self.out));
                self.rest = rest;
            }
            Some('p' | 'P') => class::unicode(self)?,
            Some(letter) if class::perl(letter).is_some() => {
                self.take(2);
                let (set, negative) = class::perl(letter).unwrap_or_default();
                let _ = write!(self.out, "[{}{set}]", if negative { "^" } else { "" });
            }
            _ => {
                let c = class::escaped(self)?;
                literal(c, &mut self.out);
            }
        }
        Ok(())
    }
}

fn literal_of(t: &mut Translation<'_>) {
    if let Some(c) = t.rest.chars().next() {
        t.take(c.len_utf8());
        literal(c, &mut t.out);
    }
}

/// The length of `{2}`, `{2,}` or `{2,3}` and its numbers; `None` for what is no repetition and stands for itself. Numbers
/// that are too large count as one too many.
fn counts(text: &str) -> Option<(usize, u32, Option<u32>)> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let is_plain = digits == "0" || !digits.starts_with('0');
        (is_number && is_plain).then(|| digits.parse().unwrap_or(MOST_TIMES + 1))
    };
    let length = inside.len() + 2;
    match inside.split_once(',') {
        None => number(inside).map(|times| (length, times, Some(times))),
        Some((least, "")) => number(least).map(|least| (length, least, None)),
        Some((least, most)) => Some((length, number(least)?, Some(number(most)?))),
    }
}

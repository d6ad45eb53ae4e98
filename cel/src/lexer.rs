//! Source text to tokens, as the language definition has them.
//! <https://github.com/google/cel-spec/blob/master/doc/langdef.md>

use crate::error::SyntaxError;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Ident(String),
    /// `a.`b-c``: a field name in back quotes.
    Quoted(String),
    Int(i64),
    /// One more than the largest `i64`, which only a minus makes a number.
    IntMin,
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    /// Operators and punctuation.
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "!", "<", ">", "+",
    "-", "*", "/", "%",
];

pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

/// All tokens with the byte offset each begins at; the last is [`Token::End`].
pub fn tokens(text: &str) -> Result<Vec<(usize, Token)>, SyntaxError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut all = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let token = lexer.token()?;
        let ended = token == Token::End;
        all.push((at, token));
        if ended {
            return Ok(all);
        }
    }
}

fn ident_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn ident_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.at, message)
    }

    fn take_while(&mut self, good: impl Fn(char) -> bool) -> String {
        let taken: String = self.rest().chars().take_while(|c| good(*c)).collect();
        self.at += taken.len();
        taken
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, SyntaxError> {
        let Some(next) = self.peek() else { return Ok(Token::End) };
        if let Some(quoted) = self.string()? {
            return Ok(quoted);
        }
        if ident_start(next) {
            return Ok(Token::Ident(self.take_while(ident_part)));
        }
        let second = self.rest().chars().nth(1);
        if next.is_ascii_digit() || next == '.' && second.is_some_and(|c| c.is_ascii_digit()) {
            return self.number();
        }
        if next == '`' {
            return self.back_quoted();
        }
        let sign = SIGNS.iter().find(|sign| self.rest().starts_with(**sign));
        let sign = sign.ok_or_else(|| self.unknown(next))?;
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }

    /// Half of a sign is told with what stands where its other half should.
    fn unknown(&self, next: char) -> SyntaxError {
        let second = self.rest().chars().nth(1).filter(|_| matches!(next, '=' | '&' | '|'));
        let second = second.map(String::from).unwrap_or_default();
        self.error(format!("Syntax error: token recognition error at: '{next}{second}'"))
    }

    fn back_quoted(&mut self) -> Result<Token, SyntaxError> {
        self.at += 1;
        let name = self.take_while(|c| ident_part(c) || matches!(c, '.' | '-' | '/' | ' '));
        if self.peek() != Some('`') || name.is_empty() {
            return Err(self.error("Syntax error: token recognition error at: '`'"));
        }
        self.at += 1;
        Ok(Token::Quoted(name))
    }

    fn number(&mut self) -> Result<Token, SyntaxError> {
        let begin = self.at;
        if let Some(hex) = self.rest().strip_prefix("0x").or_else(|| self.rest().strip_prefix("0X")) {
            let digits: String = hex.chars().take_while(char::is_ascii_hexdigit).collect();
            self.at += 2 + digits.len();
            return self.integer(begin, &digits, 16);
        }
        let whole = self.take_while(|c| c.is_ascii_digit());
        let mut double = false;
        let mut following = self.rest().chars();
        if following.next() == Some('.') && following.next().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
            double = true;
        }
        if self.exponent() {
            double = true;
        }
        if !double {
            return self.integer(begin, &whole, 10);
        }
        let text = &self.text[begin..self.at];
        text.parse().map(Token::Double).map_err(|_| SyntaxError::new(begin, "invalid double literal"))
    }

    /// Takes an exponent if one follows.
    fn exponent(&mut self) -> bool {
        let rest = self.rest();
        let Some(after) = rest.strip_prefix(['e', 'E']) else { return false };
        let digits = after.strip_prefix(['+', '-']).unwrap_or(after);
        if !digits.starts_with(|c: char| c.is_ascii_digit()) {
            return false;
        }
        self.at += rest.len() - digits.len();
        self.take_while(|c| c.is_ascii_digit());
        true
    }

    fn integer(&mut self, begin: usize, digits: &str, radix: u32) -> Result<Token, SyntaxError> {
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            let parsed = u64::from_str_radix(digits, radix);
            return parsed.map(Token::Uint).map_err(|_| SyntaxError::new(begin, "invalid uint literal"));
        }
        match u64::from_str_radix(digits, radix) {
            Ok(value) if value == 1 << 63 => Ok(Token::IntMin),
            Ok(value) => i64::try_from(value)
                .map(Token::Int)
                .map_err(|_| SyntaxError::new(begin, "invalid int literal")),
            Err(_) => Err(SyntaxError::new(begin, "invalid int literal")),
        }
    }

    /// A string or bytes literal, if one begins here.
    fn string(&mut self) -> Result<Option<Token>, SyntaxError> {
        let lower = |c: char| c.to_ascii_lowercase();
        let prefix: String =
            self.rest().chars().take(2).take_while(|c| matches!(lower(*c), 'r' | 'b')).collect();
        let after = &self.rest()[prefix.len()..];
        if !after.starts_with(['"', '\''])
            || prefix.to_ascii_lowercase().chars().collect::<Vec<_>>() == ['r', 'r']
        {
            return Ok(None);
        }
        let raw = prefix.chars().any(|c| lower(c) == 'r');
        let bytes = prefix.chars().any(|c| lower(c) == 'b');
        self.at += prefix.len();
        let quote =
            ["\"\"\"", "'''", "\"", "'"].into_iter().find(|q| self.rest().starts_with(q)).unwrap_or("\"");
        self.at += quote.len();
        let mut out = Vec::new();
        loop {
            if self.rest().starts_with(quote) {
                self.at += quote.len();
                break;
            }
            let Some(next) = self.peek().filter(|c| quote.len() == 3 || !matches!(c, '\n' | '\r')) else {
                return Err(self.error("token recognition error: the string has no end"));
            };
            self.at += next.len_utf8();
            if next == '\\' && !raw {
                self.escape(bytes, &mut out)?;
            } else {
                out.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if bytes {
            return Ok(Some(Token::Bytes(out)));
        }
        String::from_utf8(out).map(|text| Some(Token::String(text))).map_err(|_| self.error("invalid string"))
    }

    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let letter =
            self.peek().ok_or_else(|| self.error("token recognition error: the string has no end"))?;
        self.at += letter.len_utf8();
        let simple = match letter {
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            '\\' | '\'' | '"' | '`' | '?' => Some(letter),
            _ => None,
        };
        let (digits, radix) = match letter {
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ if simple.is_some() => (0, 10),
            _ => return Err(self.error(format!("unable to unescape string: \\{letter}"))),
        };
        if let Some(c) = simple {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(());
        }
        let text: String = self.rest().chars().take(digits).collect();
        self.at += text.len();
        let code = u32::from_str_radix(&text, radix).ok().filter(|_| text.len() == digits);
        let code = code.ok_or_else(|| self.error("unable to unescape string"))?;
        if bytes && digits < 4 {
            out.push(u8::try_from(code).map_err(|_| self.error("unable to unescape bytes"))?);
            return Ok(());
        }
        let c =
            char::from_u32(code).ok_or_else(|| self.error("unable to unescape string: no such character"))?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Token {
        tokens(text).unwrap().remove(0).1
    }

    #[test]
    fn literals_are_told_apart() {
        assert_eq!(one("0x1F"), Token::Int(31));
        assert_eq!(one("7u"), Token::Uint(7));
        assert_eq!(one("1.5e3"), Token::Double(1500.0));
        assert_eq!(one(".5"), Token::Double(0.5));
        assert_eq!(one(r#"'a\n\u00e9\x41\101'"#), Token::String("a\né\u{41}A".to_owned()));
        assert_eq!(one(r"r'\d'"), Token::String(r"\d".to_owned()));
        assert_eq!(one(r"b'\xff'"), Token::Bytes(vec![255]));
        assert_eq!(one("'''a\n'b'''"), Token::String("a\n'b".to_owned()));
        assert_eq!(one("9223372036854775808"), Token::IntMin);
    }

    #[test]
    fn what_is_no_token_is_refused_where_it_stands() {
        for (text, at) in [("1 + #", 4), ("'abc", 4), (r"'\q'", 3), ("99999999999999999999", 0)] {
            assert_eq!(tokens(text).unwrap_err().at, at, "{text}");
        }
    }
}

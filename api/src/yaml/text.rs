//! Bytes as characters: UTF-8, or UTF-16 with a byte order mark, and no control characters.

use super::YamlError;
use std::borrow::Cow;
use std::str::Utf8Error;

pub(super) fn text(bytes: &[u8]) -> Result<Cow<'_, str>, YamlError> {
    let text: Cow<str> = match bytes {
        [0xff, 0xfe, rest @ ..] => utf_16(rest, u16::from_le_bytes)?.into(),
        [0xfe, 0xff, rest @ ..] => utf_16(rest, u16::from_be_bytes)?.into(),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf_8(rest)?.into(),
        _ => utf_8(bytes)?.into(),
    };
    if is_plain_ascii(&text) || text.chars().all(is_allowed) {
        return Ok(text);
    }
    Err(YamlError::Encoding("control characters are not allowed"))
}

/// What almost every document is, judged many bytes at a time.
fn is_plain_ascii(text: &str) -> bool {
    text.as_bytes().iter().all(|b| matches!(b, 0x20..=0x7e | b'\n' | b'\t' | b'\r'))
}

fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn utf_16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, YamlError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(YamlError::Encoding("incomplete UTF-16 character"));
    }
    char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
        .collect::<Result<String, _>>()
        .map_err(|_| YamlError::Encoding("unexpected low surrogate area"))
}

fn utf_8(bytes: &[u8]) -> Result<&str, YamlError> {
    std::str::from_utf8(bytes).map_err(|error| YamlError::Encoding(wrong(bytes, &error)))
}

/// Which rule of UTF-8 the first wrong character breaks.
fn wrong(bytes: &[u8], error: &Utf8Error) -> &'static str {
    let rest = &bytes[error.valid_up_to()..];
    let width = match rest.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    if rest.len() < width {
        return "incomplete UTF-8 octet sequence";
    }
    if rest[1..width].iter().any(|b| b & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    match rest[..2] {
        [0xc0 | 0xc1, _] | [0xe0, ..0xa0] | [0xf0, ..0x90] => "invalid length of a UTF-8 sequence",
        _ => "invalid Unicode character",
    }
}

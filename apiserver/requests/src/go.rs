//! Numbers as upstream reads them, with its words for what is none.

use std::num::IntErrorKind;

/// `strconv.ParseInt(text, 10, 64)`.
pub fn parse_int(text: &str) -> Result<i64, String> {
    text.parse().map_err(|e: std::num::ParseIntError| failure("ParseInt", text, e.kind()))
}

/// `strconv.ParseUint(text, 10, 64)`, which takes no sign.
pub fn parse_uint(text: &str) -> Result<u64, String> {
    if text.starts_with('+') {
        return Err(failure("ParseUint", text, &IntErrorKind::InvalidDigit));
    }
    text.parse().map_err(|e: std::num::ParseIntError| failure("ParseUint", text, e.kind()))
}

fn failure(function: &str, text: &str, kind: &IntErrorKind) -> String {
    let why = match kind {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

//! What a scalar stands for: YAML 1.1's words and numbers, as upstream's parser knows them.

use super::YamlError;
use super::tree::Scalar;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The prefix of the tags that YAML itself defines, `!!` for short.
const CORE: &str = "tag:yaml.org,2002:";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// Above what an `Int` holds.
    Unsigned(u64),
    Float(f64),
    Text(String),
}

impl Resolved {
    fn tag(&self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Int(_) | Self::Unsigned(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Text(_) => "!!str",
        }
    }
}

/// A merge key, in whose place the keys of other maps are.
pub(super) fn is_merge(scalar: &Scalar<'_>) -> bool {
    scalar.text == "<<"
        && match scalar.tag.as_deref() {
            None => scalar.is_plain,
            Some(tag) => tag.strip_prefix(CORE) == Some("merge"),
        }
}

pub(super) fn resolve(scalar: &Scalar<'_>) -> Result<Resolved, YamlError> {
    let text = &*scalar.text;
    let as_text = || Ok(Resolved::Text(text.to_owned()));
    let Some(tag) = &scalar.tag else {
        return if scalar.is_plain { Ok(plain(text)) } else { as_text() };
    };
    let found = || plain(text);
    match tag.strip_prefix(CORE) {
        Some("bool") => wanted(found(), text, "!!bool"),
        Some("null") => wanted(found(), text, "!!null"),
        Some("int") => wanted(found(), text, "!!int"),
        Some("float") => match found() {
            Resolved::Int(number) => Ok(Resolved::Float(number as f64)),
            other => wanted(other, text, "!!float"),
        },
        // Times stay the text that they are.
        Some("timestamp") if is_timestamp(text) => as_text(),
        Some("timestamp") => Err(mismatch(found().tag(), text, "!!timestamp")),
        Some("binary") => binary(text),
        _ => as_text(),
    }
}

fn wanted(found: Resolved, text: &str, tag: &'static str) -> Result<Resolved, YamlError> {
    if found.tag() == tag { Ok(found) } else { Err(mismatch(found.tag(), text, tag)) }
}

fn mismatch(found: &'static str, text: &str, tag: &'static str) -> YamlError {
    YamlError::Tag { found, text: text.to_owned(), tag }
}

fn binary(text: &str) -> Result<Resolved, YamlError> {
    let packed: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\n' | b'\r')).collect();
    let bytes = STANDARD.decode(packed).map_err(|_| YamlError::Base64)?;
    // In JSON, where all bytes that are no UTF-8 are replaced one by one.
    Ok(Resolved::Text(bytes.utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
        text
    })))
}

/// Without a tag and without quotes. Base 60 is not known, and what is out of range stays text.
fn plain(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits)).or_else(|| binary_integer(&digits))
        }
        _ => None,
    };
    number.unwrap_or_else(|| Resolved::Text(text.to_owned()))
}

/// Decimal, or what its prefix says: `0x`, `0o`, `0b`, or octal with `0` alone.
fn integer(text: &str) -> Option<Resolved> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let amount = u64::from_str_radix(digits, radix).ok()?;
    let signed =
        if text.starts_with('-') { 0i64.checked_sub_unsigned(amount) } else { i64::try_from(amount).ok() };
    match signed {
        Some(number) => Some(Resolved::Int(number)),
        None => (unsigned.len() == text.len()).then_some(Resolved::Unsigned(amount)),
    }
}

/// Digits with at most one point and an exponent: no `inf`, no hexadecimal.
fn float(text: &str) -> Option<Resolved> {
    let is_float = text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b'E'));
    let number: f64 = if is_float { text.parse().ok()? } else { return None };
    number.is_finite().then_some(Resolved::Float(number))
}

/// `0b` may stand before a sign, too.
fn binary_integer(text: &str) -> Option<Resolved> {
    i64::from_str_radix(text.strip_prefix("0b")?, 2).ok().map(Resolved::Int)
}

/// A day, or a day with a time: `2001-12-14`, `2001-12-14t21:59:43.10-05:00`, `2001-12-14 21:59:43.10`.
fn is_timestamp(text: &str) -> bool {
    let Some((year, rest)) = text.split_once('-') else { return false };
    let Some((month, rest)) = rest.split_once('-') else { return false };
    let day_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (day, time) = rest.split_at(day_digits);
    let Some(date) = date(year, month, day) else { return false };
    match time.as_bytes().first() {
        None => true,
        Some(b' ') => clock(&date, &format!("{}Z", &time[1..])),
        Some(b'T' | b't') => clock(&date, &time[1..]),
        Some(_) => false,
    }
}

fn date(year: &str, month: &str, day: &str) -> Option<String> {
    let short = |text: &str| matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
    let fits = year.len() == 4 && short(month) && short(day);
    let date = fits.then(|| format!("{year}-{month:0>2}-{day:0>2}"))?;
    date.parse::<jiff::civil::Date>().is_ok().then_some(date)
}

/// Hours, minutes and seconds may have one digit each.
fn clock(date: &str, time: &str) -> bool {
    let Some(zone) = time.find(|c: char| !matches!(c, '0'..='9' | ':' | '.')) else { return false };
    let (time, zone) = time.split_at(zone);
    let parts: Vec<String> = time.split(':').map(|part| format!("{part:0>2}")).collect();
    parts.len() == 3 && format!("{date}T{}{zone}", parts.join(":")).parse::<jiff::Timestamp>().is_ok()
}

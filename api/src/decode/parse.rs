//! JSON to [`Value`], finding duplicate keys on the way.

use super::path::Path;
use super::{DecodeError, MAX_PROBLEMS, Problems};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};
use std::fmt;

/// Reads one JSON document. Of duplicate keys the last one counts; each is reported with its path.
///
/// Nesting is limited to serde_json's 128 levels, which keeps the stack safe; no built-in type comes near it, and
/// upstream's own limit of 10,000 is worded the same. Bytes that are no UTF-8 become replacement characters, as in Go.
pub fn parse(bytes: &[u8]) -> Result<(Value, Problems), DecodeError> {
    match std::str::from_utf8(bytes) {
        Ok(_) => parse_text(bytes),
        Err(_) => parse_text(String::from_utf8_lossy(bytes).as_bytes()),
    }
}

fn parse_text(bytes: &[u8]) -> Result<(Value, Problems), DecodeError> {
    let mut problems = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Seed(&mut problems, Path::Root).deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    match value {
        Ok(value) => Ok((value, problems)),
        Err(error) => Err(DecodeError::Syntax(words(&error, bytes))),
    }
}

/// How serde_json words the mistakes that people make, and how Go ends its sentence about the character. Its errors have
/// no kind but "syntax": their texts are all there is to tell them by, and a table test holds these.
const MISTAKES: [(&str, &str); 6] = [
    ("expected value", "looking for beginning of value"),
    ("expected ident", "looking for beginning of value"),
    ("key must be a string", "looking for beginning of object key string"),
    ("expected `,` or `}`", "after object key:value pair"),
    ("expected `,` or `]`", "after array element"),
    ("trailing characters", "after top-level value"),
];
const TOO_DEEP: &str = "recursion limit exceeded";

/// Go's words for the mistakes that people make; serde_json's for the rest.
fn words(error: &serde_json::Error, bytes: &[u8]) -> String {
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    if text.starts_with(TOO_DEEP) {
        return "exceeded max depth".to_owned();
    }
    let mistake = MISTAKES.iter().find(|(start, _)| text.starts_with(start));
    match (mistake, character(error, bytes)) {
        (Some((_, end)), Some(c)) => format!("invalid character {c:?} {end}"),
        _ => text,
    }
}

fn character(error: &serde_json::Error, bytes: &[u8]) -> Option<char> {
    let line = bytes.split(|b| *b == b'\n').nth(error.line().checked_sub(1)?)?;
    line.get(error.column().checked_sub(1)?).map(|b| char::from(*b))
}

struct Seed<'s>(&'s mut Problems, Path<'s>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self(problems, path) = self;
        let mut list = Vec::new();
        while let Some(item) = access.next_element_seed(Seed(problems, Path::Index(&path, list.len())))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self(problems, path) = self;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(Seed(problems, Path::Field(&path, &key)))?;
            match map.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    if problems.len() < MAX_PROBLEMS {
                        problems.push(format!("duplicate field \"{}\"", Path::Field(&path, entry.key())));
                    }
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

//! Kubernetes' protobuf form of built-in objects, read into JSON.
//!
//! A body is the four bytes `k8s\0`, then a `runtime.Unknown`: the type (1), the object's message (2), and how it is
//! encoded (3, 4; both empty). Field numbers come from a generated table. Plain zeros, which messages carry and JSON
//! leaves out, are dropped; zeros of fields that are pointers upstream are kept.

mod wire;

use crate::generated::messages::{MESSAGES, ROOTS};
use crate::meta;
use base64::Engine;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use wire::{Reader, Wire};

/// The media type of the form.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting of messages that is read; schemas of CRDs are the deepest objects known, at about 40.
const DEEPEST: u8 = 100;

/// A row of the generated table.
#[derive(Debug)]
pub struct Message {
    /// As in the OpenAPI document.
    pub name: &'static str,
    /// By number.
    pub fields: &'static [Field],
}

#[derive(Debug)]
pub struct Field {
    pub tag: u32,
    /// In JSON; empty for an embedded struct, whose fields stand beside their neighbours.
    pub name: &'static str,
    pub form: Form,
    pub kind: Kind,
    /// Zero is not the same as absence.
    pub pointer: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    One,
    List,
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Int,
    Bool,
    Double,
    Bytes,
    /// RFC 3339, from seconds and nanoseconds.
    Time,
    MicroTime,
    /// Go's notation, from nanoseconds.
    Duration,
    Quantity,
    IntOrString,
    /// JSON in bytes: RawExtension, FieldsV1.
    Raw,
    /// A message that only wraps a list of strings.
    Strings,
    /// Row of the generated table.
    Message(u16),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("no protobuf object: the first bytes are not k8s\\0")]
    Magic,
    #[error("the protobuf message ends too early, or is malformed")]
    Malformed,
    #[error("no protobuf form of {api_version} {kind} is known")]
    UnknownType { api_version: String, kind: String },
    #[error("field {0} is not valid")]
    Field(&'static str),
    #[error("messages are nested too deeply")]
    TooDeep,
}

type Result<T> = std::result::Result<T, ProtobufError>;

/// Reads a body. `fallback` are apiVersion and kind for a body that names none, as some clients send options.
pub fn decode(body: &[u8], fallback: Option<(&str, &str)>) -> Result<Value> {
    let body = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Reader::new(body) {
        match field? {
            (1, Wire::Bytes(type_meta)) => (api_version, kind) = type_of(type_meta)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    if kind.is_empty()
        && let Some((version, name)) = fallback
    {
        (api_version, kind) = (version.to_owned(), name.to_owned());
    }
    let message = root(&api_version, &kind)
        .ok_or_else(|| ProtobufError::UnknownType { api_version: api_version.clone(), kind: kind.clone() })?;
    let mut object = Map::new();
    read(message, raw, &mut object, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

fn type_of(bytes: &[u8]) -> Result<(String, String)> {
    let (mut api_version, mut kind) = (String::new(), String::new());
    for field in Reader::new(bytes) {
        match field? {
            (1, Wire::Bytes(text)) => api_version = utf8(text)?,
            (2, Wire::Bytes(text)) => kind = utf8(text)?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

fn root(api_version: &str, kind: &str) -> Option<&'static Message> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let row = ROOTS.binary_search_by(|r| (r.0, r.1, r.2).cmp(&(group, version, kind))).ok();
    let row = row.map(|i| ROOTS[i].3).or_else(|| {
        // Options of the common group are served under every group's name.
        let common = ("", "v1", kind);
        let found = ROOTS.binary_search_by(|r| (r.0, r.1, r.2).cmp(&common)).ok()?;
        MESSAGES[usize::from(ROOTS[found].3)].name.contains(".apis.meta.").then_some(ROOTS[found].3)
    })?;
    MESSAGES.get(usize::from(row))
}

fn utf8(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed)
}

fn read(message: &'static Message, bytes: &[u8], into: &mut Map<String, Value>, depth: u8) -> Result<()> {
    if depth > DEEPEST {
        return Err(ProtobufError::TooDeep);
    }
    for field in Reader::new(bytes) {
        let (tag, wire) = field?;
        // Like upstream, numbers that a newer client knows are passed over.
        let Ok(at) = message.fields.binary_search_by_key(&tag, |f| f.tag) else { continue };
        let field = &message.fields[at];
        match (field.form, field.kind, field.name) {
            (Form::One, Kind::Message(row), "") => {
                read(&MESSAGES[usize::from(row)], wire.bytes()?, into, depth + 1)?;
            }
            (Form::One, ..) => {
                if let Some(value) = value(field, wire, depth)? {
                    into.insert(field.name.to_owned(), value);
                }
            }
            (Form::List, ..) => list(field, wire, into, depth)?,
            (Form::Map, ..) => entry(field, wire.bytes()?, into, depth)?,
        }
    }
    Ok(())
}

fn list(field: &'static Field, wire: Wire<'_>, into: &mut Map<String, Value>, depth: u8) -> Result<()> {
    let slot = into.entry(field.name).or_insert_with(|| json!([]));
    let Some(items) = slot.as_array_mut() else { return Err(ProtobufError::Field(field.name)) };
    match (field.kind, wire) {
        (Kind::Int, Wire::Bytes(packed)) => {
            items.extend(wire::packed(packed)?.into_iter().map(|n| json!(n.cast_signed())));
        }
        (_, wire) => items.push(element(field, wire, depth)?),
    }
    Ok(())
}

fn entry(field: &'static Field, bytes: &[u8], into: &mut Map<String, Value>, depth: u8) -> Result<()> {
    let (mut key, mut value) = (String::new(), None);
    for part in Reader::new(bytes) {
        match part? {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => value = Some(element(field, wire, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => element(field, Wire::Bytes(&[]), depth)?,
    };
    let slot = into.entry(field.name).or_insert_with(|| json!({}));
    let Some(entries) = slot.as_object_mut() else { return Err(ProtobufError::Field(field.name)) };
    entries.insert(key, value);
    Ok(())
}

/// A field's value; `None` for a plain zero.
fn value(field: &'static Field, wire: Wire<'_>, depth: u8) -> Result<Option<Value>> {
    let value = element(field, wire, depth)?;
    let zero = match &value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    Ok((!zero || (field.pointer && !value.is_null())).then_some(value))
}

fn element(field: &'static Field, wire: Wire<'_>, depth: u8) -> Result<Value> {
    let invalid = || ProtobufError::Field(field.name);
    Ok(match field.kind {
        Kind::String => utf8(wire.bytes()?)?.into(),
        Kind::Int => wire.varint()?.cast_signed().into(),
        Kind::Bool => (wire.varint()? != 0).into(),
        Kind::Double => wire.double()?.into(),
        Kind::Bytes => base64::engine::general_purpose::STANDARD.encode(wire.bytes()?).into(),
        Kind::Time => time(wire.bytes()?, meta::time::format_seconds).ok_or_else(invalid)?,
        Kind::MicroTime => time(wire.bytes()?, meta::time::format_micros).ok_or_else(invalid)?,
        Kind::Duration => {
            let nanos = numbers(wire.bytes()?)?.0;
            go_duration(nanos).into()
        }
        Kind::Quantity => strings(wire.bytes()?)?.pop().unwrap_or_else(|| "0".to_owned()).into(),
        Kind::IntOrString => int_or_string(wire.bytes()?)?,
        Kind::Raw => raw(wire.bytes()?).ok_or_else(invalid)?,
        Kind::Strings => strings(wire.bytes()?)?.into(),
        Kind::Message(row) => {
            let mut object = Map::new();
            read(&MESSAGES[usize::from(row)], wire.bytes()?, &mut object, depth + 1)?;
            Value::Object(object)
        }
    })
}

/// The integers in fields 1 and 2.
fn numbers(bytes: &[u8]) -> Result<(i64, i64)> {
    let mut found = (0, 0);
    for field in Reader::new(bytes) {
        match field? {
            (1, Wire::Varint(n)) => found.0 = n.cast_signed(),
            (2, Wire::Varint(n)) => found.1 = n.cast_signed(),
            _ => {}
        }
    }
    Ok(found)
}

/// The strings in field 1.
fn strings(bytes: &[u8]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for field in Reader::new(bytes) {
        if let (1, Wire::Bytes(text)) = field? {
            found.push(utf8(text)?);
        }
    }
    Ok(found)
}

/// An empty message is no time at all.
fn time(bytes: &[u8], format: fn(Timestamp) -> String) -> Option<Value> {
    if bytes.is_empty() {
        return Some(Value::Null);
    }
    let (seconds, nanos) = numbers(bytes).ok()?;
    Some(format(Timestamp::new(seconds, i32::try_from(nanos).ok()?).ok()?).into())
}

/// As Go prints a `time.Duration` of whole milliseconds: `1h0m0s`, `1m30s`, `0s`, `1.5s`.
fn go_duration(nanos: i64) -> String {
    let (sign, total) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (seconds, rest) = (total / 1_000_000_000, total % 1_000_000_000);
    let fraction = format!("{rest:09}");
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = sign.to_owned();
    if hours > 0 {
        text = format!("{text}{hours}h");
    }
    if seconds >= 60 {
        text = format!("{text}{minutes}m");
    }
    format!("{text}{}{dot}{fraction}s", seconds % 60)
}

fn int_or_string(bytes: &[u8]) -> Result<Value> {
    let (mut is_string, mut int, mut text) = (false, 0, String::new());
    for field in Reader::new(bytes) {
        match field? {
            (1, Wire::Varint(n)) => is_string = n == 1,
            (2, Wire::Varint(n)) => int = n.cast_signed(),
            (3, Wire::Bytes(t)) => text = utf8(t)?,
            _ => {}
        }
    }
    Ok(if is_string { text.into() } else { int.into() })
}

fn raw(bytes: &[u8]) -> Option<Value> {
    let mut found = Value::Null;
    for field in Reader::new(bytes) {
        if let (1, Wire::Bytes(json)) = field.ok()? {
            found = serde_json::from_slice(json).ok()?;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests;

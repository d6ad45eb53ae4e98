//! Messages into JSON objects. Plain zeros, which messages carry and JSON leaves out, are dropped; zeros of fields
//! that are pointers upstream are kept.

use super::table::{self, Type, Union};
use super::wire::{self, Reader, Wire};
use super::{DEEPEST, Field, Form, Kind, MAGIC, ProtobufError, Result, duration};
use crate::{float, meta};
use base64::Engine;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

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
    let ty = Type::find(crate::decode::read_as(&api_version, &kind), &kind)
        .ok_or_else(|| ProtobufError::UnknownType { api_version: api_version.clone(), kind: kind.clone() })?;
    let mut object = Map::new();
    read(ty.0, raw, &mut object, 0)?;
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

fn utf8(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed)
}

fn read(row: u16, bytes: &[u8], into: &mut Map<String, Value>, depth: u8) -> Result<()> {
    if depth > DEEPEST {
        return Err(ProtobufError::TooDeep);
    }
    let (message, presence) = (table::message(row), table::presence(row));
    for field in Reader::new(bytes) {
        let (tag, wire) = field?;
        // Numbers that a newer client knows are passed over.
        let Ok(at) = message.fields.binary_search_by_key(&tag, |f| f.tag) else { continue };
        let field = &message.fields[at];
        match (field.form, field.kind, field.name) {
            (Form::One, Kind::Message(inner), "") => read(inner, wire.bytes()?, into, depth + 1)?,
            (Form::One, ..) => {
                let value = element(field, wire, depth)?;
                if !value.is_null() && (presence.keeps_zero(at) || !is_zero(&value)) {
                    into.insert(field.name.to_owned(), value);
                }
            }
            (Form::List, ..) => list(field, wire, into, depth)?,
            (Form::Map, ..) => entry(field, wire.bytes()?, into, depth)?,
        }
    }
    Ok(())
}

/// What upstream's JSON leaves out of a field that is no pointer.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// What is something else than an object in JSON.
fn union(row: u16, bytes: &[u8], depth: u8) -> Result<Value> {
    let (union, schema) = Union::of(row).ok_or(ProtobufError::Malformed)?;
    if depth > DEEPEST {
        return Err(ProtobufError::TooDeep);
    }
    let read_schema = |bytes| object(schema, bytes, depth + 1);
    let (mut single, mut list, mut allowed) = (None, Vec::new(), false);
    for field in Reader::new(bytes) {
        match field? {
            (1, Wire::Varint(flag)) if union == Union::Bool => allowed = flag != 0,
            (tag, Wire::Bytes(bytes)) if tag == union.schema_tag() => single = Some(read_schema(bytes)?),
            (2, Wire::Bytes(bytes)) if union == Union::Array => list.push(read_schema(bytes)?),
            (2, Wire::Bytes(bytes)) => list.push(utf8(bytes)?.into()),
            _ => {}
        }
    }
    Ok(match (single, union) {
        _ if !list.is_empty() => list.into(),
        (Some(schema), _) => schema,
        (None, Union::Bool) => allowed.into(),
        (None, _) => Value::Null,
    })
}

fn object(row: u16, bytes: &[u8], depth: u8) -> Result<Value> {
    let mut object = Map::new();
    read(row, bytes, &mut object, depth)?;
    Ok(Value::Object(object))
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

fn element(field: &'static Field, wire: Wire<'_>, depth: u8) -> Result<Value> {
    let invalid = || ProtobufError::Field(field.name);
    Ok(match field.kind {
        Kind::String => utf8(wire.bytes()?)?.into(),
        Kind::Int => wire.varint()?.cast_signed().into(),
        Kind::Bool => (wire.varint()? != 0).into(),
        Kind::Double => float::number(wire.double()?).map_or(Value::Null, Value::Number),
        Kind::Bytes => base64::engine::general_purpose::STANDARD.encode(wire.bytes()?).into(),
        Kind::Time => time(wire.bytes()?, meta::time::format_seconds).ok_or_else(invalid)?,
        Kind::MicroTime => time(wire.bytes()?, meta::time::format_micros).ok_or_else(invalid)?,
        Kind::Duration => {
            let nanos = numbers(wire.bytes()?)?.0;
            duration::format(nanos).into()
        }
        Kind::Quantity => strings(wire.bytes()?)?.pop().unwrap_or_else(|| "0".to_owned()).into(),
        Kind::IntOrString => int_or_string(wire.bytes()?)?,
        Kind::Raw => raw(wire.bytes()?).ok_or_else(invalid)?,
        Kind::Strings => strings(wire.bytes()?)?.into(),
        Kind::Message(row) => object(row, wire.bytes()?, depth + 1)?,
        Kind::Union(row) => union(row, wire.bytes()?, depth + 1)?,
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

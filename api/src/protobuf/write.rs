//! Objects from JSON text into messages, as upstream's encoder writes them: fields in the order of their numbers,
//! maps in the order of their keys, nothing but one pass over the text and one over its nodes.

use super::table::{self, Type, Union};
use super::tape::{Node, NodeKind, Tape};
use super::wire::put;
use super::{Field, Form, Kind, MAGIC, ProtobufError, Result};
use crate::meta;
use base64::Engine;
use serde_json::Value;

/// Behind the object in its envelope: how it is encoded (3, 4), both empty.
const ENVELOPE_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// Encodes objects one after the other, with buffers that it keeps.
#[derive(Default)]
pub struct Encoder {
    tape: Tape,
    /// Keys and values of the objects that are being written, the innermost last.
    members: Vec<(u32, u32)>,
}

/// The first bytes of a body whose object takes `length` bytes; [`envelope_tail`] follows the object.
pub fn envelope_head(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut type_meta = Vec::with_capacity(64);
    put::bytes(&mut type_meta, 1, api_version.as_bytes());
    put::bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    put::bytes(&mut out, 1, &type_meta);
    put::key(&mut out, 2, 2);
    put::varint(&mut out, length as u64);
    out
}

pub fn envelope_tail() -> &'static [u8] {
    ENVELOPE_TAIL
}

/// A whole body. The object says what it is.
pub fn encode(object: &Value) -> Result<Vec<u8>> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let json = serde_json::to_vec(object).map_err(|_| ProtobufError::Json)?;
    Encoder::default().body(&text("apiVersion"), &text("kind"), &json, None)
}

impl Encoder {
    /// A whole body from the JSON of one object. `version` becomes the `metadata.resourceVersion`, whatever the
    /// text says; without one the text's stays.
    pub fn body(
        &mut self,
        api_version: &str,
        kind: &str,
        json: &[u8],
        version: Option<u64>,
    ) -> Result<Vec<u8>> {
        let ty = Type::find(api_version, kind).ok_or_else(|| ProtobufError::UnknownType {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })?;
        let mut message = Vec::with_capacity(json.len());
        self.message(ty, json, version, &mut message)?;
        let mut out = envelope_head(api_version, kind, message.len());
        out.reserve_exact(message.len() + ENVELOPE_TAIL.len());
        out.extend_from_slice(&message);
        out.extend_from_slice(ENVELOPE_TAIL);
        Ok(out)
    }

    /// Appends the message of one object, without an envelope, as it stands in lists.
    pub fn message(&mut self, ty: Type, json: &[u8], version: Option<u64>, out: &mut Vec<u8>) -> Result<()> {
        self.tape.read(json)?;
        self.members.clear();
        let version = version.map(|v| v.to_string());
        let Self { tape, members } = self;
        Walk { json, nodes: &tape.nodes, members, version: version.as_deref(), out }.object(ty.0, 0, 0)
    }
}

struct Walk<'a> {
    json: &'a [u8],
    nodes: &'a [Node],
    members: &'a mut Vec<(u32, u32)>,
    version: Option<&'a str>,
    out: &'a mut Vec<u8>,
}

impl<'a> Walk<'a> {
    fn node(&self, at: u32) -> Node {
        self.nodes[at as usize]
    }

    /// The nodes directly inside a container.
    fn children(&self, of: u32) -> impl Iterator<Item = u32> + use<'a> {
        let (nodes, end) = (self.nodes, self.node(of).next);
        let mut at = of + 1;
        std::iter::from_fn(move || {
            let this = at;
            (this < end).then(|| {
                at = nodes[this as usize].next;
                this
            })
        })
    }

    /// Puts an object's members on the stack; they begin where it was.
    fn open(&mut self, of: u32) -> Result<usize> {
        let base = self.members.len();
        if self.node(of).kind != NodeKind::Object {
            return Err(ProtobufError::Json);
        }
        let mut children = self.children(of);
        while let (Some(key), Some(value)) = (children.next(), children.next()) {
            if self.node(value).kind != NodeKind::Null {
                self.members.push((key, value));
            }
        }
        Ok(base)
    }

    fn object(&mut self, row: u16, at: u32, depth: u8) -> Result<()> {
        let base = self.open(at)?;
        let done = self.fields(row, base, depth);
        self.members.truncate(base);
        done
    }

    /// The message of the members from `base` on; those that are no fields of it are its embedding message's.
    fn fields(&mut self, row: u16, base: usize, depth: u8) -> Result<()> {
        if depth > super::DEEPEST {
            return Err(ProtobufError::TooDeep);
        }
        let presence = table::presence(row);
        let names_version = depth == 1 && self.version.is_some() && row == table::object_meta();
        for (index, field) in table::message(row).fields.iter().enumerate() {
            if let (Form::One, Kind::Message(inner), "") = (field.form, field.kind, field.name) {
                let end = self.members.len();
                self.delimited(field.tag, |walk| walk.fields(inner, base, depth + 1))?;
                debug_assert_eq!(end, self.members.len());
                continue;
            }
            if names_version && field.name == "resourceVersion" {
                put::bytes(self.out, field.tag, self.version.unwrap_or_default().as_bytes());
                continue;
            }
            match self.find(base, field.name) {
                Some(value) => self.field(field, value, depth)?,
                None if presence.is_always(index) => self.absent(field, depth)?,
                None => {}
            }
        }
        Ok(())
    }

    fn find(&self, base: usize, name: &str) -> Option<u32> {
        let found =
            self.members[base..].iter().find(|(key, _)| self.node(*key).raw(self.json) == name.as_bytes());
        found.map(|(_, value)| *value)
    }

    fn field(&mut self, field: &'static Field, at: u32, depth: u8) -> Result<()> {
        match field.form {
            Form::One => self.value(field, field.tag, at, depth),
            Form::List => {
                if self.node(at).kind != NodeKind::Array {
                    return Err(ProtobufError::Field(field.name));
                }
                for item in self.children(at) {
                    self.value(field, field.tag, item, depth)?;
                }
                Ok(())
            }
            Form::Map => self.map(field, at, depth),
        }
    }

    fn map(&mut self, field: &'static Field, at: u32, depth: u8) -> Result<()> {
        if self.node(at).kind != NodeKind::Object {
            return Err(ProtobufError::Field(field.name));
        }
        let mut entries = Vec::new();
        let mut children = self.children(at);
        while let (Some(key), Some(value)) = (children.next(), children.next()) {
            entries.push((self.node(key).text(self.json)?, value));
        }
        if !entries.is_sorted_by(|a, b| a.0 <= b.0) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        for (key, value) in entries {
            self.delimited(field.tag, |walk| {
                put::bytes(walk.out, 1, &key);
                walk.value(field, 2, value, depth)
            })?;
        }
        Ok(())
    }

    /// A field whose length stands in front of it.
    fn delimited(&mut self, tag: u32, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        put::key(self.out, tag, 2);
        let start = self.out.len();
        self.out.push(0);
        write(self)?;
        put::close(self.out, start);
        Ok(())
    }

    fn value(&mut self, field: &'static Field, tag: u32, at: u32, depth: u8) -> Result<()> {
        let node = self.node(at);
        let invalid = || ProtobufError::Field(field.name);
        if node.kind == NodeKind::Null && field.kind != Kind::Raw {
            return self.zero(field, tag, depth);
        }
        let text = || if node.kind == NodeKind::String { node.text(self.json) } else { Err(invalid()) };
        match field.kind {
            Kind::String => put::bytes(self.out, tag, &text()?),
            Kind::Int => put::number(self.out, tag, integer(node, self.json).ok_or_else(invalid)?),
            Kind::Bool => match node.kind {
                NodeKind::True => put::number(self.out, tag, 1),
                NodeKind::False => put::number(self.out, tag, 0),
                _ => return Err(invalid()),
            },
            Kind::Double => put::double(self.out, tag, double(node, self.json).ok_or_else(invalid)?),
            Kind::Bytes => {
                let bytes =
                    base64::engine::general_purpose::STANDARD.decode(&*text()?).map_err(|_| invalid())?;
                put::bytes(self.out, tag, &bytes);
            }
            Kind::Time | Kind::MicroTime => {
                let text = text()?;
                if let Some(seconds) = seconds_of(&text) {
                    return self.pair(tag, seconds, 0);
                }
                let time = std::str::from_utf8(&text).ok().and_then(meta::time::parse).ok_or_else(invalid)?;
                let nanos = if field.kind == Kind::Time { 0 } else { time.subsec_nanosecond() / 1000 * 1000 };
                self.pair(tag, time.as_second(), i64::from(nanos))?;
            }
            Kind::Duration => {
                let nanos = super::duration::parse(&text()?).ok_or_else(invalid)?;
                self.delimited(tag, |walk| {
                    put::number(walk.out, 1, nanos);
                    Ok(())
                })?;
            }
            Kind::Quantity => {
                let text = if node.kind == NodeKind::Number { node.raw(self.json).into() } else { text()? };
                self.wrapped(tag, &text)?;
            }
            Kind::IntOrString => self.int_or_string(field, tag, node)?,
            Kind::Raw => self.wrapped(tag, self.json_of(node))?,
            Kind::Strings => {
                if node.kind != NodeKind::Array {
                    return Err(invalid());
                }
                self.delimited(tag, |walk| {
                    for item in walk.children(at) {
                        let text = walk.node(item).text(walk.json)?;
                        put::bytes(walk.out, 1, &text);
                    }
                    Ok(())
                })?;
            }
            Kind::Message(row) => self.delimited(tag, |walk| walk.object(row, at, depth + 1))?,
            Kind::Union(row) => self.delimited(tag, |walk| walk.union(row, at, depth + 1))?,
        }
        Ok(())
    }

    /// The text of a value; of a string with its quotes.
    fn json_of(&self, node: Node) -> &'a [u8] {
        node.whole(self.json)
    }

    /// Seconds and nanoseconds, both written always.
    fn pair(&mut self, tag: u32, first: i64, second: i64) -> Result<()> {
        self.delimited(tag, |walk| {
            put::number(walk.out, 1, first);
            put::number(walk.out, 2, second);
            Ok(())
        })
    }

    /// A message with bytes as its only field.
    fn wrapped(&mut self, tag: u32, bytes: &[u8]) -> Result<()> {
        self.delimited(tag, |walk| {
            put::bytes(walk.out, 1, bytes);
            Ok(())
        })
    }

    fn int_or_string(&mut self, field: &'static Field, tag: u32, node: Node) -> Result<()> {
        let (is_string, number, text) = match node.kind {
            NodeKind::String => (1, 0, node.text(self.json)?),
            _ => (0, integer(node, self.json).ok_or(ProtobufError::Field(field.name))?, (&[][..]).into()),
        };
        self.delimited(tag, |walk| {
            put::number(walk.out, 1, is_string);
            put::number(walk.out, 2, number);
            put::bytes(walk.out, 3, &text);
            Ok(())
        })
    }

    /// What upstream writes for a field by value that the object lacks.
    fn absent(&mut self, field: &'static Field, depth: u8) -> Result<()> {
        match field.kind {
            // A Go value that was never set has no bytes at all.
            Kind::Raw => self.delimited(field.tag, |_| Ok(())),
            _ => self.zero(field, field.tag, depth),
        }
    }

    fn zero(&mut self, field: &'static Field, tag: u32, depth: u8) -> Result<()> {
        match field.kind {
            Kind::String | Kind::Bytes => put::bytes(self.out, tag, b""),
            Kind::Int | Kind::Bool => put::number(self.out, tag, 0),
            Kind::Double => put::double(self.out, tag, 0.0),
            Kind::Quantity => self.wrapped(tag, b"0")?,
            Kind::IntOrString => self.delimited(tag, |walk| {
                walk.out.extend_from_slice(&[8, 0, 16, 0, 26, 0]);
                Ok(())
            })?,
            Kind::Duration => self.delimited(tag, |walk| {
                put::number(walk.out, 1, 0);
                Ok(())
            })?,
            Kind::Time | Kind::MicroTime | Kind::Raw | Kind::Strings | Kind::Union(_) => {
                self.delimited(tag, |_| Ok(()))?
            }
            Kind::Message(row) => {
                let base = self.members.len();
                self.delimited(tag, |walk| walk.fields(row, base, depth + 1))?;
            }
        }
        Ok(())
    }

    fn union(&mut self, row: u16, at: u32, depth: u8) -> Result<()> {
        let (union, schema) = Union::of(row).ok_or(ProtobufError::Json)?;
        if depth > super::DEEPEST {
            return Err(ProtobufError::TooDeep);
        }
        let kind = self.node(at).kind;
        let allowed = union == Union::Bool;
        match kind {
            NodeKind::True | NodeKind::False if allowed => {
                put::number(self.out, 1, i64::from(kind == NodeKind::True));
                Ok(())
            }
            NodeKind::Object => {
                if allowed {
                    put::number(self.out, 1, 1);
                }
                self.delimited(union.schema_tag(), |walk| walk.object(schema, at, depth + 1))
            }
            NodeKind::Array if !allowed => {
                for item in self.children(at) {
                    match self.node(item).kind {
                        NodeKind::String => {
                            let text = self.node(item).text(self.json)?;
                            put::bytes(self.out, 2, &text);
                        }
                        _ => self.delimited(2, |walk| walk.object(schema, item, depth + 1))?,
                    }
                }
                Ok(())
            }
            // Anything else is no schema. One old object that has it must not make its whole list unreadable; upstream's
            // reader leaves the message empty too.
            _ => Ok(()),
        }
    }
}

/// Seconds since 1970 of a time in the form that nearly all have, `2008-01-01T01:01:01Z`; `None` for any other.
pub(super) fn seconds_of(text: &[u8]) -> Option<i64> {
    const DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let number = |at: usize, length: usize| {
        let digits = text.get(at..at + length)?;
        let all = digits.iter().all(u8::is_ascii_digit);
        all.then(|| digits.iter().fold(0i64, |n, d| n * 10 + i64::from(d - b'0')))
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    if text.len() != 20 || marks.iter().any(|&(at, mark)| text[at] != mark) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let of_month = *DAYS.get(usize::try_from(month - 1).ok()?)?;
    // The last day of February is left to the calendar.
    if !(1..=of_month).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years begin in March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = 365 * year + leap_days + day_of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn integer(node: Node, json: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(node.raw(json)).ok()?;
    if node.kind != NodeKind::Number {
        return None;
    }
    text.parse().ok()
}

fn double(node: Node, json: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(node.raw(json)).ok()?;
    if node.kind == NodeKind::Number { text.parse().ok() } else { None }
}

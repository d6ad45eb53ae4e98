//! JSON text as a flat list of nodes, for walks that look at some members first and skip others.
//!
//! Made for objects of a few kilobytes out of the store: one pass, no copies of strings, no recursion.

use super::{ProtobufError, Result};
use std::borrow::Cow;

/// Deepest nesting that is read; what the server stores was limited to 128 when it came in.
const DEEPEST: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Null,
    True,
    False,
    Number,
    String,
    Array,
    Object,
}

#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub kind: NodeKind,
    /// Of a string: it has backslashes.
    escaped: bool,
    /// Of a string: without its quotes.
    start: u32,
    end: u32,
    /// The node behind this one and all that is inside it.
    pub next: u32,
}

/// Nodes in the order of the text; an object's members are a string node and the value's nodes each.
#[derive(Default)]
pub struct Tape {
    pub nodes: Vec<Node>,
    open: Vec<u32>,
}

impl Tape {
    /// Replaces the nodes by those of `json`, which must be a single document of less than 4 GiB.
    pub fn read(&mut self, json: &[u8]) -> Result<()> {
        self.nodes.clear();
        self.open.clear();
        if u32::try_from(json.len()).is_err() {
            return Err(ProtobufError::Json);
        }
        let mut at = 0;
        loop {
            at = space(json, at);
            at = self.value(json, at)?;
            // Behind a value: closers, then a comma (and the next key) or the end.
            loop {
                let Some(&container) = self.open.last() else {
                    return if space(json, at) == json.len() { Ok(()) } else { Err(ProtobufError::Json) };
                };
                let is_object = self.nodes[container as usize].kind == NodeKind::Object;
                let empty = self.nodes.len() == container as usize + 1;
                at = space(json, at);
                match json.get(at) {
                    Some(b'}') if is_object => at = self.close(container, at),
                    Some(b']') if !is_object => at = self.close(container, at),
                    Some(b',') if !empty => {
                        at = self.key(json, space(json, at + 1), is_object)?;
                        break;
                    }
                    Some(_) if empty => {
                        at = self.key(json, at, is_object)?;
                        break;
                    }
                    _ => return Err(ProtobufError::Json),
                }
            }
        }
    }

    fn close(&mut self, container: u32, at: usize) -> usize {
        let next = count(self.nodes.len());
        let node = &mut self.nodes[container as usize];
        node.next = next;
        node.end = count(at + 1);
        self.open.pop();
        at + 1
    }

    /// A member's key and colon, where the container is an object.
    fn key(&mut self, json: &[u8], at: usize, is_object: bool) -> Result<usize> {
        if !is_object {
            return Ok(at);
        }
        if json.get(at) != Some(&b'"') {
            return Err(ProtobufError::Json);
        }
        let at = space(json, self.string(json, at)?);
        if json.get(at) == Some(&b':') { Ok(at + 1) } else { Err(ProtobufError::Json) }
    }

    fn value(&mut self, json: &[u8], at: usize) -> Result<usize> {
        match json.get(at) {
            Some(b'"') => self.string(json, at),
            Some(b'{') => self.container(NodeKind::Object, at),
            Some(b'[') => self.container(NodeKind::Array, at),
            Some(b't') => self.word(json, at, b"true", NodeKind::True),
            Some(b'f') => self.word(json, at, b"false", NodeKind::False),
            Some(b'n') => self.word(json, at, b"null", NodeKind::Null),
            Some(b'-' | b'0'..=b'9') => {
                let length = json[at..]
                    .iter()
                    .take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
                    .count();
                Ok(self.push(NodeKind::Number, at, at + length, false, at + length))
            }
            _ => Err(ProtobufError::Json),
        }
    }

    fn container(&mut self, kind: NodeKind, at: usize) -> Result<usize> {
        if self.open.len() >= DEEPEST {
            return Err(ProtobufError::TooDeep);
        }
        self.open.push(count(self.nodes.len()));
        Ok(self.push(kind, at, at, false, at + 1))
    }

    fn word(&mut self, json: &[u8], at: usize, word: &[u8], kind: NodeKind) -> Result<usize> {
        if !json[at..].starts_with(word) {
            return Err(ProtobufError::Json);
        }
        Ok(self.push(kind, at, at + word.len(), false, at + word.len()))
    }

    fn string(&mut self, json: &[u8], at: usize) -> Result<usize> {
        let (start, mut end, mut escaped) = (at + 1, at + 1, false);
        loop {
            match json.get(end) {
                Some(b'"') => return Ok(self.push(NodeKind::String, start, end, escaped, end + 1)),
                Some(b'\\') => {
                    escaped = true;
                    end += 2;
                }
                Some(_) => end += 1,
                None => return Err(ProtobufError::Json),
            }
        }
    }

    fn push(&mut self, kind: NodeKind, start: usize, end: usize, escaped: bool, then: usize) -> usize {
        let next = count(self.nodes.len() + 1);
        self.nodes.push(Node { kind, escaped, start: count(start), end: count(end), next });
        then
    }
}

/// Texts are shorter than 4 GiB, so every offset and number of nodes fits.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn space(json: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = json.get(at) {
        at += 1;
    }
    at
}

impl Node {
    /// The text as it stands in the document; of a string without its quotes.
    pub fn raw<'a>(&self, json: &'a [u8]) -> &'a [u8] {
        json.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The text as it stands in the document.
    pub fn whole<'a>(&self, json: &'a [u8]) -> &'a [u8] {
        let quote = usize::from(self.kind == NodeKind::String);
        json.get(self.start as usize - quote..self.end as usize + quote).unwrap_or_default()
    }

    /// A string's content.
    pub fn text<'a>(&self, json: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let raw = self.raw(json);
        if !self.escaped {
            return Ok(Cow::Borrowed(raw));
        }
        let quoted = json.get(self.start as usize - 1..=self.end as usize).unwrap_or_default();
        let text: String = serde_json::from_slice(quoted).map_err(|_| ProtobufError::Json)?;
        Ok(Cow::Owned(text.into_bytes()))
    }
}

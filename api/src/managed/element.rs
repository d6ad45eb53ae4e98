//! One step of a field path.

use super::show::go_text;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// What kind of step it is, in upstream's order of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// A field of a struct, or a key of a map: `f:`.
    Field,
    /// An item of a list by the values of its key fields: `k:`.
    Key,
    /// An item of a set by its value: `v:`.
    Value,
    /// An item of a list by its position: `i:`; only read, never made.
    Index,
}

/// A field name, the compact JSON of a key or value, or the digits of an index. JSON objects have their members in the
/// order of their names, so that equal elements are equal texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element<'a> {
    pub tag: Tag,
    pub text: Cow<'a, str>,
}

impl<'a> Element<'a> {
    pub fn field(name: &'a str) -> Self {
        Self { tag: Tag::Field, text: Cow::Borrowed(name) }
    }

    pub fn key(fields: &serde_json::Map<String, Value>) -> Self {
        // Writing JSON to memory cannot fail: keys are strings, numbers finite.
        Self { tag: Tag::Key, text: Cow::Owned(serde_json::to_string(fields).unwrap_or_default()) }
    }

    pub fn value(value: &Value) -> Self {
        Self { tag: Tag::Value, text: Cow::Owned(value.to_string()) }
    }

    pub fn into_owned(self) -> Element<'static> {
        Element { tag: self.tag, text: Cow::Owned(self.text.into_owned()) }
    }

    /// A key of FieldsV1, such as `f:spec`, `k:{"name":"a"}`, `v:"x"`, `i:0`.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (tag, rest) = text.split_once(':')?;
        match tag {
            "f" => Some(Self::field(rest)),
            "k" => canonical(Tag::Key, rest, Value::is_object),
            "v" => canonical(Tag::Value, rest, |v| !v.is_object() && !v.is_array()),
            "i" => rest.parse::<i64>().ok().map(|_| Self { tag: Tag::Index, text: Cow::Borrowed(rest) }),
            _ => None,
        }
    }

    /// The inverse of [`parse`](Self::parse).
    pub fn write(&self) -> String {
        let tag = match self.tag {
            Tag::Field => "f:",
            Tag::Key => "k:",
            Tag::Value => "v:",
            Tag::Index => "i:",
        };
        let mut text = String::with_capacity(2 + self.text.len());
        text.push_str(tag);
        text.push_str(&self.text);
        text
    }
}

/// Other spellings of the same JSON become the one that we write.
fn canonical(tag: Tag, text: &str, fits: impl Fn(&Value) -> bool) -> Option<Element<'_>> {
    let value: Value = serde_json::from_str(text).ok().filter(fits)?;
    let written = value.to_string();
    let text = if written == text { Cow::Borrowed(text) } else { Cow::Owned(written) };
    Some(Element { tag, text })
}

/// As upstream names the step in messages: `.name`, `[name="a",port=80]`, `[="x"]`, `[0]`.
impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            Tag::Field => write!(f, ".{}", self.text),
            Tag::Index => write!(f, "[{}]", self.text),
            Tag::Value => write!(f, "[={}]", shown(&self.text)),
            Tag::Key => {
                let value: Value = serde_json::from_str(&self.text).unwrap_or(Value::Null);
                let fields = value.as_object().into_iter().flatten();
                let parts: Vec<String> = fields.map(|(k, v)| format!("{k}={}", go_text(v))).collect();
                write!(f, "[{}]", parts.join(","))
            }
        }
    }
}

fn shown(text: &str) -> String {
    serde_json::from_str(text).map_or_else(|_| text.to_owned(), |value| go_text(&value))
}

//! Values while an expression runs. What comes from JSON is borrowed and converted when it is touched.

pub mod compare;
mod json;
mod library;
mod time;

use crate::error::EvalError;
use crate::types::{ListKind, ListType, MapType, ObjectType, Type};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

pub use json::{to_json, typed};
pub use library::{Format, Url, Version};
pub use time::{parse_duration, parse_timestamp, render_duration};

/// Text, borrowed from the input where it can be.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    Timestamp(Timestamp),
    Duration(SignedDuration),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Value<'a>>>),
    /// The type of a value, by name.
    Type(Text<'a>),
    Library(Arc<Library>),
    External(Arc<dyn External>),
}

/// Values that only the libraries make.
#[derive(Clone, Debug)]
pub enum Library {
    Url(Url),
    Ip(IpAddr),
    Cidr(IpNet),
    Quantity(coracle_api::quantity::Quantity),
    Semver(Version),
    Format(Format),
}

/// A value whose functions the host answers, such as the authorizer.
pub trait External: fmt::Debug + Send + Sync + 'static {
    /// As the checker knows its type.
    fn type_name(&self) -> &'static str;

    /// A variable that the environment declares under a dotted name: `authorizer.requestResource`.
    fn field<'a>(&self, _name: &str) -> Option<Value<'a>> {
        None
    }

    /// The member function `function` of this value.
    ///
    /// # Errors
    /// [`EvalError::NoOverload`] when there is no such function for these arguments.
    fn call<'a>(&self, function: &str, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError>;
}

#[derive(Clone, Debug)]
pub enum List<'a> {
    Json { items: &'a [Json], of: &'a ListType },
    Owned { items: Arc<Vec<Value<'a>>>, kind: &'a ListKind },
}

/// A map, or a structure with known fields.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    Json {
        map: &'a serde_json::Map<String, Json>,
        of: &'a MapType,
    },
    Object {
        map: &'a serde_json::Map<String, Json>,
        of: &'a ObjectType,
    },
    Owned(Arc<Vec<(Value<'a>, Value<'a>)>>),
    /// Whoever looks up a key that is not there gets an empty map.
    Defaulted(Arc<Vec<(Value<'a>, Value<'a>)>>),
    /// Made by the expression: `Object.spec{...}`.
    Structure {
        name: &'a str,
        fields: Arc<Vec<(Value<'a>, Value<'a>)>>,
    },
    Lazy(Arc<dyn Fields<'a> + 'a>),
}

/// Fields that are computed when they are asked for: the variables of a policy.
pub trait Fields<'a>: fmt::Debug + Send + Sync {
    fn get(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;
}

static ATOMIC: ListKind = ListKind::Atomic;

impl<'a> Value<'a> {
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub fn list(items: Vec<Self>) -> Self {
        Self::List(List::Owned { items: Arc::new(items), kind: &ATOMIC })
    }

    pub fn map(entries: Vec<(Self, Self)>) -> Self {
        Self::Map(Map::Owned(Arc::new(entries)))
    }

    /// A map of maps, as if it had an empty one under every other key; `in` and macros see those that are there.
    pub fn defaulted_map(entries: Vec<(Self, Self)>) -> Self {
        Self::Map(Map::Defaulted(Arc::new(entries)))
    }

    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub fn library(value: Library) -> Self {
        Self::Library(Arc::new(value))
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The name that `type()` gives it.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(Map::Object { of, .. }) => &of.name,
            Self::Map(Map::Structure { name, .. }) => name,
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Library(value) => value.type_name(),
            Self::External(value) => value.type_name(),
        }
    }

    /// Elements, entries, bytes or characters; 1 for what has no size.
    pub fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            _ => 1,
        };
        size as u64
    }

    /// Whether the value is what its type has when nothing is given.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(_) | Self::Bytes(_) | Self::List(_) | Self::Map(_) => self.size() == 0,
            Self::Duration(value) => value.is_zero(),
            Self::Optional(value) => value.is_none(),
            _ => false,
        }
    }
}

impl Library {
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json { items, .. } => items.len(),
            Self::Owned { items, .. } => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn kind(&self) -> &'a ListKind {
        match self {
            Self::Json { of, .. } => &of.kind,
            Self::Owned { kind, .. } => kind,
        }
    }

    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json { items, of } => items.get(index).map(|item| typed(item, &of.element)),
            Self::Owned { items, .. } => items.get(index).cloned(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json { map, .. } | Self::Object { map, .. } => map.len(),
            Self::Owned(entries) | Self::Defaulted(entries) | Self::Structure { fields: entries, .. } => {
                entries.len()
            }
            Self::Lazy(_) => 1,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a text key, or the field of that name.
    pub fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            Self::Json { map, of } => map.get(name).map(|value| Ok(typed(value, &of.value))),
            Self::Object { map, of } => {
                let field = of.fields.get(name)?;
                map.get(&field.json).map(|value| Ok(typed(value, &field.of)))
            }
            Self::Owned(entries) | Self::Structure { fields: entries, .. } => {
                let found = entries.iter().find(|(key, _)| key.as_str() == Some(name));
                found.map(|(_, value)| Ok(value.clone()))
            }
            Self::Defaulted(entries) => {
                let found = entries.iter().find(|(key, _)| key.as_str() == Some(name));
                Some(Ok(found.map_or_else(|| Value::map(Vec::new()), |(_, value)| value.clone())))
            }
            Self::Lazy(fields) => fields.get(name),
        }
    }

    pub fn get(&self, key: &Value<'a>) -> Option<Result<Value<'a>, EvalError>> {
        match (self, key) {
            (_, Value::String(name)) => self.field(name),
            (Self::Owned(entries), _) => {
                entries.iter().find(|(k, _)| k == key).map(|(_, value)| Ok(value.clone()))
            }
            _ => None,
        }
    }

    /// Whether there is such a key: what [`get`](Self::get) makes up is not.
    pub fn has(&self, key: &Value<'a>) -> bool {
        match self {
            Self::Defaulted(entries) => entries.iter().any(|(known, _)| known == key),
            _ => self.get(key).is_some(),
        }
    }

    /// Keys and values; nothing for what is computed.
    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        let text = |key: &'a str| Value::String(Text::Borrowed(key));
        match self {
            Self::Json { map, of } => map.iter().map(|(k, v)| (text(k), typed(v, &of.value))).collect(),
            Self::Object { map, of } => {
                let known = of
                    .fields
                    .iter()
                    .filter_map(|(name, field)| Some((name, map.get(&field.json)?, &field.of)));
                known.map(|(name, value, of)| (text(name), typed(value, of))).collect()
            }
            Self::Owned(entries) | Self::Defaulted(entries) | Self::Structure { fields: entries, .. } => {
                entries.to_vec()
            }
            Self::Lazy(_) => Vec::new(),
        }
    }
}

/// Where a value of this type comes from nothing: the type itself, for `type()` comparisons.
pub fn type_value<'a>(of: &Type) -> Value<'a> {
    let name = match of {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::List(_) => "list".to_owned(),
        Type::Map(_) => "map".to_owned(),
        other => other.to_string(),
    };
    Value::Type(Text::Shared(name.into()))
}

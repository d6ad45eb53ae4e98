//! Types of values, as declared by schemas and found by the checker.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Anything; checked only when it runs.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    /// With the length in bytes that a schema limits it to.
    String(Option<u64>),
    Bytes(Option<u64>),
    Timestamp,
    Duration,
    List(Arc<ListType>),
    Map(Arc<MapType>),
    Object(Arc<ObjectType>),
    Optional(Arc<Type>),
    /// The type of a type.
    Kind,
    /// A value of a library: an address, a quantity.
    Opaque(&'static str),
    /// Stands for any type in a function's signature, the same wherever it has the same letter.
    Param(char),
}

/// How a list is compared and joined; the schema's `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    #[default]
    Atomic,
    /// Order means nothing, and what is there twice is there once.
    Set,
    /// Elements are told apart by these fields.
    Map(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListType {
    pub element: Type,
    pub kind: ListKind,
    pub max_items: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MapType {
    pub key: Type,
    pub value: Type,
    pub max_properties: Option<u64>,
}

/// A structure with known fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectType {
    pub name: String,
    /// By the name that expressions use.
    pub fields: BTreeMap<String, Field>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name in JSON, which an expression may have to escape: `a-b` is `a__dash__b`.
    pub json: String,
    pub of: Type,
}

impl Type {
    pub const STRING: Self = Self::String(None);
    pub const BYTES: Self = Self::Bytes(None);

    pub fn list(element: Self) -> Self {
        Self::List(Arc::new(ListType { element, kind: ListKind::Atomic, max_items: None }))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(MapType { key, value, max_properties: None }))
    }

    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Whether a value of this type may stand where `wanted` is asked for; type parameters are bound in `bound`.
    pub fn fits(&self, wanted: &Self, bound: &mut BTreeMap<char, Self>) -> bool {
        match (self, wanted) {
            // Not yet known: the element of an empty list fits everything and says nothing.
            (Self::Param(_), Self::Param(_)) => true,
            (_, Self::Param(letter)) => match bound.get(letter).cloned() {
                Some(Self::Dyn) => true,
                Some(other) => match other.merge(self) {
                    Some(both) => {
                        bound.insert(*letter, both);
                        true
                    }
                    None => false,
                },
                None => {
                    bound.insert(*letter, self.clone());
                    true
                }
            },
            (Self::Dyn | Self::Param(_), _) | (_, Self::Dyn) => true,
            (Self::List(a), Self::List(b)) => a.element.fits(&b.element, bound),
            (Self::Map(a), Self::Map(b)) => a.key.fits(&b.key, bound) && a.value.fits(&b.value, bound),
            (Self::Optional(a), Self::Optional(b)) => a.fits(b, bound),
            (Self::Object(a), Self::Object(b)) => a.name == b.name,
            (Self::String(_), Self::String(_)) | (Self::Bytes(_), Self::Bytes(_)) => true,
            // Null stands for a missing structure.
            (Self::Null, structure) if structure.nullable() => true,
            (a, b) => a == b,
        }
    }

    /// The type with its parameters replaced; unbound ones may be anything.
    #[must_use]
    pub fn bind(&self, bound: &BTreeMap<char, Self>) -> Self {
        match self {
            Self::Param(letter) => bound.get(letter).cloned().unwrap_or(Self::Dyn),
            Self::List(list) => Self::List(Arc::new(ListType {
                element: list.element.bind(bound),
                kind: list.kind.clone(),
                max_items: list.max_items,
            })),
            Self::Map(map) => Self::Map(Arc::new(MapType {
                key: map.key.bind(bound),
                value: map.value.bind(bound),
                max_properties: map.max_properties,
            })),
            Self::Optional(of) => Self::optional(of.bind(bound)),
            other => other.clone(),
        }
    }

    /// The type that holds both, dynamic if one of them is; `None` when they have nothing in common.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Param(_), known) | (known, Self::Param(_)) => Some(known.clone()),
            (Self::Dyn, _) | (_, Self::Dyn) => Some(Self::Dyn),
            (Self::String(a), Self::String(b)) => Some(Self::String(a.zip(*b).map(|(a, b)| a.max(b)))),
            (Self::Bytes(a), Self::Bytes(b)) => Some(Self::Bytes(a.zip(*b).map(|(a, b)| a.max(b)))),
            (Self::List(a), Self::List(b)) => Some(Self::List(Arc::new(ListType {
                element: a.element.merge(&b.element)?,
                kind: a.kind.clone(),
                max_items: a.max_items.zip(b.max_items).map(|(a, b)| a.max(b)),
            }))),
            (Self::Map(a), Self::Map(b)) => Some(Self::Map(Arc::new(MapType {
                key: a.key.merge(&b.key)?,
                value: a.value.merge(&b.value)?,
                max_properties: a.max_properties.zip(b.max_properties).map(|(a, b)| a.max(b)),
            }))),
            (Self::Optional(a), Self::Optional(b)) => Some(Self::optional(a.merge(b)?)),
            (Self::Object(a), Self::Object(b)) => (a.name == b.name).then(|| self.clone()),
            // Null stands for a missing structure.
            (Self::Null, known) | (known, Self::Null) if known.nullable() => Some(known.clone()),
            (a, b) => (a == b).then(|| a.clone()),
        }
    }

    /// Whether both name one type, limits aside; what is not said yet may become any.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Param(_), _) | (_, Self::Param(_)) | (Self::String(_), Self::String(_)) => true,
            (Self::Bytes(_), Self::Bytes(_)) => true,
            (Self::List(a), Self::List(b)) => a.element.is_equivalent(&b.element),
            (Self::Map(a), Self::Map(b)) => a.key.is_equivalent(&b.key) && a.value.is_equivalent(&b.value),
            // What `optional.none()` would hold is not known.
            (Self::Optional(a), Self::Optional(b)) => {
                matches!((&**a, &**b), (Self::Dyn, _) | (_, Self::Dyn)) || a.is_equivalent(b)
            }
            (Self::Object(a), Self::Object(b)) => a.name == b.name,
            (a, b) => a == b,
        }
    }

    fn nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Object(_)
                | Self::Timestamp
                | Self::Duration
                | Self::Optional(_)
                | Self::Opaque(_)
        )
    }

    /// A type that holds both: the same one, or anything.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        self.merge(other).unwrap_or(Self::Dyn)
    }
}

impl fmt::Display for Type {
    /// As cel-go names types in its messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String(_) => f.write_str("string"),
            Self::Bytes(_) => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(list) => write!(f, "list({})", list.element),
            Self::Map(map) => write!(f, "map({}, {})", map.key, map.value),
            Self::Object(object) => f.write_str(&object.name),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Kind => f.write_str("type"),
            Self::Opaque(name) => f.write_str(name),
            Self::Param(letter) => write!(f, "{letter}"),
        }
    }
}

/// Parses a type of a signature: `int`, `list<A>`, `map<string,A>`, `optional<A>`, `A`, or a library's own name.
/// Signatures are constants of this crate; an unknown word is taken for an opaque type's name.
pub fn parse(text: &'static str) -> Type {
    let inner = |name: &str| text.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
    if let Some(element) = inner("list") {
        return Type::list(parse(element));
    }
    if let Some(of) = inner("optional") {
        return Type::optional(parse(of));
    }
    if let Some((key, value)) = inner("map").and_then(|pair| pair.split_once(',')) {
        return Type::map(parse(key), parse(value));
    }
    match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::STRING,
        "bytes" => Type::BYTES,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "type" => Type::Kind,
        _ => match text.as_bytes() {
            [letter] if letter.is_ascii_uppercase() => Type::Param(char::from(*letter)),
            _ => Type::Opaque(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_the_same_wherever_they_stand() {
        let mut bound = BTreeMap::new();
        assert!(Type::list(Type::Int).fits(&parse("list<A>"), &mut bound));
        assert!(!Type::STRING.fits(&Type::Param('A'), &mut bound), "A is int by now");
        assert_eq!(parse("optional<A>").bind(&bound), Type::optional(Type::Int));
        assert!(Type::Dyn.fits(&Type::Int, &mut bound) && Type::Int.fits(&Type::Dyn, &mut bound));
        assert!(!Type::Int.fits(&Type::Double, &mut bound));
        assert_eq!(parse("map<string,list<int>>").to_string(), "map(string, list(int))");
    }
}

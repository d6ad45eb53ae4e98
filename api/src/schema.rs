//! Schema facts: which fields a type has, of what type, how lists merge.
//!
//! Strict decoding, pruning, strategic merge, server-side apply and OpenAPI read them through [`TypeRef`]. Built-in
//! types are rows of generated tables in the read-only part of the binary; custom resources bring a [`Dynamic`]
//! tree of their own and are asked in the same way.

mod go;
#[cfg(test)]
pub(crate) mod zeros;

pub use go::Walk;

use crate::generated::schema::{
    ENUM_SETS, ENUMS, FIELDS, GO, KEYSETS, ROOTS, SHAPES, STRING_OFFSETS, STRINGS, TYPES, UNIONS,
};
use std::borrow::Cow;

/// What JSON a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything: RawExtension, FieldsV1, JSON, `x-kubernetes-preserve-unknown-fields`.
    Any,
    String,
    Int32,
    Int64,
    Bool,
    Double,
    Quantity,
    IntOrString,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// Base64.
    Bytes,
    List,
    /// With string keys.
    Map,
    Struct,
}

const KINDS: &[Kind] = &[
    Kind::Any,
    Kind::String,
    Kind::Int32,
    Kind::Int64,
    Kind::Bool,
    Kind::Double,
    Kind::Quantity,
    Kind::IntOrString,
    Kind::Time,
    Kind::MicroTime,
    Kind::Bytes,
    Kind::List,
    Kind::Map,
    Kind::Struct,
];

/// How server-side apply merges a list (`x-kubernetes-list-type`). Lists without one are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    /// By the fields that [`FieldRef::map_keys`] names.
    Map,
}

/// `x-kubernetes-map-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    Atomic,
    Granular,
}

#[derive(Clone, Copy, Debug)]
enum Node<'a> {
    /// Row of `SHAPES`.
    Built(u16),
    Dynamic(&'a Dynamic),
}

/// A type of the schema; free to copy.
#[derive(Clone, Copy, Debug)]
pub struct TypeRef<'a>(Node<'a>);

/// A field of a struct, with the facts that belong to the field and not to its type; free to copy.
#[derive(Clone, Copy, Debug)]
pub struct FieldRef<'a>(FieldNode<'a>);

#[derive(Clone, Copy, Debug)]
enum FieldNode<'a> {
    /// Row of `FIELDS`.
    Built(u16),
    Dynamic(&'a DynamicField),
}

/// A type that is known only at run time.
#[derive(Clone, Debug)]
pub struct Dynamic {
    pub kind: Kind,
    /// Of a struct, sorted by name.
    pub fields: Vec<DynamicField>,
    /// Of a list or map.
    pub element: Option<Box<Dynamic>>,
    pub map_type: Option<MapType>,
    pub nullable: bool,
    /// Fields that are not among `fields` are kept.
    pub preserve_unknown_fields: bool,
    /// Of a list, wherever it stands: a field's own say counts first.
    pub list_type: Option<ListType>,
    pub map_keys: Vec<String>,
    /// This is a type of the generated tables, such as that of `metadata`, and all else here is void.
    pub built_in: Option<TypeRef<'static>>,
}

impl Dynamic {
    /// A type without facts of its own.
    pub const fn of(kind: Kind) -> Self {
        Self {
            kind,
            fields: Vec::new(),
            element: None,
            map_type: None,
            nullable: false,
            preserve_unknown_fields: false,
            list_type: None,
            map_keys: Vec::new(),
            built_in: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct DynamicField {
    pub name: String,
    pub ty: Dynamic,
    pub required: bool,
    pub default: Option<serde_json::Value>,
    pub list_type: Option<ListType>,
    pub map_keys: Vec<String>,
}

// The bits of a generated field; `api/generate.py` has the same.
const REQUIRED: u8 = 1;
const MERGE: u8 = 2;
const RETAIN_KEYS: u8 = 4;
const REPLACE: u8 = 8;
const MAP_ATOMIC: u8 = 16;
const MAP_GRANULAR: u8 = 32;
const LIST_MASK: u8 = 192;

fn string(index: u16) -> &'static str {
    let at = usize::from(index);
    &STRINGS[STRING_OFFSETS[at] as usize..STRING_OFFSETS[at + 1] as usize]
}

/// The type of an object that says so of itself.
pub fn root(group: &str, version: &str, kind: &str) -> Option<TypeRef<'static>> {
    let wanted = (group, version, kind);
    let row = ROOTS.binary_search_by(|&(g, v, k, _)| (string(g), string(v), string(k)).cmp(&wanted)).ok()?;
    Some(struct_shape(ROOTS[row].3))
}

/// The built-in type of an object, by what the object says it is.
pub fn of_object(object: &serde_json::Value) -> Option<TypeRef<'static>> {
    let (group, version) = crate::catalogue::split_api_version(object["apiVersion"].as_str()?)?;
    root(group, version, object["kind"].as_str()?)
}

/// By its full name, such as `io.k8s.api.core.v1.PodSpec`.
pub fn by_name(name: &str) -> Option<TypeRef<'static>> {
    let row = TYPES.binary_search_by(|&(n, ..)| string(n).cmp(name)).ok()?;
    u16::try_from(row).ok().map(struct_shape)
}

/// Every struct type, by name.
pub fn types() -> impl Iterator<Item = TypeRef<'static>> {
    (0u16..).take(TYPES.len()).map(struct_shape)
}

/// (group, version, kind) of every root type, with the type.
pub fn roots() -> impl Iterator<Item = (&'static str, &'static str, &'static str, TypeRef<'static>)> {
    ROOTS.iter().map(|&(g, v, k, row)| (string(g), string(v), string(k), struct_shape(row)))
}

/// Types are also numbered past the end of `SHAPES`, so that each is reachable without a shape of its own.
fn struct_shape(row: u16) -> TypeRef<'static> {
    TypeRef(Node::Built(STRUCT_BASE + row))
}

/// Beyond every row of `SHAPES` (a few hundred), with room for as many types again.
const STRUCT_BASE: u16 = 1 << 14;

fn resolve(shape: u16) -> (u8, u16) {
    match shape.checked_sub(STRUCT_BASE) {
        Some(row) => (Kind::Struct as u8, row),
        None => SHAPES[usize::from(shape)],
    }
}

impl<'a> TypeRef<'a> {
    pub fn dynamic(ty: &'a Dynamic) -> Self {
        ty.built_in.unwrap_or(Self(Node::Dynamic(ty)))
    }

    pub fn kind(self) -> Kind {
        match self.0 {
            Node::Built(shape) => KINDS[usize::from(resolve(shape).0)],
            Node::Dynamic(ty) => ty.kind,
        }
    }

    /// Of a built-in struct: `io.k8s.api.core.v1.PodSpec`; empty for everything else.
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| string(TYPES[row].0))
    }

    /// The last part of [`name`](Self::name): `PodSpec`.
    pub fn short_name(self) -> &'static str {
        self.name().rsplit('.').next().unwrap_or_default()
    }

    fn row(self) -> Option<usize> {
        match self.0 {
            Node::Built(shape) if self.kind() == Kind::Struct => Some(usize::from(resolve(shape).1)),
            _ => None,
        }
    }

    /// Of a built-in value of any form that OpenAPI names, such as a RawExtension; empty for everything else.
    pub fn any_name(self) -> &'static str {
        match self.0 {
            Node::Built(shape) if self.kind() == Kind::Any => string(resolve(shape).1),
            _ => "",
        }
    }

    /// Of a built-in struct of which at most one field is to be set: the field that says which (may be empty), and
    /// the fields with what it says for each (`x-kubernetes-unions`).
    pub fn union(self) -> Option<(&'static str, impl Iterator<Item = (&'static str, &'static str)>)> {
        let row = u16::try_from(self.row()?).ok()?;
        let &(_, discriminator, members) = UNIONS.iter().find(|union| union.0 == row)?;
        Some((string(discriminator), members.iter().map(|&(field, value)| (string(field), string(value)))))
    }

    /// Of a list or a map.
    pub fn element(self) -> Option<TypeRef<'a>> {
        match self.0 {
            Node::Built(shape) => match self.kind() {
                Kind::List | Kind::Map => Some(TypeRef(Node::Built(resolve(shape).1))),
                _ => None,
            },
            Node::Dynamic(ty) => ty.element.as_deref().map(TypeRef::dynamic),
        }
    }

    /// Of a struct, by name.
    pub fn field(self, name: &str) -> Option<FieldRef<'a>> {
        match self.0 {
            Node::Built(_) => {
                let (_, first, count, _) = TYPES[self.row()?];
                let rows = &FIELDS[usize::from(first)..usize::from(first) + usize::from(count)];
                let at = rows.binary_search_by(|f| string(f.0).cmp(name)).ok()?;
                Some(FieldRef(FieldNode::Built(first + u16::try_from(at).ok()?)))
            }
            Node::Dynamic(ty) => {
                let at = ty.fields.binary_search_by(|f| f.name.as_str().cmp(name)).ok()?;
                Some(FieldRef(FieldNode::Dynamic(&ty.fields[at])))
            }
        }
    }

    /// Of a struct, in the order of their names; none for other kinds.
    pub fn fields(self) -> impl Iterator<Item = FieldRef<'a>> {
        let (built, dynamic) = match self.0 {
            Node::Built(_) => {
                let (first, count) = self.row().map_or((0, 0), |row| (TYPES[row].1, TYPES[row].2));
                (first..first + count, &[][..])
            }
            Node::Dynamic(ty) => (0..0, ty.fields.as_slice()),
        };
        let built = built.map(|row| FieldRef(FieldNode::Built(row)));
        built.chain(dynamic.iter().map(|f| FieldRef(FieldNode::Dynamic(f))))
    }

    /// What the type itself says; [`FieldRef::map_type`] says more.
    pub fn map_type(self) -> Option<MapType> {
        match self.0 {
            Node::Built(_) => self.row().and_then(|row| map_type(TYPES[row].3)),
            Node::Dynamic(ty) => ty.map_type,
        }
    }

    /// Whether an explicit null is a value of its own. In built-in types null is the same as absent.
    pub fn nullable(self) -> bool {
        matches!(self.0, Node::Dynamic(ty) if ty.nullable)
    }

    pub fn preserves_unknown_fields(self) -> bool {
        matches!(self.0, Node::Dynamic(ty) if ty.preserve_unknown_fields)
    }

    /// How a list merges that is reached by no field, such as one in a map.
    pub fn list_type(self) -> Option<ListType> {
        match self.0 {
            Node::Built(_) => None,
            Node::Dynamic(ty) => ty.list_type,
        }
    }

    /// The fields that identify an element of such a list.
    pub fn map_keys(self) -> Vec<&'a str> {
        match self.0 {
            Node::Built(_) => Vec::new(),
            Node::Dynamic(ty) => ty.map_keys.iter().map(String::as_str).collect(),
        }
    }

    /// Whether this is a type of the generated tables, whose optional empty lists and maps are the same as absent.
    pub fn is_built_in(self) -> bool {
        matches!(self.0, Node::Built(_))
    }
}

fn map_type(flags: u8) -> Option<MapType> {
    match flags & (MAP_ATOMIC | MAP_GRANULAR) {
        MAP_ATOMIC => Some(MapType::Atomic),
        MAP_GRANULAR => Some(MapType::Granular),
        _ => None,
    }
}

impl<'a> FieldRef<'a> {
    fn flags(self) -> u8 {
        match self.0 {
            FieldNode::Built(row) => FIELDS[usize::from(row)].2,
            FieldNode::Dynamic(_) => 0,
        }
    }

    pub fn name(self) -> &'a str {
        match self.0 {
            FieldNode::Built(row) => string(FIELDS[usize::from(row)].0),
            FieldNode::Dynamic(field) => &field.name,
        }
    }

    pub fn ty(self) -> TypeRef<'a> {
        match self.0 {
            FieldNode::Built(row) => TypeRef(Node::Built(FIELDS[usize::from(row)].1)),
            FieldNode::Dynamic(field) => TypeRef::dynamic(&field.ty),
        }
    }

    /// As OpenAPI says it; for built-in types that is "never omitted on output", not "must be given".
    pub fn required(self) -> bool {
        match self.0 {
            FieldNode::Built(_) => self.flags() & REQUIRED != 0,
            FieldNode::Dynamic(field) => field.required,
        }
    }

    /// Of a built-in string that is one of a few values, or of a list or map of such strings: the values, sorted. None for
    /// every other field.
    pub fn values(self) -> impl Iterator<Item = &'static str> {
        let set = match self.0 {
            FieldNode::Built(row) => {
                ENUMS.binary_search_by_key(&row, |&(field, _)| field).ok().map(|at| ENUMS[at].1)
            }
            FieldNode::Dynamic(_) => None,
        };
        set.into_iter().flat_map(|set| ENUM_SETS[usize::from(set)]).map(|&value| string(value))
    }

    /// As JSON. Of built-in types only the defaults that Go declares, not those that follow from a type.
    pub fn default(self) -> Option<Cow<'a, serde_json::Value>> {
        match self.0 {
            FieldNode::Built(row) => match FIELDS[usize::from(row)].5 {
                0 => None,
                text => serde_json::from_str(string(text)).ok().map(Cow::Owned),
            },
            FieldNode::Dynamic(field) => field.default.as_ref().map(Cow::Borrowed),
        }
    }

    /// Strategic merge patch merges the list element by element instead of replacing it.
    pub fn merges(self) -> bool {
        self.flags() & MERGE != 0
    }

    /// Strategic merge patch may carry `$retainKeys` here.
    pub fn retains_keys(self) -> bool {
        self.flags() & RETAIN_KEYS != 0
    }

    /// Strategic merge patch replaces the whole value.
    pub fn replaces(self) -> bool {
        self.flags() & REPLACE != 0
    }

    /// The field that identifies an element for strategic merge patch; `None` for lists of scalars.
    pub fn merge_key(self) -> Option<&'static str> {
        match self.0 {
            FieldNode::Built(row) => Some(string(FIELDS[usize::from(row)].3)).filter(|key| !key.is_empty()),
            FieldNode::Dynamic(_) => None,
        }
    }

    pub fn list_type(self) -> Option<ListType> {
        match self.0 {
            FieldNode::Built(_) => match (self.flags() & LIST_MASK) >> 6 {
                1 => Some(ListType::Atomic),
                2 => Some(ListType::Set),
                3 => Some(ListType::Map),
                _ => None,
            },
            FieldNode::Dynamic(field) => field.list_type,
        }
    }

    /// The fields that identify an element for server-side apply.
    pub fn map_keys(self) -> Vec<&'a str> {
        match self.0 {
            FieldNode::Built(row) => {
                KEYSETS[usize::from(FIELDS[usize::from(row)].4)].iter().map(|&k| string(k)).collect()
            }
            FieldNode::Dynamic(field) => field.map_keys.iter().map(String::as_str).collect(),
        }
    }

    /// What the field says, else what its type says.
    pub fn map_type(self) -> Option<MapType> {
        map_type(self.flags()).or_else(|| self.ty().map_type())
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;

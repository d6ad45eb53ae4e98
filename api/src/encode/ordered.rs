//! JSON in the order of upstream's fields.

use crate::decode::schema_in;
use crate::schema::{FieldRef, Kind, TypeRef};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// Writes a value of a built-in type with the fields of structs in their order. What the type does not know follows, by
/// name.
#[derive(Clone, Copy)]
pub struct Ordered<'a> {
    value: &'a Value,
    ty: TypeRef<'a>,
    nil: bool,
}

impl<'a> Ordered<'a> {
    pub fn new(value: &'a Value, ty: TypeRef<'a>) -> Self {
        Self { value, ty, nil: false }
    }

    fn list<S: Serializer>(self, list: &[Value], element: TypeRef<'_>, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(list.iter().map(|value| Ordered { value, ty: element, nil: self.nil }))
    }

    fn structure<S: Serializer>(
        self,
        fields: &Map<String, Value>,
        ty: TypeRef<'_>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(fields.len()))?;
        for member in members(fields, Some(ty)) {
            map.serialize_entry(member.name, &member.ordered(self.nil))?;
        }
        map.end()
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match (self.ty.kind(), self.value, self.ty.element()) {
            (Kind::Struct, Value::Object(fields), _) => self.structure(fields, self.ty, out),
            (Kind::List, Value::Array(list), Some(element)) => self.list(list, element, out),
            (Kind::Map, Value::Object(map), Some(ty)) => {
                out.collect_map(map.iter().map(|(key, value)| (key, Ordered { value, ty, nil: self.nil })))
            }
            (Kind::Any, value, _) => match (schema_in(self.ty.any_name()), value) {
                (Some((schema, _)), Value::Object(fields)) => self.structure(fields, schema, out),
                (Some((schema, _)), Value::Array(list)) => self.list(list, schema, out),
                _ => value.serialize(out),
            },
            _ => self.value.serialize(out),
        }
    }
}

/// A member of an object, with what its type says of it.
pub(super) struct Member<'a> {
    place: u8,
    pub name: &'a str,
    value: &'a Value,
    field: Option<FieldRef<'a>>,
}

/// The members of a struct in the order of its fields; without a type, or beside them, in that of their names.
pub(super) fn members<'a>(fields: &'a Map<String, Value>, ty: Option<TypeRef<'a>>) -> Vec<Member<'a>> {
    let of = |(name, value): (&'a String, &'a Value)| {
        let field = ty.and_then(|ty| ty.field(name));
        Member { place: field.map_or(u8::MAX, FieldRef::place), name, value, field }
    };
    let mut members: Vec<Member<'a>> = fields.iter().map(of).collect();
    members.sort_by_key(|member| member.place);
    members
}

static NULL: Value = Value::Null;

impl<'a> Member<'a> {
    /// The value; with `nil` null for an empty list or map of a field that is written as null when it is absent.
    pub fn ordered(&self, nil: bool) -> MemberValue<'a> {
        match self.field {
            Some(field) => {
                let is_nil =
                    nil && field.is_kept() && !field.is_pointer() && is_empty(self.value, field.ty().kind());
                let value = if is_nil { &NULL } else { self.value };
                MemberValue::Typed(Ordered { value, ty: field.ty(), nil })
            }
            None => MemberValue::Untyped(self.value),
        }
    }
}

fn is_empty(value: &Value, kind: Kind) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => kind == Kind::Map && map.is_empty(),
        _ => false,
    }
}

pub(super) enum MemberValue<'a> {
    Typed(Ordered<'a>),
    Untyped(&'a Value),
}

impl Serialize for MemberValue<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Typed(value) => value.serialize(out),
            Self::Untyped(value) => value.serialize(out),
        }
    }
}

//! JSON in the order of upstream's fields.

use super::in_order::{InOrder, SHAPES};
use crate::decode::schema_in;
use crate::schema::{self, FieldRef, Kind, TypeRef};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// Writes a value of a built-in type with the fields of structs in their order. What the type does not know follows, by
/// name.
#[derive(Clone, Copy)]
pub struct Ordered<'a> {
    pub(super) value: &'a Value,
    /// None for values that no built-in type describes, whose members follow by name.
    pub(super) ty: Option<TypeRef<'a>>,
    pub(super) nil: bool,
}

impl<'a> Ordered<'a> {
    /// An object that says itself what it is; an empty list stays one.
    pub fn of(object: &'a Value) -> Self {
        Self { value: object, ty: schema::of_object(object), nil: false }
    }

    fn untyped<S: Serializer>(self, out: S) -> Result<S::Ok, S::Error> {
        match self.value.get("apiVersion").and_then(Value::as_str) {
            Some("meta.k8s.io/v1" | "meta.k8s.io/v1beta1") => {
                InOrder { value: self.value, order: SHAPES }.serialize(out)
            }
            _ => self.value.serialize(out),
        }
    }

    fn list<S: Serializer>(self, list: &[Value], element: TypeRef<'_>, out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(list.iter().map(|value| Ordered { value, ty: Some(element), nil: self.nil }))
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
        let Some(own) = self.ty else { return self.untyped(out) };
        match (own.kind(), self.value, own.element()) {
            (Kind::Struct, Value::Object(fields), _) => self.structure(fields, own, out),
            (Kind::List, Value::Array(list), Some(element)) => self.list(list, element, out),
            (Kind::Map, Value::Object(map), Some(ty)) => out.collect_map(
                map.iter().map(|(key, value)| (key, Ordered { value, ty: Some(ty), nil: self.nil })),
            ),
            (Kind::Any, value, _) => match (schema_in(own.any_name()), value) {
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
    let mut known = ty.map(TypeRef::walk);
    let of = |(name, value): (&'a String, &'a Value)| {
        let field = known.as_mut().and_then(|known| known.find(name, |_| ()));
        Member { place: field.map_or(u8::MAX, FieldRef::place), name, value, field }
    };
    let mut members: Vec<Member<'a>> = fields.iter().map(of).collect();
    members.sort_by_key(|member| member.place);
    members
}

static NULL: Value = Value::Null;

impl<'a> Member<'a> {
    /// The value; with `nil` null for an empty list or map of a field that is written as null when it is absent.
    pub fn ordered(&self, nil: bool) -> Ordered<'a> {
        let unwritten = |field: &FieldRef<'_>| field.is_kept() && !field.is_pointer();
        let is_nil = nil
            && self.field.is_some_and(|field| unwritten(&field) && is_empty(self.value, field.ty().kind()));
        Ordered { value: if is_nil { &NULL } else { self.value }, ty: self.field.map(FieldRef::ty), nil }
    }
}

fn is_empty(value: &Value, kind: Kind) -> bool {
    match value {
        Value::Array(list) => kind == Kind::List && list.is_empty(),
        Value::Object(map) => kind == Kind::Map && map.is_empty(),
        _ => false,
    }
}

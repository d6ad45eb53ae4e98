//! What a write leaves of an object: upstream holds objects in Go structs and writes those.

use super::conform::{MANAGED_FIELDS, schema_in};
use crate::schema::{FieldRef, Kind, TypeRef};
use serde_json::{Map, Value};

/// Where an object's own list of owners is, not that of a template in it.
const OWNERS: &str = "/metadata/managedFields";

/// Gives `value`, which conforms to `ty`, the form in which upstream writes it: fields that are zero are absent where Go
/// leaves them out and present where it does not; structs held by value are there.
///
/// Every write of a built-in kind goes through it, when the defaults are filled in and before anybody comes to own a
/// field. Idempotent. Values of types that are known only at run time stay as they are.
pub fn settle(value: &mut Value, ty: TypeRef<'_>) {
    // An empty list of owners asks to forget them; it is never stored.
    let forget = value.pointer(OWNERS).and_then(Value::as_array).is_some_and(Vec::is_empty);
    part(value, ty);
    if forget && let Some(metadata) = value.get_mut("metadata") {
        metadata[MANAGED_FIELDS] = Value::Array(Vec::new());
    }
}

fn part(value: &mut Value, ty: TypeRef<'_>) {
    match (ty.kind(), value) {
        (Kind::Struct, Value::Object(map)) => structure(map, ty),
        (Kind::List, Value::Array(list)) => {
            if let Some(element) = ty.element().filter(|ty| holds_structs(*ty)) {
                list.iter_mut().for_each(|item| part(item, element));
            }
        }
        (Kind::Map, Value::Object(map)) => {
            if let Some(element) = ty.element().filter(|ty| holds_structs(*ty)) {
                map.values_mut().for_each(|item| part(item, element));
            }
        }
        (Kind::Any, value) => anything(value, ty.any_name()),
        _ => {}
    }
}

fn holds_structs(ty: TypeRef<'_>) -> bool {
    matches!(ty.kind(), Kind::Struct | Kind::List | Kind::Map | Kind::Any)
}

/// Schemas stand in some fields of definitions in place of something else.
fn anything(value: &mut Value, name: &str) {
    let Some((schema, _)) = schema_in(name) else { return };
    match value {
        Value::Object(map) => structure(map, schema),
        Value::Array(list) => list.iter_mut().for_each(|item| part(item, schema)),
        _ => {}
    }
}

fn structure(map: &mut Map<String, Value>, ty: TypeRef<'_>) {
    if !ty.is_built_in() {
        return;
    }
    let (mut fields, mut missing) = (ty.walk(), Vec::new());
    map.retain(|name, item| {
        let Some(field) = fields.find(name, |field| missing.push(field)) else { return true };
        part(item, field.ty());
        if item.is_null() && field.is_kept() {
            *item = zero(field);
        }
        !field.omits(item)
    });
    fields.pass(|field| missing.push(field));
    for field in missing {
        map.insert(field.name().to_owned(), zero(field));
    }
}

fn zero(field: FieldRef<'_>) -> Value {
    let mut zero = field.zero().clone();
    part(&mut zero, field.ty());
    zero
}

#[cfg(test)]
mod tests;

//! An object without some of its fields.

use super::element::Element;
use super::lists::{Items, Place, Shape};
use super::set::Set;
use crate::schema::TypeRef;
use serde_json::{Map, Value};

/// `value` without the members of `gone`. Structs, maps and lists that had only such members become null, as if they
/// had not been set.
pub fn remove(value: &Value, gone: &Set<'_>, ty: TypeRef<'_>) -> Value {
    without(value, gone, Place::root(ty))
}

fn without(value: &Value, gone: &Set<'_>, place: Place<'_>) -> Value {
    match (place.shape(value), value) {
        (Shape::Granular, Value::Object(map)) => {
            let kept: Map<String, Value> =
                map.iter().filter_map(|(k, v)| kept_entry(k, v, gone, place)).collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (shape @ (Shape::Set | Shape::Keyed), Value::Array(list)) => {
            let items = Items::of(place, shape);
            let kept: Vec<Value> = list.iter().filter_map(|v| kept_item(v, &items, gone, place)).collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Shape::Scalar, value) => value.clone(),
        // Something below an atomic value can be a member only by another version's schema.
        _ => Value::Null,
    }
}

fn kept_entry(key: &str, value: &Value, gone: &Set<'_>, place: Place<'_>) -> Option<(String, Value)> {
    let kept = match (gone.find(&Element::field(key)), place.child(key)) {
        (Some(node), _) if node.member => return None,
        (Some(node), Some(child)) => without(value, &node.children, child),
        _ => value.clone(),
    };
    Some((key.to_owned(), kept))
}

fn kept_item(item: &Value, items: &Items<'_>, gone: &Set<'_>, place: Place<'_>) -> Option<Value> {
    let node = items.identify(item).ok().and_then(|identity| gone.find(&identity));
    match (node, place.element()) {
        (Some(node), _) if node.member => None,
        (Some(node), Some(element)) => Some(without(item, &node.children, element)),
        _ => Some(item.clone()),
    }
}

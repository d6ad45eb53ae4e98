//! The set of the fields that a value has.

use super::element::Element;
use super::lists::{Items, Place, Shape};
use super::set::Set;
use crate::schema::TypeRef;
use serde_json::{Map, Value};

/// Every field that `value` sets: what an applied configuration owns. Struct fields are not members themselves, only
/// what is in them; entries of maps and items of lists are.
///
/// Items of keyed lists and sets that nothing identifies are left out; [`validate`](super::validate()) reports them.
pub fn to_set<'v>(value: &'v Value, ty: TypeRef<'_>) -> Set<'v> {
    collect(value, Place::root(ty)).1
}

/// Whether the value is a member itself, and what is below it.
fn collect<'v>(value: &'v Value, place: Place<'_>) -> (bool, Set<'v>) {
    match (place.shape(value), value) {
        (Shape::Scalar | Shape::Atomic, _) => (true, Set::new()),
        (Shape::Granular, Value::Object(map)) => (false, collect_map(map, place)),
        (shape @ (Shape::Set | Shape::Keyed), Value::Array(list)) => {
            (false, collect_list(list, place, shape))
        }
        _ => (false, Set::new()),
    }
}

fn collect_map<'v>(map: &'v Map<String, Value>, place: Place<'_>) -> Set<'v> {
    let mut set = Set::new();
    for (key, value) in map {
        let Some(child) = place.child(key) else { continue };
        let (member, below) = collect(value, child);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.push(Element::field(key), member || empty || !place.names(key), below);
    }
    set
}

fn collect_list<'v>(list: &'v [Value], place: Place<'_>, shape: Shape) -> Set<'v> {
    let items = Items::of(place, shape);
    let element = place.element();
    let mut found: Vec<(Element<'v>, &'v Value)> = Vec::with_capacity(list.len());
    for item in list {
        if let Ok(identity) = items.identify(item) {
            found.push((identity, item));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut set = Set::new();
    let mut at = 0;
    while at < found.len() {
        let (identity, item) = &found[at];
        let same = found[at..].iter().take_while(|(other, _)| other == identity).count();
        // Of duplicates only the item as a whole can be owned.
        let below = match element {
            Some(place) if same == 1 => collect(item, place).1,
            _ => Set::new(),
        };
        set.push(identity.clone(), true, below);
        at += same;
    }
    set
}

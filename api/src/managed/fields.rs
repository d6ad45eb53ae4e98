//! FieldsV1, the form in which sets stand in objects.

use super::element::Element;
use super::set::Set;
use serde_json::{Map, Value};

/// Deepest nesting that is read; no schema comes near it, and every level is a stack frame.
const MAX_DEPTH: usize = 128;

/// Reads a set; the error says which key is no path element. Null is the empty set.
pub fn parse_fields(fields: &Value) -> Result<Set<'_>, String> {
    match fields {
        Value::Null => Ok(Set::new()),
        Value::Object(map) => parse_map(map, MAX_DEPTH).map(|(_, set)| set),
        _ => Err("FieldsV1 must be an object".to_owned()),
    }
}

/// With the flag whether the map has the member `.`, that is, stands for a member itself.
fn parse_map(map: &Map<String, Value>, depth: usize) -> Result<(bool, Set<'_>), String> {
    if depth == 0 {
        return Err("FieldsV1 nests too deep".to_owned());
    }
    let mut member = false;
    let mut set = Set::new();
    for (key, below) in map {
        if key == "." {
            member = true;
            continue;
        }
        let element = Element::parse(key).ok_or_else(|| format!("{key:?} is no path element"))?;
        let Value::Object(below) = below else { return Err(format!("{key:?} must be an object")) };
        let (marked, children) = parse_map(below, depth - 1)?;
        set.push(element, marked || children.is_empty(), children);
    }
    Ok((member, set))
}

/// Deepest nesting that is written. Only values that no schema describes are deeper; of those the rest is owned as a
/// whole, so that the object, in which the set stands some levels down, can still be read.
const WRITTEN_DEPTH: usize = 64;

/// A set as FieldsV1: members without children are `{}`, members with children have a `.` among them.
pub fn write_fields(set: &Set<'_>) -> Value {
    Value::Object(write_map(set, false, WRITTEN_DEPTH))
}

fn write_map(set: &Set<'_>, member: bool, depth: usize) -> Map<String, Value> {
    let mut map = Map::new();
    if depth == 0 {
        return map;
    }
    if member && !set.is_empty() {
        map.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for node in set.nodes() {
        map.insert(node.element.write(), Value::Object(write_map(&node.children, node.member, depth - 1)));
    }
    map
}

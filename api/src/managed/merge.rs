//! An applied configuration laid over the live object.

use super::element::Element;
use super::lists::{Items, Place, Shape};
use crate::schema::TypeRef;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Why two values cannot be merged, with the path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub struct MergeError {
    pub path: String,
    pub why: String,
}

/// `live` with what `config` says. Granular maps and structs are united, keyed lists and sets too; of everything else
/// `config` wins where it says something.
pub fn merge(live: &Value, config: &Value, ty: TypeRef<'_>) -> Result<Value, MergeError> {
    both(live, config, Place::root(ty))
}

impl MergeError {
    fn new(why: String) -> Self {
        Self { path: String::new(), why }
    }

    /// Paths are put together on the way out: most merges need none.
    fn below(mut self, element: &Element<'_>) -> Self {
        self.path.insert_str(0, &element.to_string());
        self
    }
}

fn both(live: &Value, config: &Value, place: Place<'_>) -> Result<Value, MergeError> {
    if live == config {
        return Ok(live.clone());
    }
    match (place.shape(config), live, config) {
        (Shape::Granular, Value::Object(live), Value::Object(config)) => {
            maps(live, config, place).map(Value::Object)
        }
        (shape @ (Shape::Set | Shape::Keyed), Value::Array(live), Value::Array(config))
            if !(live.is_empty() && config.is_empty()) =>
        {
            lists(live, config, place, shape).map(Value::Array)
        }
        // What is said as "nothing" leaves what is there.
        (Shape::Granular | Shape::Set | Shape::Keyed, live, config) if says_nothing(config) => {
            Ok(if says_nothing(live) { config.clone() } else { live.clone() })
        }
        _ => Ok(config.clone()),
    }
}

fn maps(
    live: &Map<String, Value>,
    config: &Map<String, Value>,
    place: Place<'_>,
) -> Result<Map<String, Value>, MergeError> {
    let only_live = live.iter().filter(|(key, _)| !config.contains_key(*key));
    let mut merged: Map<String, Value> = only_live.map(|(key, value)| (key.clone(), value.clone())).collect();
    for (key, value) in config {
        let value = match (live.get(key), place.child(key)) {
            (Some(old), Some(child)) => both(old, value, child).map_err(|e| e.below(&Element::field(key)))?,
            _ => value.clone(),
        };
        merged.insert(key.clone(), value);
    }
    Ok(merged)
}

/// The items of both: those of `config` in its order, those that only `live` has at their place among them.
fn lists(live: &[Value], config: &[Value], place: Place<'_>, shape: Shape) -> Result<Vec<Value>, MergeError> {
    let items = Items::of(place, shape);
    let left = identified(live, &items)?;
    let right = identified(config, &items)?;
    let (known_left, known_right) = (index(&left), index(&right));
    if let Some((twice, _)) = known_right.iter().find(|(_, at)| at.len() > 1) {
        return Err(MergeError::new(format!("duplicate entries for key {twice}")));
    }
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    for step in plan(&left, &right, &known_left, &known_right) {
        out.push(match step {
            Step::Live(at) => live[at].clone(),
            Step::Config(at) => match (known_left.get(&right[at]).map(Vec::as_slice), place.element()) {
                // Of duplicates none is the one to merge with.
                (Some([old]), Some(element)) => {
                    both(&live[*old], &config[at], element).map_err(|e| e.below(&right[at]))?
                }
                _ => config[at].clone(),
            },
        });
    }
    Ok(out)
}

fn identified(list: &[Value], items: &Items<'_>) -> Result<Vec<Element<'static>>, MergeError> {
    let identify =
        |(i, item)| items.identify(item).map_err(|why| MergeError::new(format!("element {i}: {why}")));
    list.iter().enumerate().map(identify).collect()
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

type Index<'e> = HashMap<&'e Element<'static>, Vec<usize>>;

fn index<'e>(list: &'e [Element<'static>]) -> Index<'e> {
    let mut found = Index::new();
    for (at, element) in list.iter().enumerate() {
        found.entry(element).or_default().push(at);
    }
    found
}

/// Where the next item of a merged list comes from.
enum Step {
    Live(usize),
    /// Merged with its counterpart in the live list, if there is one.
    Config(usize),
}

/// Upstream's order: walks both lists at once; items of both stand in the order of `right`, and items of `left` alone
/// stay behind the item that they follow there.
fn plan(
    left: &[Element<'static>],
    right: &[Element<'static>],
    in_left: &Index<'_>,
    in_right: &Index<'_>,
) -> Vec<Step> {
    let mut shared = right.iter().filter(|e| in_left.contains_key(e));
    let mut next_shared = shared.next();
    let mut done: Vec<bool> = vec![false; right.len()];
    let is_done = |done: &[bool], e: &Element<'static>| in_right.get(e).is_some_and(|at| done[at[0]]);
    let mut steps = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            if left[l] == right[r] {
                done[r] = true;
                steps.push(Step::Config(r));
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if in_right.contains_key(&left[l]) && next_shared.is_some_and(|next| *next != left[l]) {
                // Shared, but another one is due: it comes at its place in the configuration.
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            if !in_right.contains_key(&left[l]) {
                steps.push(Step::Live(l));
                l += 1;
                continue;
            }
            if is_done(&done, &left[l]) {
                l += 1;
            }
        }
        if r < right.len() {
            done[r] = true;
            steps.push(Step::Config(r));
            if next_shared == Some(&right[r]) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    steps
}

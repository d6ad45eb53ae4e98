//! Lists that strategic merge patch merges: sets of scalars, and maps by the value of one field.

use super::PatchError;
use super::strategic::{PATCH, bad_directive, directive, merge_maps, without_directives};
use crate::go;
use crate::schema::TypeRef;
use serde_json::{Map, Value};

/// What a patch says about one list.
#[derive(Default)]
pub(super) struct ListPatch {
    pub items: Option<Value>,
    /// `$deleteFromPrimitiveList/x`
    pub delete: Vec<Value>,
    /// `$setElementOrder/x`: the wanted order; of maps only their keys.
    pub order: Option<Vec<Value>>,
}

pub(super) fn merge(
    original: &mut Map<String, Value>,
    key: &str,
    patch: ListPatch,
    merge_key: Option<&str>,
    element: Option<TypeRef<'_>>,
) -> Result<(), PatchError> {
    let before = match original.remove(key) {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    };
    let items = match patch.items {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    };
    if before.is_none() && items.is_none() {
        return Ok(());
    }
    let server_order = before.clone().unwrap_or_default();
    let mut merged = before.unwrap_or_default();
    // Without an order of its own a patch still brings its items in the order it lists them.
    let order = patch.order.clone().or_else(|| items.clone());
    if let Some(items) = items {
        check_kinds(&merged, &items)?;
        if let Some(order) = &patch.order {
            check_order(&items, order, merge_key)?;
        }
        merged = match merge_key {
            None => merge_scalars(merged, items),
            Some(merge_key) => merge_elements(merged, items, merge_key, element)?,
        };
    }
    merged.retain(|item| !patch.delete.contains(item));
    if let Some(order) = order {
        merged = sort(merged, &order, &server_order, merge_key);
    }
    original.insert(key.to_owned(), Value::Array(merged));
    Ok(())
}

fn merge_scalars(mut list: Vec<Value>, items: Vec<Value>) -> Vec<Value> {
    let mut unique = Vec::with_capacity(list.len() + items.len());
    for item in list.drain(..).chain(items) {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique
}

fn merge_elements(
    mut list: Vec<Value>,
    items: Vec<Value>,
    merge_key: &str,
    element: Option<TypeRef<'_>>,
) -> Result<Vec<Value>, PatchError> {
    let (special, plain): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|i| i.get(PATCH).is_some());
    for item in special {
        let Value::Object(item) = item else { continue };
        match directive(&item[PATCH])? {
            "replace" => return Ok(plain),
            "delete" => {
                let key = key_of(&Value::Object(item.clone()), merge_key)?.clone();
                list.retain(|have| have.get(merge_key) != Some(&key));
            }
            "merge" => {
                let text = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unmergeable(text.to_owned()));
            }
            other => return Err(bad_directive(other, &item)),
        }
    }
    for item in plain {
        let key = key_of(&item, merge_key)?.clone();
        let at = list.iter().position(|have| have.get(merge_key) == Some(&key));
        match (at, item) {
            (Some(at), Value::Object(new)) => {
                if let Value::Object(old) = list[at].take() {
                    list[at] = Value::Object(merge_maps(old, new, element)?);
                }
            }
            (_, item) => list.push(without_directives(item)),
        }
    }
    Ok(list)
}

fn key_of<'v>(item: &'v Value, merge_key: &str) -> Result<&'v Value, PatchError> {
    item.get(merge_key).ok_or_else(|| {
        let map = go::value(item);
        PatchError::Unmergeable(format!("map: {map} does not contain declared merge key: {merge_key}"))
    })
}

/// The items of two lists that are merged are of one kind.
fn check_kinds(before: &[Value], items: &[Value]) -> Result<(), PatchError> {
    let mut all = before.iter().chain(items);
    let Some(first) = all.next().map(std::mem::discriminant) else { return Ok(()) };
    if all.all(|item| std::mem::discriminant(item) == first) {
        return Ok(());
    }
    let lists = go::value(&Value::from(vec![Value::from(before.to_vec()), Value::from(items.to_vec())]));
    Err(PatchError::Unmergeable(format!("list element types are not identical: {lists}")))
}

/// What identifies an item in an order list.
fn identity<'v>(item: &'v Value, merge_key: Option<&str>) -> &'v Value {
    merge_key.and_then(|key| item.get(key)).unwrap_or(item)
}

fn position(list: &[Value], item: &Value, merge_key: Option<&str>) -> Option<usize> {
    let wanted = identity(item, merge_key);
    list.iter().position(|have| identity(have, merge_key) == wanted)
}

/// The items of the patch must stand in the order list, in its order.
fn check_order(items: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    let kept = items.iter().filter(|item| item.get(PATCH).is_none());
    let positions: Option<Vec<usize>> = kept.map(|item| position(order, item, merge_key)).collect();
    if positions.is_some_and(|p| p.is_sorted()) {
        return Ok(());
    }
    let printed = |list: &[Value]| go::value(&Value::from(list.to_vec()));
    let (items, order) = (printed(items), printed(order));
    Err(PatchError::Unmergeable(format!(
        "The order in patch list:\n{items}\n doesn't match $setElementOrder list:\n{order}\n"
    )))
}

/// Items named in `order` in that order; the others, which the patch's author did not know, stand before the first
/// of them that followed in `server_order`, or else after all.
fn sort(list: Vec<Value>, order: &[Value], server_order: &[Value], merge_key: Option<&str>) -> Vec<Value> {
    let (mut known, others): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| position(order, item, merge_key).is_some());
    known.sort_by_key(|item| position(order, item, merge_key));
    let mut known = known.into_iter().peekable();
    let mut sorted = Vec::new();
    for other in others {
        let place = position(server_order, &other, merge_key);
        let follows = |item: &Value| matches!((position(server_order, item, merge_key), place), (Some(a), Some(b)) if a > b);
        while let Some(item) = known.next_if(|item| !follows(item)) {
            sorted.push(item);
        }
        sorted.push(other);
    }
    sorted.extend(known);
    sorted
}

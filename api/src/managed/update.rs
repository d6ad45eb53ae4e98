//! What creates, updates and patches do to the owners.

use super::compare::{Comparison, compare};
use super::entry::{Entry, Operation, decode, encode};
use super::owners::{Request, cap, disown, strip};
use serde_json::{Map, Value};
use std::sync::LazyLock;

static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// The `metadata.managedFields` of `new`, which replaces `live`, or is created. Both are of the request's version and
/// complete (defaults filled in); `new` may carry managedFields of its own, with which clients edit or reset them.
/// `None` if there are to be none.
///
/// Ownership of objects without managedFields is not followed before they are first applied to, and never fails: what
/// cannot be read counts as absent.
pub fn update(request: &Request<'_>, live: Option<&Value>, new: &Value) -> Option<Value> {
    let before = live.unwrap_or(&NOTHING);
    let change = compare(before, new, request.ty);
    if change.is_empty()
        && let Some(list) = untouched(request, before, new)
    {
        return Some(list.clone());
    }
    let (kept, entries) = match present(request, live, new) {
        Some((list, entries)) => (Some(list), entries),
        None if live.is_some() => return None,
        None => (None, Vec::new()),
    };
    if change.is_empty() {
        return kept.cloned();
    }
    encode(track(request, entries, (before, new), change))
}

/// The entries after `change`, which leads from `old` to `new`, by the request's manager.
pub(super) fn track<'a>(
    request: &Request<'a>,
    entries: Vec<Entry<'a>>,
    (old, new): (&'a Value, &'a Value),
    change: Comparison<'a>,
) -> Vec<Entry<'a>> {
    let mut entries = entries;
    let change = change.without(request.reset);
    // Nobody objects to a forced change.
    let _ = disown(&mut entries, None, request, (old, new), &change, true);
    let taken = strip(change.modified.union(change.added));
    if !taken.is_empty() {
        let mut own = request.entry(Operation::Update, taken);
        own.time = Some(request.now.into());
        match entries.iter_mut().find(|known| known.same_owner(&own)) {
            Some(known) => {
                known.fields = std::mem::take(&mut known.fields).union(own.fields);
                known.time = own.time;
            }
            None => entries.push(own),
        }
    }
    cap(&mut entries);
    entries
}

/// The live object's owners, if the client does not say others: they were read before they were stored.
fn untouched<'a>(request: &Request<'_>, live: &'a Value, new: &Value) -> Option<&'a Value> {
    let of = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let known = live["metadata"].get("managedFields").filter(|list| of(list))?;
    let sent = new["metadata"].get("managedFields").filter(|list| !list.is_null());
    let same = !request.subresource.is_empty() || sent.is_none_or(|sent| sent == known);
    same.then_some(known)
}

/// The managedFields to go on from. Those that the client sends count, if they can be read and this is no subresource;
/// else those of the live object.
fn present<'a>(
    request: &Request<'_>,
    live: Option<&'a Value>,
    new: &'a Value,
) -> Option<(&'a Value, Vec<Entry<'a>>)> {
    let of = |object: &'a Value| object["metadata"].get("managedFields").filter(|list| !list.is_null());
    let sent = of(new).filter(|_| request.subresource.is_empty());
    if sent.is_some_and(is_reset) {
        return None;
    }
    let read = |list: &'a Value| {
        let entries = decode(list).ok().filter(|entries| !entries.is_empty())?;
        Some((list, entries))
    };
    sent.and_then(read).or_else(|| live.and_then(of).and_then(read))
}

/// `[]` and `[{}]` ask to forget all owners.
fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Whether two objects differ in nothing but the times in their managedFields (and resourceVersion), so that a write
/// would change nothing.
pub fn same_but_times(new: &Value, old: &Value) -> bool {
    same_members(new, old, |key, new, old| match (key, new, old) {
        ("metadata", Some(new), Some(old)) => same_members(new, old, |key, new, old| match (key, new, old) {
            ("resourceVersion", ..) => true,
            ("managedFields", Some(new), Some(old)) => same_entries(new, old),
            _ => new == old,
        }),
        _ => new == old,
    })
}

fn same_entries(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_array(), old.as_array()) else { return new == old };
    let same = |(a, b): (&Value, &Value)| same_members(a, b, |key, a, b| key == "time" || a == b);
    new.len() == old.len() && new.iter().zip(old).all(same)
}

/// Whether `same` holds for every member of either object.
fn same_members(
    new: &Value,
    old: &Value,
    same: impl Fn(&str, Option<&Value>, Option<&Value>) -> bool,
) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    new.iter().all(|(key, value)| same(key, Some(value), old.get(key)))
        && old.iter().all(|(key, value)| new.contains_key(key) || same(key, None, Some(value)))
}

//! Taking away what a manager has applied before and applies no longer.

use super::collect::to_set;
use super::entry::Entry;
use super::owners::Request;
use super::remove::remove;
use super::set::Set;
use crate::schema::TypeRef;
use serde_json::Value;

/// `merged` without the fields of `last`, the manager's set of before, that no entry owns (the new one of the same
/// manager is among `entries`). Fields that nobody owned stay.
pub(super) fn prune(
    request: &Request<'_>,
    merged: Value,
    last: Option<&Entry<'_>>,
    entries: &[Entry<'_>],
) -> Value {
    let Some(last) = last.filter(|last| !last.fields.is_empty() && !is_kept(last, entries)) else {
        return merged;
    };
    let Some((whole, ty)) = request.at_version(&merged, &last.api_version) else { return merged };
    let before = last.fields.clone().with_named_fields(Some(ty));
    let mut pruned = remove(&whole, &before, ty);
    let mut version = last.api_version.as_ref();
    for other in versions(entries, version) {
        let Some((whole, ty)) = request.at_version(&merged, other) else { continue };
        let Some(narrowed) = convert(request, &pruned, version, other) else { continue };
        pruned = add_back_owned(&whole, &narrowed, &owned_at(entries, other), ty);
        version = other;
    }
    let Some(narrowed) = convert(request, &pruned, version, &last.api_version) else { return merged };
    let left = to_set(&narrowed, ty).with_named_fields(Some(ty));
    let all = to_set(&whole, ty).with_named_fields(Some(ty));
    let result = remove(&whole, &all.difference(&left).intersection(&before), ty);
    convert(request, &result, &last.api_version, request.api_version).unwrap_or(result)
}

/// Whether everything of before is applied again, so that there is nothing to take away.
fn is_kept(last: &Entry<'_>, entries: &[Entry<'_>]) -> bool {
    let again = entries.iter().find(|entry| entry.same_owner(last));
    again.is_some_and(|again| again.api_version == last.api_version && last.fields.is_within(&again.fields))
}

/// The versions of the entries, `first` before all others.
fn versions<'e>(entries: &'e [Entry<'_>], first: &'e str) -> Vec<&'e str> {
    let mut found = Vec::new();
    for entry in entries {
        if !found.contains(&entry.api_version.as_ref()) {
            found.push(entry.api_version.as_ref());
        }
    }
    found.sort_by_key(|version| *version != first);
    found
}

fn owned_at<'a>(entries: &[Entry<'a>], version: &str) -> Set<'a> {
    let at = entries.iter().filter(|entry| entry.api_version == version);
    at.fold(Set::new(), |owned, entry| owned.union(entry.fields.clone()))
}

fn convert(request: &Request<'_>, object: &Value, from: &str, to: &str) -> Option<Value> {
    if from == to { Some(object.clone()) } else { request.versions.convert(object, from, to) }
}

/// `pruned` with what it lacks of `whole` and somebody owns.
fn add_back_owned(whole: &Value, pruned: &Value, owned: &Set<'_>, ty: TypeRef<'_>) -> Value {
    let all = to_set(whole, ty).with_named_fields(Some(ty));
    let left = to_set(pruned, ty).with_named_fields(Some(ty));
    let owned = owned.clone().with_named_fields(Some(ty));
    remove(whole, &all.difference(&left).difference(&owned), ty)
}

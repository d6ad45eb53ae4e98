//! The managers of one object while a write is being worked out.

use super::compare::{Comparison, compare};
use super::conflict::Claim;
use super::entry::{Entry, Operation};
use super::set::Set;
use crate::schema::TypeRef;
use serde_json::Value;
use std::borrow::Cow;

/// The other versions in which an object is served, because managers own the fields of the version they used.
pub trait Versions {
    /// `object`, which is of the version `from`, in the version `to`; `None` if that is not (any more) served.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value>;

    fn schema(&self, version: &str) -> Option<TypeRef<'_>>;
}

/// For resources that are served in one version only.
pub struct SingleVersion;

impl Versions for SingleVersion {
    fn convert(&self, _: &Value, _: &str, _: &str) -> Option<Value> {
        None
    }

    fn schema(&self, _: &str) -> Option<TypeRef<'_>> {
        None
    }
}

/// Who writes, and how the object is to be read.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// The field manager; empty counts as `unknown`.
    pub manager: &'r str,
    pub subresource: &'r str,
    /// Of the request: the objects that are handed over are of this version.
    pub api_version: &'r str,
    pub ty: TypeRef<'r>,
    pub versions: &'r dyn Versions,
    /// Fields that this way to the object does not change: the status through the main resource, and the reverse.
    pub reset: &'r Set<'r>,
    /// RFC 3339 with seconds.
    pub now: &'r str,
}

impl<'r> Request<'r> {
    pub(super) fn entry<'a>(&self, operation: Operation, fields: Set<'a>) -> Entry<'a>
    where
        'r: 'a,
    {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        Entry {
            manager: manager.into(),
            operation,
            subresource: self.subresource.into(),
            api_version: self.api_version.into(),
            time: None,
            fields,
        }
    }

    /// `object` and its type as entries of `version` see it; `None` if nobody does any more.
    pub(super) fn at_version<'o>(
        &'o self,
        object: &'o Value,
        version: &str,
    ) -> Option<(Cow<'o, Value>, TypeRef<'o>)> {
        if version == self.api_version {
            return Some((Cow::Borrowed(object), self.ty));
        }
        let converted = self.versions.convert(object, self.api_version, version)?;
        Some((Cow::Owned(converted), self.versions.schema(version)?))
    }
}

/// Paths of `metadata` (and the object's identity) that nobody owns.
pub(super) fn strip(fields: Set<'_>) -> Set<'_> {
    const STRIPPED: &[&[&str]] = &[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ];
    static SET: std::sync::LazyLock<Set<'static>> = std::sync::LazyLock::new(|| Set::of_fields(STRIPPED));
    fields.difference(&SET)
}

/// Takes from the entries what a change from `old` to `new` takes from them: changed fields go to who changed them,
/// removed ones to nobody. The entry at `but` is left alone. Without `force` changed fields are conflicts instead.
///
/// `here` is the comparison in the request's own version, without the reset fields.
pub(super) fn disown(
    entries: &mut Vec<Entry<'_>>,
    but: Option<usize>,
    request: &Request<'_>,
    (old, new): (&Value, &Value),
    here: &Comparison<'_>,
    force: bool,
) -> Result<(), Vec<Claim>> {
    let mut conflicts = Vec::new();
    let mut gone = vec![false; entries.len()];
    let mut versions: Vec<(String, Option<Comparison<'static>>)> = Vec::new();
    for (i, entry) in entries.iter_mut().enumerate() {
        if Some(i) == but {
            continue;
        }
        let change = if entry.api_version == request.api_version {
            Some(here)
        } else {
            let known = versions.iter().position(|(version, _)| *version == *entry.api_version);
            let at = known.unwrap_or_else(|| {
                let change = elsewhere(request, old, new, &entry.api_version);
                versions.push((entry.api_version.to_string(), change));
                versions.len() - 1
            });
            versions[at].1.as_ref()
        };
        let Some(change) = change else {
            gone[i] = true;
            continue;
        };
        let mut taken = entry.fields.intersection(&change.modified);
        taken = taken.union(entry.fields.intersection(&change.added));
        if !force && !taken.is_empty() {
            conflicts.push(Claim::new(entry, taken.clone().into_owned()));
        }
        let taken = taken.into_owned();
        entry.fields = std::mem::take(&mut entry.fields).difference(&taken).difference(&change.removed);
    }
    if !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
        return Err(conflicts);
    }
    let mut i = 0;
    entries.retain(|entry| {
        i += 1;
        !gone[i - 1] && !entry.fields.is_empty()
    });
    Ok(())
}

fn elsewhere(request: &Request<'_>, old: &Value, new: &Value, version: &str) -> Option<Comparison<'static>> {
    let (old, ty) = request.at_version(old, version)?;
    let (new, _) = request.at_version(new, version)?;
    let change = compare(&old, &new, ty).without(request.reset);
    Some(Comparison {
        added: change.added.into_owned(),
        modified: change.modified.into_owned(),
        removed: change.removed.into_owned(),
    })
}

/// Entries of plain updates that are kept apart, as upstream.
const MAX_UPDATE_MANAGERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// Unites the oldest updaters of each version when there are too many.
pub(super) fn cap(entries: &mut Vec<Entry<'_>>) {
    let mut updaters: Vec<usize> =
        (0..entries.len()).filter(|i| entries[*i].operation == Operation::Update).collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATE_MANAGERS {
        return;
    }
    updaters.sort_by(|a, b| {
        let key = |i: usize| (entries[i].seconds(), &entries[i].manager, &entries[i].api_version);
        key(*a).cmp(&key(*b))
    });
    let mut buckets: Vec<usize> = Vec::new();
    let mut gone = vec![false; entries.len()];
    for at in updaters {
        if count <= MAX_UPDATE_MANAGERS {
            break;
        }
        let Some(&bucket) = buckets.iter().find(|b| entries[**b].api_version == entries[at].api_version)
        else {
            buckets.push(at);
            continue;
        };
        let (fields, time) = (std::mem::take(&mut entries[at].fields), entries[at].time.take());
        let into = &mut entries[bucket];
        into.fields = std::mem::take(&mut into.fields).union(fields);
        // The later of the two.
        into.time = time;
        into.manager = ANCIENT.into();
        into.subresource = "".into();
        gone[at] = true;
        count -= 1;
    }
    let mut i = 0;
    entries.retain(|_| {
        i += 1;
        !gone[i - 1]
    });
}

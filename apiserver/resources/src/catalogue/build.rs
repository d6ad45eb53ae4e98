//! The next snapshot: only what has changed is read again.

use super::snapshot::{Entry, Snapshot};
use crate::cache::{CachedObject, Objects};
use crate::conversion::Converter;
use crate::custom::{CustomResource, Definition, raw_schema};
use coracle_api::catalogue::Storage;
use coracle_api::{Resource, Subresource};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sorted, as upstream's discovery has them.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Numbers of generations and of definitions, used once each.
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

pub(super) fn snapshot(before: &Snapshot, definitions: &Objects, converter: &Arc<Converter>) -> Snapshot {
    let entries: Vec<Entry> =
        definitions.values().filter_map(|object| entry(before, object, converter)).collect();
    let served = |entries: &[Entry]| entries.iter().map(|e| e.definition.serial).collect::<Vec<_>>();
    let same = served(&before.entries) == served(&entries);
    let generation = if same { before.generation } else { next() };
    Snapshot { generation, entries }
}

fn entry(before: &Snapshot, object: &Arc<CachedObject>, converter: &Arc<Converter>) -> Option<Entry> {
    let known = before.entry(object.name());
    if let Some(known) = known.filter(|k| k.definition.object.revision == object.revision) {
        return Some(known.clone());
    }
    let mut definition = Definition::of(object, next(), converter)?;
    if let Some(known) = known.filter(|known| known.definition.uid == definition.uid) {
        carry_over(&known.definition, &mut definition);
    }
    let definition = Arc::new(definition);
    let versions = (0..definition.versions.len()).map(|at| {
        let resource = Arc::new(resource(&definition, at));
        Arc::new(CustomResource::new(definition.clone(), at, resource))
    });
    Some(Entry { versions: versions.collect(), definition })
}

/// Keeps schemas that are the same as before, and the serial number of a definition that serves the same.
fn carry_over(old: &Definition, new: &mut Definition) {
    let (before, after) = (old.object.decode(), new.object.decode());
    for version in &mut new.versions {
        let known = old.versions.iter().find(|v| v.name == version.name);
        let schema = known.and_then(|known| known.schema.get());
        if let Some(schema) = schema
            && raw_schema(&before, &version.name) == raw_schema(&after, &version.name)
            && old.preserve_unknown == new.preserve_unknown
        {
            version.schema = schema.clone().into();
        }
    }
    let unchanged =
        before["spec"] == after["spec"] && old.names == new.names && old.established == new.established;
    if unchanged {
        new.serial = old.serial;
    }
}

fn texts<'a>(list: impl IntoIterator<Item = &'a str>) -> Vec<std::borrow::Cow<'static, str>> {
    list.into_iter().map(|text| text.to_owned().into()).collect()
}

fn resource(definition: &Definition, at: usize) -> Resource {
    let version = &definition.versions[at];
    let stored = definition.versions.iter().find(|v| v.storage).unwrap_or(version);
    let own = |text: &str| text.to_owned().into();
    let subresource = |name: &'static str, group: &str, version: &str, kind: &str| Subresource {
        name: name.into(),
        group: own(group),
        version: own(version),
        kind: own(kind),
        verbs: texts(SUBRESOURCE_VERBS),
    };
    let kind = definition.name("kind");
    let mut subresources = Vec::new();
    if version.has_status {
        subresources.push(subresource("status", &definition.group, &version.name, kind));
    }
    if version.scale.is_some() {
        subresources.push(subresource("scale", "autoscaling", "v1", "Scale"));
    }
    Resource {
        group: own(&definition.group),
        version: own(&version.name),
        kind: own(kind),
        list_kind: own(definition.name("listKind")),
        plural: own(&definition.plural),
        singular: own(definition.name("singular")),
        short_names: texts(definition.names("shortNames")),
        categories: texts(definition.names("categories")),
        namespaced: definition.namespaced,
        verbs: texts(VERBS),
        subresources,
        storage: Storage {
            key: own(&definition.key),
            group: own(&definition.group),
            version: own(&stored.name),
            kind: own(kind),
        },
    }
}

//! The custom resources at one moment.

use crate::custom::{CustomResource, Definition};
use coracle_api::Resource;
use std::sync::Arc;

/// One definition with all of its versions, served or not.
#[derive(Clone)]
pub struct Entry {
    pub definition: Arc<Definition>,
    /// In the order of preference: `v2`, `v1`, `v1beta1`, then other names.
    pub versions: Vec<Arc<CustomResource>>,
}

impl Entry {
    /// The version that objects are written in.
    pub fn stored(&self) -> &Arc<CustomResource> {
        // A definition has exactly one storage version, and at least one version: its validation says so.
        self.versions.iter().find(|c| c.is_storage()).unwrap_or(&self.versions[0])
    }

    /// The versions that requests can name.
    pub fn served(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        self.versions.iter().filter(|c| c.is_served())
    }
}

/// All custom resources. Cheap to share, never changed.
#[derive(Default)]
pub struct Snapshot {
    /// Differs between snapshots that serve something else.
    pub generation: u64,
    /// In the order of their names, `<plural>.<group>`.
    pub(super) entries: Vec<Entry>,
}

impl Snapshot {
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// By `<plural>.<group>`; also of definitions that are not established.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| (*entry.definition.key).cmp(key)).ok()?;
        Some(&self.entries[at])
    }

    /// Every version of every resource that is served.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        self.entries.iter().flat_map(Entry::served)
    }

    pub fn served(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<CustomResource>> {
        self.named(group, plural)?.served().find(|c| c.resource.version == version)
    }

    pub fn versions(&self, group: &str, plural: &str) -> Vec<Arc<Resource>> {
        self.named(group, plural).into_iter().flat_map(Entry::served).map(|c| c.resource.clone()).collect()
    }

    fn named(&self, group: &str, plural: &str) -> Option<&Entry> {
        if self.entries.is_empty() {
            return None;
        }
        self.entry(&format!("{plural}.{group}"))
    }
}

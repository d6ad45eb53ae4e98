//! Figures of encryption at rest, under upstream's names where upstream counts the same.

use super::{MARK, OpenError, SealError};
use bytes::Bytes;
use coracle_component_base::metrics::{Counter, Family, Gauge, Text};

/// Of one store.
pub struct Figures {
    operations: Family<Counter>,
    rewritten: Counter,
    stale: Gauge,
    unreadable: Gauge,
    scrubs: Counter,
    kms_operations: Family<Counter>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            operations: Family::new(
                "apiserver_storage_transformation_operations_total",
                "Values encrypted for the store, or decrypted from it.",
                &["resource", "status", "transformation_type", "transformer_prefix"],
                Counter::default,
            ),
            rewritten: Counter::default(),
            stale: Gauge::default(),
            unreadable: Gauge::default(),
            scrubs: Counter::default(),
            kms_operations: Family::new(
                "coracle_encryption_kms_probes_total",
                "Status calls to KMS providers, with what came of them.",
                &["provider", "status"],
                Counter::default,
            ),
        }
    }
}

/// `secrets./default/a` is of `secrets`, and `deployments.apps/default/a` of `deployments.apps`.
fn resource(key: &str) -> &str {
    let resource = key.split_once('/').map_or(key, |(resource, _)| resource);
    resource.strip_suffix('.').unwrap_or(resource)
}

/// Up to the version, or of a KMS to its name; never a key's name.
fn prefix(stored: &[u8]) -> &str {
    if !stored.starts_with(MARK) {
        return "identity";
    }
    let parts = if stored.starts_with(b"k8s:enc:kms:") { 5 } else { 4 };
    let colons = stored.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    let end = colons.take(parts).last().unwrap_or_default();
    std::str::from_utf8(&stored[..=end]).unwrap_or("unknown")
}

impl Figures {
    fn operation(&self, key: &str, stored: &[u8], kind: &str, is_ok: bool) {
        let status = if is_ok { "OK" } else { "Unknown" };
        self.operations.with(&[resource(key), status, kind, prefix(stored)], |count| count.add(1));
    }

    pub(crate) fn opened(&self, key: &str, stored: &[u8], error: Option<&OpenError>) {
        self.operation(key, stored, "from_storage", error.is_none());
    }

    pub(crate) fn sealed(&self, key: &str, done: Result<&Bytes, &SealError>) {
        self.operation(key, done.map_or(b"".as_slice(), |stored| stored), "to_storage", done.is_ok());
    }

    pub(super) fn rewrote(&self) {
        self.rewritten.add(1);
    }

    pub(super) fn scrubbed(&self) {
        self.scrubs.add(1);
    }

    /// What a pass over the store has left.
    pub(super) fn left(&self, stale: usize, unreadable: usize) {
        self.stale.set(i64::try_from(stale).unwrap_or(i64::MAX));
        self.unreadable.set(i64::try_from(unreadable).unwrap_or(i64::MAX));
    }

    pub(super) fn probed(&self, provider: &str, is_ok: bool) {
        self.kms_operations.with(&[provider, if is_ok { "OK" } else { "failed" }], |count| count.add(1));
    }

    /// Writes everything.
    pub fn render(&self, text: &mut Text) {
        self.operations.render(text);
        self.kms_operations.render(text);
        let name = "coracle_encryption_rewritten_objects_total";
        text.single(name, "Stale objects that were written anew.", "counter", self.rewritten.get());
        let name = "coracle_encryption_scrubs_total";
        text.single(name, "Times that old values were taken off the disk.", "counter", self.scrubs.get());
        let name = "coracle_encryption_stale_objects";
        text.single(
            name,
            "Objects that another provider or key than the first wrote.",
            "gauge",
            self.stale.get(),
        );
        let name = "coracle_encryption_unreadable_objects";
        text.single(name, "Objects that no provider can decrypt.", "gauge", self.unreadable.get());
    }
}

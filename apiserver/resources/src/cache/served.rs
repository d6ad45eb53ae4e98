//! What the cache asks of whoever knows which resources are served: the catalogue.

use super::Objects;
use coracle_api::catalogue::by_storage_key;
use coracle_requests::CustomVersion;
use coracle_strategy::{SelectableFields, for_resource};
use std::ops::Deref;
use std::sync::Arc;

/// A definition of a custom resource, as the cache needs it.
pub struct Defined {
    /// `<plural>.<group>`
    pub key: Box<str>,
    /// Another one when it is served otherwise than before.
    pub serial: u64,
    /// How its objects are indexed.
    pub index: Arc<dyn SelectableFields>,
}

/// Which custom resources there are follows from their definitions, which lie in the cache.
pub trait ServedResources: Send + Sync {
    /// How objects of a custom resource are indexed, by `<plural>.<group>`; `None` where there is no definition.
    fn index_of(&self, key: &str) -> Option<Arc<dyn SelectableFields>>;

    /// These are the definitions from now on. Called by one task at a time, before the cache shows them. Returns what
    /// they define.
    fn define(&self, definitions: &Objects) -> Vec<Defined>;

    /// As [`ObjectReader::resource_of_kind`](coracle_requests::ObjectReader::resource_of_kind).
    fn resource_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<coracle_api::Resource>>;

    /// As [`ObjectReader::resource_of_plural`](coracle_requests::ObjectReader::resource_of_plural).
    fn resource_of_plural(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<Arc<coracle_api::Resource>>;

    /// As [`ObjectReader::custom_version`](coracle_requests::ObjectReader::custom_version).
    fn custom_version(&self, group: &str, version: &str, plural: &str) -> Option<Arc<dyn CustomVersion>>;
}

/// How the objects of one resource are indexed.
pub(super) enum IndexFields {
    BuiltIn(&'static dyn SelectableFields),
    Custom(Arc<dyn SelectableFields>),
}

impl IndexFields {
    /// Of what is kept under `<plural>.<group>`.
    pub fn of(key: &str, served: &dyn ServedResources) -> Option<Self> {
        match by_storage_key(key) {
            Some(resource) => Some(Self::BuiltIn(for_resource(&resource.group, &resource.plural))),
            None => served.index_of(key).map(Self::Custom),
        }
    }
}

impl Deref for IndexFields {
    type Target = dyn SelectableFields;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BuiltIn(fields) => *fields,
            Self::Custom(fields) => &**fields,
        }
    }
}

/// For tests without definitions.
#[cfg(test)]
pub(super) struct NoCustomResources;

#[cfg(test)]
impl ServedResources for NoCustomResources {
    fn index_of(&self, _: &str) -> Option<Arc<dyn SelectableFields>> {
        None
    }

    fn define(&self, _: &Objects) -> Vec<Defined> {
        Vec::new()
    }

    fn resource_of_kind(&self, _: &str, _: &str, _: &str) -> Option<Arc<coracle_api::Resource>> {
        None
    }

    fn resource_of_plural(&self, _: &str, _: &str, _: &str) -> Option<Arc<coracle_api::Resource>> {
        None
    }

    fn custom_version(&self, _: &str, _: &str, _: &str) -> Option<Arc<dyn CustomVersion>> {
        None
    }
}

//! The port through which everything reads the present state: strategies, authorizers, admission, proxies.

use crate::value;
use coracle_api::schema::TypeRef;
use coracle_api::{ApiError, Object, Resource, catalogue};
use std::sync::Arc;

/// One version of a custom resource, as policies read and write its objects.
#[async_trait::async_trait]
pub trait CustomVersion: Send + Sync {
    /// The type that the version's schema describes.
    fn object_type(&self) -> TypeRef<'_>;

    /// The object in this version, from whichever it says it has.
    ///
    /// # Errors
    /// Those of the conversion webhook.
    async fn convert(&self, object: Object) -> Result<Object, ApiError>;
}

/// Read access to the present state of every resource, from the watch cache.
///
/// `resource` is `<plural>.<group>`, for example `pods.` or `deployments.apps`.
pub trait ObjectReader: Send + Sync {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>>;
    /// What an object has of these labels, all as of one moment; nothing where there is no such object.
    fn labels(&self, resource: &str, namespace: &str, name: &str, wanted: &[&str]) -> Vec<(String, String)> {
        let object = self.get(resource, namespace, name);
        let value = |key: &str| Some(object.as_ref()?["metadata"]["labels"][key].as_str()?.to_owned());
        wanted.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect()
    }
    /// All objects of the resource, of one namespace or (empty) of all.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>>;

    /// The resource that is served under a kind, custom ones included where they are known.
    fn resource_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        catalogue::by_kind(group, version, kind).cloned()
    }

    /// The resource that is served under a plural, custom ones included where they are known.
    fn resource_of_plural(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        catalogue::by_plural(group, version, plural).cloned()
    }

    /// A served version of a custom resource; `None` for built-in ones, and where custom ones are not known.
    fn custom_version(&self, _group: &str, _version: &str, _plural: &str) -> Option<Arc<dyn CustomVersion>> {
        None
    }

    /// A number that is the same as long as nothing of the resource has changed; `None` where nobody can say.
    fn changed_at(&self, _resource: &str) -> Option<u64> {
        None
    }

    /// Those whose selectable field (one of those that the resource's strategy names) has this value; the others are not decoded.
    fn list_where(&self, resource: &str, namespace: &str, field: &str, value: &str) -> Vec<Arc<Object>> {
        let mut found = self.list(resource, namespace);
        found.retain(|object| value::str_at(object, field) == value);
        found
    }
}

//! What all objects have: names, versions, and JSON that fits a type or does not.

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt;

/// Namespace and name; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    /// As client-go's cache keys: `namespace/name`, or `name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// What an informer can hold: any typed resource.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static> Kind
    for K
{
}

/// The object, or why it does not fit its type: a newer server's, perhaps.
pub fn try_decode<K: Kind>(bytes: &[u8]) -> Result<K, String> {
    // As text, the way kube reads answers: each further kind of reader would be the code of all types once more.
    let read = |text: &str| serde_json::from_str(text);
    std::str::from_utf8(bytes).map_err(|e| e.to_string()).and_then(|text| {
        let mended = |error: serde_json::Error| match crate::condition_times::filled(text) {
            Some(mended) => read(&mended),
            None => Err(error),
        };
        read(text).or_else(mended).map_err(|e| e.to_string())
    })
}

/// As [`try_decode`]; an object that cannot be read is told in the log and counted.
pub fn decode<K: Kind>(bytes: &[u8]) -> Option<K> {
    let told = |error| {
        crate::metrics::unreadable(&K::plural(&()));
        tracing::warn!(kind = %K::kind(&()), %error, "an object could not be read");
    };
    try_decode(bytes).map_err(told).ok()
}

/// The object's resourceVersion as a number, 0 when it has none.
pub fn revision_of<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// An `Api` for the namespace of `key`.
pub fn api_for<K>(client: &kube::Client, key: &ObjectKey) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &key.namespace)
}

/// Whether an object is on its way out.
pub fn deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// The object's UID, or empty before it was stored.
pub fn uid_of<K: Resource>(object: &K) -> String {
    object.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;

    /// Go's zero time, in seconds.
    const NEVER: i64 = -62_135_596_800;

    #[test]
    fn conditions_without_a_time_are_read() {
        let read = |condition: &str| {
            let text =
                format!(r#"{{"metadata": {{"name": "a"}}, "status": {{"conditions": [{condition}]}}}}"#);
            let conditions = decode::<Service>(text.as_bytes())?.status?.conditions?;
            Some(conditions.into_iter().map(|c| c.last_transition_time.0.as_second()).collect::<Vec<_>>())
        };
        let timed = r#"{"type": "T", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "1970-01-01T00:01:00Z"}"#;
        let timeless = r#"{"type": "U", "status": "True", "reason": "R", "message": ""}"#;
        assert_eq!(read(&format!("{timed}, {timeless}")), Some(vec![60, NEVER]));
        assert_eq!(read(r#"{"type": "U", "lastTransitionTime": null}"#), Some(vec![NEVER]));
        assert_eq!(read(r#"{"type": 1}"#), None);
    }
}

//! One object, followed by its name.

use crate::fold::{Fold, ReadObject, Step};
use crate::object::{Kind, ObjectKey, try_decode};
use crate::reflector::{Change, Reflector, Selection};

/// Follows one object for as long as it is asked. What it was stays while the watch begins anew, and while the object cannot
/// be read.
pub struct FollowedObject<K> {
    reflector: Reflector,
    fold: Fold<K>,
}

impl<K: Kind> FollowedObject<K> {
    /// `collection` is the path of the objects among which it is, `/api/v1/namespaces/kube-system/configmaps`.
    pub fn new(client: kube::Client, collection: &str, name: &str) -> Self {
        let selection = Selection::of(collection).fields(format!("metadata.name={name}"));
        let reflector = Reflector::new(client, selection);
        Self { fold: Fold::new(reflector.path()), reflector }
    }

    /// The object at first, and then after each change; `None` where there is none. The same may come twice. May be dropped
    /// and called again.
    pub async fn next(&mut self) -> Option<K> {
        loop {
            let change = self.reflector.next().await;
            if let Some(object) = seen(&mut self.fold, change) {
                return object;
            }
        }
    }
}

/// What there is after a change, if that is known.
fn seen<K: Kind>(fold: &mut Fold<K>, change: Change) -> Option<Option<K>> {
    let read = |bytes: &bytes::Bytes, _| {
        let object: K = try_decode(bytes)?;
        Ok::<_, String>(ReadObject { key: ObjectKey::of(&object), kept: Some(object) })
    };
    match fold.apply(change, read) {
        Step::Nothing => None,
        Step::Applied(_, object) => Some(Some(object)),
        Step::Deleted(..) => Some(None),
        Step::Replace(mut listed) => match listed.objects.pop_first() {
            Some((_, object)) => Some(Some(object)),
            None if listed.unreadable.is_empty() => Some(None),
            None => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    #[test]
    fn what_it_was_stays_until_something_else_is_known() {
        let map = |data: serde_json::Value| {
            bytes::Bytes::from(
                json!({ "metadata": { "name": "m", "namespace": "n" }, "data": data }).to_string(),
            )
        };
        let mut fold = Fold::<ConfigMap>::new("/api/v1/namespaces/n/configmaps");
        let mut says = |change| {
            seen(&mut fold, change).map(|map| map.map(|map| map.data.unwrap_or_default()["k"].clone()))
        };
        assert_eq!(says(Change::Restart), None);
        assert_eq!(says(Change::Synced), Some(None), "there is none");
        assert_eq!(says(Change::Applied(map(json!({ "k": "1" })))), Some(Some("1".to_owned())));
        assert_eq!(says(Change::Restart), None);
        assert_eq!(says(Change::Applied(map(json!({ "k": "2" })))), None, "not before the copy is complete");
        assert_eq!(says(Change::Synced), Some(Some("2".to_owned())));
        assert_eq!(says(Change::Applied(map(json!(7)))), None, "it cannot be read");
        assert_eq!(says(Change::Restart), None);
        assert_eq!(says(Change::Applied(map(json!(7)))), None);
        assert_eq!(says(Change::Synced), None, "there is one, and it cannot be read");
        assert_eq!(says(Change::Deleted(map(json!({})))), Some(None));
    }
}

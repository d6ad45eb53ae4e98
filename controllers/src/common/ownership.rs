//! Adoption and release: which of the objects in reach belong to a controller.

use coracle_client::informer::Kind;
use coracle_client::{Delta, Informer, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a controller does about the objects in its namespace.
#[derive(Debug)]
pub struct Claims<K> {
    /// Owned already, and still selected.
    pub keep: Vec<Arc<K>>,
    /// Selected and without a controller.
    pub adopt: Vec<Arc<K>>,
    /// Owned, but selected no more.
    pub release: Vec<Arc<K>>,
}

pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|o| o.controller == Some(true))
}

/// Sorts the objects of one namespace for the owner `uid`. An owner that is being deleted (`deleting`) keeps what it
/// has and neither adopts nor releases; nobody adopts what is being deleted.
pub fn claim<K: Resource>(
    objects: impl IntoIterator<Item = Arc<K>>,
    uid: &str,
    selector: &Selector,
    deleting: bool,
) -> Claims<K> {
    let mut claims = Claims { keep: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    for object in objects {
        let meta = object.meta();
        let selected = selector.matches(&meta.labels.clone().unwrap_or_default());
        match controller_of(meta) {
            Some(owner) if owner.uid != uid => {}
            Some(_) if selected => claims.keep.push(object),
            Some(_) if !deleting => claims.release.push(object),
            None if selected && !deleting && meta.deletion_timestamp.is_none() => claims.adopt.push(object),
            _ => {}
        }
    }
    claims
}

/// The owners that a change concerns: its old and new controllers, or, for an orphan, all that select it.
pub fn owner_keys<C: Kind, O: Kind>(
    delta: &Delta<C>,
    owners: &Informer<O>,
    selector: impl Fn(&O) -> Option<Selector>,
) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    for object in [&delta.old, &delta.new].into_iter().flatten() {
        if let Some(owner) = controller_of(object.meta())
            && owner.kind == O::kind(&())
            && owner.api_version == O::api_version(&())
        {
            keys.push(ObjectKey::new(ObjectKey::of(object.as_ref()).namespace, &owner.name));
        }
    }
    if let Some(orphan) = delta.new.as_ref().filter(|o| controller_of(o.meta()).is_none()) {
        let labels = orphan.meta().labels.clone().unwrap_or_default();
        let owners = owners.list_in(orphan.meta().namespace.as_deref().unwrap_or_default());
        let selecting = owners.iter().filter(|o| selector(o).is_some_and(|s| s.matches(&labels)));
        keys.extend(selecting.map(|owner| ObjectKey::of(owner.as_ref())));
    }
    keys.dedup();
    keys
}

/// The reference by which `owner` controls what it makes.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A strategic merge patch that makes `owner` the controller of the object with this uid; the uid is the guard
/// against a namesake.
pub fn adopt_patch<K: Resource<DynamicType = ()>>(owner: &K, uid: &str) -> Value {
    json!({ "metadata": { "uid": uid, "ownerReferences": [controller_reference(owner)] } })
}

/// A strategic merge patch that takes the owner away again.
pub fn release_patch(owner_uid: &str, uid: &str) -> Value {
    json!({ "metadata": { "uid": uid, "ownerReferences": [{ "$patch": "delete", "uid": owner_uid }] } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(label: &str, owner: Option<&str>, deleting: bool) -> Arc<Pod> {
        let mut value = json!({ "metadata": { "name": "p", "uid": "p", "labels": { "app": label } } });
        if let Some(uid) = owner {
            value["metadata"]["ownerReferences"] =
                json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true }]);
        }
        if deleting {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn owned_orphaned_foreign_and_dying_pods_are_told_apart() {
        let selector: Selector = [("app".to_owned(), "a".to_owned())].into_iter().collect();
        let cases = [
            (pod("a", Some("me"), false), false, (1, 0, 0)),
            (pod("a", Some("other"), false), false, (0, 0, 0)),
            (pod("a", None, false), false, (0, 1, 0)),
            (pod("a", None, true), false, (0, 0, 0)),
            (pod("a", None, false), true, (0, 0, 0)),
            (pod("b", Some("me"), false), false, (0, 0, 1)),
            (pod("b", Some("me"), false), true, (0, 0, 0)),
            (pod("b", None, false), false, (0, 0, 0)),
        ];
        for (i, (pod, deleting, expected)) in cases.into_iter().enumerate() {
            let claims = claim([pod], "me", &selector, deleting);
            let counts = (claims.keep.len(), claims.adopt.len(), claims.release.len());
            assert_eq!(counts, expected, "case {i}");
        }
    }
}

//! The part of `metadata` that the server owns.

use super::Scope;
use coracle_api::{ApiError, Object};
use serde_json::Value;

pub use coracle_api::meta::is_terminating as is_deleting;
pub use coracle_api::meta::metadata_mut as of;
pub use coracle_api::meta::time::format_seconds as time_text;

pub fn text<'a>(object: &'a Object, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn finalizers(object: &Object) -> Vec<&str> {
    coracle_api::meta::finalizers(object).collect()
}

/// A name from `generateName`.
pub fn generate_name(base: &str) -> String {
    coracle_api::meta::generated_name(base, rand::random())
}

/// When owner references are looked at.
#[derive(Clone, Copy)]
pub(super) enum Moment {
    /// As the client has sent them.
    Sent,
    /// As mutating admission has left them.
    Mutated,
}

impl Scope<'_> {
    /// Checks kind, version, name and namespace of a request body against the path, and fills in what it may
    /// leave out.
    pub(super) fn check_identity(&self, object: &mut Object) -> Result<(), ApiError> {
        if self.resource.namespaced {
            let sent = text(object, "namespace");
            if !sent.is_empty() && sent != self.namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            of(object).insert("namespace".into(), self.namespace.into());
        } else {
            // Manifests in the wild name one, and it means nothing here.
            of(object).remove("namespace");
        }
        let name = text(object, "name");
        if !self.name.is_empty() && !name.is_empty() && name != self.name {
            return Err(self.misnamed(name));
        }
        Ok(())
    }

    /// Removes what a client may not decide about a new object.
    pub(super) fn wipe_new(&self, object: &mut Object) {
        const SYSTEM: [&str; 7] = [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "generation",
        ];
        let metadata = of(object);
        for field in SYSTEM {
            metadata.remove(field);
        }
    }

    /// What the server decides about a new object.
    pub(super) fn stamp_new(&self, object: &mut Object) {
        self.wipe_new(object);
        let metadata = of(object);
        metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".into(), time_text(self.now).into());
        metadata.insert("generation".into(), 1.into());
    }

    /// Keeps what no update may change.
    pub(super) fn keep_system_fields(&self, new: &mut Object, old: &Object) {
        let metadata = of(new);
        // Changes of these are ignored, as upstream does (`BeforeUpdate`), also of the creation's time.
        for field in
            ["name", "namespace", "uid", "creationTimestamp", "generation", "generateName", "resourceVersion"]
        {
            match old["metadata"].get(field) {
                Some(value) => metadata.insert(field.into(), value.clone()),
                None => metadata.remove(field),
            };
        }
        // Once set they stay; setting them is an error that the metadata's validation finds.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            if let Some(value) = old["metadata"].get(field) {
                metadata.insert(field.into(), value.clone());
            }
        }
        metadata.remove("selfLink");
    }

    /// Drops owner references that are there twice, and tells the client once: what it has sent, or, after admission,
    /// what others have made of it.
    pub(super) fn dedup_owners(&self, object: &mut Object, moment: Moment) {
        let Some(Value::Array(list)) = of(object).get_mut("ownerReferences") else { return };
        if list.len() < 2 {
            return;
        }
        let mut twice: Vec<String> = Vec::new();
        let mut kept: Vec<Value> = Vec::with_capacity(list.len());
        for owner in list.drain(..) {
            if kept.contains(&owner) {
                twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
            } else {
                kept.push(owner);
            }
        }
        *list = kept;
        if !twice.is_empty() {
            let when = match moment {
                Moment::Sent => "",
                Moment::Mutated => " after mutating admission happens",
            };
            self.warn_once(vec![format!(
                ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in \
                 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) \
                 observed: {}",
                twice.join(", ")
            )]);
        }
    }

    /// Counts a change of the desired state, where the resource counts at all.
    pub(super) fn count_generation(&self, new: &mut Object, old: &Object) {
        if let Some(generation) = old["metadata"]["generation"].as_i64()
            && self.strategy.changes_generation(new, old)
        {
            of(new).insert("generation".into(), (generation + 1).into());
        }
    }
}

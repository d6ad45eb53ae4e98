//! DefaultStorageClass: a claim that names no class gets the default one
//! (<https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass>).

use super::{Operation, Plugin, Request};
use coracle_api::storage::{DEFAULT_MARKS, class_named_by};
use coracle_api::{ApiError, Object};
use std::cmp::Reverse;

pub(super) struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn mutate(&self, request: &Request, claim: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if !request.is(Operation::Create, "", "persistentvolumeclaims") || class_named_by(claim).is_some() {
            return Ok(());
        }
        if let Some(name) = default_class(request) {
            claim["spec"]["storageClassName"] = name.into();
        }
        Ok(())
    }
}

/// Of several the newest, and of equally new ones the first by name.
fn default_class(request: &Request) -> Option<String> {
    let classes = request.read.list("storageclasses.storage.k8s.io", "");
    let is_default =
        |c: &Object| DEFAULT_MARKS.iter().any(|key| c["metadata"]["annotations"][*key] == "true");
    let text = |c: &Object, field: &str| c["metadata"][field].as_str().unwrap_or_default().to_owned();
    let defaults = classes.iter().filter(|c| is_default(c));
    let chosen = defaults.min_by_key(|c| (Reverse(text(c, "creationTimestamp")), text(c, "name")))?;
    Some(text(chosen, "name"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::{Value, json};

    fn class(name: &str, created: &str, is_default: &str) -> Object {
        let annotations = json!({ DEFAULT_MARKS[0]: is_default });
        json!({ "metadata": { "name": name, "creationTimestamp": created, "annotations": annotations } })
    }

    fn admit(world: &World, spec: Value) -> Value {
        let claim = json!({ "metadata": { "name": "c", "namespace": "a" }, "spec": spec });
        let request = Try::create(world, "persistentvolumeclaims.");
        request.mutate(&DefaultStorageClass, claim).unwrap()["spec"]["storageClassName"].clone()
    }

    #[test]
    fn the_newest_default_counts() {
        let world = World::new();
        let classes = "storageclasses.storage.k8s.io";
        assert_eq!(admit(&world, json!({})), Value::Null);
        world.put(classes, class("old", "2026-01-01T00:00:00Z", "true"));
        world.put(classes, class("z", "2026-02-01T00:00:00Z", "true"));
        world.put(classes, class("new", "2026-02-01T00:00:00Z", "true"));
        world.put(classes, class("newest", "2026-03-01T00:00:00Z", "false"));
        assert_eq!(admit(&world, json!({})), "new");
        assert_eq!(admit(&world, json!({ "storageClassName": "" })), "", "none was asked for");
        assert_eq!(admit(&world, json!({ "storageClassName": "mine" })), "mine");
    }
}

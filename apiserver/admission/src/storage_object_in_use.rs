//! StorageObjectInUseProtection: claims, volumes and classes of their attributes outlive their users
//! (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>).

use super::{Operation, Plugin, Request, items_mut};
use coracle_api::well_known;
use coracle_api::{ApiError, Object};

pub(super) struct StorageObjectInUseProtection;

/// (group, resource, finalizer)
const FINALIZERS: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", well_known::PVC_PROTECTION),
    ("", "persistentvolumes", well_known::PV_PROTECTION),
    ("storage.k8s.io", "volumeattributesclasses", well_known::VAC_PROTECTION),
];

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn mutate(&self, request: &Request, object: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        for (group, resource, finalizer) in FINALIZERS {
            if request.is(Operation::Create, group, resource)
                && let Some(list) = items_mut(&mut object["metadata"], "finalizers")
                && !list.iter().any(|f| f == finalizer)
            {
                list.push(finalizer.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_gets_its_own_once() {
        let world = World::new();
        for (resource, finalizer) in [
            ("persistentvolumeclaims.", "kubernetes.io/pvc-protection"),
            ("persistentvolumes.", "kubernetes.io/pv-protection"),
            ("volumeattributesclasses.storage.k8s.io", "kubernetes.io/vac-protection"),
        ] {
            let admit =
                |o: Object| Try::create(&world, resource).mutate(&StorageObjectInUseProtection, o).unwrap();
            let object = admit(json!({ "metadata": { "name": "x" } }));
            assert_eq!(object["metadata"]["finalizers"], json!([finalizer]));
            assert_eq!(admit(object.clone()), object);
        }
    }
}

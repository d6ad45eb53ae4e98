//! PersistentVolumeClaimResize: claims grow only where their class allows it
//! (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/#expanding-persistent-volumes-claims>).

use super::{Operation, Plugin, Request};
use coracle_api::quantity::Quantity;
use coracle_api::storage::class_named_by;
use coracle_api::{ApiError, Object};

pub(super) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let (Some(new), Some(old)) = (object, old) else { return Ok(()) };
        if !request.is(Operation::Update, "", "persistentvolumeclaims") || size(new) <= size(old) {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            return Err(request.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let named = class_named_by(old).unwrap_or_default();
        let class = request.read.get("storageclasses.storage.k8s.io", "", named);
        if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        Err(request.forbidden(why))
    }
}

fn size(claim: &Object) -> Option<Quantity> {
    claim["spec"]["resources"]["requests"]["storage"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_grow_where_their_class_allows_it() {
        let world = World::new();
        for (name, allows) in [("grows", true), ("stays", false)] {
            let class = json!({ "metadata": { "name": name }, "allowVolumeExpansion": allows });
            world.put("storageclasses.storage.k8s.io", class);
        }
        let claim = |class: &str, size: &str, phase: &str| {
            json!({ "metadata": { "name": "c", "namespace": "a" }, "status": { "phase": phase },
                "spec": { "storageClassName": class, "resources": { "requests": { "storage": size } } } })
        };
        let resize = |class: &str, to: &str, phase: &str| {
            let update =
                Try { operation: Operation::Update, ..Try::create(&world, "persistentvolumeclaims.") };
            let (new, old) = (claim(class, to, phase), claim(class, "2Gi", phase));
            update.validate(&PersistentVolumeClaimResize, &new, Some(&old)).map_err(|e| e.message)
        };
        resize("grows", "3Gi", "Bound").unwrap();
        resize("stays", "2048Mi", "Bound").unwrap();
        resize("stays", "1Gi", "Bound").unwrap();
        let refused = resize("stays", "3Gi", "Bound").unwrap_err();
        assert!(
            refused.starts_with("persistentvolumeclaims \"c\" is forbidden: only dynamically"),
            "{refused}"
        );
        assert!(resize("none", "3Gi", "Bound").is_err());
        assert!(resize("grows", "3Gi", "Pending").unwrap_err().contains("Only bound"));
    }
}

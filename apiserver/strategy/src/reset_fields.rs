//! The fields that a write does not change, whatever it sends (upstream's `GetResetFields`).

use coracle_api::Resource;
use coracle_api::managed::Set;
use std::sync::LazyLock;

static NONE: LazyLock<Set<'static>> = LazyLock::new(Set::new);
static STATUS: LazyLock<Set<'static>> = LazyLock::new(|| Set::of_fields(&[&["status"]]));
static SPEC: LazyLock<Set<'static>> = LazyLock::new(|| Set::of_fields(&[&["spec"]]));
static POD_STATUS: LazyLock<Set<'static>> = LazyLock::new(|| {
    Set::of_fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
});
static DEPLOYMENT_STATUS: LazyLock<Set<'static>> =
    LazyLock::new(|| Set::of_fields(&[&["spec"], &["metadata", "labels"]]));
static METADATA_AND_SPEC: LazyLock<Set<'static>> =
    LazyLock::new(|| Set::of_fields(&[&["spec"], &["metadata"]]));

/// Of most resources: a status leaves the spec alone, and the object itself its status, if that is a subresource.
pub fn usual(resource: &Resource, subresource: &str) -> &'static Set<'static> {
    match subresource {
        "status" | "approval" => &SPEC,
        _ if resource.subresource("status").is_some() => &STATUS,
        _ => &NONE,
    }
}

pub fn pod_status() -> &'static Set<'static> {
    &POD_STATUS
}

pub fn deployment_status() -> &'static Set<'static> {
    &DEPLOYMENT_STATUS
}

pub fn metadata_and_spec() -> &'static Set<'static> {
    &METADATA_AND_SPEC
}

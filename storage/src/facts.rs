//! What the storage controllers read off claims and volumes, and the names they share.

use coracle_api::Quantity;
pub use coracle_api::storage::{BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE};
use coracle_api::storage::{DEFAULT_MARKS, OLD_CLASS, named_class};
use coracle_api::well_known;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub const STORAGE_PROVISIONER: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
pub const LOCAL_PATH: &str = "coracle.io/local-path";
pub const HOSTNAME: &str = well_known::HOSTNAME;

pub fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

pub fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

pub fn reclaim_policy(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.as_deref()).unwrap_or("Retain")
}

/// The volume that the claim names, if any.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|n| !n.is_empty())
}

/// The claim's class; empty when it wants none.
pub fn class_of(claim: &PersistentVolumeClaim) -> &str {
    wanted_class(claim).unwrap_or_default()
}

/// The class that the claim wants; `None` where it does not say, and gets the default.
fn wanted_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let field = claim.spec.as_ref().and_then(|s| s.storage_class_name.as_deref());
    named_class(annotation(claim, OLD_CLASS), field)
}

/// Whether the claim says of which class it wants to be, be it of none. One that does not gets the default.
pub fn names_class(claim: &PersistentVolumeClaim) -> bool {
    wanted_class(claim).is_some()
}

pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let field = volume.spec.as_ref().and_then(|s| s.storage_class_name.as_deref());
    named_class(annotation(volume, OLD_CLASS), field).unwrap_or_default()
}

pub fn is_default(class: &StorageClass) -> bool {
    DEFAULT_MARKS.iter().any(|key| annotation(class, key) == Some("true"))
}

/// Of several default classes the newest, and of equally new ones the first by name.
pub fn default_class(classes: &[Arc<StorageClass>]) -> Option<&Arc<StorageClass>> {
    let age = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|t| Reverse(t.0));
    let defaults = classes.iter().filter(|class| is_default(class));
    defaults.min_by_key(|class| (age(class), class.metadata.name.clone()))
}

pub fn annotation<'a, K: kube::Resource>(object: &'a K, key: &str) -> Option<&'a str> {
    object.meta().annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether the volume's claimRef is this claim's; a reference without a UID was written by hand and is enough.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && reference
                .uid
                .as_ref()
                .is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
    })
}

pub fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        kind: Some("PersistentVolumeClaim".to_owned()),
        api_version: Some("v1".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// Bytes as objects have them.
pub fn written(bytes: i64) -> k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    k8s_openapi::apimachinery::pkg::api::resource::Quantity(Quantity::from_bytes(bytes).to_string())
}

/// The annotation of a local-path volume whose size holds: `file` or `quota`.
pub const SIZE_LIMIT: &str = "coracle.io/size-limit";

/// Why a local-path volume takes no more than its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeLimit {
    /// It is a file system of its own.
    File,
    /// Its directory is a project with a quota.
    Quota,
}

impl SizeLimit {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Quota => "quota",
        }
    }
}

/// What holds the volume to its size, if anything does.
pub fn size_limit(volume: &PersistentVolume) -> Option<SizeLimit> {
    let ours = annotation(volume, PROVISIONED_BY) == Some(LOCAL_PATH);
    let written = annotation(volume, SIZE_LIMIT).filter(|_| ours)?;
    [SizeLimit::File, SizeLimit::Quota].into_iter().find(|limit| limit.as_str() == written)
}

type Quantities = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// The `storage` entry; zero when there is none.
pub fn storage(quantities: Option<&Quantities>) -> Quantity {
    quantities.and_then(|q| q.get("storage")).and_then(|q| q.0.parse().ok()).unwrap_or_default()
}

pub fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let resources = claim.spec.as_ref().and_then(|s| s.resources.as_ref());
    storage(resources.and_then(|r| r.requests.as_ref()))
}

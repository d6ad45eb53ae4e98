//! Whether a volume made beforehand will do for a claim, and which is the best of several.

use super::lookup::class_name;
use crate::cache::Resources;
use coracle_api::selector::LabelSelector;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

type Amounts = BTreeMap<String, Quantity>;

pub fn storage(list: Option<&Amounts>) -> i64 {
    Resources::of(list).get("storage")
}

pub fn requested(claim: &PersistentVolumeClaim) -> i64 {
    storage(claim.spec.as_ref().and_then(|s| s.resources.as_ref()?.requests.as_ref()))
}

pub fn capacity(volume: &PersistentVolume) -> i64 {
    storage(volume.spec.as_ref().and_then(|s| s.capacity.as_ref()))
}

/// Whether the volume is reserved for this claim by name.
pub fn is_reserved_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    reference.is_some_and(|r| {
        r.name == claim.metadata.name
            && r.namespace == claim.metadata.namespace
            && r.uid.as_ref().is_none_or(|uid| Some(uid) == claim.metadata.uid.as_ref())
    })
}

/// Whether the volume is free, or reserved for the claim, and is what the claim asks for; its node is not looked at.
pub fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(spec), Some(wanted)) = (&volume.spec, &claim.spec) else { return false };
    let available = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Available");
    let ours = is_reserved_for(volume, claim);
    let mode = |m: &Option<String>| m.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let attributes = |c: &Option<String>| c.clone().unwrap_or_default();
    let labels = volume.metadata.labels.as_ref();
    let selected = wanted.selector.as_ref().is_none_or(|selector| {
        let selector = serde_json::to_value(selector).ok().and_then(|v| LabelSelector::from_object(&v).ok());
        selector.is_some_and(|s| s.matches_with(|key| labels.and_then(|l| l.get(key)).map(String::as_str)))
    });
    volume.metadata.deletion_timestamp.is_none()
        && spec.storage_class_name.as_deref().unwrap_or_default() == class_name(claim)
        && (ours || (available && spec.claim_ref.is_none()))
        && mode(&spec.volume_mode) == mode(&wanted.volume_mode)
        && attributes(&spec.volume_attributes_class_name) == attributes(&wanted.volume_attributes_class_name)
        && wanted.access_modes.iter().flatten().all(|m| modes.contains(m))
        && capacity(volume) >= requested(claim)
        && (ours || selected)
}

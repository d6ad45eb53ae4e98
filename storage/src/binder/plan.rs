//! Which volume a claim gets, and what becomes of a volume. Nothing here does I/O.

use crate::facts;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::core::{Selector, SelectorExt};
use std::sync::Arc;

const FILESYSTEM: &str = "Filesystem";

fn mode(mode: Option<&String>) -> &str {
    mode.map_or(FILESYSTEM, String::as_str)
}

/// Why a volume cannot serve a claim that names it; the words follow `Cannot bind to requested volume "v": `.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let (Some(volume_spec), Some(claim_spec)) = (volume.spec.as_ref(), claim.spec.as_ref()) else {
        return Some("volume or claim has no spec");
    };
    if facts::storage(volume_spec.capacity.as_ref()) < facts::requested(claim) {
        return Some("requested PV is too small");
    }
    if volume_spec.storage_class_name.as_deref().unwrap_or_default() != facts::class_of(claim) {
        return Some("storageClassName does not match");
    }
    if mode(volume_spec.volume_mode.as_ref()) != mode(claim_spec.volume_mode.as_ref()) {
        return Some("incompatible volumeMode");
    }
    let offered = volume_spec.access_modes.as_deref().unwrap_or_default();
    if !claim_spec.access_modes.iter().flatten().all(|wanted| offered.contains(wanted)) {
        return Some("incompatible accessMode");
    }
    let attributes = |name: &Option<String>| name.clone().unwrap_or_default();
    if attributes(&volume_spec.volume_attributes_class_name)
        != attributes(&claim_spec.volume_attributes_class_name)
    {
        return Some("volumeAttributesClassName does not match");
    }
    None
}

/// The volume for a claim that names none: one that was bound to it by hand, else the smallest that fits. `delayed`
/// claims wait for their pod and only take the former; `node` is the node that the pod goes to, if it is known.
pub fn best_match<'a>(
    volumes: &'a [Arc<PersistentVolume>],
    claim: &PersistentVolumeClaim,
    delayed: bool,
    node: Option<&Node>,
) -> Option<&'a Arc<PersistentVolume>> {
    let fits = |volume: &&Arc<PersistentVolume>| {
        mismatch(volume, claim).is_none() && node.is_none_or(|node| facts::reaches(volume, node))
    };
    let by_hand = volumes.iter().find(|v| facts::is_bound_to(v, claim) && fits(v));
    if by_hand.is_some() || delayed {
        return by_hand;
    }
    let selector = claim.spec.as_ref().and_then(|s| s.selector.clone());
    let selector: Option<Selector> = selector.and_then(|s| s.try_into().ok());
    let free = volumes.iter().filter(|v| {
        facts::claim_ref(v).is_none()
            && facts::phase(v) == "Available"
            && v.metadata.deletion_timestamp.is_none()
            && selector.as_ref().is_none_or(|s| s.matches(&v.metadata.labels.clone().unwrap_or_default()))
    });
    free.filter(fits).min_by(|a, b| {
        let size = |v: &PersistentVolume| facts::storage(v.spec.as_ref().and_then(|s| s.capacity.as_ref()));
        size(a).partial_cmp(&size(b)).unwrap_or(std::cmp::Ordering::Equal)
    })
}

/// What a volume needs.
#[derive(Debug, PartialEq, Eq)]
pub enum VolumeStep {
    Phase(&'static str),
    /// Its claim is gone: Released, then reclaimed.
    Release,
    /// Bound by us to a claim that went elsewhere: the claimRef goes (or, written by hand, loses its UID).
    Unbind {
        by_hand: bool,
    },
    /// The claim's own reconcile goes on.
    LeaveToClaim,
}

/// `claim` is the one of the claimRef's namespace and name, whatever its UID.
pub fn volume_step(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> VolumeStep {
    let Some(reference) = facts::claim_ref(volume) else { return VolumeStep::Phase("Available") };
    let Some(uid) = reference.uid.as_ref().filter(|uid| !uid.is_empty()) else {
        return VolumeStep::Phase("Available");
    };
    let Some(claim) = claim.filter(|c| c.metadata.uid.as_ref() == Some(uid)) else {
        return VolumeStep::Release;
    };
    match facts::volume_name(claim) {
        None => VolumeStep::LeaveToClaim,
        Some(name) if Some(name) == volume.metadata.name.as_deref() => VolumeStep::Phase("Bound"),
        Some(_) if facts::annotation(volume, facts::PROVISIONED_BY).is_some() => VolumeStep::Release,
        Some(_) => {
            let ours = facts::annotation(volume, facts::BOUND_BY_CONTROLLER).is_some();
            VolumeStep::Unbind { by_hand: !ours }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, size: &str, extra: Value) -> Arc<PersistentVolume> {
        let mut value = json!({ "metadata": { "name": name, "labels": { "disk": name } },
            "spec": { "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "storageClassName": "" },
            "status": { "phase": "Available" } });
        json_patch_merge(&mut value, &extra);
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn json_patch_merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    json_patch_merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    fn claim(size: &str, extra: Value) -> PersistentVolumeClaim {
        let mut value = json!({ "metadata": { "name": "data", "namespace": "x", "uid": "u" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "resources": { "requests": { "storage": size } } } });
        json_patch_merge(&mut value, &extra);
        serde_json::from_value(value).unwrap()
    }

    fn reference(uid: &str) -> Value {
        json!({ "spec": { "claimRef": { "namespace": "x", "name": "data", "uid": uid } } })
    }

    #[test]
    fn the_smallest_volume_that_fits_is_taken() {
        let volumes = [
            volume("big", "10Gi", json!({})),
            volume("small", "1Gi", json!({})),
            volume("taken", "2Gi", reference("other")),
            volume("released", "2Gi", json!({ "status": { "phase": "Released" } })),
            volume("block", "2Gi", json!({ "spec": { "volumeMode": "Block" } })),
            volume("many", "3Gi", json!({ "spec": { "accessModes": ["ReadWriteOnce", "ReadWriteMany"] } })),
            volume("fast", "2Gi", json!({ "spec": { "storageClassName": "fast" } })),
        ];
        let cases = [
            (claim("500Mi", json!({})), Some("small")),
            (claim("2Gi", json!({})), Some("many")),
            (claim("4Gi", json!({})), Some("big")),
            (claim("11Gi", json!({})), None),
            (claim("1Gi", json!({ "spec": { "accessModes": ["ReadWriteMany"] } })), Some("many")),
            (claim("1Gi", json!({ "spec": { "storageClassName": "fast" } })), Some("fast")),
            (claim("1Gi", json!({ "spec": { "volumeMode": "Block" } })), Some("block")),
            (
                claim("1Gi", json!({ "spec": { "selector": { "matchLabels": { "disk": "big" } } } })),
                Some("big"),
            ),
        ];
        for (claim, expected) in cases {
            let found = best_match(&volumes, &claim, false, None).and_then(|v| v.metadata.name.as_deref());
            assert_eq!(found, expected, "{:?}", claim.spec);
            assert!(best_match(&volumes, &claim, true, None).is_none());
        }
    }

    #[test]
    fn a_volume_bound_by_hand_is_preferred_even_by_delayed_claims() {
        let volumes = [volume("small", "1Gi", json!({})), volume("mine", "9Gi", reference(""))];
        for delayed in [false, true] {
            let found = best_match(&volumes, &claim("1Gi", json!({})), delayed, None).unwrap();
            assert_eq!(found.metadata.name.as_deref(), Some("mine"));
        }
    }

    #[test]
    fn a_volume_of_another_node_is_passed_over() {
        let pinned = json!({ "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions":
            [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["a"] }] }] } } } });
        let volumes = [volume("pinned", "1Gi", pinned)];
        let node = |name: &str| -> Node {
            serde_json::from_value(
                json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } }),
            )
            .unwrap()
        };
        assert!(best_match(&volumes, &claim("1Gi", json!({})), false, Some(&node("a"))).is_some());
        assert!(best_match(&volumes, &claim("1Gi", json!({})), false, Some(&node("b"))).is_none());
    }

    #[test]
    fn a_volume_follows_its_claim() {
        let bound = claim("1Gi", json!({ "spec": { "volumeName": "v" } }));
        let elsewhere = claim("1Gi", json!({ "spec": { "volumeName": "w" } }));
        let fresh = claim("1Gi", json!({}));
        let plain = volume("v", "1Gi", json!({}));
        let mine = volume("v", "1Gi", reference("u"));
        let stale = volume("v", "1Gi", reference("old"));
        let mut ours = PersistentVolume::clone(&mine);
        ours.metadata.annotations = Some([(facts::BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned())].into());
        let cases = [
            (&plain, None, VolumeStep::Phase("Available")),
            (&volume("v", "1Gi", reference("")), None, VolumeStep::Phase("Available")),
            (&mine, None, VolumeStep::Release),
            (&stale, Some(&bound), VolumeStep::Release),
            (&mine, Some(&bound), VolumeStep::Phase("Bound")),
            (&mine, Some(&fresh), VolumeStep::LeaveToClaim),
            (&mine, Some(&elsewhere), VolumeStep::Unbind { by_hand: true }),
            (&Arc::new(ours), Some(&elsewhere), VolumeStep::Unbind { by_hand: false }),
        ];
        for (i, (volume, claim, expected)) in cases.into_iter().enumerate() {
            assert_eq!(volume_step(volume, claim), expected, "case {i}");
        }
    }
}

//! Which volume a claim gets, and what becomes of a volume. Nothing here does I/O.

use crate::facts;
use coracle_api::Quantity;
use coracle_client::placement;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::core::{Selector, SelectorExt};
use std::cmp::Ordering;
use std::sync::Arc;

const FILESYSTEM: &str = "Filesystem";

fn mode(mode: Option<&String>) -> &str {
    mode.map_or(FILESYSTEM, String::as_str)
}

/// Why a volume cannot serve a claim that names it; the words follow `Cannot bind to requested volume "v": `.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    if volume.metadata.deletion_timestamp.is_some() {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        return Some(format!("the volume is marked for deletion \"{name}\""));
    }
    let why = if is_too_small(volume, claim) {
        "requested PV is too small"
    } else if facts::class_of_volume(volume) != facts::class_of(claim) {
        "storageClassName does not match"
    } else if is_of_other_attributes(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if is_of_other_mode(volume, claim) {
        "incompatible volumeMode"
    } else if !offers_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

fn is_too_small(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    capacity(volume) < facts::requested(claim)
}

fn capacity(volume: &PersistentVolume) -> Quantity {
    facts::storage(volume.spec.as_ref().and_then(|s| s.capacity.as_ref()))
}

fn is_of_other_attributes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim.spec.as_ref().and_then(|s| s.volume_attributes_class_name.as_deref());
    let has = volume.spec.as_ref().and_then(|s| s.volume_attributes_class_name.as_deref());
    wanted.unwrap_or_default() != has.unwrap_or_default()
}

/// Whether one is a file system and the other a block device.
pub fn is_of_other_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim.spec.as_ref().and_then(|s| s.volume_mode.as_ref());
    mode(volume.spec.as_ref().and_then(|s| s.volume_mode.as_ref())) != mode(wanted)
}

fn access_modes(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default()
}

fn offers_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim.spec.iter().flat_map(|s| s.access_modes.iter().flatten());
    wanted.into_iter().all(|mode| access_modes(volume).contains(mode))
}

/// The volume for a claim that names none: one that was bound to it by hand, whatever its class and labels, else of
/// those with the fewest access modes the smallest that fits. `delayed` claims wait for their pod and only take the
/// former; `node` is the node that the pod goes to, if it is known.
pub fn best_match<'a>(
    volumes: &'a [Arc<PersistentVolume>],
    claim: &PersistentVolumeClaim,
    delayed: bool,
    node: Option<&Node>,
) -> Option<&'a Arc<PersistentVolume>> {
    let fits = |volume: &PersistentVolume| {
        volume.metadata.deletion_timestamp.is_none()
            && !is_too_small(volume, claim)
            && !is_of_other_mode(volume, claim)
            && !is_of_other_attributes(volume, claim)
            && offers_modes(volume, claim)
            && node.is_none_or(|node| placement::reaches(volume, node))
    };
    let order = |volume: &Arc<PersistentVolume>| (access_modes(volume).len(), capacity(volume));
    let least = |a: &&'a Arc<PersistentVolume>, b: &&'a Arc<PersistentVolume>| {
        order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal)
    };
    let by_hand = volumes.iter().filter(|v| facts::is_bound_to(v, claim) && fits(v)).min_by(least);
    if by_hand.is_some() || delayed {
        return by_hand;
    }
    let selector = claim.spec.as_ref().and_then(|s| s.selector.clone());
    let selector: Option<Selector> = selector.and_then(|s| s.try_into().ok());
    let free = volumes.iter().filter(|v| {
        facts::claim_ref(v).is_none()
            && facts::phase(v) == "Available"
            && facts::class_of_volume(v) == facts::class_of(claim)
            && selector.as_ref().is_none_or(|s| s.matches(&v.metadata.labels.clone().unwrap_or_default()))
    });
    free.filter(|v| fits(v)).min_by(least)
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
        Some(_) if is_made_for_its_claim(volume) => VolumeStep::Release,
        Some(_) => {
            let ours = facts::annotation(volume, facts::BOUND_BY_CONTROLLER).is_some();
            VolumeStep::Unbind { by_hand: !ours }
        }
    }
}

/// Made by a provisioner, to go with its claim.
fn is_made_for_its_claim(volume: &PersistentVolume) -> bool {
    facts::annotation(volume, facts::PROVISIONED_BY).is_some() && facts::reclaim_policy(volume) == "Delete"
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
            (claim("2Gi", json!({})), Some("big")),
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
    fn a_volume_bound_by_hand_may_be_of_another_class_but_not_of_another_mode() {
        let wanted = claim("1Gi", json!({ "spec": { "selector": { "matchLabels": { "disk": "other" } } } }));
        let with = |spec: Value| {
            let mut extra = reference("");
            json_patch_merge(&mut extra, &json!({ "spec": spec }));
            [volume("mine", "1Gi", extra)]
        };
        assert!(best_match(&with(json!({ "storageClassName": "fast" })), &wanted, true, None).is_some());
        assert!(best_match(&with(json!({ "volumeMode": "Block" })), &wanted, false, None).is_none());
        let small = with(json!({ "capacity": { "storage": "1Mi" } }));
        assert!(best_match(&small, &wanted, false, None).is_none());
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

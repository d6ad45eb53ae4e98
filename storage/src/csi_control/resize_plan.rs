//! What is to be done for a claim that asks for more than it has, and what its status then says (KEP-1790).

use crate::expand::wants_to_grow;
use crate::facts;
use coracle_api::Quantity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, PersistentVolumeClaimStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// Conditions of claims that grow; they go when it is done.
pub const OF_RESIZING: [&str; 4] =
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

/// How many bytes the driver is asked for; `None` where it has done its part. What came of a call may not have been written:
/// then it is made again, for the volume's size alone does not say whether the node has a part.
pub fn wanted(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<i64> {
    let has = facts::storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
    let for_node = state(claim).starts_with("NodeResize") && has >= facts::requested(claim);
    (wants_to_grow(claim) && !for_node).then(|| target(claim).units())
}

/// How far the claim is, by its `allocatedResourceStatuses`; empty at rest.
pub fn state(claim: &PersistentVolumeClaim) -> &str {
    let statuses = claim.status.as_ref().and_then(|status| status.allocated_resource_statuses.as_ref());
    statuses.and_then(|statuses| statuses.get("storage")).map_or("", String::as_str)
}

/// What was begun is asked for again until the driver says what became of it, unless the claim asks for less since and the
/// driver has refused.
fn target(claim: &PersistentVolumeClaim) -> Quantity {
    let (requested, allocated) = (facts::requested(claim), allocated(claim));
    match state(claim) {
        "ControllerResizeInProgress" if allocated > requested => allocated,
        _ => requested,
    }
}

fn allocated(claim: &PersistentVolumeClaim) -> Quantity {
    facts::storage(claim.status.as_ref().and_then(|status| status.allocated_resources.as_ref()))
}

/// The claim's status when the driver is asked for `bytes`.
pub fn begun(claim: &PersistentVolumeClaim, bytes: i64) -> PersistentVolumeClaimStatus {
    let mut status = at(claim, Some("ControllerResizeInProgress"));
    let size = facts::written(bytes);
    status.allocated_resources.get_or_insert_default().insert("storage".to_owned(), size);
    condition(&mut status, "Resizing", "", "");
    status
}

/// The same when the driver has failed. `infeasible`: asking again for the same will not help.
pub fn failed(claim: &PersistentVolumeClaim, message: &str, infeasible: bool) -> PersistentVolumeClaimStatus {
    let state = if infeasible { "ControllerResizeInfeasible" } else { "ControllerResizeInProgress" };
    let mut status = at(claim, Some(state));
    condition(&mut status, "ControllerResizeError", "", message);
    status
}

/// The same when the node has to go on.
pub fn for_node(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimStatus {
    let mut status = at(claim, Some("NodeResizePending"));
    drop_conditions(&mut status);
    let message = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
    condition(&mut status, "FileSystemResizePending", "", message);
    status
}

/// The same when all is done; `bytes` is what the volume has.
pub fn finished(claim: &PersistentVolumeClaim, bytes: i64) -> PersistentVolumeClaimStatus {
    let mut status = at(claim, None);
    drop_conditions(&mut status);
    status.capacity.get_or_insert_default().insert("storage".to_owned(), facts::written(bytes));
    status
}

fn at(claim: &PersistentVolumeClaim, state: Option<&str>) -> PersistentVolumeClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    let mut statuses: BTreeMap<String, String> = status.allocated_resource_statuses.unwrap_or_default();
    match state {
        Some(state) => drop(statuses.insert("storage".to_owned(), state.to_owned())),
        None => drop(statuses.remove("storage")),
    }
    status.allocated_resource_statuses = (!statuses.is_empty()).then_some(statuses);
    status
}

fn drop_conditions(status: &mut PersistentVolumeClaimStatus) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| !OF_RESIZING.contains(&condition.type_.as_str()));
    }
}

/// Sets a condition to True; its time is that of its first being so.
pub fn condition(status: &mut PersistentVolumeClaimStatus, type_: &str, reason: &str, message: &str) {
    let conditions = status.conditions.get_or_insert_default();
    let before = conditions.iter().position(|condition| condition.type_ == type_);
    let since = before.and_then(|at| conditions.remove(at).last_transition_time);
    conditions.push(PersistentVolumeClaimCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()).filter(|text| !text.is_empty()),
        message: Some(message.to_owned()).filter(|text| !text.is_empty()),
        last_probe_time: None,
        last_transition_time: since.or_else(|| Some(Time(Timestamp::now()))),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(requested: &str, has: &str, allocated: &str, state: &str) -> PersistentVolumeClaim {
        let mut claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": { "name": "c" },
            "spec": { "resources": { "requests": { "storage": requested } } },
            "status": { "phase": "Bound", "capacity": { "storage": has } } }))
        .unwrap();
        if !state.is_empty() {
            let status = claim.status.as_mut().unwrap();
            status.allocated_resources = serde_json::from_value(json!({ "storage": allocated })).unwrap();
            status.allocated_resource_statuses = serde_json::from_value(json!({ "storage": state })).unwrap();
        }
        claim
    }

    fn volume(has: &str) -> PersistentVolume {
        serde_json::from_value(json!({ "metadata": {}, "spec": { "capacity": { "storage": has } } })).unwrap()
    }

    #[test]
    fn a_claim_grows_in_steps_and_can_ask_for_less_after_a_refusal() {
        let (progress, infeasible) = ("ControllerResizeInProgress", "ControllerResizeInfeasible");
        for (claim, has, expected) in [
            (claim("1Ki", "1Ki", "", ""), "1Ki", None),
            (claim("2Ki", "1Ki", "", ""), "1Ki", Some(2048)),
            // Under way: it is not known what became of it.
            (claim("2Ki", "1Ki", "4Ki", progress), "1Ki", Some(4096)),
            (claim("2Ki", "1Ki", "4Ki", infeasible), "1Ki", Some(2048)),
            (claim("2Ki", "1Ki", "2Ki", progress), "2Ki", Some(2048)),
            (claim("2Ki", "1Ki", "2Ki", "NodeResizePending"), "2Ki", None),
            (claim("4Ki", "1Ki", "2Ki", "NodeResizePending"), "2Ki", Some(4096)),
        ] {
            assert_eq!(wanted(&claim, &volume(has)), expected, "{claim:?}");
        }
    }

    #[test]
    fn the_status_says_how_far_it_is() {
        let start = claim("2Ki", "1Ki", "", "");
        let mut grown = start.clone();
        grown.status = Some(begun(&start, 2048));
        assert_eq!(state(&grown), "ControllerResizeInProgress");
        grown.status = Some(failed(&grown, "told to", true));
        assert_eq!(state(&grown), "ControllerResizeInfeasible");
        let types = |claim: &PersistentVolumeClaim| {
            let conditions = claim.status.clone().unwrap().conditions.unwrap_or_default();
            conditions.into_iter().map(|c| c.type_).collect::<Vec<_>>()
        };
        assert_eq!(types(&grown), ["Resizing", "ControllerResizeError"]);
        grown.status = Some(for_node(&grown));
        assert_eq!(types(&grown), ["FileSystemResizePending"]);
        grown.status = Some(finished(&grown, 2048));
        assert!(types(&grown).is_empty() && state(&grown).is_empty());
        assert_eq!(grown.status.unwrap().capacity.unwrap()["storage"].0, "2Ki");
    }
}

//! The conditions of a CertificateSigningRequest.

use coracle_api::Object;
use coracle_api::meta::time::format_seconds;
use coracle_requests::value::*;
use jiff::Timestamp;
use serde_json::Value;

pub(super) const APPROVED: &str = "Approved";
pub(super) const DENIED: &str = "Denied";
pub(super) const FAILED: &str = "Failed";

/// What only the subresource `approval` may change.
pub(super) const APPROVAL: [&str; 2] = [APPROVED, DENIED];

pub(super) fn of<'a>(object: &'a Object, kind: &str) -> Vec<&'a Value> {
    list_at(object, "status.conditions").iter().filter(|c| str_at(c, "type") == kind).collect()
}

/// Makes the conditions of one type what they are in `old`, each in its place, so that a status update can neither lose
/// nor change them. New ones stay, for validation to refuse.
pub(super) fn keep(new: &mut Object, old: &Object, kind: &str) {
    let stored: Vec<Value> = of(old, kind).into_iter().cloned().collect();
    if stored.is_empty() {
        return;
    }
    let Some(status) = object_at(new, "status") else { return };
    let sent = list_at(status, "conditions").to_vec();
    let mut left = stored.into_iter();
    let mut merged: Vec<Value> = Vec::with_capacity(sent.len() + 1);
    for condition in sent {
        if str_at(&condition, "type") == kind {
            merged.push(left.next().unwrap_or(condition));
        } else {
            merged.push(condition);
        }
    }
    merged.extend(left);
    set(status, "conditions", merged);
}

/// Fills in the times that a client left out; a condition that is as it was keeps the time of its last transition.
pub(super) fn stamp(new: &mut Object, old: &Object, now: Timestamp) {
    let unset = |condition: &Value, field: &str| str_at(condition, field).is_empty();
    for condition in each_mut(new, "status.conditions") {
        if unset(condition, "lastUpdateTime") {
            set(condition, "lastUpdateTime", format_seconds(now));
        }
        if !unset(condition, "lastTransitionTime") {
            continue;
        }
        let same = |c: &&Value| c["type"] == condition["type"] && c["status"] == condition["status"];
        let before =
            list_at(old, "status.conditions").iter().find(|c| same(c) && !unset(c, "lastTransitionTime"));
        let at = before.map_or_else(|| format_seconds(now), |c| str_at(c, "lastTransitionTime").to_owned());
        set(condition, "lastTransitionTime", at);
    }
}

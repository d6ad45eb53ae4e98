//! Conditions of a definition.

use coracle_api::Object;
use coracle_api::condition::set_condition_of;
use coracle_requests::value::{list_at, str_at};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    pub fn new(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, status: if holds { "True" } else { "False" }, reason, message: message.into() }
    }
}

pub fn find<'a>(definition: &'a Object, kind: &str) -> Option<&'a Value> {
    list_at(definition, "status.conditions").iter().find(|c| str_at(c, "type") == kind)
}

pub fn holds(definition: &Object, kind: &str) -> bool {
    find(definition, kind).is_some_and(|c| str_at(c, "status") == "True")
}

/// Sets a condition. The time of its last transition changes with its status only.
pub fn set(definition: &mut Object, condition: &Condition, now: Timestamp) {
    let new = json!({
        "type": condition.kind, "status": condition.status, "reason": condition.reason,
        "message": condition.message, "lastTransitionTime": coracle_api::meta::time::format_seconds(now),
    });
    set_condition_of(definition, new);
}

pub fn remove(definition: &mut Object, kind: &str) {
    if let Some(list) = definition["status"]["conditions"].as_array_mut() {
        list.retain(|c| str_at(c, "type") != kind);
    }
}

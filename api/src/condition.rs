//! Conditions of a status, set in one way: the time of the last transition moves only when the status does
//! (<https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties>).

use crate::Object;
use k8s_openapi::api::{apps, autoscaling, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

/// A condition of any kind, typed or JSON.
pub trait StatusCondition: PartialEq {
    /// `type`
    fn kind(&self) -> &str;

    /// `status`: `True`, `False` or `Unknown`.
    fn status(&self) -> &str;

    /// Takes over `lastTransitionTime` from `old`, if it has one.
    fn keep_transition_time(&mut self, old: &Self);
}

macro_rules! typed {
    ($($type:ty),*) => { $(
        impl StatusCondition for $type {
            fn kind(&self) -> &str {
                &self.type_
            }

            fn status(&self) -> &str {
                &self.status
            }

            fn keep_transition_time(&mut self, old: &Self) {
                let time: Option<Time> = old.last_transition_time.clone();
                self.last_transition_time = time.or(self.last_transition_time.take());
            }
        }
    )* };
}

typed!(
    apps::v1::DeploymentCondition,
    autoscaling::v2::HorizontalPodAutoscalerCondition,
    core::v1::NamespaceCondition,
    core::v1::NodeCondition,
    core::v1::PodCondition
);

impl StatusCondition for Condition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }

    fn keep_transition_time(&mut self, old: &Self) {
        self.last_transition_time = old.last_transition_time.clone();
    }
}

impl StatusCondition for Value {
    fn kind(&self) -> &str {
        self["type"].as_str().unwrap_or_default()
    }

    fn status(&self) -> &str {
        self["status"].as_str().unwrap_or_default()
    }

    fn keep_transition_time(&mut self, old: &Self) {
        if !old["lastTransitionTime"].is_null() {
            self["lastTransitionTime"] = old["lastTransitionTime"].clone();
        }
    }
}

pub fn find_condition<'a, C: StatusCondition>(conditions: &'a [C], kind: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.kind() == kind)
}

/// The condition as it is to be written. `new` names the present time as that of its last transition; if the status was
/// the same in `present`, the time there stays.
#[must_use]
pub fn with_transition_time<C: StatusCondition>(present: &[C], mut new: C) -> C {
    let old = find_condition(present, new.kind()).filter(|old| old.status() == new.status());
    if let Some(old) = old {
        new.keep_transition_time(old);
    }
    new
}

/// Sets a condition among the others, in its place or at the end; whether that changed anything (upstream's
/// `meta.SetStatusCondition`). For the times see [`with_transition_time`].
pub fn set_condition<C: StatusCondition>(conditions: &mut Vec<C>, new: C) -> bool {
    let new = with_transition_time(conditions, new);
    match conditions.iter_mut().find(|old| old.kind() == new.kind()) {
        Some(old) if *old == new => return false,
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    true
}

/// As [`set_condition`], in `status.conditions` of an object.
pub fn set_condition_of(object: &mut Object, new: Value) -> bool {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    conditions.as_array_mut().is_some_and(|list| set_condition(list, new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodCondition;

    fn condition(kind: &str, status: &str, reason: &str, second: &str) -> Value {
        let time = format!("2026-01-01T00:00:0{second}Z");
        json!({ "type": kind, "status": status, "reason": reason, "lastTransitionTime": time })
    }

    #[test]
    fn the_time_moves_with_the_status_only() {
        let present = [condition("A", "True", "x", "1"), condition("B", "True", "x", "1")];
        for (new, changed, expected) in [
            (condition("A", "True", "x", "2"), false, condition("A", "True", "x", "1")),
            (condition("A", "True", "y", "2"), true, condition("A", "True", "y", "1")),
            (condition("A", "False", "x", "2"), true, condition("A", "False", "x", "2")),
            (condition("C", "True", "x", "2"), true, condition("C", "True", "x", "2")),
        ] {
            let at = if new["type"] == "C" { 2 } else { 0 };
            let mut object = json!({ "status": { "conditions": present } });
            assert_eq!(set_condition_of(&mut object, new.clone()), changed, "{new}");
            assert_eq!(object["status"]["conditions"][at], expected, "{new}");
            let read = |value: &Value| serde_json::from_value::<PodCondition>(value.clone()).unwrap();
            let mut typed: Vec<PodCondition> = present.iter().map(read).collect();
            assert_eq!(set_condition(&mut typed, read(&new)), changed, "{new}");
            assert_eq!(typed[at], read(&expected), "{new}");
        }
        let mut bare = json!({});
        assert!(set_condition_of(&mut bare, condition("A", "True", "x", "1")));
        assert_eq!(bare["status"]["conditions"], json!([condition("A", "True", "x", "1")]));
    }
}

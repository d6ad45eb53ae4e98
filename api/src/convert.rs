//! Between the served and the stored form of resources that are kept under another group or version.
//!
//! Both directions are lossless, so an object may be written in one version and read in the other.

mod autoscaling;

use crate::{Object, Resource};
use serde_json::Value;

/// (core/v1, events.k8s.io/v1)
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// The served form of `resource` to the stored one. No change for resources that are stored as served.
pub fn to_storage(resource: &Resource, object: &mut Object) {
    if resource.needs_conversion() {
        convert(resource, object, false);
        identify(object, &resource.storage_api_version(), &resource.storage.kind);
    }
}

/// The stored form to the one that `resource` serves.
pub fn from_storage(resource: &Resource, object: &mut Object) {
    if resource.needs_conversion() {
        convert(resource, object, true);
        identify(object, &resource.api_version(), &resource.kind);
    }
}

fn convert(resource: &Resource, object: &mut Object, to_served: bool) {
    if resource.group == "autoscaling" {
        if to_served { autoscaling::to_v1(object) } else { autoscaling::to_v2(object) }
    }
    if resource.group == "events.k8s.io" {
        for &(core, new) in EVENT_FIELDS {
            if to_served { rename(object, core, new) } else { rename(object, new, core) }
        }
    }
}

fn identify(object: &mut Object, api_version: &str, kind: &str) {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
}

fn rename(object: &mut Object, from: &str, to: &str) {
    if let Some(fields) = object.as_object_mut()
        && let Some(value) = fields.remove(from).filter(|v| *v != Value::Null)
    {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{by_plural, catalogue};
    use crate::decode::conform;
    use crate::schema::root;
    use serde_json::json;

    #[test]
    fn every_converted_resource_is_handled() {
        let converted: Vec<_> = catalogue().iter().filter(|r| r.needs_conversion()).collect();
        assert_eq!(converted.len(), 2, "a new one needs its conversion and a test here");
    }

    #[test]
    fn events_there_and_back() {
        let resource = by_plural("events.k8s.io", "v1", "events").unwrap();
        let mut stored = json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": "a" },
            "involvedObject": { "kind": "Pod" }, "message": "m", "reason": "R", "type": "Normal", "count": 3,
            "reportingComponent": "c", "reportingInstance": "i", "action": "A",
            "source": { "component": "c" }, "firstTimestamp": "2024-01-01T00:00:00Z",
            "lastTimestamp": "2024-01-01T00:00:00Z", "eventTime": "2024-01-01T00:00:00.000000Z",
            "series": { "count": 2 }, "related": { "kind": "Node" } });
        let original = stored.clone();
        assert_eq!(conform(&mut stored, root("", "v1", "Event").unwrap()), Ok(vec![]));
        from_storage(resource, &mut stored);
        assert_eq!((&stored["note"], &stored["apiVersion"]), (&json!("m"), &json!("events.k8s.io/v1")));
        assert_eq!(conform(&mut stored, root("events.k8s.io", "v1", "Event").unwrap()), Ok(vec![]));
        to_storage(resource, &mut stored);
        assert_eq!(stored, original);
    }
}

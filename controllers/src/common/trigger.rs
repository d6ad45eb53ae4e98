//! When that happened which a Service's endpoints follow: a pod became ready or unready, or the Service was made. Measuring
//! programs read it as an annotation, and learn how long the news took to the proxies.

use super::pods;
use coracle_client::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

pub const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What was last seen of a Service.
#[derive(Default)]
struct Seen {
    service: Option<Timestamp>,
    /// By UID, when each pod last changed.
    pods: HashMap<String, Timestamp>,
}

#[derive(Default)]
pub struct Triggers(Mutex<HashMap<ObjectKey, Seen>>);

/// When the pod's readiness last changed.
fn changed_at(pod: &Pod) -> Option<Timestamp> {
    pods::condition(pod, "Ready")?.last_transition_time.as_ref().map(|time| time.0)
}

impl Triggers {
    /// The earliest change since the last call for this Service; `None` when nothing that has a time has changed.
    pub fn since_last(&self, key: &ObjectKey, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let now = Seen {
            service: service.metadata.creation_timestamp.as_ref().map(|time| time.0),
            pods: pods.iter().filter_map(|pod| Some((pod.metadata.uid.clone()?, changed_at(pod)?))).collect(),
        };
        let mut all = self.0.lock();
        let before = all.entry(key.clone()).or_default();
        let newer_pods =
            now.pods.iter().filter(|(uid, at)| before.pods.get(*uid).is_none_or(|last| *at > last));
        let newer_service = now.service.filter(|at| before.service.is_none_or(|last| *at > last));
        let earliest = newer_pods.map(|(_, at)| *at).chain(newer_service).min();
        *before = now;
        earliest
    }

    pub fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

/// Writes the time of the change that an object is about to show; an object that follows nothing of the kind has none.
pub fn stamp(metadata: &mut ObjectMeta, at: Option<Timestamp>) {
    let annotations = metadata.annotations.get_or_insert_default();
    match at {
        Some(at) => annotations.insert(ANNOTATION.to_owned(), at.to_string()),
        None => annotations.remove(ANNOTATION),
    };
    metadata.annotations = metadata.annotations.take().filter(|all| !all.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_earliest_of_what_is_new_is_told() {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        let service: Service =
            serde_json::from_value(json!({ "metadata": { "creationTimestamp": at(5) } })).unwrap();
        let pod = |uid: &str, second: u32| -> Arc<Pod> {
            let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": at(second) });
            let pod = json!({ "metadata": { "uid": uid }, "status": { "conditions": [ready] } });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let (triggers, key) = (Triggers::default(), ObjectKey::new("x", "web"));
        let ask = |pods: &[Arc<Pod>]| triggers.since_last(&key, &service, pods).map(|at| at.to_string());
        assert_eq!(ask(&[]), Some(at(5)), "the Service itself");
        assert_eq!(ask(&[pod("a", 9), pod("b", 7)]), Some(at(7)));
        assert_eq!(ask(&[pod("a", 9), pod("b", 7)]), None);
        assert_eq!(ask(&[pod("a", 9), pod("b", 20)]), Some(at(20)));
        assert_eq!(ask(&[pod("b", 20)]), None, "a pod that went has no time");
        triggers.forget(&key);
        assert_eq!(ask(&[pod("b", 20)]), Some(at(5)));
        let mut metadata = ObjectMeta::default();
        stamp(&mut metadata, "2026-01-01T00:00:05Z".parse().ok());
        assert_eq!(metadata.annotations.as_ref().unwrap()[ANNOTATION], at(5));
        stamp(&mut metadata, None);
        assert_eq!(metadata, ObjectMeta::default());
    }
}

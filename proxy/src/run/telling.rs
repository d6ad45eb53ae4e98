//! What the proxy tells people by events, and since when changes wait.

use crate::configuration::source::Said;
use coracle_client::{Context, Delta, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use std::sync::Arc;

/// Tells of configurations that are not taken in.
pub struct Teller {
    recorder: Recorder,
    node: String,
}

impl Teller {
    pub fn new(context: &Context, node: &str) -> Self {
        Self { recorder: Recorder::new(context.client.clone(), "kube-proxy", node), node: node.to_owned() }
    }

    /// On the object that holds the configuration; on the Node where there is none.
    pub fn warn(&self, reason: &str, why: &str, said: &Said) {
        let message = format!("node {}: {why}; the last good configuration stays in force", self.node);
        match &said.map {
            Some(map) => self.recorder.warning(map.as_ref(), reason, message),
            None => {
                // As the kubelet names its node: by its name in the place of its UID.
                let node = ObjectReference {
                    kind: Some("Node".to_owned()),
                    name: Some(self.node.clone()),
                    uid: Some(self.node.clone()),
                    ..ObjectReference::default()
                };
                self.recorder.event(node, "Warning", reason, message);
            }
        }
    }
}

/// Whoever made a slice says here when what it follows changed.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Since when the changes that are not in force yet wait. Cloning shares it.
#[derive(Clone, Default)]
pub struct Triggers(Arc<Mutex<Vec<jiff::Timestamp>>>);

impl Triggers {
    /// What was there at the start has waited for nobody.
    pub fn note(&self, delta: &Delta<EndpointSlice>) {
        let written = |slice: &Arc<EndpointSlice>| {
            slice.metadata.annotations.as_ref().and_then(|a| a.get(TRIGGER)).cloned()
        };
        let (Some(old), Some(new)) = (&delta.old, &delta.new) else { return };
        let at = written(new).filter(|at| written(old).as_ref() != Some(at));
        self.0.lock().extend(at.and_then(|at| at.parse::<jiff::Timestamp>().ok()));
    }

    pub fn take(&self) -> Vec<jiff::Timestamp> {
        std::mem::take(&mut self.0.lock())
    }
}

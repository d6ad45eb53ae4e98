//! What the audit log is told of mutating and ignored webhooks
//! (<https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations/>).

use super::hook::Hook;
use crate::annotations::{OF_REQUEST, annotate, annotate_request};
use serde_json::{Value, json};

const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const MUTATION_FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io/";
const VALIDATION_FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io/";

/// One call: its round, and the webhook's place among all of its sort.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub round: u8,
    pub index: usize,
}

impl Place {
    fn key(self, prefix: &str) -> String {
        format!("{prefix}round_{}_index_{}", self.round, self.index)
    }

    pub fn mutated(self, hook: &Hook, mutated: bool) {
        let value = json!({ "configuration": hook.configuration, "webhook": hook.name, "mutated": mutated });
        annotate(&self.key(MUTATION), value.to_string());
    }

    /// Only recorded with requests' bodies: it can be as large as one.
    pub fn patched(self, hook: &Hook, patch: &[u8]) {
        annotate_request(&self.key(OF_REQUEST), || {
            let patch: Value = serde_json::from_slice(patch).unwrap_or_default();
            let value = json!({
                "configuration": hook.configuration, "webhook": hook.name, "patch": patch, "patchType": "JSONPatch",
            });
            value.to_string()
        });
    }

    pub fn mutation_failed_open(self, hook: &Hook) {
        annotate(&self.key(MUTATION_FAILED_OPEN), hook.name.as_str());
    }

    pub fn validation_failed_open(self, hook: &Hook) {
        annotate(&self.key(VALIDATION_FAILED_OPEN), hook.name.as_str());
    }
}

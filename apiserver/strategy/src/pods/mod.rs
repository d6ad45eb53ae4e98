//! Pods.

pub mod defaults;
mod image_name;
mod label_keys;
mod table;
#[cfg(test)]
mod tests;
pub mod validate;
pub mod volume_defaults;
pub mod warnings;

use super::value::*;
use super::{
    Column, CreateStrategy, DeleteStrategy, Env, ResetFieldsStrategy, ResourceFacts, SelectableFields,
    StatusStrategy, TableConvertor, UpdateStrategy, copy_field, rules,
};
use crate::{Facts, FieldLabels, FieldSet, reset_fields};
use coracle_api::Resource;
use coracle_api::pod::{is_terminal, qos_class};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct Pods;

/// Upstream's longest graceful deletion is what the pod asks for; a negative wish counts as this.
const SHORTEST_GRACE_SECONDS: i64 = 1;

impl ResourceFacts for Pods {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: true, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for Pods {
    fn defaults(&self, object: &mut Object) {
        defaults::pod(object);
        // Of pods alone: a template may keep a negative one.
        if let Some(spec) = at_mut(object, "spec")
            && i64_at(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0)
        {
            set(spec, "terminationGracePeriodSeconds", SHORTEST_GRACE_SECONDS);
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        let mut status = json!({ "phase": "Pending", "qosClass": qos_class(object).as_str() });
        if !list_at(object, "spec.schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        set(object, "status", status);
        label_keys::apply(object);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let (path, errors) = (Path::root("spec"), &mut Errors(errors));
        validate::pod_spec(&object["spec"], &path, errors);
        validate::only_in_pods(object, &path, errors);
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        if !list_at(object, "spec.ephemeralContainers").is_empty() {
            let path = Path::root("spec").field("ephemeralContainers");
            Errors(errors).forbidden(&path, "cannot be set on create");
        }
        let annotations = Path::root("metadata").field("annotations");
        validate::annotations::all(object, &annotations, &mut Errors(errors));
        validate::annotations::agree(object, &Path::root("spec"), &mut Errors(errors));
        validate::gated(&object["spec"], &mut Errors(errors));
    }

    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        let Some(old) = old else {
            let mut found = rules::name_warnings(new, "the Pod's hostname");
            found.extend(warnings::of_pod(new, &Path::root("")));
            return found;
        };
        if new["spec"] == old["spec"] { Vec::new() } else { warnings::of_pod(new, &Path::root("")) }
    }
}

impl UpdateStrategy for Pods {
    /// Requests of the whole pod that it was made without, by a version that did not default them, stay away: no update
    /// may add them.
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        if at(new, "spec.resources") == at(old, "spec.resources") {
            return;
        }
        let mut defaulted = old.clone();
        self.defaults(&mut defaulted);
        if let Some(spec) = at_mut(new, "spec")
            && spec["resources"] == defaulted["spec"]["resources"]
        {
            copy_field(spec, &old["spec"], "resources");
        }
    }

    /// Being bound to a node is not a change of what was asked for.
    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        let asked = |pod: &Object| {
            let mut spec = pod["spec"].clone();
            spec.as_object_mut().map(|fields| fields.remove("nodeName"));
            spec
        };
        new["spec"] != old["spec"] && asked(new) != asked(old)
    }

    /// Most updates of pods are about their labels or finalizers.
    fn validate_changed(&self, new: &Object, old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        if new["spec"] != old["spec"] {
            self.validate(new, env, errors);
        }
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        validate::annotations::update(new, old, &mut Errors(errors));
        validate::update::pod(new, old, &mut Errors(errors));
    }
}

impl StatusStrategy for Pods {
    /// Keeps what the kubelet does not own: deletion, owners and the class.
    fn prepare_status_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"] {
            let Some(metadata) = at_mut(new, "metadata") else { return };
            copy_field(metadata, &old["metadata"], field);
        }
        if let Some(status) = object_at(new, "status") {
            default_str(status, "qosClass", str_at(old, "status.qosClass"));
            addresses(status);
        }
    }

    fn validate_status_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        validate::status::update(new, old, &mut Errors(errors));
    }
}

impl DeleteStrategy for Pods {
    /// Unscheduled and finished pods go at once: no kubelet has anything to stop.
    fn graceful_deletion(&self, object: &Object, asked_seconds: Option<i64>) -> Option<i64> {
        let finished = is_terminal(object);
        if finished || str_at(object, "spec.nodeName").is_empty() {
            return Some(0);
        }
        let seconds = asked_seconds.or(i64_at(object, "spec.terminationGracePeriodSeconds")).unwrap_or(0);
        Some(if seconds < 0 { SHORTEST_GRACE_SECONDS } else { seconds })
    }
}

impl TableConvertor for Pods {
    fn columns(&self) -> &'static [Column] {
        table::COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        table::row(object, now)
    }

    fn row_conditions(&self, object: &Object) -> Vec<Value> {
        table::row_conditions(object)
    }
}

impl SelectableFields for Pods {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels {
            names: &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ],
            // Pods were once assigned to hosts.
            renamed: &[("spec.host", "spec.nodeName")],
            ..FieldLabels::CORE
        }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        let text = |path: &str| str_at(object, path).to_owned();
        vec![
            ("spec.nodeName", text("spec.nodeName")),
            ("spec.restartPolicy", text("spec.restartPolicy")),
            ("spec.schedulerName", text("spec.schedulerName")),
            ("spec.serviceAccountName", text("spec.serviceAccountName")),
            ("spec.hostNetwork", bool_at(object, "spec.hostNetwork").to_string()),
            ("status.phase", text("status.phase")),
            ("status.podIP", text("status.podIP")),
            ("status.nominatedNodeName", text("status.nominatedNodeName")),
        ]
    }
}

impl ResetFieldsStrategy for Pods {
    fn reset_fields(&self, resource: &Resource, subresource: &str) -> &'static FieldSet<'static> {
        match subresource {
            "status" => reset_fields::pod_status(),
            _ => reset_fields::usual(resource, subresource),
        }
    }
}

crate::usual!(Pods: TransactionStrategy);

/// `podIP` is the first of `podIPs`; where they differ, the single one is what somebody wrote who knows no other. Of the
/// host's addresses upstream asks that they be written alike.
fn addresses(status: &mut Value) {
    let first = at(status, "podIPs").get(0).map(|address| str_at(address, "ip").to_owned());
    match (str_at(status, "podIP"), first) {
        ("", None) => {}
        ("", Some(first)) => set(status, "podIP", first),
        (one, Some(first)) if one == first => {}
        (one, _) => {
            let list = json!([{ "ip": one }]);
            set(status, "podIPs", list);
        }
    }
}

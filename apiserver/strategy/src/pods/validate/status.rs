//! What a kubelet may write into a pod's status (upstream's `ValidatePodStatusUpdate`).

use super::super::super::rules::{self, internal};
use super::super::super::value::*;
use coracle_api::{FieldError, Object};
use serde_json::Value;
use std::collections::HashSet;

pub fn update(new: &Object, old: &Object, errors: &mut Errors) {
    let path = Path::root("status");
    let class = (str_at(new, "status.qosClass"), str_at(old, "status.qosClass"));
    if !class.1.is_empty() && class.0 != class.1 {
        errors.invalid(&path.field("qosClass"), class.0, "field is immutable");
    }
    if str_at(new, "spec.nodeName") != str_at(old, "spec.nodeName") {
        errors.forbidden(&path.field("nodeName"), "may not be changed directly");
    }
    let nominated = str_at(new, "status.nominatedNodeName");
    if !nominated.is_empty() {
        rules::subdomain(nominated, &path.field("nominatedNodeName"), errors);
    }
    for field in ["podIPs", "hostIPs"] {
        addresses(list_at(&new["status"], field), &path.field(field), errors);
    }
    if let Some(first) = list_at(new, "status.hostIPs").first().map(|address| str_at(address, "ip"))
        && first != str_at(new, "status.hostIP")
    {
        errors.invalid(&path.field("hostIPs").index(0).field("ip"), first, "must be equal to `hostIP`");
    }
    conditions(list_at(new, "status.conditions"), errors);
    claims(new, &path.field("resourceClaimStatuses"), errors);
    for (statuses, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        restarts(new, old, statuses, containers, &path.field(statuses), errors);
    }
}

fn addresses(list: &[Value], path: &Path, errors: &mut Errors) {
    let mut seen = HashSet::new();
    let mut families = [0, 0];
    for (i, address) in list.iter().enumerate() {
        let text = str_at(address, "ip");
        rules::ip(text, &path.index(i), errors);
        if !seen.insert(text) {
            let shown = internal::shown(address, internal::IP);
            errors.0.push(FieldError::duplicate_as(path.index(i), &shown));
        }
        families[usize::from(text.contains(':'))] += 1;
    }
    if families.iter().any(|count| *count > 1) {
        let all = internal::list_shown(&list.into(), internal::IP);
        errors.invalid_as(path, &all, "may specify no more than one IP for each IP family");
    }
}

/// Those that people make up are qualified names.
fn conditions(conditions: &[Value], errors: &mut Errors) {
    for (i, condition) in conditions.iter().enumerate() {
        let kind = str_at(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            let here = Path::root("metadata").field("conditions").index(i).field("Type");
            rules::qualified_name(kind, &here, errors);
        }
    }
}

/// Each says which claim was made for an entry of the spec.
fn claims(pod: &Object, path: &Path, errors: &mut Errors) {
    let asked = list_at(pod, "spec.resourceClaims");
    let mut seen = HashSet::new();
    for (i, status) in list_at(pod, "status.resourceClaimStatuses").iter().enumerate() {
        let (name, here) = (str_at(status, "name"), path.index(i).field("name"));
        if !asked.iter().any(|claim| str_at(claim, "name") == name) {
            errors.invalid(&here, name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name) {
            errors.duplicate(&here, name);
        }
        if has(status, "resourceClaimName") {
            rules::subdomain(
                str_at(status, "resourceClaimName"),
                &path.index(i).field("resourceClaimName"),
                errors,
            );
        }
    }
}

/// A container that must not run again does not come back once it has ended.
fn restarts(new: &Object, old: &Object, statuses: &str, containers: &str, path: &Path, errors: &mut Errors) {
    if may_restart_all(&old["spec"]) {
        return;
    }
    let policy = str_at(old, "spec.restartPolicy");
    for container in list_at(&old["spec"], containers) {
        let name = str_at(container, "name");
        let own = str_at(container, "restartPolicy");
        let rules = !list_at(container, "restartPolicyRules").is_empty();
        let effective = if own.is_empty() { policy } else { own };
        let (was, is) = (status_of(old, statuses, name), status_of(new, statuses, name));
        let ended = at(was, "state.terminated");
        if rules || effective == "Always" || ended.is_null() || is.is_null() {
            continue;
        }
        let failed = i64_at(ended, "exitCode").unwrap_or(0) != 0;
        let may_restart = effective == "OnFailure" && failed;
        if !may_restart && !has(is, "state.terminated") {
            let place = list_at(&old["status"], statuses).iter().position(|s| str_at(s, "name") == name);
            let at_state = path.index(place.unwrap_or(0)).field("state");
            errors.forbidden(&at_state, "may not be transitioned to non-terminated state");
        }
    }
}

/// Whether the exit of one container can bring all others back.
fn may_restart_all(spec: &Value) -> bool {
    let all = ["initContainers", "containers"].into_iter().flat_map(|list| list_at(spec, list));
    let mut rules = all.flat_map(|container| list_at(container, "restartPolicyRules"));
    rules.any(|rule| str_at(rule, "action") == "RestartAllContainers")
}

fn status_of<'a>(pod: &'a Object, statuses: &str, name: &str) -> &'a Value {
    list_at(&pod["status"], statuses).iter().find(|s| str_at(s, "name") == name).unwrap_or(&Value::Null)
}

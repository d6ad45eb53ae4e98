//! What an update of a pod may change (upstream's `ValidatePodUpdate`).

use super::super::super::copy_field;
use super::super::super::value::*;
use coracle_api::Object;
use serde_json::Value;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

pub fn pod(new: &Object, old: &Object, errors: &mut Errors) {
    if new["spec"] == old["spec"] {
        return;
    }
    let path = Path::root("spec");
    for field in ["containers", "initContainers"] {
        let lists = (list_at(&new["spec"], field), list_at(&old["spec"], field));
        if lists.0.len() != lists.1.len() {
            errors.forbidden(&path.field(field), "pod updates may not add or remove containers");
            return;
        }
    }
    deadline(&new["spec"], &old["spec"], &path, errors);
    tolerations(&new["spec"], &old["spec"], &path, errors);
    gates(&new["spec"], &old["spec"], &path, errors);
    if !list_at(old, "spec.schedulingGates").is_empty() {
        narrowed(&new["spec"], &old["spec"], &path, errors);
    }
    let leveled = level(&new["spec"], &old["spec"]);
    if leveled != old["spec"] {
        let mut changed = Vec::new();
        differences(&leveled, &old["spec"], &path, &mut changed);
        errors.forbidden(&path, &format!("{UPDATABLE}\n{}", changed.join("\n")));
    }
}

fn deadline(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let path = path.field("activeDeadlineSeconds");
    match (i64_at(new, "activeDeadlineSeconds"), i64_at(old, "activeDeadlineSeconds")) {
        (Some(new), Some(old)) if new > old => {
            errors.invalid(&path, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            errors.invalid(&path, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
}

fn tolerations(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let identity = |toleration: &Value| {
        let mut rest = toleration.clone();
        remove(&mut rest, "tolerationSeconds");
        rest
    };
    let kept: Vec<Value> = list_at(new, "tolerations").iter().map(identity).collect();
    if list_at(old, "tolerations").iter().any(|t| !kept.contains(&identity(t))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(&path.field("tolerations"), detail);
    }
}

fn gates(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    for (i, gate) in list_at(new, "schedulingGates").iter().enumerate() {
        if !list_at(old, "schedulingGates").contains(gate) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{}'", str_at(gate, "name"));
            errors.forbidden(&path.field("schedulingGates").index(i).field("name"), &detail);
        }
    }
}

/// The new spec with everything that may change put back.
fn level(new: &Value, old: &Value) -> Value {
    let mut leveled = new.clone();
    for field in ["containers", "initContainers"] {
        let images: Vec<Value> = list_at(old, field).iter().map(|c| at(c, "image").clone()).collect();
        for (container, image) in each_mut(&mut leveled, field).zip(images) {
            set(container, "image", image);
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        copy_field(&mut leveled, old, field);
    }
    let seconds = |spec| i64_at(spec, "terminationGracePeriodSeconds");
    if seconds(old).is_some_and(|s| s < 0) && seconds(new) == Some(1) {
        copy_field(&mut leveled, old, "terminationGracePeriodSeconds");
    }
    if !list_at(old, "schedulingGates").is_empty() {
        copy_field(&mut leveled, old, "nodeSelector");
        level_affinity(&mut leveled, old);
    }
    leveled
}

/// Only the affinity to nodes may change while a pod is gated.
fn level_affinity(leveled: &mut Value, old: &Value) {
    if !has(leveled, "affinity") && !has(old, "affinity.nodeAffinity") {
        return;
    }
    let alone = !has(leveled, "affinity.podAffinity") && !has(leveled, "affinity.podAntiAffinity");
    if alone && !has(old, "affinity") {
        remove(leveled, "affinity");
    } else if let Some(affinity) = object_at(leveled, "affinity") {
        copy_field(affinity, at(old, "affinity"), "nodeAffinity");
    }
}

/// A gated pod may narrow where it can run (KEP-3838).
fn narrowed(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let selector = at(new, "nodeSelector");
    if !entries_at(old, "nodeSelector").all(|(key, value)| selector.get(key) == Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&path.field("nodeSelector"), selector.clone(), detail);
    }
    let path = path.field("affinity").field("nodeAffinity").field(REQUIRED).field("nodeSelectorTerms");
    let terms = |spec| list_at(at(at(spec, "affinity.nodeAffinity"), REQUIRED), "nodeSelectorTerms");
    let (is, was): (&[Value], &[Value]) = (terms(new), terms(old));
    if was.is_empty() {
        return;
    }
    if is.len() != was.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&path, is.to_vec(), detail);
    }
    for (i, (is, was)) in is.iter().zip(was).enumerate() {
        let kept = |field: &str| list_at(was, field).iter().all(|r| list_at(is, field).contains(r));
        let empty = ["matchExpressions", "matchFields"].iter().all(|field| list_at(was, field).is_empty());
        // A term without requirements selects nothing: adding to it would widen.
        if (empty && is != was) || !kept("matchExpressions") || !kept("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&path.index(i), is.clone(), detail);
        }
    }
}

/// What differs beneath `field`, a line for each.
pub fn changes(new: &Value, old: &Value, field: &'static str) -> String {
    let mut lines = Vec::new();
    differences(new, old, &Path::root(field), &mut lines);
    lines.join("\n")
}

/// One line for each field that differs.
pub fn differences(new: &Value, old: &Value, path: &Path, lines: &mut Vec<String>) {
    match (new, old) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                differences(at(new, key), at(old, key), &path.field(key), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (new, old)) in a.iter().zip(b).enumerate() {
                differences(new, old, &path.index(i), lines);
            }
        }
        _ if new != old => lines.push(format!("  {path}: {old} -> {new}")),
        _ => {}
    }
}

//! What an update of a pod may change (upstream's `ValidatePodUpdate`).

use super::super::super::copy_field;
use super::super::super::value::*;
use coracle_api::Object;
use serde_json::Value;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

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
            errors.forbidden(&path.field("schedulingGates").index(i), &detail);
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
        gated(&mut leveled, old);
    }
    leveled
}

/// A gated pod may also narrow where it can run.
fn gated(leveled: &mut Value, old: &Value) {
    let kept = entries_at(old, "nodeSelector").all(|(k, v)| at(leveled, "nodeSelector").get(k) == Some(v));
    if kept {
        copy_field(leveled, old, "nodeSelector");
    }
    if !has(old, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution") {
        copy_field(leveled, old, "affinity");
    }
}

/// One line for each field that differs.
fn differences(new: &Value, old: &Value, path: &Path, lines: &mut Vec<String>) {
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

//! What the controllers of pods have in common: the pod template and the selector of its pods.

use super::pods::{defaults, validate};
use super::value::*;
use super::{Column, rules, table};
use coracle_api::Object;
use serde_json::Value;

pub const TEMPLATE: &str = "spec.template";

/// Defaults of the pod template at `path`, such as `spec.template`.
pub fn template_defaults(object: &mut Object, path: &str) {
    defaults::spec(object, &format!("{path}.spec"));
}

/// The template of pods that run until they are deleted; `kind` is whose.
pub fn long_running_template(template: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    pod_template(template, path, errors);
    runs_on(template, kind, path, errors);
}

/// Its pods do not end by themselves.
pub fn runs_on(template: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let restart = str_at(template, "spec.restartPolicy");
    if restart != "Always" {
        errors.not_supported(&path.field("spec").field("restartPolicy"), restart, &["Always"]);
    }
    if has(template, "spec.activeDeadlineSeconds") {
        let here = path.field("spec").field("activeDeadlineSeconds");
        errors.forbidden(&here, &format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

/// What a template says of its pods' metadata.
pub fn template_metadata(template: &Value, path: &Path, errors: &mut Errors) {
    rules::labels(at(template, "metadata.labels"), &path.field("labels"), errors);
    rules::annotations(at(template, "metadata.annotations"), &path.field("annotations"), errors);
    validate::annotations::all(template, &path.field("annotations"), errors);
}

pub fn pod_template(template: &Value, path: &Path, errors: &mut Errors) {
    pod_template_with(template, &[], path, errors);
}

/// As [`pod_template`], of pods that get these volumes too.
pub fn pod_template_with(template: &Value, more: &[Value], path: &Path, errors: &mut Errors) {
    template_metadata(template, path, errors);
    let here = path.field("spec");
    validate::pod_spec_with(at(template, "spec"), more, &here, errors);
    validate::annotations::agree(template, &here, errors);
    if !list_at(template, "spec.ephemeralContainers").is_empty() {
        errors.forbidden(
            &here.field("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

/// `spec.selector` is there, selects something, and selects the pods of the template. `bad` is what upstream says of a
/// selector that cannot be read, beside what is wrong with it; `false` then, and nothing more is said of the template.
pub fn selector_of_template(object: &Object, kind: &str, bad: &str, errors: &mut Errors) -> bool {
    let path = Path::root("spec").field("selector");
    let selector = at(object, "spec.selector");
    if selector.is_null() {
        errors.required(&path, "");
    }
    let before = errors.0.len();
    rules::label_selector(selector, &path, errors);
    let readable = errors.0.len() == before;
    if !selector.is_null() && rules::selects_all(selector) {
        errors.invalid(&path, selector.clone(), &format!("empty selector is invalid for {kind}"));
    }
    if readable {
        template_is_selected(object, errors);
    } else {
        errors.invalid_as(&path, &rules::internal::selector_shown(selector), bad);
    }
    readable
}

/// No selector selects nothing.
pub fn template_is_selected(object: &Object, errors: &mut Errors) {
    let (selector, labels) = (at(object, "spec.selector"), at(object, "spec.template.metadata.labels"));
    if selector.is_null() || !rules::selects(selector, labels) {
        let here = Path::root("spec").field("template").field("metadata").field("labels");
        errors.invalid(&here, labels.clone(), "`selector` does not match template `labels`");
    }
}

/// Whole numbers below `spec` that must not be negative.
pub fn non_negative(object: &Object, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        rules::non_negative_at(&object["spec"], field, &Path::root("spec"), errors);
    }
}

/// What a controller may count in a status: nothing below zero, and no part above the whole.
pub fn counts(object: &Object, fields: &[&str], parts: &[&str], errors: &mut Errors) {
    let (status, path) = (&object["status"], Path::root("status"));
    for field in fields.iter().chain(parts).chain(&["observedGeneration", "collisionCount"]) {
        rules::non_negative_at(status, field, &path, errors);
    }
    let of = |field: &str| i64_at(status, field).unwrap_or(0);
    for part in parts.iter().filter(|part| of(part) > of("replicas")) {
        errors.invalid(&path.field(part), of(part), "cannot be greater than status.replicas");
    }
    let both = parts.contains(&"readyReplicas") && parts.contains(&"availableReplicas");
    if both && of("availableReplicas") > of("readyReplicas") {
        let here = path.field("availableReplicas");
        // Upstream's words for StatefulSets, which alone count these, differ.
        let whole = if parts.contains(&"currentReplicas") { "status.readyReplicas" } else { "readyReplicas" };
        errors.invalid(&here, of("availableReplicas"), &format!("cannot be greater than {whole}"));
    }
}

/// The count of names that were taken already never falls.
pub fn collisions(new: &Object, old: &Object, errors: &mut Errors) {
    let count = |object| i64_at(object, "status.collisionCount");
    if count(new).unwrap_or(0) < count(old).unwrap_or(0) || (count(new).is_none() && count(old).is_some()) {
        let value = at(new, "status.collisionCount").clone();
        errors.invalid(&Path::root("status").field("collisionCount"), value, "cannot be decremented");
    }
}

/// What the template of pods at `path` gives rise to; nothing if the update leaves it alone.
pub fn warnings(new: &Object, old: Option<&Object>, path: &str) -> Vec<String> {
    let template = at(new, path);
    if template.is_null() || old.is_some_and(|old| at(old, path) == template) {
        return Vec::new();
    }
    super::pods::warnings::of_pod(template, &Path::root(path))
}

/// As [`warnings`], of workloads whose pods' names and host names begin with theirs.
pub fn named_warnings(new: &Object, old: Option<&Object>, path: &str) -> Vec<String> {
    let mut found =
        if old.is_none() { rules::name_warnings(new, "Pod names and hostnames") } else { Vec::new() };
    found.extend(warnings(new, old, path));
    found
}

/// How many of a rolling update: numbers or percentages, a percentage at most the whole. Both zero is no progress.
pub fn rolling(rolling: &Value, path: &Path, errors: &mut Errors) {
    for field in ["maxUnavailable", "maxSurge"] {
        rules::int_or_percent(at(rolling, field), &path.field(field), errors);
    }
    if amount(at(rolling, "maxUnavailable")) == 0 && amount(at(rolling, "maxSurge")) == 0 {
        let value = at(rolling, "maxUnavailable").clone();
        errors.invalid(&path.field("maxUnavailable"), value, "may not be 0 when `maxSurge` is 0");
    }
    rules::at_most_all(at(rolling, "maxUnavailable"), &path.field("maxUnavailable"), errors);
}

/// The number, or the percentage; of a text that is neither, nothing.
pub fn amount(value: &Value) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        other => rules::percent(other).or_else(|| other.as_str()?.parse().ok()).unwrap_or(0),
    }
}

/// A count of `spec` or `status`, zero when absent.
pub fn count(object: &Object, path: &str) -> i64 {
    i64_at(object, path).unwrap_or(0)
}

/// The cells of the columns [`table::WIDE_CONTAINERS`] and [`table::WIDE_IMAGES`].
pub fn wide_cells(object: &Object) -> [Value; 2] {
    table::containers_and_images(at(object, "spec.template.spec"))
}

/// The columns of ReplicaSets and ReplicationControllers.
pub const REPLICA_COLUMNS: &[Column] = &[
    table::NAME,
    table::integer("Desired", "Pods that should be"),
    table::integer("Current", "Pods that are"),
    table::integer("Ready", "Pods that are ready"),
    table::AGE,
    table::WIDE_CONTAINERS,
    table::WIDE_IMAGES,
    table::WIDE_SELECTOR,
];

pub fn replica_row(object: &Object, now: jiff::Timestamp, selector: String) -> Vec<Value> {
    let [containers, images] = wide_cells(object);
    vec![
        name(object).into(),
        count(object, "spec.replicas").into(),
        count(object, "status.replicas").into(),
        count(object, "status.readyReplicas").into(),
        table::age(object, now),
        containers,
        images,
        selector.into(),
    ]
}

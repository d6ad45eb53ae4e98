//! PodSecurity: the Pod Security Standards, enforced by namespace labels
//! (<https://kubernetes.io/docs/concepts/security/pod-security-admission/>).
//!
//! `enforce` refuses pods. The rules are those of the latest version whatever version a label pins, and the `warn` and
//! `audit` labels are accepted but have no effect yet.

mod baseline;
mod restricted;

#[cfg(test)]
mod tests;

use super::{Operation, Plugin, Request, items};
use coracle_api::{ApiError, FieldError, Object};
use serde_json::Value;

pub(super) struct PodSecurity;

const PREFIX: &str = "pod-security.kubernetes.io/";
const LEVELS: [&str; 3] = ["privileged", "baseline", "restricted"];

/// A rule that a pod breaks: upstream's reason and detail.
struct Violation {
    reason: &'static str,
    detail: String,
}

/// One rule of the standards.
type Check = fn(&Value) -> Option<Violation>;

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let Some(object) = object else { return Ok(()) };
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if writes && request.is_for("", "namespaces", "") {
            return check_labels(object);
        }
        let debugs =
            request.operation == Operation::Update && request.is_for("", "pods", "ephemeralcontainers");
        if !request.is(Operation::Create, "", "pods") && !debugs {
            return Ok(());
        }
        let Some(namespace) = request.read.get("namespaces.", "", request.namespace) else { return Ok(()) };
        let label = |name: &str| namespace["metadata"]["labels"][format!("{PREFIX}{name}")].as_str();
        let level = label("enforce").unwrap_or("privileged");
        let violations = violations(&object["spec"], level);
        if violations.is_empty() {
            return Ok(());
        }
        let version = label("enforce-version").unwrap_or("latest");
        let why = format!("violates PodSecurity \"{level}:{version}\": {}", violations.join(", "));
        Err(request.forbidden(&why))
    }
}

/// What breaks the level, each as `reason (detail)`. A level that is no level is the strictest.
fn violations(spec: &Value, level: &str) -> Vec<String> {
    let checks: Vec<Check> = match level {
        "privileged" => return Vec::new(),
        "baseline" => baseline::COMMON.iter().chain(baseline::ONLY).copied().collect(),
        _ => baseline::COMMON.iter().chain(restricted::CHECKS).copied().collect(),
    };
    let found = checks.iter().filter_map(|check| check(spec));
    let mut found: Vec<String> = found.map(|v| format!("{} ({})", v.reason, v.detail)).collect();
    found.sort();
    found
}

fn check_labels(namespace: &Object) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let key = format!("{PREFIX}{mode}");
        let value = &namespace["metadata"]["labels"][&key];
        if value.as_str().is_some_and(|level| !LEVELS.contains(&level)) {
            let why = "must be one of privileged, baseline, restricted";
            errors.push(FieldError::invalid(format!("metadata.labels[{key}]"), value, why));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::invalid("", "Namespace", name, &errors))
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| items(&spec[list]))
}

fn name_of(value: &Value) -> String {
    format!("\"{}\"", value["name"].as_str().unwrap_or_default())
}

/// `container "a"` or `containers "a", "b"`
fn plural(what: &str, names: &[String]) -> String {
    let s = if names.len() == 1 { "" } else { "s" };
    format!("{what}{s} {}", names.join(", "))
}

/// The containers that `bad` finds, if any.
fn bad_containers(spec: &Value, bad: impl Fn(&Value) -> bool) -> Option<String> {
    let names: Vec<String> = containers(spec).filter(|c| bad(c)).map(name_of).collect();
    (!names.is_empty()).then(|| plural("container", &names))
}

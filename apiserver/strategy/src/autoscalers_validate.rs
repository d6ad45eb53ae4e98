//! Metrics and behaviour of horizontal pod autoscalers (upstream's `ValidateHorizontalPodAutoscaler`).

use super::super::pods::validate::resources;
use super::super::rules;
use super::super::value::*;
use serde_json::Value;

/// Longest stabilization window, an hour, and longest period of a policy, half of it; upstream's numbers.
const MAX_WINDOW_SECONDS: i64 = 3600;
const MAX_PERIOD_SECONDS: i64 = 1800;

/// Kind and name of what is scaled, or measured.
pub fn reference(reference: &Value, path: &Path, errors: &mut Errors) {
    for field in ["kind", "name"] {
        rules::path_segment(str_at(reference, field), &path.field(field), errors);
    }
    let version = str_at(reference, "apiVersion");
    if version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.invalid(&path.field("apiVersion"), version, &detail);
    }
}

pub fn has_group(version: &str) -> bool {
    version.split_once('/').is_some_and(|(group, _)| !group.is_empty())
}

/// What is scaled has a group, but for the one kind of the core that can be.
pub fn group(target: &Value, any_version: bool, path: &Path, errors: &mut Errors) {
    let version = str_at(target, "apiVersion");
    let core = str_at(target, "kind") == "ReplicationController";
    if version.matches('/').count() < 2 && !has_group(version) && !core && !any_version {
        errors.invalid(&path.field("apiVersion"), version, "apiVersion must specify API group");
    }
}

/// Upstream judges the first that is there, whatever the type.
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];

/// `spec.metrics`, and with them whether the replicas may be none.
pub fn metrics(spec: &Value, path: &Path, errors: &mut Errors) {
    let path = path.field("metrics");
    for (i, metric) in list_at(spec, "metrics").iter().enumerate() {
        self::metric(metric, &path.index(i), errors);
    }
    let outside = |metric: &Value| matches!(str_at(metric, "type"), "Object" | "External");
    if i64_at(spec, "minReplicas") == Some(0) && !list_at(spec, "metrics").iter().any(outside) {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(&path, detail);
    }
}

fn metric(metric: &Value, path: &Path, errors: &mut Errors) {
    const KINDS: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = str_at(metric, "type");
    let own = field_of(kind);
    if kind.is_empty() {
        errors.required(&path.field("type"), "must specify a metric source type");
    }
    if own.is_empty() {
        errors.not_supported(&path.field("type"), kind, KINDS);
    }
    let given: Vec<&str> = SOURCES.into_iter().filter(|field| has(metric, field)).collect();
    if let Some(field) = given.first() {
        source(field, at(metric, field), &path.field(field), errors);
    }
    // Upstream says it twice: of the type, and of the source that it does not name.
    if own.is_empty() {
        errors.not_supported(&path.field("type"), kind, KINDS);
    } else if !has(metric, own) {
        errors.required(&path.field(own), "must populate information for the given metric source");
    }
    if given.len() != 1 {
        for field in given.iter().filter(|field| **field != own) {
            errors.forbidden(&path.field(field), "must populate the given metric source only");
        }
    }
}

fn field_of(kind: &str) -> &'static str {
    match kind {
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "External" => "external",
        _ => "",
    }
}

fn source(kind: &str, source: &Value, path: &Path, errors: &mut Errors) {
    match kind {
        "object" => {
            reference(at(source, "describedObject"), &path.field("describedObject"), errors);
            identifier(at(source, "metric"), &path.field("metric"), errors);
        }
        "pods" | "external" => identifier(at(source, "metric"), &path.field("metric"), errors),
        _ => {
            let (resource, container) = (str_at(source, "name"), str_at(source, "container"));
            if resource.is_empty() {
                errors.required(&path.field("name"), "must specify a resource name");
            } else if kind == "containerResource" {
                resources::name(resource, &path.field("name"), errors);
            }
            match (kind, container) {
                ("containerResource", "") => {
                    errors.required(&path.field("container"), "must specify a container");
                }
                ("containerResource", name) => rules::label(name, &path.field("container"), errors),
                _ => {}
            }
        }
    }
    target(kind, at(source, "target"), &path.field("target"), errors);
}

fn identifier(metric: &Value, path: &Path, errors: &mut Errors) {
    match str_at(metric, "name") {
        "" => errors.required(&path.field("name"), "must specify a metric name"),
        name => rules::path_segment(name, &path.field("name"), errors),
    }
}

fn target(kind: &str, target: &Value, path: &Path, errors: &mut Errors) {
    let type_ = str_at(target, "type");
    if type_.is_empty() {
        errors.required(&path.field("type"), "must specify a metric target type");
    }
    if !matches!(type_, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.invalid(&path.field("type"), type_, detail);
    }
    for field in ["value", "averageValue"] {
        let quantity = at(target, field);
        if quantity.is_null() {
            continue;
        }
        let positive = rules::parse_quantity(quantity).is_some_and(|q| !q.is_zero() && !q.is_negative());
        if !positive {
            errors.invalid(&path.field(field), rules::quantity_text(quantity), "must be positive");
        }
    }
    if let Some(percent) = i64_at(target, "averageUtilization").filter(|p| *p < 1) {
        errors.invalid(&path.field("averageUtilization"), percent, "must be greater than 0");
    }
    let (value, average) = (has(target, "value"), has(target, "averageValue"));
    let utilization = has(target, "averageUtilization");
    match kind {
        "pods" if !average => {
            errors.required(&path.field("averageValue"), "must specify a positive target averageValue");
        }
        "object" if !value && !average => {
            let detail = "must set either a target value or averageValue";
            errors.required(&path.field("averageValue"), detail);
        }
        "external" if !value && !average => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(&path.field("averageValue"), detail);
        }
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&path.field("value"), detail);
        }
        "resource" | "containerResource" if !average && !utilization => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(&path.field("averageUtilization"), detail);
        }
        "resource" | "containerResource" if average && utilization => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(&path.field("averageValue"), detail);
        }
        _ => {}
    }
}

pub fn behavior(behavior: &Value, path: &Path, errors: &mut Errors) {
    for direction in ["scaleUp", "scaleDown"] {
        let (rules_, here) = (at(behavior, direction), path.field(direction));
        if rules_.is_null() {
            continue;
        }
        if let Some(window) = i64_at(rules_, "stabilizationWindowSeconds") {
            let at_window = here.field("stabilizationWindowSeconds");
            if window < 0 {
                errors.invalid(&at_window, window, "must be greater than or equal to zero");
            } else if window > MAX_WINDOW_SECONDS {
                let detail = format!("must be less than or equal to {MAX_WINDOW_SECONDS}");
                errors.invalid(&at_window, window, &detail);
            }
        }
        let select = str_at(rules_, "selectPolicy");
        if has(rules_, "selectPolicy") && !matches!(select, "Disabled" | "Max" | "Min") {
            errors.not_supported(&here.field("selectPolicy"), select, &["Disabled", "Max", "Min"]);
        }
        let tolerance = at(rules_, "tolerance");
        if rules::parse_quantity(tolerance).is_some_and(coracle_api::Quantity::is_negative) {
            let detail = "must be greater than or equal to 0";
            errors.invalid(&here.field("tolerance"), rules::quantity_text(tolerance), detail);
        }
        let policies = list_at(rules_, "policies");
        if policies.is_empty() {
            errors.required(&here.field("policies"), "must specify at least one Policy");
        }
        for (i, policy) in policies.iter().enumerate() {
            self::policy(policy, &here.field("policies").index(i), errors);
        }
    }
}

/// What is wrong with lists of policies that are there and empty; later nobody can tell them from such as are absent.
pub fn policies_sent(behavior: &Value, path: &Path, errors: &mut Errors) {
    for direction in ["scaleUp", "scaleDown"] {
        let policies = at(behavior, direction).get("policies").and_then(Value::as_array);
        if policies.is_some_and(Vec::is_empty) {
            errors.required(&path.field(direction).field("policies"), "must specify at least one Policy");
        }
    }
}

fn policy(policy: &Value, path: &Path, errors: &mut Errors) {
    let kind = str_at(policy, "type");
    if !matches!(kind, "Pods" | "Percent") {
        errors.not_supported(&path.field("type"), kind, &["Percent", "Pods"]);
    }
    for field in ["value", "periodSeconds"] {
        let number = i64_at(policy, field).unwrap_or(0);
        if number <= 0 {
            errors.invalid(&path.field(field), number, "must be greater than zero");
        }
    }
    let period = i64_at(policy, "periodSeconds").unwrap_or(0);
    if period > MAX_PERIOD_SECONDS {
        let detail = format!("must be less than or equal to {MAX_PERIOD_SECONDS}");
        errors.invalid(&path.field("periodSeconds"), period, &detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(check: impl FnOnce(&mut Errors)) -> Vec<String> {
        let mut list = Vec::new();
        check(&mut Errors(&mut list));
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn metrics_need_their_source_and_target() {
        let of = |metric: Value| {
            texts(|errors| metrics(&json!({ "metrics": [metric] }), &Path::root("spec"), errors))
        };
        let cpu =
            |target: Value| json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        assert!(of(cpu(json!({ "type": "Utilization", "averageUtilization": 50 }))).is_empty());
        assert_eq!(
            of(cpu(json!({ "type": "Utilization" }))),
            [
                "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization"
            ]
        );
        assert_eq!(
            of(cpu(json!({ "type": "Utilization", "averageUtilization": 0 }))),
            ["spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"]
        );
        assert_eq!(
            of(json!({ "type": "Pods" })),
            ["spec.metrics[0].pods: Required value: must populate information for the given metric source"]
        );
        assert_eq!(
            of(json!({ "type": "Half" })),
            ["spec.metrics[0].type: Unsupported value: \"Half\": supported values: \"ContainerResource\", \"External\", \"Object\", \"Pods\", \"Resource\"";
                2]
        );
        let both = json!({ "type": "External", "external": {}, "pods": {} });
        assert!(of(both).contains(
            &"spec.metrics[0].pods: Forbidden: must populate the given metric source only".to_owned()
        ));
    }

    #[test]
    fn behaviour_is_bounded() {
        let of = |rules: Value| {
            texts(|errors| behavior(&json!({ "scaleUp": rules }), &Path::root("behavior"), errors))
        };
        let policy = |seconds: i64| json!([{ "type": "Pods", "value": 1, "periodSeconds": seconds }]);
        assert!(of(json!({ "stabilizationWindowSeconds": 3600, "policies": policy(1800) })).is_empty());
        assert_eq!(
            of(json!({ "stabilizationWindowSeconds": 3601, "policies": policy(0), "selectPolicy": "Most" })),
            [
                "behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
                "behavior.scaleUp.selectPolicy: Unsupported value: \"Most\": supported values: \"Disabled\", \"Max\", \"Min\"",
                "behavior.scaleUp.policies[0].periodSeconds: Invalid value: 0: must be greater than zero",
            ]
        );
        assert_eq!(
            of(json!({})),
            ["behavior.scaleUp.policies: Required value: must specify at least one Policy"]
        );
    }
}

//! HorizontalPodAutoscalers, in their stored form autoscaling/v2.

#[path = "autoscalers_validate.rs"]
mod validate;

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, UpdateStrategy, rules, table,
};
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct HorizontalPodAutoscalers;

/// Percent of the requested CPU that is aimed at where no metric is given.
const CPU_TARGET_PERCENT: i64 = 80;
/// Metrics that a cell shows before it says how many more there are.
const SHOWN: usize = 2;

const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Reference", "What is scaled"),
    table::string("Targets", "Metrics as they are and as they should be"),
    table::string("MinPods", "Least number of pods"),
    table::string("MaxPods", "Greatest number of pods"),
    table::string("Replicas", "Pods at present"),
    table::AGE,
];

impl ResourceFacts for HorizontalPodAutoscalers {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for HorizontalPodAutoscalers {
    fn defaults(&self, object: &mut Object) {
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "minReplicas", 1);
        if list_at(spec, "metrics").is_empty() {
            let target = json!({ "type": "Utilization", "averageUtilization": CPU_TARGET_PERCENT });
            set(
                spec,
                "metrics",
                json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]),
            );
        }
        if let Some(behavior) = at_mut(spec, "behavior") {
            scaling_rules(behavior);
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({ "desiredReplicas": 0 }));
    }

    /// Who leaves the policies out gets upstream's, who says that there are none is told that there must be one.
    fn validate_sent(&self, object: &Object, errors: &mut Vec<FieldError>) {
        let (spec, path) = (&object["spec"], Path::root("spec").field("behavior"));
        validate::policies_sent(at(spec, "behavior"), &path, &mut Errors(errors));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check(object, false, &mut Errors(errors));
    }
}

impl UpdateStrategy for HorizontalPodAutoscalers {
    /// One that names no group already may go on doing so.
    fn validate_changed(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let version = str_at(old, "spec.scaleTargetRef.apiVersion");
        check(new, !validate::has_group(version), &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for HorizontalPodAutoscalers {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        for field in ["currentReplicas", "desiredReplicas"] {
            rules::non_negative_at(&new["status"], field, &Path::root("status"), &mut Errors(errors));
        }
    }
}

impl TableConvertor for HorizontalPodAutoscalers {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let spec = &object["spec"];
        let reference =
            format!("{}/{}", str_at(spec, "scaleTargetRef.kind"), str_at(spec, "scaleTargetRef.name"));
        let least = i64_at(spec, "minReplicas").map_or_else(|| "<unset>".to_owned(), |n| n.to_string());
        vec![
            name(object).into(),
            reference.into(),
            targets(object).into(),
            least.into(),
            i64_at(spec, "maxReplicas").unwrap_or(0).into(),
            i64_at(object, "status.currentReplicas").unwrap_or(0).into(),
            table::age(object, now),
        ]
    }
}

crate::usual!(HorizontalPodAutoscalers: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn check(object: &Object, any_version: bool, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let (least, most) = (i64_at(spec, "minReplicas").unwrap_or(1), i64_at(spec, "maxReplicas").unwrap_or(0));
    let here = path.field("maxReplicas");
    if least < 1 {
        errors.invalid(&path.field("minReplicas"), least, "must be greater than or equal to 1");
    }
    match most {
        0 => errors.required(&here, "must be set and greater than 0"),
        most if most < 0 => errors.invalid(&here, most, "must be greater than or equal to 1"),
        _ => {}
    }
    if most < least {
        errors.invalid(&here, most, "must be greater than or equal to `minReplicas`");
    }
    let (target, here) = (at(spec, "scaleTargetRef"), path.field("scaleTargetRef"));
    validate::reference(target, &here, errors);
    validate::group(target, any_version, &here, errors);
    validate::metrics(spec, &path, errors);
    validate::behavior(at(spec, "behavior"), &path.field("behavior"), errors);
}

/// Who says something about behaviour gets upstream's rules for the rest of it: up quickly, down all at once.
fn scaling_rules(behavior: &mut Value) {
    let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
    let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
    for (direction, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        let Some(rules) = object_at(behavior, direction) else { continue };
        default(rules, "selectPolicy", "Max");
        if !has(rules, "policies") {
            set(rules, "policies", policies);
        }
        if direction == "scaleUp" {
            default(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

/// The part of a metric that its type names.
fn source(metric: &Value) -> &Value {
    at(
        metric,
        match str_at(metric, "type") {
            "ContainerResource" => "containerResource",
            "External" => "external",
            "Object" => "object",
            "Pods" => "pods",
            _ => "resource",
        },
    )
}

fn targets(object: &Object) -> String {
    let metrics = list_at(object, "spec.metrics");
    let texts: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(i, metric)| {
            let current = list_at(object, "status.currentMetrics").get(i);
            target(metric, current.map_or(&Value::Null, |current| source(current)))
        })
        .collect();
    match texts.len() {
        0 => "<none>".to_owned(),
        n if n > SHOWN => format!("{} + {} more...", texts[..SHOWN].join(", "), n - SHOWN),
        _ => texts.join(", "),
    }
}

fn target(metric: &Value, current: &Value) -> String {
    let spec = source(metric);
    let value = |holder: &Value, field: &str| match at(holder, field) {
        Value::Null => "<unknown>".to_owned(),
        found => rules::quantity_text(found),
    };
    let now = at(current, "current");
    let prefix = match str_at(metric, "type") {
        "Resource" => format!("{}: ", str_at(spec, "name")),
        "ContainerResource" => format!("{}: ", str_at(spec, "name")),
        _ => String::new(),
    };
    if let Some(percent) = i64_at(spec, "target.averageUtilization") {
        let is =
            i64_at(now, "averageUtilization").map_or_else(|| "<unknown>".to_owned(), |p| format!("{p}%"));
        return format!("{prefix}{is}/{percent}%");
    }
    if has(spec, "target.averageValue") {
        let average = if str_at(metric, "type") == "Pods" || !prefix.is_empty() { "" } else { " (avg)" };
        return format!(
            "{prefix}{}/{}{average}",
            value(now, "averageValue"),
            value(spec, "target.averageValue")
        );
    }
    format!("{prefix}{}/{}", value(now, "value"), value(spec, "target.value"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn defaults_rows_and_mistakes() {
        let mut object = json!({ "metadata": { "name": "h" }, "spec": { "maxReplicas": 3,
            "scaleTargetRef": { "kind": "Deployment", "name": "d" } } });
        HorizontalPodAutoscalers.defaults(&mut object);
        let row = Value::Array(HorizontalPodAutoscalers.row(&object, Timestamp::UNIX_EPOCH));
        assert_eq!(row, json!(["h", "Deployment/d", "cpu: <unknown>/80%", "1", 3, 0, "<unknown>"]));
        object["spec"]["maxReplicas"] = 0.into();
        let mut errors = Vec::new();
        HorizontalPodAutoscalers.validate(&object, &World::default().env(), &mut errors);
        assert_eq!(errors[0].to_string(), "spec.maxReplicas: Required value: must be set and greater than 0");
        // What named no group before may go on doing so.
        object["spec"]["maxReplicas"] = 3.into();
        let mut errors = Vec::new();
        HorizontalPodAutoscalers.validate_changed(&object, &object, &World::default().env(), &mut errors);
        assert_eq!(errors, []);
    }
}

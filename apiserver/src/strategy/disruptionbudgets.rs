//! PodDisruptionBudgets.

use super::value::*;
use super::{Column, Env, Strategy, rules, table};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct PodDisruptionBudgets;

impl Strategy for PodDisruptionBudgets {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        let counts =
            json!({ "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0 });
        set(object, "status", counts);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
            errors.invalid(&path, spec.clone(), "minAvailable and maxUnavailable cannot be both set");
        }
        for field in ["minAvailable", "maxUnavailable"] {
            rules::int_or_percent(at(spec, field), &path.field(field), errors);
            rules::at_most_all(at(spec, field), &path.field(field), errors);
        }
        rules::label_selector(at(spec, "selector"), &path.field("selector"), errors);
        let policies = &["AlwaysAllow", "IfHealthyBudget"];
        rules::one_of_if_set(spec, "unhealthyPodEvictionPolicy", policies, &path, errors);
    }

    fn has_status(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Min Available", "Pods that must stay"),
                table::string("Max Unavailable", "Pods that may go"),
                table::integer("Allowed Disruptions", "Pods that may go now"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let shown = |path: &str| match at(object, path) {
            Value::Null => "N/A".to_owned(),
            found => rules::quantity_text(found),
        };
        vec![
            name(object).into(),
            shown("spec.minAvailable").into(),
            shown("spec.maxUnavailable").into(),
            i64_at(object, "status.disruptionsAllowed").unwrap_or(0).into(),
            table::age(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::testing::World;

    #[test]
    fn one_of_the_two_numbers() {
        let object =
            json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": "101%", "maxUnavailable": 1 } });
        let mut errors = Vec::new();
        PodDisruptionBudgets.validate(&object, &World::default().env(), &mut errors);
        let fields: Vec<_> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["spec", "spec.minAvailable"]);
        let row = Value::Array(PodDisruptionBudgets.row(
            &json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 1 } }),
            Timestamp::UNIX_EPOCH,
        ));
        assert_eq!(row, json!(["b", "1", "N/A", 0, "<unknown>"]));
    }
}

//! PodDisruptionBudgets.

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, conditions, rules, table,
};
use crate::Facts;
use coracle_api::meta::NameRule;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;

pub struct PodDisruptionBudgets;

const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];

impl ResourceFacts for PodDisruptionBudgets {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for PodDisruptionBudgets {
    fn name_rule(&self) -> NameRule {
        NameRule::Last
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        let counts = COUNTS.map(|field| (field.to_owned(), 0.into()));
        set(object, "status", serde_json::Map::from_iter(counts));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
            let shown = rules::internal::shown(spec, rules::internal::DISRUPTION_BUDGET);
            errors.invalid_as(&path, &shown, "minAvailable and maxUnavailable cannot be both set");
        }
        for field in ["minAvailable", "maxUnavailable"] {
            rules::int_or_percent(at(spec, field), &path.field(field), errors);
            rules::at_most_all(at(spec, field), &path.field(field), errors);
        }
        rules::label_selector(at(spec, "selector"), &path.field("selector"), errors);
        let policies = &["AlwaysAllow", "IfHealthyBudget"];
        rules::one_of_if_set(spec, "unhealthyPodEvictionPolicy", policies, &path, errors);
    }
}

impl StatusStrategy for PodDisruptionBudgets {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let (errors, path) = (&mut Errors(errors), Path::root("status"));
        conditions::check(list_at(new, "status.conditions"), &path.field("conditions"), errors);
        for field in COUNTS {
            rules::non_negative_at(&new["status"], field, &path, errors);
        }
    }
}

impl TableConvertor for PodDisruptionBudgets {
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

crate::usual!(PodDisruptionBudgets: UpdateStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, status_errors};
    use serde_json::json;

    #[test]
    fn counts_of_a_status() {
        let status =
            |status: Value| status_errors(&PodDisruptionBudgets, &json!({ "status": status }), &json!({}));
        assert_eq!(status(json!({ "expectedPods": 2 })), [""; 0]);
        assert_eq!(
            status(json!({ "disruptionsAllowed": -1, "conditions": [{ "type": "A", "status": "Maybe",
                "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z" }] })),
            [
                "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\"",
                "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
    }

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

//! Priority classes.

use super::value::*;
use super::{Column, Env, Strategy, rules, table};
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;

pub struct PriorityClasses;

/// Above are the classes of the system.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

impl Strategy for PriorityClasses {
    fn defaults(&self, object: &mut Object) {
        default_str(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let value = i64_at(object, "value").unwrap_or(0);
        let name = name(object);
        if name.starts_with("system-") {
            if !SYSTEM.contains(&(name, value)) {
                let detail = "priority class names with 'system-' prefix are reserved for system use only";
                errors.forbidden(&Path::root("metadata").field("name"), detail);
            }
        } else if value > HIGHEST_USER_PRIORITY {
            let detail =
                format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            errors.forbidden(&Path::root("value"), &detail);
        }
        let policies = &["Never", "PreemptLowerPriority"];
        rules::one_of_if_set(object, "preemptionPolicy", policies, &Path::root(""), errors);
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        if i64_at(new, "value").unwrap_or(0) != i64_at(old, "value").unwrap_or(0) {
            errors.forbidden(&Path::root("value"), "may not be changed in an update.");
        }
        rules::immutable(new, old, &["preemptionPolicy"], errors);
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::integer("Value", "Priority of the pods"),
                table::boolean("Global-Default", "Whether pods without a class have this one"),
                table::AGE,
                table::string("PreemptionPolicy", "Whether the pods push others out"),
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![
            name(object).into(),
            i64_at(object, "value").unwrap_or(0).into(),
            bool_at(object, "globalDefault").into(),
            table::age(object, now),
            str_at(object, "preemptionPolicy").into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::testing::World;
    use serde_json::json;

    #[test]
    fn system_values_are_reserved() {
        let texts = |name: &str, value: i64| {
            let mut errors = Vec::new();
            let object = json!({ "metadata": { "name": name }, "value": value });
            PriorityClasses.validate(&object, &World::default().env(), &mut errors);
            errors.iter().map(|e| e.field.clone()).collect::<Vec<_>>()
        };
        assert!(texts("high", 1_000_000_000).is_empty());
        assert_eq!(texts("high", 1_000_000_001), ["value"]);
        assert!(texts("system-node-critical", 2_000_001_000).is_empty());
        assert_eq!(texts("system-mine", 1), ["metadata.name"]);
        let mut errors = Vec::new();
        PriorityClasses.validate_update(
            &json!({ "value": 1 }),
            &json!({ "value": 2 }),
            &World::default().env(),
            &mut errors,
        );
        assert_eq!(errors[0].to_string(), "value: Forbidden: may not be changed in an update.");
    }
}

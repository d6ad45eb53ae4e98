//! Priority classes.

use super::value::*;
use super::{Column, CreateStrategy, Env, ResourceFacts, TableConvertor, UpdateStrategy, rules, table};
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;

pub struct PriorityClasses;

/// Above are the classes of the system.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM: &[(&str, i64)] =
    &[("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

impl ResourceFacts for PriorityClasses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for PriorityClasses {
    fn defaults(&self, object: &mut Object) {
        default(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let value = i64_at(object, "value").unwrap_or(0);
        let name = name(object);
        if name.starts_with("system-") {
            if let Some(why) = no_system_class(name, value, bool_at(object, "globalDefault")) {
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                );
                errors.forbidden(&Path::root("metadata").field("name"), &detail);
            }
        } else if value > HIGHEST_USER_PRIORITY {
            let detail =
                format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            errors.forbidden(&Path::root("value"), &detail);
        }
        let policies = &["PreemptLowerPriority", "Never"];
        if has(object, "preemptionPolicy") {
            rules::one_of(object, "preemptionPolicy", policies, &Path::root(""), errors);
        }
    }
}

impl UpdateStrategy for PriorityClasses {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        if i64_at(new, "value").unwrap_or(0) != i64_at(old, "value").unwrap_or(0) {
            errors.forbidden(&Path::root("value"), "may not be changed in an update.");
        }
        rules::immutable(new, old, &["preemptionPolicy"], errors);
    }
}

impl TableConvertor for PriorityClasses {
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

crate::usual!(PriorityClasses: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// Why a class is none of the system's own.
fn no_system_class(name: &str, value: i64, global: bool) -> Option<String> {
    match SYSTEM.iter().find(|(known, _)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, own)) if *own != value => Some(format!("value of {name} PriorityClass must be {own}")),
        Some(_) if global => Some(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
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
        let known = |name, value, global| no_system_class(name, value, global).unwrap_or_default();
        assert_eq!(known("system-mine", 1, false), "system-mine is not a known system priority class");
        let node = "system-node-critical";
        assert_eq!(known(node, 1, false), format!("value of {node} PriorityClass must be 2000001000"));
        assert_eq!(
            known(node, 2_000_001_000, true),
            format!("globalDefault of {node} PriorityClass must be false")
        );
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

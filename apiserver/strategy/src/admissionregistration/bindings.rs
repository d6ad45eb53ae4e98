//! ValidatingAdmissionPolicyBindings and MutatingAdmissionPolicyBindings.

use super::*;
use crate::Facts;
use std::collections::BTreeSet;

pub struct PolicyBindings {
    pub mutating: bool,
}

const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];

impl ResourceFacts for PolicyBindings {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }
}

impl CreateStrategy for PolicyBindings {
    fn defaults(&self, object: &mut Object) {
        if let Some(resources) = at_mut(object, "spec.matchResources") {
            rules::default_match(resources, &["resourceRules", "excludeResourceRules"]);
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        match str_at(spec, "policyName") {
            "" => errors.required(&path.field("policyName"), ""),
            policy => super::super::rules::subdomain(policy, &path.field("policyName"), errors),
        }
        if has(spec, "paramRef") {
            rules::param_ref(at(spec, "paramRef"), &path.field("paramRef"), errors);
        }
        rules::match_resources(at(spec, "matchResources"), &path.field("matchResources"), errors);
        if self.mutating {
            rules::no_deletions(at(spec, "matchResources"), &path.field("matchResources"), errors);
        } else {
            actions(spec, &path.field("validationActions"), errors);
        }
    }
}

impl TableConvertor for PolicyBindings {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("PolicyName", "Policy that is bound"),
                table::string("ParamRef", "Parameters of the policy"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let reference = at(object, "spec.paramRef");
        let cell = match (str_at(reference, "namespace"), str_at(reference, "name")) {
            _ if reference.is_null() => "<unset>".to_owned(),
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        vec![
            name(object).into(),
            str_at(object, "spec.policyName").into(),
            cell.into(),
            table::age(object, now),
        ]
    }
}

crate::usual!(PolicyBindings: UpdateStrategy, StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn actions(spec: &Value, path: &Path, errors: &mut Errors) {
    let list = list_at(spec, "validationActions");
    let mut seen = BTreeSet::new();
    for (i, action) in strings_at(spec, "validationActions").enumerate() {
        if !ACTIONS.contains(&action) {
            errors.not_supported(&path.index(i), action, ACTIONS);
        }
        if !seen.insert(action) {
            errors.duplicate(&path.index(i), action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.invalid(path, list, detail);
    }
    if seen.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
}

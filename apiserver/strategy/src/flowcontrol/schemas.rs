//! FlowSchemas.

use super::super::value::*;
use super::super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, rules as common, table,
};
use super::defaults;
use super::rules;
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

pub struct FlowSchemas;

const DEFAULT_PRECEDENCE: i64 = 1000;
const LAST_PRECEDENCE: i64 = 10_000;

impl ResourceFacts for FlowSchemas {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for FlowSchemas {
    fn defaults(&self, object: &mut Object) {
        if let Some(spec) = at_mut(object, "spec") {
            default_number(spec, "matchingPrecedence", DEFAULT_PRECEDENCE);
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        let spec = &object["spec"];
        precedence(name(object), i64_at(spec, "matchingPrecedence").unwrap_or(0), &path, errors);
        if has(spec, "distinguisherMethod") {
            let kind = str_at(spec, "distinguisherMethod.type");
            if !matches!(kind, "ByUser" | "ByNamespace") {
                let here = path.field("distinguisherMethod").field("type");
                let shown = json!({ "Type": kind });
                errors.0.push(FieldError::not_supported(here, &shown, &["ByNamespace", "ByUser"]));
            }
        }
        let level = str_at(spec, "priorityLevelConfiguration.name");
        let here = path.field("priorityLevelConfiguration").field("name");
        if level.is_empty() {
            errors.required(&here, "must reference a priority level");
        } else {
            common::subdomain(level, &here, errors);
        }
        for (index, rule) in list_at(spec, "rules").iter().enumerate() {
            rules::policy(rule, &path.field("rules").index(index), errors);
        }
        mandatory(object, &path, errors);
        super::status(object, errors);
    }
}

impl StatusStrategy for FlowSchemas {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        super::status(new, &mut Errors(errors));
    }
}

impl TableConvertor for FlowSchemas {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("PriorityLevel", "Level that the schema's requests belong to"),
                table::string("MatchingPrecedence", "Schemas with a lower number are asked first"),
                table::string("DistinguisherMethod", "What makes flows of the requests"),
                table::AGE,
                table::string("MissingPL", "Whether the level does not exist"),
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let spec = &object["spec"];
        let conditions = list_at(object, "status.conditions");
        let dangling = conditions.iter().find(|c| str_at(c, "type") == "Dangling");
        vec![
            name(object).into(),
            str_at(spec, "priorityLevelConfiguration.name").into(),
            i64_at(spec, "matchingPrecedence").unwrap_or(0).into(),
            table::cell_or_none(str_at(spec, "distinguisherMethod.type")),
            table::age(object, now),
            dangling.map_or("?", |c| str_at(c, "status")).into(),
        ]
    }
}

crate::usual!(FlowSchemas: UpdateStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn mandatory(object: &Object, path: &Path, errors: &mut Errors) {
    let name = name(object);
    if !defaults::MANDATORY.contains(&name) {
        return;
    }
    let all = defaults::schemas();
    let fixed = all.iter().find(|schema| str_at(schema, "metadata.name") == name);
    if fixed.is_some_and(|fixed| fixed["spec"] != object["spec"]) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.invalid(path, object["spec"].clone(), &detail);
    }
}

fn precedence(name: &str, precedence: i64, path: &Path, errors: &mut Errors) {
    let path = path.field("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&path, precedence, "must be a positive value");
    }
    if precedence > LAST_PRECEDENCE {
        errors.invalid(&path, precedence, &format!("must not be greater than {LAST_PRECEDENCE}"));
    }
    if precedence == 1 && name != "exempt" {
        errors.invalid(&path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
}

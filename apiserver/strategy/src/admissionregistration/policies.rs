//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies.

use super::super::{conditions, rules as common};
use super::expressions::Expressions;
use super::*;
use crate::Facts;
use crate::expression::Declared;
use crate::expression::{json_patches, structure};
use coracle_cel::Type;
use std::collections::BTreeSet;

pub struct ValidatingPolicies;
pub struct MutatingPolicies;

/// Upstream's limits: audit annotations of a policy, bytes of one's expression.
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const AUDIT_EXPRESSION_MAX_BYTES: usize = 5 * 1024;
/// Ours: each compiled expression keeps the types of the variables before it, so many of them take memory by their square.
const VARIABLES_MAX: usize = 256;
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

fn defaults(object: &mut Object) {
    let Some(spec) = object_at(object, "spec") else { return };
    default_str(spec, "failurePolicy", "Fail");
    if let Some(constraints) = at_mut(spec, "matchConstraints") {
        rules::default_match(constraints, &["resourceRules", "excludeResourceRules"]);
    }
}

/// What upstream says of variables, which it checks otherwise for either kind.
#[derive(Clone, Copy)]
struct Words {
    no_name: &'static str,
    identifier: &'static str,
    no_expression: &'static str,
}

const VALIDATING: Words = Words {
    no_name: "name is not specified",
    identifier: "name is not a valid CEL identifier",
    no_expression: "expression is not specified",
};
const MUTATING: Words =
    Words { no_name: "", identifier: "must be a valid CEL identifier", no_expression: "" };

/// What both kinds have in common. Returns the environment of the policy's expressions.
fn spec(object: &Object, old: Option<&Object>, words: Words, errors: &mut Errors) -> Expressions {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    common::one_of(spec, "failurePolicy", rules::FAILURE_POLICIES, &path, errors);
    if has(spec, "paramKind") {
        rules::param_kind(at(spec, "paramKind"), &path.field("paramKind"), errors);
    }
    let here = path.field("matchConstraints");
    let constraints = at(spec, "matchConstraints");
    if constraints.is_null() {
        errors.required(&here, "");
    } else {
        rules::match_resources(constraints, &here, errors);
        if list_at(constraints, "resourceRules").is_empty() {
            errors.required(&here.field("resourceRules"), "");
        }
    }
    let unchanged = |field: &str| old.is_some_and(|old| at(&old["spec"], field) == at(spec, field));
    let mut expressions = Expressions::new(has(spec, "paramKind"));
    if !(unchanged("paramKind") && unchanged("matchConditions")) {
        let here = path.field("matchConditions");
        rules::match_conditions_with(list_at(spec, "matchConditions"), expressions.declared(), &here, errors);
    }
    let variables = list_at(spec, "variables");
    if variables.len() > VARIABLES_MAX {
        errors.0.push(FieldError::too_many(path.field("variables"), variables.len(), VARIABLES_MAX));
        return expressions;
    }
    for (i, variable) in variables.iter().enumerate() {
        let here = path.field("variables").index(i);
        let (name, expression) = (str_at(variable, "name"), str_at(variable, "expression"));
        if name.trim().is_empty() {
            errors.required(&here.field("name"), words.no_name);
        } else if !is_identifier(name) {
            errors.invalid(&here.field("name"), name, words.identifier);
        }
        if expression.trim().is_empty() {
            errors.required(&here.field("expression"), words.no_expression);
        } else {
            expressions.variable(name, expression, &here.field("expression"), errors);
        }
    }
    expressions
}

fn is_identifier(name: &str) -> bool {
    validation::c_identifier(name).is_empty() && !RESERVED.contains(&name)
}

fn validations(spec: &Value, expressions: &Expressions, path: &Path, errors: &mut Errors) {
    for (i, rule) in list_at(spec, "validations").iter().enumerate() {
        let here = path.field("validations").index(i);
        let expression = str_at(rule, "expression");
        if expression.trim().is_empty() {
            errors.required(&here.field("expression"), "expression is not specified");
        } else {
            expressions.check(
                expression,
                expressions.declared(),
                &[Type::Bool],
                &here.field("expression"),
                errors,
            );
        }
        let (text, at) = (str_at(rule, "messageExpression"), here.field("messageExpression"));
        if !text.is_empty() && text.trim().is_empty() {
            errors.invalid(&at, text, "must be non-empty if specified");
        } else if !text.is_empty() {
            let declared = Declared { authorizer: false, ..expressions.declared() };
            expressions.check(text, declared, &[Type::STRING], &at, errors);
        }
        let message = str_at(rule, "message");
        if !message.is_empty() && message.trim().is_empty() {
            errors.invalid(&here.field("message"), message, "message must be non-empty if specified");
        } else if message.trim().contains(['\n', '\r']) {
            errors.invalid(&here.field("message"), message, "message must not contain line breaks");
        }
        common::one_of_if_set(rule, "reason", REASONS, &here, errors);
    }
}

fn audit_annotations(object: &Object, expressions: &Expressions, path: &Path, errors: &mut Errors) {
    let list = list_at(&object["spec"], "auditAnnotations");
    if list.len() > AUDIT_ANNOTATIONS_MAX {
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(path, list, &detail);
    }
    let mut seen = BTreeSet::new();
    for (i, annotation) in list.iter().enumerate() {
        let (here, key) = (path.index(i), str_at(annotation, "key"));
        common::qualified_name(&format!("{}/{key}", name(object)), &here.field("key"), errors);
        let expression = str_at(annotation, "valueExpression").trim();
        if expression.is_empty() {
            errors.required(&here.field("valueExpression"), "valueExpression is not specified");
        } else if expression.len() > AUDIT_EXPRESSION_MAX_BYTES {
            let detail = format!("must not exceed {AUDIT_EXPRESSION_MAX_BYTES} bytes in length");
            errors.required(&here.field("valueExpression"), &detail);
        } else {
            let wanted = [Type::STRING, Type::Null];
            let here = here.field("valueExpression");
            expressions.check(expression, expressions.declared(), &wanted, &here, errors);
        }
        if !seen.insert(key) {
            errors.duplicate(&here.field("key"), key);
        }
    }
}

fn check_validating(object: &Object, old: Option<&Object>, errors: &mut Errors) {
    const EITHER: &str = "validations or auditAnnotations must contain at least one item";
    let expressions = spec(object, old, VALIDATING, errors);
    let path = Path::root("spec");
    let of = |field: &str| list_at(&object["spec"], field);
    if of("validations").is_empty() && of("auditAnnotations").is_empty() {
        errors.required(&path.field("validations"), EITHER);
        errors.required(&path.field("auditAnnotations"), EITHER);
    }
    validations(&object["spec"], &expressions, &path, errors);
    audit_annotations(object, &expressions, &path.field("auditAnnotations"), errors);
}

fn check_mutating(object: &Object, old: Option<&Object>, errors: &mut Errors) {
    let expressions = spec(object, old, MUTATING, errors);
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let constraints = at(spec, "matchConstraints");
    rules::no_deletions(constraints, &path.field("matchConstraints"), errors);
    let mutations = list_at(spec, "mutations");
    if mutations.is_empty() {
        errors.required(&path.field("mutations"), "mutations must contain at least one item");
    }
    for (i, mutation) in mutations.iter().enumerate() {
        let here = path.field("mutations").index(i);
        let kinds = &["ApplyConfiguration", "JSONPatch"];
        let (own, other) = match str_at(mutation, "patchType") {
            "" => {
                errors.required(&here.field("patchType"), "");
                continue;
            }
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
            "JSONPatch" => ("jsonPatch", "applyConfiguration"),
            unknown => {
                errors.not_supported(&here.field("patchType"), unknown, kinds);
                continue;
            }
        };
        let kind = str_at(mutation, "patchType");
        if has(mutation, other) {
            let detail = format!("must not be specified when patchType is {kind}");
            errors.invalid(&here.field(other), format!("{{{other}}}"), &detail);
        }
        if !has(mutation, own) {
            errors.required(&here.field(own), &format!("must be specified when patchType is {kind}"));
            continue;
        }
        let expression = str_at(at(mutation, own), "expression");
        let here = here.field(own).field("expression");
        if expression.trim().is_empty() {
            errors.required(&here, "");
        } else {
            let declared = Declared { patches: true, ..expressions.declared() };
            let wanted = if own == "jsonPatch" { json_patches() } else { structure("Object") };
            expressions.check(expression, declared, &[wanted], &here, errors);
        }
    }
    common::one_of(spec, "reinvocationPolicy", &["IfNeeded", "Never"], &path, errors);
}

impl ResourceFacts for ValidatingPolicies {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for ValidatingPolicies {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check_validating(object, None, &mut Errors(errors));
    }
}

impl UpdateStrategy for ValidatingPolicies {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check_validating(new, Some(old), &mut Errors(errors));
    }
}

impl StatusStrategy for ValidatingPolicies {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let status = Path::root("status");
        for (i, warning) in list_at(new, "status.typeChecking.expressionWarnings").iter().enumerate() {
            let here = status.field("typeChecking").field("expressionWarnings").index(i);
            for field in ["warning", "fieldRef"] {
                if str_at(warning, field).trim().is_empty() {
                    errors.required(&here.field(field), "");
                }
            }
        }
        conditions::check(list_at(new, "status.conditions"), &status.field("conditions"), errors);
    }
}

impl TableConvertor for ValidatingPolicies {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::integer("Validations", "Number of validations"),
                table::string("ParamKind", "Kind of the parameters"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let count = list_at(object, "spec.validations").len();
        vec![name(object).into(), count.into(), param_kind_cell(object), table::age(object, now)]
    }
}

crate::usual!(ValidatingPolicies: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

impl ResourceFacts for MutatingPolicies {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }
}

impl CreateStrategy for MutatingPolicies {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check_mutating(object, None, &mut Errors(errors));
    }
}

impl UpdateStrategy for MutatingPolicies {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        check_mutating(new, Some(old), &mut Errors(errors));
    }
}

impl TableConvertor for MutatingPolicies {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::integer("Mutations", "Number of mutations"),
                table::string("ParamKind", "Kind of the parameters"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let count = list_at(object, "spec.mutations").len();
        vec![name(object).into(), count.into(), param_kind_cell(object), table::age(object, now)]
    }
}

crate::usual!(MutatingPolicies: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// `apps/v1/Deployment`, `<unset>` where the policy has no parameters.
fn param_kind_cell(object: &Object) -> Value {
    let kind = at(object, "spec.paramKind");
    if kind.is_null() {
        return "<unset>".into();
    }
    format!("{}/{}", str_at(kind, "apiVersion"), str_at(kind, "kind")).into()
}

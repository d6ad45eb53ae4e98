//! What webhooks and policies match.

use super::super::rules::{label_selector, one_of_if_set, qualified_name};
use super::expressions::Expressions;
use super::*;
use crate::expression::Declared;
use coracle_cel::Type;
use std::collections::BTreeSet;

pub const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
pub const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
/// Upstream's number of match conditions for one hook or policy.
const MATCH_CONDITIONS_MAX: usize = 64;

/// Of a webhook, or of the match constraints of a policy.
pub fn default_match(holder: &mut Value, rules: &[&str]) {
    default_str(holder, "matchPolicy", "Equivalent");
    default(holder, "namespaceSelector", json!({}));
    default(holder, "objectSelector", json!({}));
    for list in rules {
        each_mut(holder, list).for_each(|rule| default_str(rule, "scope", "*"));
    }
}

pub fn selectors(holder: &Value, path: &Path, errors: &mut Errors) {
    for field in ["namespaceSelector", "objectSelector"] {
        label_selector(at(holder, field), &path.field(field), errors);
    }
}

/// `matchResources` of a binding or `matchConstraints` of a policy.
pub fn match_resources(resources: &Value, path: &Path, errors: &mut Errors) {
    one_of_if_set(resources, "matchPolicy", MATCH_POLICIES, path, errors);
    selectors(resources, path, errors);
    for list in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in list_at(resources, list).iter().enumerate() {
            let here = path.field(list).index(i);
            let mut seen = BTreeSet::new();
            for (j, name) in strings_at(rule, "resourceNames").enumerate() {
                let at = here.field("resourceNames").index(j);
                for message in validation::path_segment_name(name) {
                    errors.invalid(&at, name, &message);
                }
                if !seen.insert(name) {
                    errors.duplicate(&at, name);
                }
            }
            rule_with_operations(rule, &here, errors);
        }
    }
}

/// Operations that mutating policies may name.
const MUTABLE: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];

/// Of mutating policies and their bindings: what goes cannot be changed. The path is upstream's, without an index.
pub fn no_deletions(resources: &Value, path: &Path, errors: &mut Errors) {
    for rule in list_at(resources, "resourceRules") {
        for operation in strings_at(rule, "operations").filter(|o| !MUTABLE.contains(o)) {
            errors.not_supported(&path.field("resourceRules").field("operations"), operation, MUTABLE);
        }
    }
}

pub fn rule_with_operations(rule: &Value, path: &Path, errors: &mut Errors) {
    wildcard_list(rule, "operations", "operations", path, errors);
    for (i, operation) in strings_at(rule, "operations").enumerate() {
        if !OPERATIONS.contains(&operation) {
            errors.not_supported(&path.field("operations").index(i), operation, OPERATIONS);
        }
    }
    wildcard_list(rule, "apiGroups", "API groups", path, errors);
    wildcard_list(rule, "apiVersions", "API versions", path, errors);
    for (i, version) in strings_at(rule, "apiVersions").enumerate() {
        if version.is_empty() {
            errors.required(&path.field("apiVersions").index(i), "");
        }
    }
    resources(rule, &path.field("resources"), errors);
    one_of_if_set(rule, "scope", SCOPES, path, errors);
}

fn wildcard_list(rule: &Value, field: &str, plural: &str, path: &Path, errors: &mut Errors) {
    let list = list_at(rule, field);
    if list.is_empty() {
        errors.required(&path.field(field), "");
    }
    if list.len() > 1 && list.iter().any(|item| item == "*") {
        let detail = format!("if '*' is present, must not specify other {plural}");
        errors.invalid(&path.field(field), list, &detail);
    }
}

/// `x`, `x/y`, `x/*`, `*/y`, `*/*` and `*`, none of which may make another one needless.
fn resources(rule: &Value, path: &Path, errors: &mut Errors) {
    let list = list_at(rule, "resources");
    if list.is_empty() {
        errors.required(path, "");
    }
    let (mut all_of, mut on_all) = (BTreeSet::new(), BTreeSet::new());
    let mut plain = false;
    for (i, item) in strings_at(rule, "resources").enumerate() {
        let here = path.index(i);
        match item.split_once('/') {
            None if item.is_empty() => errors.required(&here, ""),
            None => plain = item != "*",
            Some((resource, sub)) => {
                if all_of.contains(resource) {
                    let detail = format!("if '{resource}/*' is present, must not specify {item}");
                    errors.invalid(&here, item, &detail);
                }
                if on_all.contains(sub) {
                    errors.invalid(&here, item, &format!("if '*/{sub}' is present, must not specify {item}"));
                }
                if sub == "*" {
                    all_of.insert(resource);
                }
                if resource == "*" {
                    on_all.insert(sub);
                }
            }
        }
    }
    let has = |wanted: &str| list.iter().any(|item| item == wanted);
    if list.len() > 1 && has("*/*") {
        errors.invalid(path, list, "if '*/*' is present, must not specify other resources");
    }
    if has("*") && plain {
        errors.invalid(
            path,
            list,
            "if '*' is present, must not specify other resources without subresources",
        );
    }
}

/// Of a webhook.
pub fn match_conditions(conditions: &[Value], path: &Path, errors: &mut Errors) {
    let declared = Declared { authorizer: true, ..Declared::default() };
    match_conditions_with(conditions, declared, path, errors);
}

/// Of a policy, whose conditions may name its parameters. Variables they may not name.
pub fn match_conditions_with(conditions: &[Value], declared: Declared, path: &Path, errors: &mut Errors) {
    let expressions = Expressions::with(declared);
    if conditions.len() > MATCH_CONDITIONS_MAX {
        errors.0.push(FieldError::too_many(path, conditions.len(), MATCH_CONDITIONS_MAX));
    }
    let mut seen = BTreeSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let here = path.index(i);
        match str_at(condition, "expression").trim() {
            "" => errors.required(&here.field("expression"), ""),
            source => expressions.check(source, declared, &[Type::Bool], &here.field("expression"), errors),
        }
        match str_at(condition, "name") {
            "" => errors.required(&here.field("name"), ""),
            name => {
                qualified_name(name, &here.field("name"), errors);
                if !seen.insert(name) {
                    errors.duplicate(&here.field("name"), name);
                }
            }
        }
    }
}

/// `spec.paramKind`.
pub fn param_kind(kind: &Value, path: &Path, errors: &mut Errors) {
    let here = path.field("apiVersion");
    let api_version = str_at(kind, "apiVersion");
    match api_version.matches('/').count() {
        _ if api_version.is_empty() => errors.required(&here, ""),
        0 | 1 => {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let joined = validation::dns1123_subdomain(group).join(",");
            if !group.is_empty() && !joined.is_empty() {
                errors.invalid(&here, group, &joined);
            }
            let joined = validation::dns1035_label(version).join(",");
            match version {
                "" => errors.invalid(&here, api_version, "version must be specified"),
                _ if !joined.is_empty() => errors.invalid(&here, version, &joined),
                _ => {}
            }
        }
        _ => {
            errors.invalid(&here, api_version, &format!("unexpected GroupVersion string: {api_version}"));
        }
    }
    let name = str_at(kind, "kind");
    let wrong = validation::dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(&path.field("kind"), "");
    } else if !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.invalid(&path.field("kind"), name, &detail);
    }
}

/// `spec.paramRef`.
pub fn param_ref(reference: &Value, path: &Path, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (str_at(reference, "name"), at(reference, "selector"));
    if !name.is_empty() {
        for message in validation::path_segment_name(name) {
            errors.invalid(&path.field("name"), name, &message);
        }
    }
    match (name.is_empty(), selector.is_null()) {
        (false, false) => {
            errors.forbidden(&path.field("name"), EXCLUSIVE);
            label_selector(selector, &path.field("selector"), errors);
            errors.forbidden(&path.field("selector"), EXCLUSIVE);
        }
        (true, true) => errors.required(path, "one of name or selector must be specified"),
        _ => label_selector(selector, &path.field("selector"), errors),
    }
    super::super::rules::one_of(reference, "parameterNotFoundAction", &["Deny", "Allow"], path, errors);
}

/// A hook's name or a policy's variable: at least three labels.
pub fn fully_qualified_name(name: &str, path: &Path, errors: &mut Errors) {
    let wrong = validation::dns1123_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !wrong.is_empty() {
        errors.invalid(path, name, &wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

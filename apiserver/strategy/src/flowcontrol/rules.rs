//! Rules of FlowSchemas: who, and what.

use super::super::rules;
use super::super::value::*;
use coracle_api::{FieldError, validation};
use serde_json::Value;

const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub fn policy(rule: &Value, path: &Path, errors: &mut Errors) {
    let subjects = list_at(rule, "subjects");
    if subjects.is_empty() {
        errors.required(&path.field("subjects"), "subjects must contain at least one value");
    }
    for (index, one) in subjects.iter().enumerate() {
        subject(one, &path.field("subjects").index(index), errors);
    }
    let (resources, urls) = (list_at(rule, "resourceRules"), list_at(rule, "nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for (index, one) in resources.iter().enumerate() {
        resource(one, &path.field("resourceRules").index(index), errors);
    }
    for (index, one) in urls.iter().enumerate() {
        non_resource(one, &path.field("nonResourceRules").index(index), errors);
    }
}

fn subject(subject: &Value, path: &Path, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = str_at(subject, "kind");
    if !KINDS.iter().any(|(known, _)| *known == kind) {
        return errors.not_supported(&path.field("kind"), kind, &["Group", "ServiceAccount", "User"]);
    }
    for (known, field) in KINDS {
        let here = path.field(field);
        if known != kind {
            if has(subject, field) {
                errors.forbidden(&here, &format!("{field} is forbidden when subject kind is not '{known}'"));
            }
        } else if !has(subject, field) {
            errors.required(&here, &format!("{field} is required when subject kind is '{known}'"));
        } else {
            named(at(subject, field), kind == "ServiceAccount", &here, errors);
        }
    }
}

fn named(subject: &Value, account: bool, path: &Path, errors: &mut Errors) {
    let name = str_at(subject, "name");
    if name.is_empty() {
        errors.required(&path.field("name"), "");
    } else if account && name != "*" {
        rules::subdomain(name, &path.field("name"), errors);
    }
    if account {
        match str_at(subject, "namespace") {
            "" => errors.required(&path.field("namespace"), "must specify namespace for service account"),
            namespace => rules::label(namespace, &path.field("namespace"), errors),
        }
    }
}

/// A list that holds something, and nothing beside `*`.
fn several(rule: &Value, field: &str, what: &str, empty: &str, path: &Path, errors: &mut Errors) -> bool {
    let values = list_at(rule, field);
    if values.is_empty() {
        errors.required(&path.field(field), empty);
        return false;
    }
    let all = values.iter().any(|v| v == "*");
    if all && values.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&path.field(field), at(rule, field).clone(), &detail);
    }
    !all
}

fn verbs(rule: &Value, path: &Path, errors: &mut Errors) {
    let empty = "verbs must contain at least one value";
    if several(rule, "verbs", "verbs", empty, path, errors)
        && strings_at(rule, "verbs").any(|verb| !VERBS.contains(&verb))
    {
        errors.0.push(FieldError::not_supported(path.field("verbs"), at(rule, "verbs"), &VERBS));
    }
}

fn resource(rule: &Value, path: &Path, errors: &mut Errors) {
    verbs(rule, path, errors);
    let groups = "resource rules must supply at least one api group";
    several(rule, "apiGroups", "api groups", groups, path, errors);
    let resources = "resource rules must supply at least one resource";
    several(rule, "resources", "resources", resources, path, errors);
    if bool_at(rule, "clusterScope") && list_at(rule, "namespaces").is_empty() {
        return;
    }
    let namespaces = "resource rules that are not cluster scoped must supply at least one namespace";
    if several(rule, "namespaces", "namespaces", namespaces, path, errors) {
        for (index, namespace) in strings_at(rule, "namespaces").enumerate() {
            let here = path.field("namespaces").index(index);
            for why in validation::dns1123_label(namespace) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                errors.invalid(&here, namespace, &detail);
            }
        }
    }
}

fn non_resource(rule: &Value, path: &Path, errors: &mut Errors) {
    verbs(rule, path, errors);
    let empty = "nonResourceURLs must contain at least one value";
    if several(rule, "nonResourceURLs", "non-resource URLs", empty, path, errors) {
        for (index, url) in strings_at(rule, "nonResourceURLs").enumerate() {
            if let Some(mistake) = url_mistake(url) {
                errors.invalid(&path.field("nonResourceURLs").index(index), url, mistake);
            }
        }
    }
}

fn url_mistake(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        return Some("must not be empty");
    }
    if !url.starts_with('/') {
        return Some("must start with slash");
    }
    if url.contains(' ') {
        return Some("must not contain white-space");
    }
    if url.contains("//") {
        return Some("must not contain double slash");
    }
    match url.matches('*').count() {
        0 => None,
        1 if url.ends_with("/*") => None,
        _ => Some("wildcard can only do suffix matching"),
    }
}

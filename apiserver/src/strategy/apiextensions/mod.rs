//! apiextensions.k8s.io/v1: CustomResourceDefinitions, kept and checked. Nothing serves their resources yet, so no
//! condition says that they are established.

mod names;
mod schema;
#[cfg(test)]
mod tests;
mod versions;

use super::admissionregistration::client_config;
use super::value::*;
use super::{Column, DEFAULT_COLUMNS, Env, Strategy, copy_field, rules};
use coracle_api::{FieldError, Object, validation};
use serde_json::{Value, json};

pub struct CustomResourceDefinitions;

/// Groups of the Kubernetes project, in which definitions need an annotation that points at their approval.
const PROTECTED: &[&str] = &[".k8s.io", ".kubernetes.io"];
const APPROVAL: &str = "api-approved.kubernetes.io";

/// The version that objects are kept in.
fn storage_version(object: &Object) -> &str {
    let versions = list_at(object, "spec.versions");
    versions.iter().find(|v| bool_at(v, "storage")).map_or("", |v| str_at(v, "name"))
}

/// Remembers that objects may have been kept in the version that is now the storage version.
fn remember_storage_version(object: &mut Object) {
    let version = storage_version(object).to_owned();
    let Some(status) = object_at(object, "status") else { return };
    default(status, "storedVersions", json!([]));
    let known = strings_at(status, "storedVersions").any(|v| v == version);
    if let Some(list) = status["storedVersions"].as_array_mut().filter(|_| !known && !version.is_empty()) {
        list.push(version.into());
    }
}

fn is_established(object: &Object) -> bool {
    list_at(object, "status.conditions").iter().any(|c| c["type"] == "Established" && c["status"] == "True")
}

impl Strategy for CustomResourceDefinitions {
    fn defaults(&self, object: &mut Object) {
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "conversion", json!({ "strategy": "None" }));
        if let Some(service) = at_mut(spec, "conversion.webhook.clientConfig.service") {
            default(service, "port", 443);
        }
        if let Some(names) = object_at(spec, "names") {
            let kind = str_at(names, "kind").to_owned();
            default_str(names, "singular", &kind.to_lowercase());
            default_str(names, "listKind", &format!("{kind}List"));
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "acceptedNames": { "plural": "", "kind": "" } }));
        remember_storage_version(object);
    }

    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
        remember_storage_version(new);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        let wanted = format!("{}.{}", str_at(spec, "names.plural"), str_at(spec, "group"));
        if name(object) != wanted {
            let here = Path::root("metadata").field("name");
            errors.invalid(&here, name(object), "must be spec.names.plural+\".\"+spec.group");
        }
        group(spec, &path, errors);
        if str_at(spec, "scope").is_empty() {
            errors.required(&path.field("scope"), "");
        } else {
            rules::one_of(spec, "scope", &["Cluster", "Namespaced"], &path, errors);
        }
        versions::check(spec, &path, errors);
        names::check(at(spec, "names"), &path.field("names"), errors);
        conversion(spec, &path.field("conversion"), errors);
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        if bool_at(object, "spec.preserveUnknownFields") {
            let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                          spec.versions[*].schema instead";
            errors.invalid(&Path::root("spec").field("preserveUnknownFields"), true, detail);
        }
        approval(object, errors);
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::immutable(new, old, &["spec.group", "spec.names.plural"], errors);
        if is_established(old) {
            rules::immutable(new, old, &["spec.scope", "spec.names.kind"], errors);
        }
        if bool_at(new, "spec.preserveUnknownFields") && !bool_at(old, "spec.preserveUnknownFields") {
            let detail = "must be false in order to use defaults in the schema";
            errors.invalid(&Path::root("spec").field("preserveUnknownFields"), true, detail);
        }
        stored_versions(new, errors);
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        stored_versions(new, errors);
        names::check_accepted(
            at(new, "status.acceptedNames"),
            &Path::root("status").field("acceptedNames"),
            errors,
        );
    }

    fn has_status(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        DEFAULT_COLUMNS
    }

    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        schema::warnings(&new["spec"])
    }
}

fn group(spec: &Value, path: &Path, errors: &mut Errors) {
    let (group, here) = (str_at(spec, "group"), path.field("group"));
    match group {
        "" => errors.required(&here, ""),
        _ if !validation::dns1123_subdomain(group).is_empty() => {
            errors.invalid(&here, group, &validation::dns1123_subdomain(group).join(","));
        }
        _ if !group.contains('.') => errors.invalid(&here, group, "should be a domain with at least one dot"),
        _ => {}
    }
}

fn approval(object: &Object, errors: &mut Errors) {
    let group = str_at(object, "spec.group");
    let protected =
        PROTECTED.iter().any(|suffix| group.ends_with(suffix) || group == suffix.trim_start_matches('.'));
    if !protected {
        return;
    }
    let path = Path::root("metadata").field("annotations").key(APPROVAL);
    let text = at(object, "metadata.annotations").get(APPROVAL).and_then(Value::as_str).unwrap_or_default();
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    if text.is_empty() {
        let detail = format!("protected groups must have approval annotation {APPROVAL:?}, {SEE}");
        errors.required(&path, &detail);
    } else if !text.starts_with("unapproved") && text.parse::<::http::Uri>().is_ok_and(|u| u.host().is_none())
    {
        let detail = format!(
            "protected groups must have approval annotation {APPROVAL:?} with either a URL or a reason starting \
                     with \"unapproved\", {SEE}"
        );
        errors.invalid(&path, text, &detail);
    }
}

fn conversion(spec: &Value, path: &Path, errors: &mut Errors) {
    let conversion = at(spec, "conversion");
    rules::one_of(conversion, "strategy", &["None", "Webhook"], path, errors);
    let webhook = at(conversion, "webhook");
    let is_webhook = str_at(conversion, "strategy") == "Webhook";
    if !is_webhook {
        if !webhook.is_null() {
            let detail = "should not be set when strategy is not set to Webhook";
            errors.forbidden(&path.field("webhook"), detail);
        }
        return;
    }
    if bool_at(spec, "preserveUnknownFields") {
        errors.invalid(
            &path.field("strategy"),
            "Webhook",
            "must be None if spec.preserveUnknownFields is true",
        );
    }
    let here = path.field("webhookClientConfig");
    if !has(webhook, "clientConfig") {
        errors.required(&here, "required when strategy is set to Webhook");
    } else {
        client_config(at(webhook, "clientConfig"), &here, errors);
    }
    review_versions(webhook, &path.field("conversionReviewVersions"), errors);
}

fn review_versions(webhook: &Value, path: &Path, errors: &mut Errors) {
    const ACCEPTED: [&str; 2] = ["v1", "v1beta1"];
    let list = list_at(webhook, "conversionReviewVersions");
    if list.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    for (i, version) in strings_at(webhook, "conversionReviewVersions").enumerate() {
        if !seen.insert(version) {
            errors.invalid(&path.index(i), version, "duplicate version");
            continue;
        }
        for message in validation::dns1035_label(version) {
            errors.invalid(&path.index(i), version, &message);
        }
    }
    if !ACCEPTED.iter().any(|v| seen.contains(v)) {
        errors.invalid(path, list, &format!("must include at least one of {}", ACCEPTED.join(", ")));
    }
}

/// Versions in which objects may be kept must go on existing.
fn stored_versions(object: &Object, errors: &mut Errors) {
    let path = Path::root("status").field("storedVersions");
    let served: Vec<&str> = list_at(object, "spec.versions").iter().map(|v| str_at(v, "name")).collect();
    let stored: Vec<&str> = strings_at(object, "status.storedVersions").collect();
    for (i, version) in stored.iter().enumerate() {
        if !served.contains(version) {
            errors.invalid(&path.index(i), *version, "missing from spec.versions");
        }
    }
    let storage = storage_version(object);
    if !storage.is_empty() && !stored.contains(&storage) {
        let detail = format!("must have the storage version {storage}");
        errors.invalid(&path, json!(stored), &detail);
    }
}

//! apiextensions.k8s.io/v1: CustomResourceDefinitions, kept and checked. A controller keeps their status.
//!
//! Messages name fields as upstream's internal form has them: what all versions have alike stands at the top of the spec
//! there (`spec.validation`), and so it is reported.

mod approval;
pub mod conditions;
mod conversion;
mod deletion;
mod names;
mod schema;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
mod versions;

use super::admissionregistration::client_config;
use super::value::*;
use super::{
    Column, CreateStrategy, DEFAULT_COLUMNS, DeleteStrategy, Env, ResourceFacts, StatusStrategy,
    TableConvertor, UpdateStrategy, copy_field, rules,
};
use crate::Facts;
use coracle_api::meta::NameRule;
use coracle_api::{FieldError, Object, validation};
use serde_json::{Value, json};

pub struct CustomResourceDefinitions;

pub use approval::Approval;
pub use deletion::{DEFINITIONS, FINALIZER};
pub use schema::non_structural;

/// The version that objects are kept in.
fn storage_version(object: &Object) -> &str {
    let versions = list_at(object, "spec.versions");
    versions.iter().find(|v| bool_at(v, "storage")).map_or("", |v| str_at(v, "name"))
}

/// Remembers that objects may have been kept in the version that is now the storage version.
fn remember_storage_version(object: &mut Object) {
    let version = storage_version(object).to_owned();
    let Some(status) = object_at(object, "status").filter(|_| !version.is_empty()) else { return };
    default(status, "storedVersions", json!([]));
    let known = strings_at(status, "storedVersions").any(|v| v == version);
    if let Some(list) = status["storedVersions"].as_array_mut().filter(|_| !known) {
        list.push(version.into());
    }
}

fn is_established(object: &Object) -> bool {
    list_at(object, "status.conditions").iter().any(|c| c["type"] == "Established" && c["status"] == "True")
}

impl ResourceFacts for CustomResourceDefinitions {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for CustomResourceDefinitions {
    fn name_rule(&self) -> NameRule {
        NameRule::PluralAndGroup
    }

    fn defaults(&self, object: &mut Object) {
        let Some(spec) = object_at(object, "spec") else { return };
        default(spec, "conversion", json!({ "strategy": "None" }));
        if let Some(service) = at_mut(spec, "conversion.webhook.clientConfig.service") {
            default(service, "port", 443);
        }
        if let Some(names) = object_at(spec, "names") {
            let kind = str_at(names, "kind").to_owned();
            default_str(names, "singular", &kind.to_lowercase());
            if !kind.is_empty() {
                default_str(names, "listKind", &format!("{kind}List"));
            }
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({ "acceptedNames": { "plural": "", "kind": "" } }));
        remember_storage_version(object);
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        check(object, None, errors);
        if bool_at(object, "spec.preserveUnknownFields") {
            let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                          spec.versions[*].schema instead";
            errors.invalid(&Path::root("spec").field("preserveUnknownFields"), true, detail);
        }
    }

    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        schema::warnings(&new["spec"])
    }
}

impl UpdateStrategy for CustomResourceDefinitions {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
        remember_storage_version(new);
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        check(new, Some(old), errors);
        if is_established(old) {
            rules::immutable(new, old, &["spec.scope", "spec.names.kind"], errors);
        }
        rules::immutable(new, old, &["spec.group", "spec.names.plural"], errors);
        if bool_at(new, "spec.preserveUnknownFields") && !bool_at(old, "spec.preserveUnknownFields") {
            let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                          spec.versions[*].schema instead";
            errors.invalid(&Path::root("spec").field("preserveUnknownFields"), true, detail);
        }
    }
}

impl StatusStrategy for CustomResourceDefinitions {
    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        stored_versions(new, errors);
        names::check_accepted(
            at(new, "status.acceptedNames"),
            &Path::root("status").field("acceptedNames"),
            errors,
        );
    }
}

impl DeleteStrategy for CustomResourceDefinitions {
    fn begin_delete(&self, object: &mut Object, env: &Env) {
        deletion::begin_delete(object, env.now);
    }
}

impl TableConvertor for CustomResourceDefinitions {
    fn columns(&self) -> &'static [Column] {
        DEFAULT_COLUMNS
    }
}

crate::usual!(CustomResourceDefinitions: TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// All that holds for a definition, new or (with what it was) updated.
fn check(object: &Object, old: Option<&Object>, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    group(spec, &path, errors);
    rules::one_of(spec, "scope", &["Cluster", "Namespaced"], &path, errors);
    versions::check(spec, old.map(|old| &old["spec"]), &path, errors);
    names::check(at(spec, "names"), &path.field("names"), errors);
    conversion::check(object, old, errors);
    names::check_accepted(
        at(object, "status.acceptedNames"),
        &Path::root("status").field("acceptedNames"),
        errors,
    );
    stored_versions(object, errors);
    approval::check(object, old, errors);
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

/// Versions in which objects may be kept must go on existing, and the one that they are kept in now must be named.
fn stored_versions(object: &Object, errors: &mut Errors) {
    let path = Path::root("status").field("storedVersions");
    let known: Vec<&str> = list_at(object, "spec.versions").iter().map(|v| str_at(v, "name")).collect();
    let stored: Vec<&str> = strings_at(object, "status.storedVersions").collect();
    if stored.is_empty() {
        let shown = at(object, "status.storedVersions").clone();
        errors.invalid(&path, shown, "must have at least one stored version");
        return;
    }
    let storage = storage_version(object);
    if !storage.is_empty() && !stored.contains(&storage) {
        let detail = format!("must have the storage version {storage}");
        errors.invalid(&path, json!(stored), &detail);
    }
    for (i, version) in stored.iter().enumerate().filter(|(_, version)| !known.contains(version)) {
        let detail = format!(
            "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {version} and removes {version} from \
             status.storedVersions"
        );
        errors.invalid(&path.index(i), *version, &detail);
    }
}

//! certificates.k8s.io/v1: CertificateSigningRequests.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>

mod conditions;
mod issued;
mod table;
#[cfg(test)]
mod tests;
mod validate;

use super::value::*;
use super::{
    Column, CreateStrategy, Env, Issued, ResourceFacts, SelectableFields, StatusStrategy, TableConvertor,
    UpdateStrategy, copy_field,
};
use crate::{Facts, FieldLabels};
use coracle_api::meta::NameRule;
use coracle_api::{FieldError, Object, UserInfo};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use validate::Allowed;

pub struct CertificateSigningRequests;

impl ResourceFacts for CertificateSigningRequests {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for CertificateSigningRequests {
    fn name_rule(&self) -> NameRule {
        NameRule::Any
    }

    /// Who asks is what the server knows of them, whatever the request says; nobody brings an approval along.
    fn prepare_create(&self, object: &mut Object, env: &Env) {
        if let Some(spec) = object_at(object, "spec") {
            requester(spec, env.user);
        }
        set(object, "status", Map::new());
        remove(object, "metadata.generation");
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        validate::request(object, &Allowed::default(), &mut Errors(errors));
        validate::signature(object, &mut Errors(errors));
    }
}

impl UpdateStrategy for CertificateSigningRequests {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "spec");
        copy_field(new, old, "status");
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        validate::update(new, old, Allowed::as_in(old), &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for CertificateSigningRequests {
    /// Approval is not a matter of the status, so its conditions stay what they are.
    fn prepare_status_update(&self, new: &mut Object, old: &Object, env: &Env) {
        copy_field(new, old, "spec");
        for kind in conditions::APPROVAL {
            conditions::keep(new, old, kind);
        }
        conditions::stamp(new, old, env.now);
    }

    fn issued(&self, new: &Object, old: &Object) -> Option<Issued> {
        issued::issued(new, old)
    }

    fn prepare_approval_update(&self, new: &mut Object, old: &Object, env: &Env) {
        copy_field(new, old, "spec");
        let wanted = remove(new, "status.conditions");
        copy_field(new, old, "status");
        if let Some(status) = object_at(new, "status") {
            remove(status, "conditions");
            if let Some(wanted) = wanted {
                set(status, "conditions", wanted);
            }
        }
        conditions::stamp(new, old, env.now);
    }

    fn validate_status_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let allowed = Allowed { certificate: true, ..Allowed::as_in(old) };
        validate::update(new, old, allowed, &mut Errors(errors));
    }

    fn validate_approval_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let allowed = Allowed { approval: true, ..Allowed::as_in(old) };
        validate::update(new, old, allowed, &mut Errors(errors));
    }
}

impl TableConvertor for CertificateSigningRequests {
    fn columns(&self) -> &'static [Column] {
        table::COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        table::row(object, now)
    }
}

impl SelectableFields for CertificateSigningRequests {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["spec.signerName"], ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("spec.signerName", str_at(object, "spec.signerName").to_owned())]
    }
}

crate::usual!(CertificateSigningRequests: DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);

fn requester(spec: &mut Value, user: &UserInfo) {
    for field in ["username", "uid", "groups", "extra"] {
        remove(spec, field);
    }
    if !user.name.is_empty() {
        set(spec, "username", user.name.as_str());
    }
    if !user.uid.is_empty() {
        set(spec, "uid", user.uid.as_str());
    }
    if !user.groups.is_empty() {
        set(spec, "groups", json!(user.groups));
    }
    if !user.extra.is_empty() {
        set(spec, "extra", json!(user.extra));
    }
}

//! What asks for more than the right to write an object: roles and bindings by which their writer would grant more than they
//! have ([`escalation`]), policies that read for them what they may not ([`params`]), and parts of claims that are others'
//! ([`devices`]).

use super::{Attributes, Operation, Request};
use coracle_access::authz::{devices, escalation, params};
use coracle_api::{ApiError, FieldError, Object};

/// Of a valid object. Without an authorizer everything is allowed.
///
/// # Errors
/// The refusal, in the form that it has for this resource.
pub(super) fn check(
    attributes: &Attributes<'_>,
    request: &Request,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    let (Some(authorizer), Some(object)) = (request.authorizer, object) else { return Ok(()) };
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    let errors = match (request.group, request.resource, request.subresource) {
        ("rbac.authorization.k8s.io", plural, _) => {
            return escalation::check(plural, object, old, request.user, authorizer, request.read);
        }
        ("admissionregistration.k8s.io", plural, "") => {
            let asked = params::ReferenceCheck { user: request.user, authorizer, read: request.read };
            params::check(plural, object, old, asked).err().into_iter().collect()
        }
        _ => old.map(|old| of_parts(attributes, request, object, old)).unwrap_or_default(),
    };
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(request.group, &attributes.resource.kind, attributes.name, &errors)),
    }
}

/// Of an object that need not be valid: what is told together with its mistakes.
pub(super) fn of_parts(
    attributes: &Attributes<'_>,
    request: &Request,
    new: &Object,
    old: &Object,
) -> Vec<FieldError> {
    let Some(authorizer) = request.authorizer else { return Vec::new() };
    match (request.group, request.resource, request.subresource) {
        ("resource.k8s.io", "resourceclaims", "status") => {
            let verb = if attributes.asked.is_patch() { "patch" } else { "update" };
            devices::check(new, old, request.user, verb, authorizer)
        }
        _ => Vec::new(),
    }
}

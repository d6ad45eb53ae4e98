//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>
//! <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>
//!
//! Policies are compiled when a write first needs them and kept until a policy or binding changes, so that a policy
//! counts from the moment its write is acknowledged, and a server without policies compares four numbers for each write.

mod compiled;
mod mutating;
mod params;
mod patch;
mod set;
mod status;
pub mod typecheck;
mod validating;
mod validator;

pub use mutating::MutatingPolicies;
pub use status::maintain;
pub use validating::ValidatingPolicies;

/// Upstream's names of the two steps.
pub const MUTATING: &str = "MutatingAdmissionPolicy";
pub const VALIDATING: &str = "ValidatingAdmissionPolicy";

use super::{Attributes, Write, kind_of};
use coracle_api::{ApiError, Object, Resource};
use coracle_strategy::expression::{Asker, RequestFacts, namespace_object};
use serde_json::Value;

/// Who is asked when an expression names `authorizer`; the expression must be evaluated within [`Write::settle`].
pub(super) fn asker(write: &Write<'_>) -> Option<Asker> {
    let attributes = write.attributes;
    let resource = [&*attributes.resource.group, &*attributes.resource.plural, attributes.subresource];
    let authorizer = write.asking?.clone();
    Some(Asker::new(authorizer, attributes.user, resource, attributes.namespace, attributes.name))
}

/// `namespaceObject`: of the request's namespace; a Namespace itself has none.
fn namespace(write: &Write<'_>) -> Result<Option<Object>, ApiError> {
    let attributes = write.attributes;
    if attributes.namespace.is_empty() || attributes.is_namespace() {
        return Ok(None);
    }
    let found = write.read.get("namespaces.", "", attributes.namespace);
    let found = found.ok_or_else(|| ApiError::not_found("", "namespaces", attributes.namespace))?;
    Ok(Some(namespace_object(&found)))
}

/// The variable `request` for a policy whose rules matched `matched`.
pub(super) fn request_of(attributes: &Attributes<'_>, matched: &Resource) -> Value {
    let asked = attributes.resource;
    RequestFacts {
        kind: kind_of(matched, attributes.subresource),
        resource: [&matched.group, &matched.version, &matched.plural],
        request_kind: attributes.kind(),
        request_resource: [&asked.group, &asked.version, &asked.plural],
        subresource: attributes.subresource,
        name: attributes.name,
        namespace: attributes.reviewed_namespace(),
        operation: attributes.operation,
        user: attributes.user,
        dry_run: attributes.dry_run,
        options: Some(&attributes.asked.to_value(attributes.operation)),
    }
    .to_json()
}

/// The name that upstream puts into a refusal: before a name is generated, what it is generated from.
fn shown_name<'a>(attributes: &'a Attributes<'_>, object: Option<&'a Object>) -> &'a str {
    let text = |field: &str| object.and_then(|object| object["metadata"][field].as_str()).unwrap_or_default();
    let names = [attributes.name, text("name"), text("generateName")];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

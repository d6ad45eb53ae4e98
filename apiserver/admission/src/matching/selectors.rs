//! `namespaceSelector` and `objectSelector`.

use crate::{Attributes, Operation};
use coracle_api::{ApiError, LabelSelector, Object};
use coracle_requests::ObjectReader;

/// Cluster-scoped requests are never exempted by their namespace, but for those about a Namespace itself. One that is
/// created or updated is judged by the labels that it is to have.
pub(super) fn namespace(
    selector: &LabelSelector,
    attributes: &Attributes<'_>,
    object: Option<&Object>,
    read: &dyn ObjectReader,
) -> Result<bool, ApiError> {
    let about_namespaces = attributes.is_namespace();
    if selector.is_everything() || (attributes.namespace.is_empty() && !about_namespaces) {
        return Ok(true);
    }
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if about_namespaces
        && attributes.subresource.is_empty()
        && writes
        && let Some(object) = object
    {
        return Ok(selector.matches_object(object));
    }
    let name = attributes.reviewed_namespace();
    match read.get("namespaces.", "", name) {
        Some(namespace) => Ok(selector.matches_object(&namespace)),
        None => Err(ApiError::not_found("", "namespaces", name)),
    }
}

/// Either of the two may have the labels.
pub(super) fn objects(selector: &LabelSelector, object: Option<&Object>, old: Option<&Object>) -> bool {
    let selects = |object: &Object| object.get("metadata").is_some() && selector.matches_object(object);
    selector.is_everything() || object.is_some_and(selects) || old.is_some_and(selects)
}

//! The APIs that answer questions instead of storing objects: access reviews, token reviews, tokens.
//!
//! Each function takes the decoded object of the request and returns the one for the response (201). The kinds:
//! <https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/> and
//! <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/>.

mod access_review;
mod authentication;
mod node_audience;
mod rules_review;
mod selectors;
mod token_request;

#[cfg(test)]
mod tests;

pub use access_review::{local_subject_access_review, self_subject_access_review, subject_access_review};
pub use authentication::{self_subject_review, token_review};
pub use rules_review::self_subject_rules_review;
pub use token_request::{Granted, TokenContext, token_request};

use coracle_api::{ApiError, FieldError, Object};
use serde_json::Value;

/// Reads a text field that may be absent.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The namespace of a request's body is the path's, if it names one at all.
fn take_namespace(object: &mut Object, namespace: &str) -> Result<(), ApiError> {
    let sent = text(&object["metadata"], "namespace");
    if !sent.is_empty() && sent != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    coracle_api::meta::metadata_mut(object).insert("namespace".into(), namespace.into());
    Ok(())
}

/// Reviews are stored nowhere, so they have no names, labels or owners.
fn empty_metadata(object: &Object, namespaced: bool, errors: &mut Vec<FieldError>) {
    let Some(metadata) = object["metadata"].as_object() else { return };
    let own = |key: &str| {
        key == "managedFields" || key == "creationTimestamp" || (namespaced && key == "namespace")
    };
    let empty = |v: &Value| {
        v.is_null()
            || v == ""
            || v.as_object().is_some_and(|m| m.is_empty())
            || v.as_array().is_some_and(|l| l.is_empty())
    };
    if metadata.iter().any(|(key, value)| !own(key) && !empty(value)) {
        let why = if namespaced { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", &object["metadata"], why));
    }
}

fn invalid(object: &Object, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let group = text(object, "apiVersion").split_once('/').map(|(group, _)| group).unwrap_or_default();
    Err(ApiError::invalid(group, text(object, "kind"), text(&object["metadata"], "name"), &errors))
}

//! SelfSubjectAccessReview, SubjectAccessReview, LocalSubjectAccessReview: may somebody do something?

use super::selectors::{ReviewSelectors, check as check_selectors};
use super::{empty_metadata, invalid, strings, text};
use crate::authz::{Attributes, Authorizer, Decision, Verdict};
use coracle_api::{ApiError, FieldError, Object, UserInfo};
use serde_json::{Value, json};

/// What `kubectl auth can-i` asks.
pub fn self_subject_access_review(
    review: Object,
    user: &UserInfo,
    authorizer: &dyn Authorizer,
) -> Result<Object, ApiError> {
    let mut errors = Vec::new();
    attributes(&review["spec"], &mut errors);
    empty_metadata(&review, false, &mut errors);
    invalid(&review, errors)?;
    Ok(answered(review, user, authorizer))
}

/// Asked by components that authorize their own requests through the API, such as the kubelet.
pub fn subject_access_review(review: Object, authorizer: &dyn Authorizer) -> Result<Object, ApiError> {
    let mut errors = Vec::new();
    attributes(&review["spec"], &mut errors);
    needs_subject(&review["spec"], &mut errors);
    empty_metadata(&review, false, &mut errors);
    invalid(&review, errors)?;
    let user = subject(&review["spec"]);
    Ok(answered(review, &user, authorizer))
}

/// The same for one namespace, which the path names too.
pub fn local_subject_access_review(
    review: Object,
    namespace: &str,
    authorizer: &dyn Authorizer,
) -> Result<Object, ApiError> {
    let mut review = review;
    super::take_namespace(&mut review, namespace)?;
    let spec = &review["spec"];
    let mut errors = Vec::new();
    attributes(spec, &mut errors);
    needs_subject(spec, &mut errors);
    empty_metadata(&review, true, &mut errors);
    let asked = text(&spec["resourceAttributes"], "namespace");
    if spec["resourceAttributes"].is_object() && asked != namespace {
        let field = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(field, &asked.into(), "must match metadata.namespace"));
    }
    if spec["nonResourceAttributes"].is_object() {
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", &spec["nonResourceAttributes"], why));
    }
    invalid(&review, errors)?;
    let user = subject(&review["spec"]);
    Ok(answered(review, &user, authorizer))
}

fn attributes(spec: &Value, errors: &mut Vec<FieldError>) {
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_object(), other.is_object()) {
        (true, true) => {
            let why = "cannot be specified in combination with resourceAttributes";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", other, why));
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, why));
        }
        _ => {}
    }
    if resource.is_object() {
        check_selectors(resource, errors);
    }
}

fn needs_subject(spec: &Value, errors: &mut Vec<FieldError>) {
    if text(spec, "user").is_empty() && strings(&spec["groups"]).is_empty() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &text(spec, "user").into(), why));
    }
}

fn subject(spec: &Value) -> UserInfo {
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: strings(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.to_lowercase(), strings(values))).collect(),
    }
}

fn answered(review: Object, user: &UserInfo, authorizer: &dyn Authorizer) -> Object {
    let spec = &review["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let selectors = ReviewSelectors::of(resource);
    let attributes = if resource.is_object() {
        let version = Some(text(resource, "version")).filter(|v| !v.is_empty()).unwrap_or("*");
        Attributes {
            version,
            subresource: text(resource, "subresource"),
            name: text(resource, "name"),
            field_selector: &selectors.field,
            label_selector: &selectors.label,
            ..Attributes::resource(
                user,
                text(resource, "verb"),
                text(resource, "group"),
                text(resource, "resource"),
                text(resource, "namespace"),
            )
        }
    } else {
        Attributes::path(user, text(other, "verb"), text(other, "path"))
    };
    let Verdict { decision, error } = authorizer.judge(&attributes);
    let (mut status, reason) = match decision {
        Decision::Allow(reason) => (json!({ "allowed": true }), reason),
        Decision::Deny(reason) => (json!({ "allowed": false, "denied": true }), reason),
        Decision::NoOpinion(reason) => (json!({ "allowed": false }), reason),
    };
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    let errors: Vec<String> = error.into_iter().chain(selectors.errors.iter().cloned()).collect();
    match errors.as_slice() {
        [] => {}
        [one] => status["evaluationError"] = one.as_str().into(),
        many => status["evaluationError"] = format!("[{}]", many.join(", ")).into(),
    }
    let mut review = review;
    review["status"] = status;
    review
}

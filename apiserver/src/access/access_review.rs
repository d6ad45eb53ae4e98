//! SelfSubjectAccessReview, SubjectAccessReview, LocalSubjectAccessReview: may somebody do something?

use super::{invalid, strings, text};
use crate::authz::{Attributes, Authorizer, Decision};
use coracle_api::{ApiError, FieldError, Object, UserInfo};
use serde_json::{Value, json};

/// What `kubectl auth can-i` asks.
pub fn self_subject_access_review(
    review: Object,
    user: &UserInfo,
    authorizer: &dyn Authorizer,
) -> Result<Object, ApiError> {
    let mut errors = Vec::new();
    one_kind(&review["spec"], &mut errors);
    invalid(&review, errors)?;
    Ok(answered(review, user, authorizer))
}

/// Asked by components that authorize their own requests through the API, such as the kubelet.
pub fn subject_access_review(review: Object, authorizer: &dyn Authorizer) -> Result<Object, ApiError> {
    let spec = &review["spec"];
    let mut errors = Vec::new();
    one_kind(spec, &mut errors);
    needs_subject(spec, &mut errors);
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
    let spec = &review["spec"];
    let mut errors = Vec::new();
    one_kind(spec, &mut errors);
    needs_subject(spec, &mut errors);
    let asked = &spec["resourceAttributes"]["namespace"];
    if spec["nonResourceAttributes"].is_object() {
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", &spec["nonResourceAttributes"], why));
    } else if asked != namespace {
        let field = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(field, asked, "must match metadata.namespace"));
    }
    invalid(&review, errors)?;
    let user = subject(&review["spec"]);
    Ok(answered(review, &user, authorizer))
}

fn one_kind(spec: &Value, errors: &mut Vec<FieldError>) {
    let why = match (spec["resourceAttributes"].is_object(), spec["nonResourceAttributes"].is_object()) {
        (true, true) => "cannot be specified in combination with resourceAttributes",
        (false, false) => "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        _ => return,
    };
    let field =
        if spec["resourceAttributes"].is_object() { "nonResourceAttributes" } else { "resourceAttributes" };
    errors.push(FieldError::invalid(format!("spec.{field}"), &spec[field], why));
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

/// The selector as a query would carry it, of which the authorizers read only equalities.
fn field_selector(resource: &Value) -> String {
    let selector = &resource["fieldSelector"];
    if let Some(raw) = selector["rawSelector"].as_str() {
        return raw.to_owned();
    }
    let terms = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
    let equal = terms.iter().filter(|t| t["operator"] == "In" && strings(&t["values"]).len() == 1);
    let equal: Vec<String> =
        equal.map(|t| format!("{}={}", text(t, "key"), strings(&t["values"])[0])).collect();
    equal.join(",")
}

fn answered(review: Object, user: &UserInfo, authorizer: &dyn Authorizer) -> Object {
    let spec = &review["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let selector = field_selector(resource);
    let attributes = if resource.is_object() {
        Attributes {
            version: text(resource, "version"),
            subresource: text(resource, "subresource"),
            name: text(resource, "name"),
            field_selector: &selector,
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
    let mut status = match authorizer.authorize(&attributes) {
        Decision::Allow(reason) => json!({ "allowed": true, "reason": reason }),
        Decision::Deny(reason) => json!({ "allowed": false, "denied": true, "reason": reason }),
        Decision::NoOpinion(reason) => json!({ "allowed": false, "reason": reason }),
    };
    if status["reason"] == ""
        && let Some(fields) = status.as_object_mut()
    {
        fields.remove("reason");
    }
    let mut review = review;
    review["status"] = status;
    review
}

//! The errors of the API, in upstream's kinds and words.
//!
//! An [`ApiError`] is what a client reads as a `Status` of failure. Constructors mirror upstream's
//! `k8s.io/apimachinery/pkg/api/errors`.

use serde_json::{Value, json};
use std::fmt;

/// One mistake in one field, as upstream's `field.Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `FieldValueRequired`, `FieldValueInvalid`, `FieldValueNotSupported`, `FieldValueForbidden`,
    /// `FieldValueDuplicate`, `FieldValueNotFound`, `FieldValueTooLong`, `FieldValueTooMany`, `FieldValueTypeInvalid`
    pub reason: &'static str,
    /// Path such as `spec.containers[0].name`.
    pub field: String,
    /// The whole detail after the path, for example `Invalid value: "x": must be ...`.
    pub detail: String,
    /// `None` for what nobody forgives.
    pub origin: Option<Origin>,
}

/// The check that found a mistake which an update forgives where the old object has it too. Whoever forgives goes by this,
/// never by a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This address is wrong only in how it is written.
    AddressForm(String),
    /// An init container would be restarted by a resize.
    InitContainerRestart,
    /// A kernel setting of a namespace that the pod shares with its host.
    SharedSysctl,
    /// The way in which volumes get their SELinux labels.
    VolumeLabelling,
}

/// A value as upstream's errors show it: structures and lists in the JSON of Go, which has no bare `<`, `>` and `&`.
pub fn shown(value: &Value) -> String {
    let text = value.to_string();
    if !value.is_object() && !value.is_array() || !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

impl FieldError {
    fn new(reason: &'static str, field: impl Into<String>, detail: String) -> Self {
        Self { reason, field: field.into(), detail, origin: None }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let detail =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self::new("FieldValueRequired", field, detail)
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::invalid_as(field, &shown(value), detail)
    }

    /// As [`invalid`](Self::invalid), of a value that upstream prints otherwise than a client wrote it; `shown` is how.
    pub fn invalid_as(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        let colon = if detail.is_empty() { "" } else { ": " };
        Self::new("FieldValueInvalid", field, format!("Invalid value: {shown}{colon}{detail}"))
    }

    /// Of a value that says nothing: the path alone is at fault.
    pub fn invalid_unshown(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {detail}"))
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        Self::not_supported_as(field, &shown(value), supported)
    }

    /// As [`not_supported`](Self::not_supported), with the value as upstream prints it.
    pub fn not_supported_as(field: impl Into<String>, shown: &str, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let detail = format!("Unsupported value: {shown}: supported values: {}", list.join(", "));
        Self::new("FieldValueNotSupported", field, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::duplicate_as(field, &shown(value))
    }

    /// As [`duplicate`](Self::duplicate), with the value as upstream prints it.
    pub fn duplicate_as(field: impl Into<String>, shown: &str) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {shown}"))
    }

    /// Of a value that says nothing: the path alone is at fault.
    pub fn duplicate_unshown(field: impl Into<String>) -> Self {
        Self::new("FieldValueDuplicate", field, "Duplicate value".to_owned())
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {value}"))
    }

    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {max_bytes} bytes"))
    }

    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new("FieldValueTooMany", field, format!("Too many: {actual}: must have at most {max} {items}"))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail)
    }
}

/// An error with its sources, as messages and logs show it. What an error says of its source already is not said twice.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut shown = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !shown.contains(&words) {
            shown.push_str(": ");
            shown.push_str(&words);
        }
        source = cause.source();
    }
    shown
}

/// A failure as the client sees it: HTTP code, reason, message and details of a `Status`.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Value,
    /// Seconds for the `Retry-After` header, where upstream sends one.
    pub retry_after: Option<u32>,
}

fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

fn resource_details(group: &str, kind: &str, name: &str) -> Value {
    let mut details = json!({ "kind": kind });
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !group.is_empty() {
        details["group"] = group.into();
    }
    details
}

impl ApiError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, retry_after: None }
    }

    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, resource)))
            .with_details(resource_details(group, resource, name))
    }

    /// For a path that names nothing that is served.
    pub fn page_not_found() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", qualified(group, resource)))
            .with_details(resource_details(group, resource, name))
    }

    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, resource)),
        )
        .with_details(resource_details(group, resource, name))
    }

    /// The conflict of an update whose resourceVersion is not the stored one.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// The message says each mistake once; the causes have them all.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut list: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !list.contains(&text) {
                list.push(text);
            }
        }
        let text = match list.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({ "reason": e.reason, "message": e.detail, "field": e.field }))
            .collect();
        let mut details = resource_details(group, kind, name);
        details["causes"] = causes.into();
        Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {text}", qualified(group, kind)))
            .with_details(details)
    }

    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let head = if resource.is_empty() {
            "forbidden".to_owned()
        } else if name.is_empty() {
            format!("{} is forbidden", qualified(group, resource))
        } else {
            format!("{} \"{name}\" is forbidden", qualified(group, resource))
        };
        Self::new(403, "Forbidden", format!("{head}: {why}"))
            .with_details(resource_details(group, resource, name))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(json!({}))
    }

    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::new(
            406,
            "NotAcceptable",
            format!("only the following media types are accepted: {}", accepted.join(", ")),
        )
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    pub fn too_large(limit_bytes: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit_bytes}"))
    }

    /// 410 for a resourceVersion or continue token that history no longer holds.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(retry_after_seconds)
    }

    /// Tells the client when to try again, in `Retry-After` and in the details.
    pub fn retry_after(self, seconds: u32) -> Self {
        let error = self.with_details(json!({ "retryAfterSeconds": seconds }));
        Self { retry_after: Some(seconds), ..error }
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message)
    }

    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
            .with_details(json!({ "causes": [{ "message": message.to_string() }] }))
    }

    /// The `Status` object that the client receives.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

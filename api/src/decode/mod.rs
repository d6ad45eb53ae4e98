//! From bytes to objects that are what their schema says: types checked, unknown fields found and dropped.
//!
//! Mirrors <https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation>. Words are those of Go's
//! JSON decoder where a client can see them.

mod conform;
mod converter;
mod order;
mod parse;
mod path;
mod settle;

pub use conform::json_kind;
pub(crate) use conform::schema_in;
pub use conform::{conform, conform_merged};
pub use parse::parse;
pub use settle::settle;

use crate::catalogue::api_version;
use crate::schema::TypeRef;
use crate::{ApiError, FieldError, Object};

/// At most so many unknown or duplicate fields are reported, as upstream: the list becomes headers or a message.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// What was wrong with a body, but not so that it could not be read: `unknown field "spec.foo"`, `duplicate field
/// "spec.replicas"`, in the order of the document.
pub type Problems = Vec<String>;

/// Why a body could not be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no JSON.
    #[error("{0}")]
    Syntax(String),
    /// A value is not of the type the schema asks for.
    #[error("{0}")]
    Type(String),
}

/// The query parameter `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    /// Absent and empty mean `Warn`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }

    /// The warnings that a client gets, or the refusal. `kind` and `version` name what was decoded.
    pub fn judge(self, problems: Problems, version: &str, kind: &str) -> Result<Vec<String>, ApiError> {
        match self {
            Self::Ignore => Ok(Vec::new()),
            Self::Warn => Ok(problems),
            Self::Strict if problems.is_empty() => Ok(problems),
            Self::Strict => {
                let list = problems.join(", ");
                Err(cannot_handle(version, kind, &format!("strict decoding error: {list}")))
            }
        }
    }
}

/// The 400 for an object of a known kind that cannot be read.
pub fn cannot_handle(version: &str, kind: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// Reads the body of a create or update: an object of the given kind, or one that leaves kind and apiVersion out.
///
/// The result has `kind` and `apiVersion` set. Another kind or version in the body is a 400, as is malformed JSON
/// and a value of the wrong type.
pub fn decode_body(
    body: &[u8],
    ty: TypeRef<'_>,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<(Object, Problems), ApiError> {
    let (mut object, mut problems) = parse_object(body, kind)?;
    check_identity(&mut object, group, version, kind)?;
    let unknown = conform(&mut object, ty).map_err(|error| {
        let error = first_error(body, ty).unwrap_or(error);
        cannot_handle(version, kind, &error.to_string())
    })?;
    if !problems.is_empty() || unknown.len() > 1 {
        problems = order::problems_in_order(body, ty);
    } else {
        problems = unknown;
    }
    Ok((object, problems))
}

/// What is wrong with a body that does not conform, in the order in which it stands there.
fn first_error(body: &[u8], ty: TypeRef<'_>) -> Option<DecodeError> {
    let (mut object, _) = parse(body).ok()?;
    conform::conform_in(&mut object, ty, Some(&order::Order::of(body))).err()
}

/// The 400 for a body that is no object at all.
pub fn unrecognized(kind: &str, why: &str, body: &[u8]) -> ApiError {
    let summary = summarize(body);
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({summary})"
    ))
}

/// Any JSON object, with what is in it twice; otherwise why nobody can tell its version and kind.
pub fn object(body: &[u8]) -> Result<(Object, Problems), String> {
    let unknown = |why: &str| format!("couldn't get version/kind; json parse error: {why}");
    let (object, problems) = parse(body).map_err(|error| unknown(&error.to_string()))?;
    if object.is_object() {
        return Ok((object, problems));
    }
    let what = conform::json_kind(&object);
    Err(unknown(&format!(
        "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )))
}

fn parse_object(body: &[u8], kind: &str) -> Result<(Object, Problems), ApiError> {
    object(body).map_err(|why| unrecognized(kind, &why, body))
}

/// Reads a body whose schema somebody else knows: an object that says its kind and version itself. Only what is given
/// twice comes back.
pub fn decode_untyped(
    body: &[u8],
    group: &str,
    version: &str,
    kind: &str,
) -> Result<(Object, Problems), ApiError> {
    let (object, problems) = parse_object(body, kind)?;
    let stated = |field: &str| object.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
    if stated("kind").is_empty() {
        let text = String::from_utf8_lossy(body);
        return Err(cannot_handle(version, kind, &format!("Object 'Kind' is missing in '{text}'")));
    }
    let (given, expected) = (stated("apiVersion"), api_version(group, version));
    if given != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        )));
    }
    if stated("kind") != kind {
        let error = FieldError::invalid("kind", &stated("kind").into(), &format!("must be {kind}"));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(ApiError::invalid(group, stated("kind"), name, &[error]));
    }
    Ok((object, problems))
}

/// What is still read in a version that is served no more, as (stated, expected, kind): evictions outlived theirs.
const STILL_READ: [(&str, &str, &str); 1] = [("policy/v1beta1", "policy/v1", "Eviction")];

/// The version whose type reads an object that says it is of `version`.
pub(crate) fn read_as<'a>(version: &'a str, kind: &str) -> &'a str {
    let older = STILL_READ.iter().find(|(stated, _, of)| (*stated, *of) == (version, kind));
    older.map_or(version, |(_, served, _)| served)
}

/// Fills in or checks `apiVersion` and `kind`.
fn check_identity(object: &mut Object, group: &str, version: &str, kind: &str) -> Result<(), ApiError> {
    let expected = api_version(group, version);
    let stated = |object: &Object, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (mut stated_version, stated_kind) = (stated(object, "apiVersion"), stated(object, "kind"));
    if STILL_READ.contains(&(&stated_version, &expected, kind)) {
        object["apiVersion"] = expected.as_str().into();
        stated_version.clone_from(&expected);
    }
    if !stated_version.is_empty() && stated_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({stated_version}) does not match the expected API version ({expected})"
        )));
    }
    if !stated_kind.is_empty() && stated_kind != kind {
        return Err(ApiError::bad_request(format!(
            "{stated_kind} in version {version:?} cannot be handled as a {kind}: the kind in the data does not match \
             the kind of the resource"
        )));
    }
    for (field, given, value) in
        [("apiVersion", stated_version, expected.as_str()), ("kind", stated_kind, kind)]
    {
        if given.is_empty() && (object[field].is_null() || object[field] == "") {
            object[field] = value.into();
        }
    }
    Ok(())
}

/// The start of a body for an error message: JSON as text, anything else in hexadecimal.
fn summarize(body: &[u8]) -> String {
    const SHOWN_BYTES: usize = 30;
    let head = &body[..body.len().min(SHOWN_BYTES)];
    let more = if body.len() > SHOWN_BYTES { " ..." } else { "" };
    match head.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let hex = crate::hex::text(head);
            format!("{hex}{more}")
        }
    }
}

#[cfg(test)]
mod tests;

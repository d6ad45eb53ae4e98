//! Request bodies: media type, syntax, kind.

use super::options::FieldValidation;
use bytes::Bytes;
use coracle_api::{ApiError, Object};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

/// Largest request body, as upstream's.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

const ACCEPTED: &[&str] = &["application/json", "application/yaml"];

/// The media type without its parameters; empty when the client named none.
pub fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Any JSON or YAML document.
pub fn document(headers: &HeaderMap, body: &[u8], wanted: &str) -> Result<Value, ApiError> {
    match media_type(headers) {
        "" | "application/json" | "*/*" => json(body, wanted),
        "application/yaml" => yaml(body, wanted),
        _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
    }
}

fn json(body: &[u8], wanted: &str) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|e| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {wanted}): couldn't get version/kind; json parse \
             error: {e}"
        ))
    })
}

fn yaml(body: &[u8], wanted: &str) -> Result<Value, ApiError> {
    let bad = |why: String| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {wanted}): {why}"
        ))
    };
    let text = std::str::from_utf8(body).map_err(|e| bad(e.to_string()))?;
    serde_saphyr::from_str(text).map_err(|e| bad(format!("yaml parse error: {e}")))
}

/// The kind of object that a request expects in its body.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

impl Expected<'_> {
    pub fn api_version(&self) -> String {
        coracle_api::catalogue::api_version(self.group, self.version)
    }

    /// Decodes a body and checks it against the schema facts. Returns what to warn the client of.
    pub fn decode(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let object = document(headers, body, self.kind)?;
        self.check(object, validation)
    }

    /// As [`decode`](Self::decode), for an object that is decoded already.
    pub fn check(
        &self,
        object: Object,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let mut object = object;
        self.check_kind(&mut object)?;
        let _ = validation;
        Ok((object, Vec::new()))
    }

    fn check_kind(&self, object: &mut Object) -> Result<(), ApiError> {
        let Some(fields) = object.as_object_mut() else {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): it is no object",
                self.kind
            )));
        };
        let expected = self.api_version();
        let version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !kind.is_empty() && kind != self.kind {
            return Err(ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: the kind in the data does not match \
                 the expected kind",
                self.kind
            )));
        }
        if !version.is_empty() && version != expected {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({expected})"
            )));
        }
        fields.insert("apiVersion".into(), expected.into());
        fields.insert("kind".into(), self.kind.into());
        Ok(())
    }
}

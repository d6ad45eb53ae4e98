//! Request bodies: media type, syntax, kind.

use bytes::Bytes;
use coracle_api::decode::{self, FieldValidation};
use coracle_api::schema::{self, TypeRef};
use coracle_api::{ApiError, Object, protobuf};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

/// Largest request body, as upstream's.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

const ACCEPTED: &[&str] = &["application/json", "application/yaml", protobuf::MEDIA_TYPE];

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
        protobuf::MEDIA_TYPE => from_protobuf(body, ("v1", wanted)),
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

/// `fallback` are apiVersion and kind of a body that names none.
fn from_protobuf(body: &[u8], fallback: (&str, &str)) -> Result<Value, ApiError> {
    protobuf::decode(body, Some(fallback)).map_err(|e| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {e}",
            fallback.1
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
    pub fn schema(&self) -> Result<TypeRef<'static>, ApiError> {
        schema::root(self.group, self.version, self.kind).ok_or_else(|| {
            ApiError::internal(format!("no schema for {}/{} {}", self.group, self.version, self.kind))
        })
    }

    /// Decodes a body and checks it against the schema facts. Returns what to warn the client of.
    pub fn decode(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let json = match media_type(headers) {
            "" | "application/json" | "*/*" => body.clone(),
            "application/yaml" => {
                serde_json::to_vec(&yaml(body, self.kind)?).map_err(ApiError::internal)?.into()
            }
            protobuf::MEDIA_TYPE => {
                let version = coracle_api::catalogue::api_version(self.group, self.version);
                let object = from_protobuf(body, (&version, self.kind))?;
                serde_json::to_vec(&object).map_err(ApiError::internal)?.into()
            }
            _ => return Err(ApiError::unsupported_media_type(ACCEPTED)),
        };
        let (object, problems) =
            decode::decode_body(&json, self.schema()?, self.group, self.version, self.kind)?;
        Ok((object, validation.judge(problems, self.version, self.kind)?))
    }

    /// As [`decode`](Self::decode), for what a patch has made of an object; `problems` are those of the patch itself.
    pub fn check(
        &self,
        object: Object,
        problems: Vec<String>,
        validation: FieldValidation,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let (mut object, mut problems) = (object, problems);
        self.check_kind(&object)?;
        let unknown = decode::conform(&mut object, self.schema()?)
            .map_err(|e| decode::cannot_handle(self.version, self.kind, &e.to_string()))?;
        problems.extend(unknown);
        Ok((object, validation.judge(problems, self.version, self.kind)?))
    }

    /// A patch may not turn an object into one of another kind.
    fn check_kind(&self, object: &Object) -> Result<(), ApiError> {
        let version = coracle_api::catalogue::api_version(self.group, self.version);
        if object["kind"] == self.kind && object["apiVersion"] == *version {
            return Ok(());
        }
        Err(ApiError::bad_request(format!(
            "the patched object is no {} in version {version:?}: a patch may not change kind and apiVersion",
            self.kind
        )))
    }
}

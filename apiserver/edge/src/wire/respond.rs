//! Answers: bodies in the client's format, Status objects, headers that every answer carries.

use super::indent::indented;
use super::negotiation::{Format, Wanted};
use super::{warnings, yaml};
use axum::body::Body;
use bytes::Bytes;
use coracle_api::decode::settle;
use coracle_api::encode::Ordered;
use coracle_api::protobuf::{self, Encoder, ProtobufError};
use coracle_api::{ApiError, Object, schema};
use coracle_component_base::large_work::LARGE_BYTES;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::Value;
use std::borrow::Cow;
use std::io::Write;

const WARNING: HeaderName = HeaderName::from_static("warning");

/// Smaller bodies are sent as they are: upstream's threshold.
pub const GZIP_FROM_BYTES: usize = 128 * 1024;

/// An answer on its way, before it is bytes.
pub struct Reply {
    pub status: StatusCode,
    pub content: Content,
    /// Each becomes a `Warning: 299` header.
    pub warnings: Vec<String>,
}

pub enum Content {
    Json(Value),
    /// Already JSON.
    Raw(Bytes),
    /// Already in the client's format.
    Encoded(Bytes),
    /// A body that is made while it is sent, with its media type.
    Stream(Body, HeaderValue),
    /// Not JSON: the health checks and metrics.
    Text(&'static str, Bytes),
}

impl Reply {
    pub fn json(status: StatusCode, value: Value) -> Self {
        Self { status, content: Content::Json(value), warnings: Vec::new() }
    }

    pub fn ok(value: Value) -> Self {
        Self::json(StatusCode::OK, value)
    }

    pub fn raw(bytes: Bytes) -> Self {
        Self { status: StatusCode::OK, content: Content::Raw(bytes), warnings: Vec::new() }
    }

    pub fn encoded(bytes: Bytes) -> Self {
        Self { status: StatusCode::OK, content: Content::Encoded(bytes), warnings: Vec::new() }
    }

    pub fn stream(body: Body, media_type: HeaderValue) -> Self {
        Self { status: StatusCode::OK, content: Content::Stream(body, media_type), warnings: Vec::new() }
    }

    pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        let content = Content::Text("text/plain; charset=utf-8", text.into());
        Self { status, content, warnings: Vec::new() }
    }

    pub fn error(error: &ApiError) -> Self {
        let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::json(status, error.to_status())
    }

    /// How many bytes there are to write and pack, or so many at least as make it large.
    pub fn weight(&self) -> usize {
        match &self.content {
            Content::Raw(bytes) | Content::Encoded(bytes) => bytes.len(),
            Content::Json(value) => weight(value, LARGE_BYTES),
            Content::Stream(..) | Content::Text(..) => 0,
        }
    }

    /// Bodies that cannot be indented or compressed as a whole (streams) are sent as they are.
    pub fn into_response(self, wanted: Wanted) -> Response<Body> {
        let mut response = match self.content {
            Content::Stream(body, kind) => with_type(body, kind),
            Content::Text(kind, bytes) => with_type(Body::from(bytes), HeaderValue::from_static(kind)),
            Content::Encoded(bytes) => packed(bytes, wanted),
            Content::Json(mut value) => {
                if let Some(ty) = schema::of_object(&value) {
                    settle(&mut value, ty);
                }
                match encode(&value, wanted) {
                    Ok(bytes) => packed(bytes, wanted),
                    Err(error) => return inexpressible(&error, wanted),
                }
            }
            Content::Raw(bytes) => match recode(bytes, wanted) {
                Ok(bytes) => packed(bytes, wanted),
                Err(error) => return inexpressible(&error, wanted),
            },
        };
        *response.status_mut() = self.status;
        warn(&mut response, &self.warnings);
        response
    }
}

/// About the length of a value's JSON. The count ends beyond `enough`.
fn weight(value: &Value, enough: usize) -> usize {
    let mut bytes = 0;
    let mut left = vec![value];
    while let Some(value) = left.pop().filter(|_| bytes < enough) {
        bytes += 8;
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(list) => left.extend(list),
            Value::Object(map) => {
                bytes += map.keys().map(String::len).sum::<usize>();
                left.extend(map.values());
            }
            _ => {}
        }
    }
    bytes
}

/// Adds warnings to an answer.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings::limited(warnings) {
        if let Ok(value) = HeaderValue::from_str(&warning_header(&warning)) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// The answer to a failed request.
pub fn error_response(error: &ApiError, wanted: Wanted) -> Response<Body> {
    let mut response = Reply::error(error).into_response(wanted.for_errors());
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// 405 with the methods that would have been right.
pub fn method_not_allowed(allowed: &str, wanted: Wanted) -> Response<Body> {
    let mut response = error_response(&ApiError::method_not_allowed(), wanted);
    if let Ok(value) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}

fn with_type(body: Body, kind: HeaderValue) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// An object in the client's format.
fn encode(value: &Value, wanted: Wanted) -> Result<Bytes, ProtobufError> {
    match wanted.format {
        Format::Json => Ok(print(value, wanted.pretty)),
        Format::Yaml => Ok(yaml::print(value).into()),
        Format::Protobuf => protobuf::encode(value).map(Bytes::from),
    }
}

/// JSON in the client's format.
fn recode(bytes: Bytes, wanted: Wanted) -> Result<Bytes, ProtobufError> {
    let parsed = || serde_json::from_slice::<Object>(&bytes).map_err(|_| ProtobufError::Json);
    match wanted.format {
        Format::Json if !wanted.pretty => Ok(bytes),
        Format::Json => Ok(indented(&bytes).into()),
        Format::Protobuf => {
            let Head { api_version, kind } =
                serde_json::from_slice(&bytes).map_err(|_| ProtobufError::Json)?;
            Encoder::default().body(&api_version, &kind, &bytes, None).map(Bytes::from)
        }
        _ => encode(&parsed()?, wanted),
    }
}

/// What an object says it is.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// The server is at fault if it has an object that it cannot write; JSON it always can.
fn inexpressible(error: &ProtobufError, wanted: Wanted) -> Response<Body> {
    tracing::error!(%error, "an answer cannot be written in the format asked for");
    error_response(&ApiError::internal(error), Wanted { error_format: Format::Json, ..wanted })
}

fn print(value: &Value, pretty: bool) -> Bytes {
    let ordered = Ordered::of(value);
    let printed = if pretty { serde_json::to_vec_pretty(&ordered) } else { serde_json::to_vec(&ordered) };
    let mut bytes = printed.unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}

fn packed(bytes: Bytes, wanted: Wanted) -> Response<Body> {
    let media_type = HeaderValue::from_static(wanted.format.media_type());
    if !wanted.gzip || bytes.len() < GZIP_FROM_BYTES {
        return with_type(Body::from(bytes), media_type);
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    let packed = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    match packed {
        Ok(packed) => as_gzip(with_type(Body::from(packed), media_type)),
        Err(_) => with_type(Body::from(bytes), media_type),
    }
}

pub fn as_gzip(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// RFC 7234 section 5.5, as clients of the API read it; the text may hold no control characters.
fn warning_header(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("299 - \"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

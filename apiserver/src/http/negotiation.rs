//! Which representation the client wants, from its Accept header.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>.

use coracle_api::ApiError;
use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};

/// In what shape the objects of an answer are written. The serialization is JSON in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    #[default]
    Object,
    /// `as=Table`, rows for printing.
    Table,
    /// `as=PartialObjectMetadata` or `as=PartialObjectMetadataList`.
    Metadata,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub shape: Shape,
    /// Indented, as `?pretty` or a browser or curl gets it.
    pub pretty: bool,
    pub gzip: bool,
}

const ACCEPTED: &[&str] = &["application/json", "application/yaml"];

impl Wanted {
    /// Takes the first media type of the list that is served; the list is in the order of preference, as clients
    /// of the API write it. `tables` says whether the requested resource has other shapes than its own.
    pub fn new(headers: &HeaderMap, query: Option<&str>, tables: bool) -> Result<Self, ApiError> {
        let shape = accepted_shape(headers, tables)?;
        let gzip = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok()).any(accepts_gzip);
        Ok(Self { shape, pretty: wants_pretty(headers, query), gzip })
    }
}

fn accepted_shape(headers: &HeaderMap, tables: bool) -> Result<Shape, ApiError> {
    let mut any = false;
    for value in headers.get_all(ACCEPT).iter().filter_map(|v| v.to_str().ok()) {
        for clause in value.split(',').map(str::trim).filter(|c| !c.is_empty()) {
            any = true;
            if let Some(shape) = clause_shape(clause, tables) {
                return Ok(shape);
            }
        }
    }
    if any { Err(ApiError::not_acceptable(ACCEPTED)) } else { Ok(Shape::Object) }
}

fn clause_shape(clause: &str, tables: bool) -> Option<Shape> {
    let mut parts = clause.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    if !matches!(media, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut shape, mut group, mut version) = ("", "meta.k8s.io", "v1");
    for (name, value) in parts.filter_map(|p| p.split_once('=')) {
        match name.trim() {
            "as" => shape = value.trim(),
            "g" => group = value.trim(),
            "v" => version = value.trim(),
            _ => {}
        }
    }
    let known = group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1");
    match shape {
        "" => Some(Shape::Object),
        "Table" if known && tables => Some(Shape::Table),
        "PartialObjectMetadata" | "PartialObjectMetadataList" if known && tables => Some(Shape::Metadata),
        _ => None,
    }
}

fn accepts_gzip(value: &str) -> bool {
    value.split(',').any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && parameters.trim() != "q=0"
    })
}

fn wants_pretty(headers: &HeaderMap, query: Option<&str>) -> bool {
    let asked = query.and_then(|q| {
        form_urlencoded::parse(q.as_bytes())
            .find(|(k, _)| k == "pretty")
            .map(|(_, v)| v != "0" && v != "false")
    });
    asked.unwrap_or_else(|| {
        let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(accept: &str) -> Result<Shape, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        Wanted::new(&headers, None, true).map(|w| w.shape).map_err(|e| e.code)
    }

    #[test]
    fn takes_the_first_that_is_served() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(shape(kubectl), Ok(Shape::Table));
        assert_eq!(shape("application/vnd.kubernetes.protobuf,application/json"), Ok(Shape::Object));
        assert_eq!(shape("application/vnd.kubernetes.protobuf"), Err(406));
        assert_eq!(shape("application/json;as=Table;v=v9;g=meta.k8s.io"), Err(406));
        assert_eq!(shape("*/*"), Ok(Shape::Object));
        assert_eq!(
            shape("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Ok(Shape::Metadata)
        );
    }

    #[test]
    fn pretty_for_people() {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, "curl/8".parse().unwrap());
        assert!(Wanted::new(&headers, None, true).unwrap().pretty);
        assert!(!Wanted::new(&headers, Some("pretty=0"), true).unwrap().pretty);
        assert!(Wanted::new(&HeaderMap::new(), Some("pretty=true"), true).unwrap().pretty);
    }
}

//! Warnings for clients that use what is deprecated
//! (<https://kubernetes.io/docs/reference/using-api/deprecation-policy/>).

use super::RequestInfo;
use http::HeaderValue;

/// Served resources that are deprecated: group, version, plural, and what upstream says of them.
const DEPRECATED: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "componentstatuses", "v1 ComponentStatus is deprecated in v1.19+"),
    ("", "v1", "endpoints", "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
];

/// What the client of this request is told, if anything.
pub fn warning(info: &RequestInfo) -> Option<&'static str> {
    if !info.group.is_empty() {
        return None;
    }
    let found = DEPRECATED.iter().find(|(group, version, plural, _)| {
        *plural == info.resource && *group == info.group && *version == info.version
    });
    found.map(|(.., text)| *text)
}

/// A `Warning` header of RFC 7234 with the code that the API uses.
pub fn header(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))).ok()
}

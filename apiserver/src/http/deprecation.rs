//! Warnings for clients that use what is deprecated
//! (<https://kubernetes.io/docs/reference/using-api/deprecation-policy/>).

use super::RequestInfo;
use crate::catalogue::Catalogue;
use coracle_api::catalogue as built_in;
use http::HeaderValue;
use std::borrow::Cow;

/// Served resources that are deprecated: group, version, plural, and what upstream says of them.
const DEPRECATED: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "componentstatuses", "v1 ComponentStatus is deprecated in v1.19+"),
    ("", "v1", "endpoints", "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
];

/// What the client of this request is told, if anything. Of custom resources the definition says what is deprecated.
pub fn warning(catalogue: &Catalogue, info: &RequestInfo) -> Option<Cow<'static, str>> {
    if !info.group.is_empty() {
        if !info.is_resource || built_in::by_plural(&info.group, &info.version, &info.resource).is_some() {
            return None;
        }
        let custom = catalogue.custom(&info.group, &info.version, &info.resource)?;
        return custom.deprecation_warning().map(Cow::Owned);
    }
    let found = DEPRECATED.iter().find(|(group, version, plural, _)| {
        *plural == info.resource && *group == info.group && *version == info.version
    });
    found.map(|(.., text)| Cow::Borrowed(*text))
}

/// A `Warning` header of RFC 7234 with the code that the API uses.
pub fn header(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))).ok()
}

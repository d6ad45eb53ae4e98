//! Warnings for clients that use what is deprecated
//! (<https://kubernetes.io/docs/reference/using-api/deprecation-policy/>).

use coracle_resources::catalogue::Served;
use http::HeaderValue;
use std::borrow::Cow;

/// Served resources that are deprecated: group, version, plural, and what upstream says of them.
const DEPRECATED: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "componentstatuses", "v1 ComponentStatus is deprecated in v1.19+"),
    ("", "v1", "endpoints", "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
];

/// What the client of a request for this is told, if anything. Of custom resources the definition says what is
/// deprecated.
pub fn warning(served: &Served) -> Option<Cow<'static, str>> {
    let resource = match served {
        Served::Custom(custom) => return custom.deprecation_warning().map(Cow::Owned),
        Served::BuiltIn(resource) => resource,
    };
    let found = DEPRECATED.iter().find(|(group, version, plural, _)| {
        *plural == resource.plural && *group == resource.group && *version == resource.version
    });
    found.map(|(.., text)| Cow::Borrowed(*text))
}

/// A `Warning` header of RFC 7234 with the code that the API uses.
pub fn header(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))).ok()
}

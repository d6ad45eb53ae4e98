//! What several controllers share: how pods are judged, owned and waited for.

pub mod ownership;
pub mod pending;
pub mod pods;
pub mod services;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::core::Selector;

/// A label selector ready to match, or `None` when it is invalid or selects everything: controllers that own what
/// they select never act on such a selector.
pub fn narrow_selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector.clone()).ok().filter(|s| !s.selects_all())
}

/// What the API server said, or the transport's error.
pub fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// The status code of an API error, 0 for others.
pub fn code_of(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// Whether a create was refused because its namespace is on its way out; nothing to report, it ends by itself.
pub fn namespace_terminating(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.message.contains("because it is being terminated"))
}

pub fn timestamp(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|t| t.0)
}

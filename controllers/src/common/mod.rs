//! What several controllers share: how pods are judged, owned and waited for.

pub mod disruption;
pub mod ownership;
pub mod pending;
pub mod pod_control;
pub mod pods;
pub mod revisions;
pub mod services;
pub mod tally;
pub mod trigger;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;

/// A label selector ready to match, or `None` when it is invalid or selects everything: controllers that own what
/// they select never act on such a selector.
pub fn narrow_selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector.clone()).ok().filter(|s| !s.selects_all())
}

/// A number, or so many percent of `of`, rounded up or down.
pub fn resolve(value: &IntOrString, of: i32, up: bool) -> i32 {
    let percent = match value {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => text.trim_end_matches('%').parse::<i64>().unwrap_or(0),
    };
    let product = percent * i64::from(of);
    let share = if up { (product + 99).div_euclid(100) } else { product.div_euclid(100) };
    i32::try_from(share).unwrap_or(i32::MAX)
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
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

pub fn timestamp(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|t| t.0)
}

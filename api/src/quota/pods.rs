//! What a pod counts for.

use super::Amounts;
use crate::pod::{self, Counted, is_terminal};
use crate::validation::is_extended_resource;
use crate::{Object, Quantity};
use jiff::{SignedDuration, Timestamp};

/// Neither finished nor overdue after its deletion.
pub(super) fn is_alive(pod: &Object, now: Timestamp) -> bool {
    if is_terminal(pod) {
        return false;
    }
    let deleted = pod["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse::<Timestamp>().ok());
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    match (deleted, grace) {
        (Some(at), Some(seconds)) => {
            now <= at.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(at)
        }
        _ => true,
    }
}

pub(super) fn usage(pod: &Object, usage: &mut Amounts) {
    let counted = Counted { overhead: true, status: true, missing: &[] };
    for (name, quantity) in pod::requests(pod, counted).iter() {
        let native = matches!(name, "cpu" | "memory" | "ephemeral-storage");
        if native || name.starts_with("hugepages-") {
            usage.insert(name.to_owned(), quantity);
        }
        if native || name.starts_with("hugepages-") || is_extended_resource(name) {
            usage.insert(format!("requests.{name}"), quantity);
        }
    }
    for (name, quantity) in pod::limits(pod, counted).iter() {
        if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), quantity);
        }
    }
    usage.insert("pods".to_owned(), Quantity::from_units(1));
}

//! What a pod asks for as a whole (KEP-753 for sidecars, KEP-2837 for the pod's own resources).

use super::{Amounts, amounts, list};
use crate::validation::is_extended_resource;
use crate::{Object, Quantity};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Requests and limits of a whole pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub requests: Amounts,
    pub limits: Amounts,
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        *sum.entry(name.clone()).or_default() += *quantity;
    }
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, quantity) in other {
        let slot = most.entry(name.clone()).or_insert(*quantity);
        if *slot < *quantity {
            *slot = *quantity;
        }
    }
}

/// Containers run together; init containers one after the other, beside the sidecars that were started before them.
/// What the pod says for itself replaces the sum of its containers. Overhead is the runtime's own.
pub fn totals(pod: &Object, with_overhead: bool) -> Totals {
    let overhead = if with_overhead { amounts(&pod["spec"]["overhead"]) } else { Amounts::new() };
    let mut requests = sum(pod, "requests");
    add(&mut requests, &overhead);
    let mut limits = sum(pod, "limits");
    let limited: Amounts = overhead.into_iter().filter(|(name, _)| limits.contains_key(name)).collect();
    add(&mut limits, &limited);
    Totals { requests, limits }
}

fn sum(pod: &Object, field: &str) -> Amounts {
    let spec = &pod["spec"];
    let mut all = Amounts::new();
    for container in list(&spec["containers"]) {
        add(&mut all, &asked(pod, container, field));
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in list(&spec["initContainers"]) {
        let own = asked(pod, container, field);
        if container["restartPolicy"] == "Always" {
            add(&mut all, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut now = sidecars.clone();
            add(&mut now, &own);
            raise(&mut peak, &now);
        }
    }
    raise(&mut all, &peak);
    for (name, quantity) in amounts(&spec["resources"][field]) {
        all.insert(name, quantity);
    }
    all
}

/// A container that is being resized counts for the larger of what it has and what it shall have.
fn asked(pod: &Object, container: &Value, field: &str) -> Amounts {
    let mut own = amounts(&container["resources"][field]);
    if field == "requests" {
        let lists = ["containerStatuses", "initContainerStatuses"];
        let mut statuses = lists.iter().flat_map(|l| list(&pod["status"][*l]));
        if let Some(status) = statuses.find(|s| s["name"] == container["name"]) {
            let actual = amounts(&status["resources"][field]);
            let known = actual.into_iter().filter(|(name, _)| own.contains_key(name)).collect();
            raise(&mut own, &known);
        }
    }
    own
}

/// Neither finished nor overdue after its deletion.
pub(super) fn is_alive(pod: &Object, now: Timestamp) -> bool {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
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
    let Totals { requests, limits } = totals(pod, true);
    for (name, quantity) in requests {
        let native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if native || name.starts_with("hugepages-") {
            usage.insert(name.clone(), quantity);
        }
        if native || name.starts_with("hugepages-") || is_extended_resource(&name) {
            usage.insert(format!("requests.{name}"), quantity);
        }
    }
    for (name, quantity) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), quantity);
        }
    }
    usage.insert("pods".to_owned(), Quantity::from_units(1));
}

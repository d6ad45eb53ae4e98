//! The quality-of-service class of a pod (<https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>).

use super::view::{PodView, Requirements};
use crate::Quantity;
use std::fmt;

/// Which pods suffer first when a node's memory is short: `BestEffort` first, `Guaranteed` last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    /// As `status.qosClass` names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class of what has both: the same, or else `Burstable`.
    fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Burstable }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Computes the class from CPU and memory: of the pod's own `resources` where it has that field, else of all its
/// containers. Requests are expected to be defaulted; a container's missing request counts as its limit.
pub fn qos_class(pod: &impl PodView) -> QosClass {
    if let Some(whole) = pod.resources() {
        return class_of(whole, |_| Quantity::ZERO);
    }
    let containers = pod.init_containers().chain(pod.containers());
    let classes = containers.map(|container| class_of(container.resources, |limit| limit));
    classes.reduce(QosClass::and).unwrap_or(QosClass::BestEffort)
}

/// `undefaulted` says what a missing request is, from the limit.
fn class_of(resources: Requirements<'_>, undefaulted: fn(Quantity) -> Quantity) -> QosClass {
    let [cpu, memory] = ["cpu", "memory"].map(|name| {
        let limit = resources.limits.get(name).unwrap_or_default();
        let request = resources.requests.get(name).unwrap_or_else(|| undefaulted(limit));
        match request == limit {
            false => QosClass::Burstable,
            true if limit.is_zero() => QosClass::BestEffort,
            true => QosClass::Guaranteed,
        }
    });
    cpu.and(memory)
}

//! Room on the node for pods that want more than they were granted: who waits for it, and who gets it first
//! (KEP-1287, "Priority of Resize Requests").

use super::PodEntries;
use crate::pod_facts::qos::{self, QosClass};
use crate::pod_facts::resources::{RESIZABLE, requests};
use crate::pod_facts::termination::is_over;
use coracle_storage::volumes::downward::Allocatable;
use k8s_openapi::api::core::v1::Pod;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Why what is wanted is not granted; the text is the condition's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// There is no room now.
    Deferred(String),
    /// The node will never have room.
    Infeasible {
        /// Upstream's word for it, for metrics.
        detail: &'static str,
        message: String,
    },
}

impl Pending {
    /// The condition's reason and message.
    pub fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Deferred(message) => ("Deferred", message),
            Self::Infeasible { message, .. } => ("Infeasible", message),
        }
    }
}

/// A pod that waits for room.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// As it wants to be.
    pub pod: Arc<Pod>,
    pub since: Instant,
}

/// What made room be looked for, in upstream's words for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The pod itself wants something else.
    Updated,
    /// Another one was resized.
    Resized,
    /// Another one's containers have ended.
    Terminated,
    /// Another one has gone.
    Removed,
}

impl Trigger {
    pub fn name(self) -> &'static str {
        match self {
            Self::Updated => "pod_updated",
            Self::Resized => "pod_resized",
            Self::Terminated => "pod_terminated",
            Self::Removed => "pods_removed",
        }
    }
}

/// A pod as it was granted, and why then.
#[derive(Clone, Debug)]
pub struct Granted {
    pub pod: Arc<Pod>,
    pub trigger: Trigger,
}

/// CPU in thousandths and memory in bytes, in the order of [`RESIZABLE`].
fn amounts(pod: &Pod) -> [i64; 2] {
    [requests(pod, "cpu").milli(), requests(pod, "memory").units()]
}

/// Whether the node has room for `pod` beside the others, which carry what they were granted.
pub fn room<'p>(pod: &Pod, others: impl Iterator<Item = &'p Pod>, node: &Allocatable) -> Result<(), Pending> {
    let others: Vec<&Pod> = others.filter(|p| !is_over(p)).collect();
    let wanted = amounts(pod);
    let capacity = [node.cpu_millis, node.memory_bytes];
    for (index, resource) in RESIZABLE.into_iter().enumerate().rev() {
        let (wanted, capacity) = (wanted[index], capacity[index]);
        if wanted > capacity {
            return Err(Pending::Infeasible {
                detail: "insufficient_node_allocatable",
                message: format!(
                    "Node didn't have enough capacity: {resource}, requested: {wanted}, capacity: {capacity}"
                ),
            });
        }
    }
    for (index, resource) in RESIZABLE.into_iter().enumerate() {
        let used = others.iter().map(|p| amounts(p)[index]).fold(0, i64::saturating_add);
        let (wanted, capacity) = (wanted[index], capacity[index]);
        if wanted > 0 && used.saturating_add(wanted) > capacity {
            return Err(Pending::Deferred(format!(
                "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
            )));
        }
    }
    Ok(())
}

/// Who comes first has the least: those that want no more of anything, then the higher priority, then Guaranteed pods,
/// then those that wait longest.
fn rank(waiting: &Waiting, granted: &Pod) -> (bool, Reverse<i32>, bool, Instant) {
    let grows = amounts(&waiting.pod).into_iter().zip(amounts(granted)).any(|(wanted, has)| wanted > has);
    let priority = waiting.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
    let guaranteed = qos::class(waiting.pod.as_ref()) == QosClass::Guaranteed;
    (grows, Reverse(priority), !guaranteed, waiting.since)
}

/// Grants what there is room for, in order, and wakes those that were granted something. One that finds no room is no
/// reason for those behind it to wait. Says why each of the others has not got what it wants; what can never be granted
/// waits no more.
pub fn give(slots: &mut PodEntries, node: &Allocatable, trigger: Trigger) -> HashMap<String, Pending> {
    let mut order: Vec<_> = slots
        .iter()
        .filter_map(|(uid, slot)| Some((rank(slot.waiting.as_ref()?, &slot.pod), uid.clone())))
        .collect();
    order.sort();
    let mut without = HashMap::new();
    for (_, uid) in order {
        let Some(wanted) = slots.get(&uid).and_then(|slot| Some(slot.waiting.as_ref()?.pod.clone())) else {
            continue;
        };
        let others = slots.iter().filter(|(other, _)| **other != uid).map(|(_, slot)| slot.pod.as_ref());
        let verdict = room(&wanted, others, node);
        let Some(slot) = slots.get_mut(&uid) else { continue };
        match verdict {
            Ok(()) => {
                slot.pod = Arc::new(Pod { status: slot.pod.status.clone(), ..Pod::clone(&wanted) });
                slot.granted = Some(Granted { pod: wanted, trigger });
                slot.waiting = None;
                slot.inbox.put(|mail| mail.runtime = true);
            }
            Err(pending) => {
                if matches!(pending, Pending::Infeasible { .. }) {
                    slot.waiting = None;
                }
                without.insert(uid, pending);
            }
        }
    }
    without
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;

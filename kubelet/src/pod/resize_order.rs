//! In which order a resize is carried out: a pure decision, as upstream makes it (KEP-1287, "Container resource limit
//! update ordering"). Memory comes before CPU. What the pod as a whole may have grows before its containers do and shrinks
//! after them, and containers that give something up come before those that get more, so that the containers together
//! never have more than their pod.

use super::qos::amount_of;
use super::resize::with;
use crate::cgroup::limits::Limits;
use k8s_openapi::api::core::v1::ResourceRequirements;
use std::cmp::Ordering;

/// A running container whose resources change in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Resized {
    pub id: String,
    pub name: String,
    pub told: ResourceRequirements,
    pub wanted: ResourceRequirements,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The pod's own cgroup gets these.
    Pod(Limits),
    /// The runtime is told: one resource is as it is wanted, the other as it was told last.
    Container { id: String, resource: &'static str, resources: ResourceRequirements },
}

/// No limit is more than every limit.
fn bound(limits: &Limits, resource: &str) -> u64 {
    match resource {
        "memory" => limits.memory_max.unwrap_or(u64::MAX),
        _ => limits
            .cpu_quota
            .and_then(|(quota, _)| u64::try_from(quota).ok())
            .filter(|q| *q > 0)
            .unwrap_or(u64::MAX),
    }
}

/// What goes by the request.
fn share(limits: &Limits, resource: &str) -> u64 {
    match resource {
        "memory" => limits.memory_min.max(limits.memory_low),
        _ => limits.cpu_shares.and_then(|shares| u64::try_from(shares).ok()).unwrap_or_default(),
    }
}

fn set_bound(now: &mut Limits, after: &Limits, resource: &str) {
    match resource {
        "memory" => now.memory_max = after.memory_max,
        _ => now.cpu_quota = after.cpu_quota,
    }
}

fn set_share(now: &mut Limits, after: &Limits, resource: &str) {
    match resource {
        "memory" => (now.memory_min, now.memory_low) = (after.memory_min, after.memory_low),
        _ => now.cpu_shares = after.cpu_shares,
    }
}

/// Whether the container gets more or gives up: by its limit, and where that stays by its request.
fn direction(container: &Resized, resource: &str) -> Ordering {
    let limit = |of: &ResourceRequirements| {
        let limit = amount_of(Some(of), true, resource);
        (limit.is_zero(), limit)
    };
    let request = |of: &ResourceRequirements| amount_of(Some(of), false, resource);
    let (told, wanted) = (&container.told, &container.wanted);
    limit(wanted).cmp(&limit(told)).then_with(|| request(wanted).cmp(&request(told)))
}

/// All changes from `before`, the pod's own cgroup as it is, and what containers were told, to `after` and what is wanted.
pub fn changes(before: &Limits, after: &Limits, containers: &[Resized]) -> Vec<Change> {
    // Processes and huge pages are not resized, and must not be written as what was not looked at.
    let mut now = Limits { pids_max: after.pids_max, huge_pages: after.huge_pages.clone(), ..before.clone() };
    let mut all = Vec::new();
    for resource in ["memory", "cpu"] {
        let limit = bound(after, resource).cmp(&bound(before, resource));
        let request = share(after, resource).cmp(&share(before, resource));
        if limit == Ordering::Greater {
            set_bound(&mut now, after, resource);
            all.push(Change::Pod(now.clone()));
        }
        if request == Ordering::Greater {
            set_share(&mut now, after, resource);
            all.push(Change::Pod(now.clone()));
        }
        all.extend(of_containers(containers, resource));
        if request == Ordering::Less {
            set_share(&mut now, after, resource);
            all.push(Change::Pod(now.clone()));
        }
        if limit == Ordering::Less {
            set_bound(&mut now, after, resource);
            all.push(Change::Pod(now.clone()));
        }
    }
    all
}

fn of_containers(containers: &[Resized], resource: &'static str) -> impl Iterator<Item = Change> {
    let mut order: Vec<(Ordering, &Resized)> = containers
        .iter()
        .map(|container| (direction(container, resource), container))
        .filter(|(direction, _)| *direction != Ordering::Equal)
        .collect();
    order.sort_by_key(|(direction, _)| *direction);
    order.into_iter().map(move |(_, container)| {
        let resources = match resource {
            "memory" => with(&container.told, &container.wanted, resource),
            // Memory has been told by now.
            _ => container.wanted.clone(),
        };
        Change::Container { id: container.id.clone(), resource, resources }
    })
}

/// What is in use of memory, in bytes, where it is known: of the pod, and of containers by their ids.
pub struct Used<'a> {
    pub pod: Option<u64>,
    pub containers: &'a dyn Fn(&str) -> Option<u64>,
}

/// The kernel would kill processes whose memory is cut below what they use. What is not known is left to the runtime to
/// refuse.
pub fn below_use(before: &Limits, after: &Limits, containers: &[Resized], used: &Used<'_>) -> Option<String> {
    let mut why = Vec::new();
    let shrinks = bound(after, "memory") < bound(before, "memory");
    if let Some((limit, used)) =
        after.memory_max.zip(used.pod).filter(|(limit, used)| shrinks && used >= limit)
    {
        why.push(format!("attempting to set pod memory limit ({limit}) below current usage ({used})"));
    }
    for container in containers {
        let limit =
            |of| u64::try_from(amount_of(Some(of), true, "memory").units()).ok().filter(|limit| *limit > 0);
        let (told, wanted) = (limit(&container.told), limit(&container.wanted));
        let Some((limit, used)) = wanted.zip((used.containers)(&container.id)) else { continue };
        if told.is_none_or(|told| limit < told) && used >= limit {
            why.push(format!(
                "attempting to set container {:?} memory limit ({limit}) below current usage ({used})",
                container.name
            ));
        }
    }
    match why.as_slice() {
        [] => None,
        [one] => Some(format!("cannot decrease memory limits: {one}")),
        all => Some(format!("cannot decrease memory limits: [{}]", all.join(", "))),
    }
}

#[cfg(test)]
#[path = "resize_order_tests.rs"]
mod tests;

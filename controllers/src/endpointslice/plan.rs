//! How endpoints are laid out over EndpointSlices, changing as few slices as can be.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Endpoints in one slice; upstream's --max-endpoints-per-slice.
pub const CAPACITY: usize = 100;

/// Endpoints that serve the same ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

/// What all slices of one Service and address type have in common.
pub struct Frame {
    pub address_type: String,
    /// With generateName, labels and owner.
    pub metadata: ObjectMeta,
}

#[derive(Debug, Default)]
pub struct Changes {
    pub create: Vec<EndpointSlice>,
    pub update: Vec<EndpointSlice>,
    pub delete: Vec<Arc<EndpointSlice>>,
}

/// Identifies an endpoint from one plan to the next: its pod, or its addresses.
fn identity(endpoint: &Endpoint) -> String {
    let uid = endpoint.target_ref.as_ref().and_then(|t| t.uid.clone());
    uid.unwrap_or_else(|| endpoint.addresses.join(","))
}

/// `existing` are the slices of this frame. Without endpoints one empty slice remains, so that a watcher can tell
/// "none" from "not yet".
pub fn plan(frame: &Frame, groups: Vec<Group>, existing: &[Arc<EndpointSlice>]) -> Changes {
    let mut changes = Changes::default();
    let mut unused: Vec<Arc<EndpointSlice>> = existing.to_vec();
    let mut groups = groups;
    groups.retain(|g| !g.endpoints.is_empty());
    if groups.is_empty() {
        groups.push(Group { ports: Vec::new(), endpoints: Vec::new() });
    }
    for group in groups {
        let same = |s: &Arc<EndpointSlice>| s.ports.clone().unwrap_or_default() == group.ports;
        let (mine, others) = unused.into_iter().partition(same);
        unused = others;
        lay_out(frame, group, mine, &mut changes);
    }
    changes.delete.extend(unused);
    reuse(frame, &mut changes);
    changes
}

/// Writes what would be new into slices that would go: one write instead of two, and nobody sees both.
fn reuse(frame: &Frame, changes: &mut Changes) {
    let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(&mut changes.delete)
        .into_iter()
        .partition(|old| old.metadata.owner_references == frame.metadata.owner_references);
    changes.delete = others;
    for old in ours {
        match changes.create.pop() {
            Some(new) => {
                let mut updated = rewritten(frame, &old, new.endpoints.unwrap_or_default());
                updated.ports = new.ports;
                changes.update.push(updated);
            }
            None => changes.delete.push(old),
        }
    }
}

fn lay_out(frame: &Frame, group: Group, slices: Vec<Arc<EndpointSlice>>, changes: &mut Changes) {
    let placeholder = group.endpoints.is_empty();
    let mut wanted: BTreeMap<String, Endpoint> =
        group.endpoints.into_iter().map(|e| (identity(&e), e)).collect();
    let mut kept: Vec<(Arc<EndpointSlice>, Vec<Endpoint>)> = Vec::new();
    for slice in slices {
        let present = slice.endpoints.iter().flatten();
        let stay: Vec<Endpoint> = present.filter_map(|e| wanted.remove(&identity(e))).collect();
        kept.push((slice, stay));
    }
    let mut new: Vec<Endpoint> = wanted.into_values().collect();
    fill(&mut kept, &mut new);
    let mut empty_one_stays = placeholder;
    for (slice, endpoints) in kept {
        if endpoints.is_empty() && !std::mem::take(&mut empty_one_stays) {
            changes.delete.push(slice);
            continue;
        }
        let updated = rewritten(frame, &slice, endpoints);
        if updated != *slice {
            changes.update.push(updated);
        }
    }
    if empty_one_stays || !new.is_empty() {
        let chunks: Vec<Vec<Endpoint>> =
            if new.is_empty() { vec![Vec::new()] } else { new.chunks(CAPACITY).map(<[_]>::to_vec).collect() };
        changes.create.extend(chunks.into_iter().map(|chunk| slice(frame, &group.ports, chunk)));
    }
}

/// Puts new endpoints into slices that have room: first those that change anyway, then the fullest.
fn fill(kept: &mut [(Arc<EndpointSlice>, Vec<Endpoint>)], new: &mut Vec<Endpoint>) {
    let mut order: Vec<usize> = (0..kept.len()).collect();
    order.sort_by_key(|i| {
        let (slice, stay) = &kept[*i];
        (slice.endpoints.as_ref() == Some(stay), std::cmp::Reverse(stay.len()))
    });
    for index in order {
        let endpoints = &mut kept[index].1;
        let room = CAPACITY.saturating_sub(endpoints.len()).min(new.len());
        endpoints.extend(new.drain(..room));
    }
}

fn rewritten(frame: &Frame, old: &EndpointSlice, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let mut slice = old.clone();
    slice.metadata.labels = frame.metadata.labels.clone();
    slice.metadata.owner_references = frame.metadata.owner_references.clone();
    if frame.metadata.annotations.is_some() {
        slice.metadata.annotations = frame.metadata.annotations.clone();
    }
    // Absent and empty mean the same; the stored form stays as it is.
    if old.endpoints.as_ref().map_or(0, Vec::len) != 0 || !endpoints.is_empty() {
        slice.endpoints = Some(endpoints);
    }
    slice
}

fn slice(frame: &Frame, ports: &[EndpointPort], endpoints: Vec<Endpoint>) -> EndpointSlice {
    EndpointSlice {
        metadata: frame.metadata.clone(),
        address_type: frame.address_type.clone(),
        ports: Some(ports.to_vec()),
        endpoints: Some(endpoints),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame { address_type: "IPv4".into(), metadata: ObjectMeta::default() }
    }

    fn endpoints(range: std::ops::Range<usize>) -> Vec<Endpoint> {
        range
            .map(|i| Endpoint {
                addresses: vec![format!("10.0.{}.{}", i / 200, i % 200)],
                ..Endpoint::default()
            })
            .collect()
    }

    fn group(port: i32, range: std::ops::Range<usize>) -> Group {
        Group {
            ports: vec![EndpointPort { port: Some(port), ..EndpointPort::default() }],
            endpoints: endpoints(range),
        }
    }

    fn stored(slices: Vec<EndpointSlice>) -> Vec<Arc<EndpointSlice>> {
        slices.into_iter().map(Arc::new).collect()
    }

    fn sizes(slices: &[EndpointSlice]) -> Vec<usize> {
        slices.iter().map(|s| s.endpoints.as_ref().map_or(0, Vec::len)).collect()
    }

    #[test]
    fn new_endpoints_are_cut_into_slices() {
        let changes = plan(&frame(), vec![group(80, 0..250), group(81, 0..1)], &[]);
        assert_eq!(sizes(&changes.create), [100, 100, 50, 1]);
    }

    #[test]
    fn nothing_to_change_changes_nothing() {
        for groups in [vec![], vec![group(80, 0..150)]] {
            let existing = stored(plan(&frame(), groups.clone(), &[]).create);
            let again = plan(&frame(), groups, &existing);
            assert!(
                again.create.is_empty() && again.update.is_empty() && again.delete.is_empty(),
                "{again:?}"
            );
        }
    }

    #[test]
    fn one_endpoint_more_or_less_changes_one_slice() {
        let existing = stored(plan(&frame(), vec![group(80, 0..150)], &[]).create);
        let more = plan(&frame(), vec![group(80, 0..151)], &existing);
        assert_eq!((sizes(&more.update), more.create.len(), more.delete.len()), (vec![51], 0, 0));
        let less = plan(&frame(), vec![group(80, 1..150)], &existing);
        assert_eq!((sizes(&less.update), less.create.len()), (vec![99], 0));
    }

    #[test]
    fn the_last_endpoint_leaves_a_placeholder_and_new_ports_new_slices() {
        let existing = stored(plan(&frame(), vec![group(80, 0..1)], &[]).create);
        let none = plan(&frame(), vec![], &existing);
        assert_eq!((sizes(&none.update), none.create.len(), none.delete.len()), (vec![0], 0, 0));
        assert_eq!(none.update[0].ports, Some(vec![]));
        let placeholder = stored(none.update);
        let moved = plan(&frame(), vec![group(81, 0..1)], &placeholder);
        assert_eq!((sizes(&moved.update), moved.create.len(), moved.delete.len()), (vec![1], 0, 0));
        assert_eq!(moved.update[0].ports.as_ref().unwrap()[0].port, Some(81));
    }

    #[test]
    fn a_slice_of_a_former_service_is_not_written_into() {
        let mut slices = plan(&frame(), vec![group(80, 0..1)], &[]).create;
        slices[0].metadata.owner_references = Some(vec![Default::default()]);
        let moved = plan(&frame(), vec![group(81, 0..1)], &stored(slices));
        assert_eq!((sizes(&moved.create), moved.update.len(), moved.delete.len()), (vec![1], 0, 1));
    }
}

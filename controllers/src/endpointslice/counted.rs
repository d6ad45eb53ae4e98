//! What is counted of EndpointSlices, for each of the two controllers under its own names.

use super::plan::{CAPACITY, Changes, Group};
use crate::metrics::{Metric, Metrics};
use coracle_client::ObjectKey;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The families of one controller.
pub struct Names {
    added: Metric,
    updated: Option<Metric>,
    removed: Metric,
    endpoints: Metric,
    slices: Metric,
    desired: Metric,
    changes: Metric,
}

pub const SERVICES: Names = Names {
    added: Metric::SlicesAdded,
    updated: None,
    removed: Metric::SlicesRemoved,
    endpoints: Metric::SlicesEndpoints,
    slices: Metric::SlicesNumber,
    desired: Metric::SlicesDesired,
    changes: Metric::SlicesChanges,
};

pub const MIRROR: Names = Names {
    added: Metric::MirrorAdded,
    updated: Some(Metric::MirrorUpdated),
    removed: Metric::MirrorRemoved,
    endpoints: Metric::MirrorEndpoints,
    slices: Metric::MirrorNumber,
    desired: Metric::MirrorDesired,
    changes: Metric::MirrorChanges,
};

/// What one look at a Service comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    added: usize,
    updated: usize,
    removed: usize,
    endpoints: usize,
    /// Slices that there are then, and that would do.
    slices: usize,
    desired: usize,
}

impl Look {
    /// Counts one family's endpoints by their addresses.
    pub fn want(&mut self, groups: &[Group], existing: &[Arc<EndpointSlice>]) {
        let by_address = |endpoint: &Endpoint| endpoint.addresses.first().cloned();
        let before: HashMap<_, &Endpoint> =
            existing.iter().flat_map(|s| s.endpoints.iter().flatten()).map(|e| (by_address(e), e)).collect();
        let wanted: HashMap<_, &Endpoint> =
            groups.iter().flat_map(|g| &g.endpoints).map(|e| (by_address(e), e)).collect();
        for (address, endpoint) in &wanted {
            match before.get(address) {
                None => self.added += 1,
                Some(before) => self.updated += usize::from(before != endpoint),
            }
        }
        self.removed += before.keys().filter(|address| !wanted.contains_key(*address)).count();
        self.endpoints += groups.iter().map(|g| g.endpoints.len()).sum::<usize>();
        let full = |group: &Group| group.endpoints.len().div_ceil(CAPACITY).max(1);
        self.desired += groups.iter().map(full).sum::<usize>().max(1);
    }

    /// Counts what becomes of the slices that there were.
    pub fn plan(&mut self, existing: usize, changes: &Changes) {
        self.slices += (existing + changes.create.len()).saturating_sub(changes.delete.len());
    }

    /// Slices that go because nothing of the Service wants them.
    pub fn drop_all(&mut self, slices: &[Arc<EndpointSlice>]) {
        self.removed += slices.iter().map(|s| s.endpoints.as_ref().map_or(0, Vec::len)).sum::<usize>();
    }
}

pub struct Counted {
    pub metrics: Arc<Metrics>,
    names: &'static Names,
    looks: Mutex<HashMap<ObjectKey, Look>>,
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Counted {
    pub fn new(metrics: Arc<Metrics>, names: &'static Names) -> Self {
        // Kept over restarts of the controller, which looks at all Services again.
        [names.endpoints, names.slices, names.desired].iter().for_each(|level| metrics.set(*level, &[], 0));
        Self { metrics, names, looks: Mutex::default() }
    }

    /// The Service was looked at, and will be as that look wants it.
    pub fn looked(&self, key: &ObjectKey, look: Look) {
        let seen = [
            (Some(self.names.added), look.added),
            (self.names.updated, look.updated),
            (Some(self.names.removed), look.removed),
        ];
        for (metric, count) in seen {
            let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            metric.iter().for_each(|metric| self.metrics.observe_number(*metric, &[], count));
        }
        let before = self.looks.lock().insert(key.clone(), look).unwrap_or_default();
        self.move_levels(before, look);
    }

    /// The Service is gone, or none of ours.
    pub fn forget(&self, key: &ObjectKey) {
        let before = self.looks.lock().remove(key);
        if let Some(before) = before {
            self.move_levels(before, Look::default());
        }
    }

    fn move_levels(&self, before: Look, now: Look) {
        let levels = [
            (self.names.endpoints, before.endpoints, now.endpoints),
            (self.names.slices, before.slices, now.slices),
            (self.names.desired, before.desired, now.desired),
        ];
        for (metric, before, now) in levels {
            self.metrics.add(metric, &[], number(now) - number(before));
        }
    }

    /// A slice was written; `operation` is create, update or delete.
    pub fn changed(&self, operation: &str) {
        self.metrics.add(self.names.changes, &[operation], 1);
    }
}

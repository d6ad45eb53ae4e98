//! The order of the active queue: the profile's QueueSort plugin, then who was activated first.

use crate::framework::Plugin;
use crate::framework::QueuedPod;
use std::cmp::Ordering;
use std::sync::Arc;

pub struct Waiting {
    pub queued: QueuedPod,
    pub ticket: u64,
    pub sort: Arc<dyn Plugin>,
}

impl Ord for Waiting {
    /// A `BinaryHeap` gives its greatest first: who is scheduled earlier is the greater one.
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort.less(&other.queued, &self.queued).then(other.ticket.cmp(&self.ticket))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

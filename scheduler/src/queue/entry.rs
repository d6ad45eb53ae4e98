//! What the queue knows of one pod, and how many pods are in each place.

use super::groups::GroupKey;
use crate::cache::PodInfo;
use crate::framework::Framework;
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Active = 0,
    Backoff,
    /// Backing off after an error.
    Trouble,
    Unschedulable,
    Gated,
    /// Its victims are being told; it is tried again when they know.
    Preempting,
    /// Taken by `pop`, not yet given back.
    InCycle,
}

/// How many pods are in each place: to count them each time would cost most when most wait.
#[derive(Default)]
pub struct Tally([usize; Place::InCycle as usize + 1]);

impl Tally {
    pub fn of(&self, place: Place) -> usize {
        self.0[place as usize]
    }

    pub fn came(&mut self, place: Place) {
        self.0[place as usize] += 1;
    }

    pub fn left(&mut self, place: Place) {
        self.0[place as usize] -= 1;
    }
}

pub struct Entry {
    pub pod: Arc<PodInfo>,
    pub framework: Arc<Framework>,
    /// Changed by [`Entry::go`] alone.
    pub place: Place,
    /// Cycles begun.
    pub attempts: u32,
    /// Cycles in which plugins refused it.
    pub refusals: u32,
    /// Cycles in a row that failed through no fault of the pod.
    pub errors: u32,
    pub first: Instant,
    pub since: Instant,
    /// Of the group that it waits in.
    pub group: Option<GroupKey>,
    pub nominated: Option<String>,
    /// Whether an event that helps makes it active at once.
    pub pending: bool,
    /// Whether it is tried because it had waited for too long, and not because of an event.
    pub flushed: bool,
    /// Heap and map entries with another ticket are stale.
    pub ticket: u64,
    /// Events that had happened when it was popped.
    pub moves: u64,
    /// Whether something helped it since.
    pub helped: bool,
    /// What was last reported of it, and when.
    pub said: Option<(String, Instant)>,
}

impl Entry {
    pub fn go(&mut self, place: Place, tally: &mut Tally) {
        tally.left(self.place);
        tally.came(place);
        self.place = place;
    }
}

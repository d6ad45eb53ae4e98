//! Pods that wait for a node: active (next in line), backing off, unschedulable until an event helps, or gated.
//!
//! ```text
//!            +--> gated --(pod changed)--+
//!  added ----+                           v
//!            +------------------------> active --pop--> in a cycle --bound--> gone
//!                  ^        ^                              |
//!       back-off over       |                              | no node fits
//!                  |        +--(event helps, back-off over)|
//!               backing <--(event helps)-- unschedulable <-+
//! ```
//!
//! A plain struct without I/O: the caller passes the time. Mirrors upstream's scheduling queue with queueing hints
//! (KEP-4247).

mod heap;

use crate::cache::PodInfo;
use crate::framework::{ClusterEvent, Framework, Plugin};
use heap::Waiting;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Upstream's `flushUnschedulablePodsLeftoverDuration`: after it a pod is tried again whatever happened.
const LEFT_OVER: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active,
    Backoff,
    Unschedulable,
    Gated,
    /// Taken by `pop`, not yet given back.
    InCycle,
}

struct Entry {
    pod: Arc<PodInfo>,
    framework: Arc<Framework>,
    place: Place,
    /// Cycles that ended without a node.
    attempts: u32,
    last_attempt: Instant,
    rejected_by: Vec<&'static str>,
    /// Heap entries with another ticket are stale.
    ticket: u64,
}

/// A pod on its way through a cycle.
pub struct Popped {
    pub pod: Arc<PodInfo>,
    pub framework: Arc<Framework>,
}

pub struct Queue {
    entries: HashMap<String, Entry>,
    active: BinaryHeap<Waiting>,
    backoff: BTreeMap<(Instant, u64), String>,
    /// Back-off of the first and of many failures.
    limits: (Duration, Duration),
    tickets: u64,
}

impl Queue {
    pub fn new(limits: (Duration, Duration)) -> Self {
        Self {
            entries: HashMap::new(),
            active: BinaryHeap::new(),
            backoff: BTreeMap::new(),
            limits,
            tickets: 0,
        }
    }

    /// Takes in a pod that has no node, or a change of one. `worth_a_try` says whether the change could matter.
    pub fn set(&mut self, pod: Arc<PodInfo>, framework: &Arc<Framework>, worth_a_try: bool, now: Instant) {
        let uid = pod.uid.clone();
        let gated = framework.kept_out_by(&pod).is_some();
        let Some(entry) = self.entries.get_mut(&uid) else {
            let place = if gated { Place::Gated } else { Place::Active };
            let entry = Entry {
                pod,
                framework: framework.clone(),
                place,
                attempts: 0,
                last_attempt: now,
                rejected_by: Vec::new(),
                ticket: 0,
            };
            self.entries.insert(uid.clone(), entry);
            if !gated {
                self.activate(&uid);
            }
            return;
        };
        entry.pod = pod;
        match entry.place {
            Place::Gated if !gated => self.activate(&uid),
            Place::Active => self.activate(&uid),
            Place::Unschedulable if worth_a_try => {
                let pod = entry.pod.clone();
                self.move_if_helped(&uid, &ClusterEvent::PodUpdated(&pod), now);
            }
            _ => {}
        }
    }

    pub fn remove(&mut self, uid: &str) {
        self.entries.remove(uid);
    }

    /// The next pod to schedule.
    pub fn pop(&mut self, now: Instant) -> Option<Popped> {
        self.release(now);
        while let Some(waiting) = self.active.pop() {
            let Some(entry) = self.entries.get_mut(&waiting.pod.uid) else { continue };
            if entry.place == Place::Active && entry.ticket == waiting.ticket {
                entry.place = Place::InCycle;
                entry.last_attempt = now;
                return Some(Popped { pod: entry.pod.clone(), framework: entry.framework.clone() });
            }
        }
        None
    }

    /// When `pop` may have something that it has not now.
    pub fn next_release(&self) -> Option<Instant> {
        let backoff = self.backoff.first_key_value().map(|(slot, _)| slot.0);
        let unschedulable = self.entries.values().filter(|e| e.place == Place::Unschedulable);
        let left_over = unschedulable.map(|e| e.last_attempt + LEFT_OVER).min();
        backoff.into_iter().chain(left_over).min()
    }

    /// No node fitted: the pod waits for an event that helps one of the plugins that rejected it.
    pub fn unschedulable(&mut self, uid: &str, rejected_by: Vec<&'static str>) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.attempts += 1;
            entry.rejected_by = rejected_by;
            entry.place = Place::Unschedulable;
        }
    }

    /// The attempt failed through no fault of the pod: again after its back-off.
    pub fn retry(&mut self, uid: &str, now: Instant) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.attempts += 1;
            entry.rejected_by.clear();
            self.back_off(uid, now);
        }
    }

    /// Moves the unschedulable pods that the event can help.
    pub fn on_event(&mut self, event: &ClusterEvent<'_>, now: Instant) {
        let waiting = self.entries.iter().filter(|(_, e)| e.place == Place::Unschedulable);
        let uids: Vec<String> = waiting.map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.move_if_helped(&uid, event, now);
        }
    }

    fn move_if_helped(&mut self, uid: &str, event: &ClusterEvent<'_>, now: Instant) {
        let Some(entry) = self.entries.get(uid) else { return };
        let helps = |name: &&str| entry.framework.plugin(name).is_none_or(|p| p.helps(&entry.pod, event));
        if entry.rejected_by.is_empty() || entry.rejected_by.iter().any(helps) {
            self.back_off(uid, now);
        }
    }

    /// Exponential, from the last attempt on; a pod whose back-off is over goes to the active queue at once.
    fn back_off(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let doublings = entry.attempts.saturating_sub(1).min(16);
        let until = entry.last_attempt + (self.limits.0 * (1 << doublings)).min(self.limits.1);
        if until <= now || entry.attempts == 0 {
            return self.activate(uid);
        }
        entry.place = Place::Backoff;
        self.tickets += 1;
        entry.ticket = self.tickets;
        self.backoff.insert((until, entry.ticket), uid.to_owned());
    }

    fn activate(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        self.tickets += 1;
        entry.place = Place::Active;
        entry.ticket = self.tickets;
        let sort: Arc<dyn Plugin> = entry.framework.sort.clone();
        self.active.push(Waiting { pod: entry.pod.clone(), ticket: entry.ticket, sort });
    }

    /// Lets go of those whose back-off is over, or who waited longer than anybody should.
    fn release(&mut self, now: Instant) {
        while let Some(first) = self.backoff.first_entry() {
            if first.key().0 > now {
                break;
            }
            let ticket = first.key().1;
            let uid = first.remove();
            if self.entries.get(&uid).is_some_and(|e| e.place == Place::Backoff && e.ticket == ticket) {
                self.activate(&uid);
            }
        }
        let overdue = |e: &Entry| e.place == Place::Unschedulable && e.last_attempt + LEFT_OVER <= now;
        let uids: Vec<String> =
            self.entries.iter().filter(|(_, e)| overdue(e)).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.activate(&uid);
        }
    }
}

#[cfg(test)]
mod tests;

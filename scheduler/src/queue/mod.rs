//! Pods that wait for a node: active (next in line), backing off, unschedulable until an event helps, or gated.
//!
//! ```text
//!            +--> gated --(event helps, no plugin keeps it out)--+
//!  added ----+                                                   v
//!            +-----------------------------------------------> active --pop--> in a cycle --bound--> gone
//!                  ^        ^                                                     |       \
//!       back-off over,      |                                                     |        preempting (victims are
//!       or nobody is active |                                                     |        being told) --+
//!                  |        +--(event helps, back-off over)                       |                      |
//!               backing <--(event helps)-- unschedulable <--(no node fits)--------+----------------------+
//! ```
//!
//! A plain struct without I/O: the caller passes the time. Mirrors upstream's scheduling queue with queueing hints
//! (KEP-4247); like upstream's it takes from the back-off when nobody is active, except who failed by an error.

mod entry;
mod groups;
mod heap;

use crate::cache::PodInfo;
use crate::framework::{ClusterEvent, Framework, Plugin, QueuedPod};
use entry::{Entry, Place, Tally};
use groups::{GroupKey, Groups};
use heap::Waiting;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Upstream's `podMaxInUnschedulablePodsDuration`: after it a pod is tried again whatever happened.
const LEFT_OVER_TIMEOUT: Duration = Duration::from_secs(300);

/// A pod on its way through a cycle.
#[derive(Clone)]
pub struct Popped {
    pub pod: Arc<PodInfo>,
    pub framework: Arc<Framework>,
    /// This one included.
    pub attempts: u32,
    /// When the pod first came into the queue.
    pub first: Instant,
    /// Whether the attempt came about by the pod's long wait alone: then a hint may be missing.
    pub flushed: bool,
}

/// How many pods are where, as `scheduler_pending_pods` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

/// A pod that no node took.
pub struct Rejection {
    pub plugins: Vec<&'static str>,
    /// The pod waits for something of its own, so no back-off applies when it happens.
    pub pending: bool,
    /// The node on which victims make room.
    pub nominated: Option<String>,
}

type Moments = BTreeMap<(Instant, u64), String>;

pub struct Queue {
    entries: HashMap<String, Entry>,
    tally: Tally,
    active: BinaryHeap<Waiting>,
    backoff: Moments,
    trouble: Moments,
    unschedulable: Moments,
    groups: Groups,
    /// Back-off of the first and of many failures.
    limits: (Duration, Duration),
    tickets: u64,
    moves: u64,
    incoming: HashMap<(&'static str, &'static str), u64>,
}

impl Queue {
    /// Gives back the room of pods that have left.
    pub fn rest(&mut self) {
        self.entries.shrink_to_fit();
    }

    pub fn new(limits: (Duration, Duration)) -> Self {
        Self {
            entries: HashMap::new(),
            tally: Tally::default(),
            active: BinaryHeap::new(),
            backoff: BTreeMap::new(),
            trouble: BTreeMap::new(),
            unschedulable: BTreeMap::new(),
            groups: Groups::default(),
            limits,
            tickets: 0,
            moves: 0,
            incoming: HashMap::new(),
        }
    }

    /// Takes in a pod that has no node, or a change of one. `worth_a_try` says whether the change could matter.
    pub fn set(&mut self, pod: Arc<PodInfo>, framework: &Arc<Framework>, worth_a_try: bool, now: Instant) {
        let uid = pod.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else {
            return self.add(pod, framework, now);
        };
        entry.pod = pod.clone();
        match entry.place {
            Place::Active => self.activate(&uid, "UnscheduledPodUpdate"),
            Place::Gated => self.back_off(&uid, "UnscheduledPodUpdate", now),
            Place::Unschedulable if worth_a_try => {
                let event = ClusterEvent::PodUpdated(&pod);
                let helps = |name: &&str| {
                    framework.plugin(name).is_none_or(|plugin| plugin.queueing_hint(&pod, &event))
                };
                let refused = entry.group.as_ref().map(|g| g.plugins.clone()).unwrap_or_default();
                if refused.is_empty() || refused.iter().any(helps) {
                    self.release(&uid, &event, now);
                }
            }
            // Its cycle goes on with what it was; a refusal may not hold any more.
            Place::InCycle | Place::Preempting if worth_a_try => entry.helped = true,
            _ => {}
        }
    }

    fn add(&mut self, pod: Arc<PodInfo>, framework: &Arc<Framework>, now: Instant) {
        let uid = pod.uid.clone();
        let entry = Entry {
            pod,
            framework: framework.clone(),
            place: Place::Gated,
            attempts: 0,
            refusals: 0,
            errors: 0,
            first: now,
            since: now,
            group: None,
            nominated: None,
            pending: false,
            flushed: false,
            helped: false,
            ticket: 0,
            moves: self.moves,
            said: None,
        };
        self.tally.came(entry.place);
        self.entries.insert(uid.clone(), entry);
        self.admit(&uid, "UnscheduledPodAdd");
    }

    /// Makes a pod active unless a plugin keeps it out of the queue.
    fn admit(&mut self, uid: &str, event: &'static str) {
        if !self.keep_out(uid, event) {
            self.activate(uid, event);
        }
    }

    /// Keeps a pod out of the queue if a plugin's PreEnqueue wants that.
    fn keep_out(&mut self, uid: &str, event: &'static str) -> bool {
        self.leave(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return true };
        let Some(plugin) = entry.framework.kept_out_by(&entry.pod) else { return false };
        entry.go(Place::Gated, &mut self.tally);
        let key = GroupKey { class: entry.pod.class().clone(), plugins: vec![plugin], gated: true };
        self.groups.insert(&key, &entry.framework, &entry.pod, None);
        entry.group = Some(key);
        self.count("gated", event);
        true
    }

    /// Takes a pod out of its group.
    fn leave(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if let Some(key) = entry.group.take() {
            self.groups.remove(&key, uid, entry.nominated.as_deref());
        }
    }

    pub fn remove(&mut self, uid: &str) {
        self.leave(uid);
        if let Some(entry) = self.entries.remove(uid) {
            self.tally.left(entry.place);
        }
    }

    /// The next pod to schedule.
    pub fn pop(&mut self, now: Instant) -> Option<Popped> {
        self.release_due(now);
        loop {
            let uid = self.next_active().or_else(|| self.earliest_backing_off())?;
            let moves = self.moves;
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            entry.go(Place::InCycle, &mut self.tally);
            entry.attempts += 1;
            entry.moves = moves;
            entry.helped = false;
            return Some(Popped {
                pod: entry.pod.clone(),
                framework: entry.framework.clone(),
                attempts: entry.attempts,
                first: entry.first,
                flushed: std::mem::take(&mut entry.flushed),
            });
        }
    }

    fn next_active(&mut self) -> Option<String> {
        while let Some(waiting) = self.active.pop() {
            let uid = &waiting.queued.pod.uid;
            if self.entries.get(uid).is_some_and(|e| e.place == Place::Active && e.ticket == waiting.ticket) {
                return Some(uid.clone());
            }
        }
        None
    }

    fn earliest_backing_off(&mut self) -> Option<String> {
        while let Some(((_, ticket), uid)) = self.backoff.pop_first() {
            if self.entries.get(&uid).is_some_and(|e| e.place == Place::Backoff && e.ticket == ticket) {
                return Some(uid);
            }
        }
        None
    }

    /// When `pop` may have something that it has not now.
    pub fn next_release(&self) -> Option<Instant> {
        let all = [&self.backoff, &self.trouble, &self.unschedulable];
        all.iter().filter_map(|moments| moments.first_key_value().map(|(slot, _)| slot.0)).min()
    }

    /// No node fitted: the pod waits for an event that helps one of the plugins that rejected it. When events
    /// happened since it was popped (its binding took its time), one of them may have been that.
    pub fn unschedulable(&mut self, uid: &str, rejection: Rejection, now: Instant) {
        let moves = self.moves;
        let Some(entry) = self.refuse(uid, &rejection, now) else { return };
        if entry.helped || entry.moves != moves {
            return self.back_off(uid, "ScheduleAttemptFailure", now);
        }
        self.join(uid, rejection.plugins);
        self.wait(uid, now);
    }

    /// The pod's victims are being told; [`preempted`](Self::preempted) follows. It waits for what helps it already.
    pub fn preempting(&mut self, uid: &str, rejection: Rejection, now: Instant) {
        if self.refuse(uid, &rejection, now).is_none() {
            return;
        }
        self.join(uid, rejection.plugins);
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.go(Place::Preempting, &mut self.tally);
        }
    }

    /// The victims of a pod know. It waits for their room, unless that came about meanwhile, and is tried again at once
    /// when telling them failed.
    pub fn preempted(&mut self, uid: &str, worked: bool, now: Instant) {
        let Some(entry) = self.entries.get(uid).filter(|e| e.place == Place::Preempting) else { return };
        match (worked, entry.helped) {
            (false, _) => self.activate(uid, "PreemptionFailed"),
            (true, true) => self.back_off(uid, "ScheduleAttemptFailure", now),
            (true, false) => self.wait(uid, now),
        }
    }

    /// Takes down that plugins refused the pod in its cycle.
    fn refuse(&mut self, uid: &str, rejection: &Rejection, now: Instant) -> Option<&Entry> {
        let entry = self.entries.get_mut(uid).filter(|e| e.place == Place::InCycle)?;
        entry.since = now;
        entry.pending = rejection.pending;
        entry.nominated.clone_from(&rejection.nominated);
        entry.refusals += 1;
        entry.errors = 0;
        Some(entry)
    }

    /// Puts a pod among those that wait for what helps these plugins.
    fn join(&mut self, uid: &str, mut plugins: Vec<&'static str>) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        plugins.sort_unstable();
        let key = GroupKey { class: entry.pod.class().clone(), plugins, gated: false };
        self.groups.insert(&key, &entry.framework, &entry.pod, entry.nominated.as_deref());
        entry.group = Some(key);
    }

    /// Lets a pod of a group rest until an event helps it, or too much time has passed.
    fn wait(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.go(Place::Unschedulable, &mut self.tally);
        self.tickets += 1;
        entry.ticket = self.tickets;
        self.unschedulable.insert((now + LEFT_OVER_TIMEOUT, entry.ticket), uid.to_owned());
        self.count("unschedulable", "ScheduleAttemptFailure");
    }

    /// The attempt failed through no fault of the pod: again after its back-off.
    pub fn retry(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid).filter(|e| e.place == Place::InCycle) else { return };
        entry.since = now;
        entry.errors += 1;
        let until = Self::backed_off(entry, self.limits);
        entry.go(Place::Trouble, &mut self.tally);
        self.tickets += 1;
        entry.ticket = self.tickets;
        self.trouble.insert((until, entry.ticket), uid.to_owned());
        self.count("backoff", "ScheduleAttemptFailure");
    }

    /// Moves the waiting pods that the event can help.
    pub fn on_event(&mut self, event: &ClusterEvent<'_>, now: Instant) {
        self.on_event_below(event, i32::MAX, now);
    }

    /// Room that was only kept for a pod is free: those of higher priority could have had it all along.
    pub fn on_withdrawal(&mut self, pod: &PodInfo, node: &str, now: Instant) {
        self.on_event_below(&ClusterEvent::PodGone { pod, node }, pod.priority, now);
    }

    /// For pods of this priority at most.
    fn on_event_below(&mut self, event: &ClusterEvent<'_>, highest: i32, now: Instant) {
        self.moves += 1;
        // What a pod gives back itself does not help it.
        let own = match event {
            ClusterEvent::PodGone { pod, .. } => pod.uid.as_str(),
            _ => "",
        };
        for uid in self.groups.helped_by(event, highest) {
            if uid != own {
                self.release(&uid, event, now);
            }
        }
    }

    /// Lets a waiting pod try again.
    fn release(&mut self, uid: &str, event: &ClusterEvent<'_>, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match entry.place {
            Place::Unschedulable if entry.pending => self.admit(uid, event.label()),
            Place::Unschedulable | Place::Gated => self.back_off(uid, event.label(), now),
            Place::Preempting => entry.helped = true,
            _ => {}
        }
    }

    /// The pod's nomination was withdrawn: room on any node may help it, not on that one alone.
    pub fn unnominated(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let Some(node) = entry.nominated.take() else { return };
        if let Some(key) = &entry.group {
            self.groups.remove(key, uid, Some(&node));
            self.groups.insert(key, &entry.framework, &entry.pod, None);
        }
    }

    /// Makes the pod active whatever it waits for, for a plugin or a nominator that knows better; one whose victims
    /// are being told is tried again once they know.
    pub fn force(&mut self, uid: &str) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match entry.place {
            Place::Unschedulable | Place::Backoff | Place::Trouble => self.admit(uid, "ForceActivate"),
            Place::Preempting => entry.helped = true,
            _ => {}
        }
    }

    /// When a pod's back-off is over: it doubles with every refusal, or every error of a series of errors.
    fn backed_off(entry: &Entry, limits: (Duration, Duration)) -> Instant {
        let failures = if entry.errors > 0 { entry.errors } else { entry.refusals };
        let Some(doublings) = failures.checked_sub(1) else { return entry.since };
        entry.since + (limits.0 * (1 << doublings.min(16))).min(limits.1)
    }

    /// Exponential, from the last failure on; a pod whose back-off is over goes to the active queue at once.
    fn back_off(&mut self, uid: &str, event: &'static str, now: Instant) {
        if self.keep_out(uid, event) {
            return;
        }
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let until = Self::backed_off(entry, self.limits);
        if until <= now {
            return self.activate(uid, event);
        }
        entry.go(Place::Backoff, &mut self.tally);
        self.tickets += 1;
        entry.ticket = self.tickets;
        self.backoff.insert((until, entry.ticket), uid.to_owned());
        self.count("backoff", event);
    }

    fn activate(&mut self, uid: &str, event: &'static str) {
        self.leave(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        self.tickets += 1;
        entry.go(Place::Active, &mut self.tally);
        entry.ticket = self.tickets;
        let sort: Arc<dyn Plugin> = entry.framework.sort.clone();
        let queued = QueuedPod { pod: entry.pod.clone(), since: entry.since };
        self.active.push(Waiting { queued, ticket: entry.ticket, sort });
        self.count("active", event);
    }

    /// Lets go of those whose back-off is over, or who waited longer than anybody should.
    fn release_due(&mut self, now: Instant) {
        for (place, event) in [
            (Place::Backoff, "BackoffComplete"),
            (Place::Trouble, "BackoffComplete"),
            (Place::Unschedulable, "UnschedulableTimeout"),
        ] {
            while let Some((ticket, uid)) = self.due(place, now) {
                if self.entries.get(&uid).is_some_and(|e| e.place == place && e.ticket == ticket) {
                    match place {
                        Place::Unschedulable => {
                            self.entries.get_mut(&uid).into_iter().for_each(|e| e.flushed = true);
                            self.admit(&uid, event);
                        }
                        _ => self.activate(&uid, event),
                    }
                }
            }
        }
    }

    fn due(&mut self, place: Place, now: Instant) -> Option<(u64, String)> {
        let moments = match place {
            Place::Backoff => &mut self.backoff,
            Place::Trouble => &mut self.trouble,
            _ => &mut self.unschedulable,
        };
        let first = moments.first_entry().filter(|e| e.key().0 <= now)?;
        let ticket = first.key().1;
        Some((ticket, first.remove()))
    }

    /// Whether a pod's failure is news: not the same text as in the last minutes. Remembers it.
    pub fn is_news(&mut self, uid: &str, text: &str, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(uid) else { return true };
        let known = |(said, at): &(String, Instant)| said == text && *at + LEFT_OVER_TIMEOUT > now;
        if entry.said.as_ref().is_some_and(known) {
            return false;
        }
        entry.said = Some((text.to_owned(), now));
        true
    }

    fn count(&mut self, queue: &'static str, event: &'static str) {
        *self.incoming.entry((queue, event)).or_insert(0) += 1;
    }

    /// How often pods came into a queue by an event, since the last call.
    pub fn take_incoming(&mut self) -> HashMap<(&'static str, &'static str), u64> {
        std::mem::take(&mut self.incoming)
    }

    /// Whether the pod is here, in its cycle or on its way to its node: neither deleted nor bound, as far as is known.
    pub fn knows(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// How many pods can be scheduled now.
    pub fn active(&self) -> usize {
        self.tally.of(Place::Active)
    }

    pub fn pending(&self) -> Pending {
        let all = |places: &[Place]| places.iter().map(|place| self.tally.of(*place)).sum();
        Pending {
            active: all(&[Place::Active]),
            backoff: all(&[Place::Backoff, Place::Trouble]),
            unschedulable: all(&[Place::Unschedulable, Place::Preempting]),
            gated: all(&[Place::Gated]),
        }
    }

    /// How many pods each plugin keeps waiting, by profile.
    pub fn by_plugin(&self) -> HashMap<(&'static str, &str), usize> {
        self.groups.by_plugin()
    }
}

#[cfg(test)]
mod tests;

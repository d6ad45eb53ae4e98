//! Which of many events are written: repeated ones are counted, many of one kind combined, and one object has no more
//! than a burst of them. The rules and numbers are those of upstream's event correlator; without them the 1,000 pods of
//! one ReplicaSet would be 1,000 events.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// How long a repeated event is counted on the same object, and a kind of events combined.
pub const WINDOW: Duration = Duration::from_secs(600);
/// Entries remembered of each sort.
const REMEMBERED: usize = 4096;
/// Messages of one reason about one object that are told apart.
const TOLD_APART: usize = 10;
/// Events about one object at once, and the time after which there may be one more.
const BURST: u32 = 25;
const REFILL_INTERVAL: Duration = Duration::from_secs(300);

/// What an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Subject {
    pub namespace: String,
    pub uid: String,
    pub name: String,
    pub kind: String,
    pub field_path: String,
}

/// Events that differ in their words only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kin {
    pub subject: Subject,
    pub type_: &'static str,
    pub reason: String,
}

/// One event with its repetitions: by its message, or, where it is combined with its kin, without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub kin: Kin,
    message: Option<String>,
}

/// What to write.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    pub identity: Identity,
    pub message: String,
    /// Name and count of the stored event that this one repeats.
    pub past: Option<(String, i32)>,
}

/// An entry of a cache, with the time of its last use: the oldest ones make room.
struct Kept<T> {
    what: T,
    at: Instant,
}

/// What was, by digests of the texts: the texts themselves would be two kilobytes for each of thousands of pods that have
/// long gone. Two of these that are equal by chance would combine two events, once in a billion times that the tables
/// are filled.
#[derive(Default)]
pub struct Correlator {
    /// Of a [`Kin`]: its messages.
    groups: HashMap<u64, Kept<Vec<u64>>>,
    /// Of an [`Identity`].
    stored: HashMap<u64, Kept<(String, i32)>>,
    /// Of a [`Subject`]: events that it may still have.
    budgets: HashMap<u64, Kept<u32>>,
    digests: RandomState,
}

/// Makes room, by age if that helps.
fn trim<T>(map: &mut HashMap<u64, Kept<T>>, now: Instant) {
    if map.len() >= REMEMBERED {
        map.retain(|_, kept| now.duration_since(kept.at) < WINDOW);
        if map.len() >= REMEMBERED {
            map.clear();
        }
    }
}

/// Events that a subject may have by now.
fn refilled(budget: &Kept<u32>, now: Instant) -> u32 {
    let refills = now.duration_since(budget.at).as_secs() / REFILL_INTERVAL.as_secs();
    budget.what.saturating_add(u32::try_from(refills).unwrap_or(BURST)).min(BURST)
}

impl Correlator {
    /// What to write about an event; `None` when the object has had too many.
    pub fn judge(&mut self, kin: Kin, message: &str, now: Instant) -> Option<Verdict> {
        if !self.afford(&kin.subject, now) {
            return None;
        }
        let combined = self.is_combined(&kin, message, now);
        let message =
            if combined { format!("(combined from similar events): {message}") } else { message.to_owned() };
        let identity = Identity { kin, message: (!combined).then(|| message.clone()) };
        let past = self
            .stored
            .get(&self.digests.hash_one(&identity))
            .filter(|kept| now.duration_since(kept.at) < WINDOW);
        Some(Verdict { past: past.map(|kept| kept.what.clone()), identity, message })
    }

    /// The event was written under this name and has been seen so often.
    pub fn written(&mut self, identity: &Identity, name: String, count: i32, now: Instant) {
        trim(&mut self.stored, now);
        self.stored.insert(self.digests.hash_one(identity), Kept { what: (name, count), at: now });
    }

    /// Lets go what no longer decides anything, and the room it took.
    pub fn forget(&mut self, now: Instant) {
        self.groups.retain(|_, kept| now.duration_since(kept.at) < WINDOW);
        self.stored.retain(|_, kept| now.duration_since(kept.at) < WINDOW);
        self.budgets.retain(|_, kept| refilled(kept, now) < BURST);
        self.groups.shrink_to_fit();
        self.stored.shrink_to_fit();
        self.budgets.shrink_to_fit();
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.stored.is_empty() && self.budgets.is_empty()
    }

    fn afford(&mut self, subject: &Subject, now: Instant) -> bool {
        trim(&mut self.budgets, now);
        let budget =
            self.budgets.entry(self.digests.hash_one(subject)).or_insert(Kept { what: BURST, at: now });
        if now.duration_since(budget.at) >= REFILL_INTERVAL {
            *budget = Kept { what: refilled(budget, now), at: now };
        }
        let enough = budget.what > 0;
        budget.what = budget.what.saturating_sub(1);
        enough
    }

    fn is_combined(&mut self, kin: &Kin, message: &str, now: Instant) -> bool {
        trim(&mut self.groups, now);
        let message = self.digests.hash_one(message);
        let key = self.digests.hash_one(kin);
        let group = self.groups.entry(key).or_insert(Kept { what: Vec::new(), at: now });
        if now.duration_since(group.at) > WINDOW {
            group.what.clear();
        }
        group.at = now;
        let new = !group.what.contains(&message);
        let many = group.what.len() + usize::from(new) >= TOLD_APART;
        if new && !many {
            group.what.push(message);
        }
        many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kin(name: &str, reason: &str) -> Kin {
        let subject = Subject { name: name.to_owned(), ..Subject::default() };
        Kin { subject, type_: "Normal", reason: reason.to_owned() }
    }

    /// Judges and writes; the message and the count, or nothing.
    fn tell(correlator: &mut Correlator, kin: Kin, message: &str, now: Instant) -> Option<(String, i32)> {
        let verdict = correlator.judge(kin, message, now)?;
        let (name, count) = verdict.past.unwrap_or_else(|| (message.to_owned(), 0));
        correlator.written(&verdict.identity, name, count + 1, now);
        Some((verdict.message, count + 1))
    }

    #[test]
    fn repetitions_are_counted_until_they_are_old() {
        let (mut correlator, start) = (Correlator::default(), Instant::now());
        for count in 1..4 {
            assert_eq!(tell(&mut correlator, kin("a", "r"), "m", start), Some(("m".to_owned(), count)));
        }
        assert_eq!(tell(&mut correlator, kin("b", "r"), "m", start), Some(("m".to_owned(), 1)));
        let later = start + WINDOW;
        assert_eq!(tell(&mut correlator, kin("a", "r"), "m", later), Some(("m".to_owned(), 1)));
    }

    #[test]
    fn many_messages_of_one_reason_become_one_event() {
        let (mut correlator, start) = (Correlator::default(), Instant::now());
        for i in 0..TOLD_APART - 1 {
            let message = format!("m{i}");
            assert_eq!(tell(&mut correlator, kin("a", "r"), &message, start), Some((message, 1)));
        }
        for count in 1..4 {
            let told = tell(&mut correlator, kin("a", "r"), &format!("n{count}"), start);
            assert_eq!(told, Some((format!("(combined from similar events): n{count}"), count)));
        }
        assert_eq!(tell(&mut correlator, kin("a", "other"), "x", start), Some(("x".to_owned(), 1)));
        assert_eq!(tell(&mut correlator, kin("a", "r"), "m0", start), Some(("m0".to_owned(), 2)));
    }

    #[test]
    fn one_object_has_a_burst_of_events_and_then_few() {
        let (mut correlator, start) = (Correlator::default(), Instant::now());
        let told =
            (0..100).filter(|i| tell(&mut correlator, kin("a", &format!("r{i}")), "m", start).is_some());
        assert_eq!(told.count(), 25);
        assert!(tell(&mut correlator, kin("b", "r"), "m", start).is_some(), "another object");
        let later = start + REFILL_INTERVAL * 2;
        let told = (0..9).filter(|i| tell(&mut correlator, kin("a", &format!("s{i}")), "m", later).is_some());
        assert_eq!(told.count(), 2);
    }

    #[test]
    fn what_decides_nothing_any_more_is_forgotten() {
        let (mut correlator, start) = (Correlator::default(), Instant::now());
        for i in 0..10 {
            tell(&mut correlator, kin("a", &format!("r{i}")), "m", start);
        }
        tell(&mut correlator, kin("b", "r"), "m", start);
        correlator.forget(start + WINDOW / 4);
        assert_eq!((correlator.stored.len(), correlator.groups.len(), correlator.budgets.len()), (11, 11, 2));
        correlator.forget(start + WINDOW);
        assert_eq!((correlator.stored.len(), correlator.groups.len()), (0, 0));
        assert_eq!(correlator.budgets.len(), 1, "the one of ten events has not got all of them back");
        correlator.forget(start + REFILL_INTERVAL * 10);
        assert!(correlator.is_empty());
    }
}

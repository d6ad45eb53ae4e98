//! What clients saw, and whether it can have happened to one copy of each object, one step at a time.
//!
//! A counter that is raised by compare-and-swap takes every value once, so the watches tell the only order in which its writes
//! can have been. That order is linearizable if every answer fits into it, and the time between a call and its answer does too.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At this revision.
    Done(u64),
    /// It says that nothing was written.
    Refused,
    Unknown,
}

pub struct Write {
    pub begun: Duration,
    pub ended: Duration,
    pub key: String,
    pub value: u64,
    pub id: String,
    pub outcome: Outcome,
}

pub struct Read {
    pub begun: Duration,
    pub ended: Duration,
    pub key: String,
    pub value: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    pub value: u64,
    pub id: String,
    pub revision: u64,
}

#[derive(Default)]
pub struct History {
    pub writes: Vec<Write>,
    pub reads: Vec<Read>,
    /// By the server that was watched.
    pub watches: BTreeMap<usize, Vec<Event>>,
    /// Errors that a watch told.
    pub refusals: Vec<String>,
    /// At the end.
    pub last: BTreeMap<String, u64>,
}

/// The writes of a key in their order: the first made 1 of 0.
type Chain<'h> = Vec<&'h Event>;

impl History {
    /// What cannot have happened.
    pub fn judge(&self) -> Vec<String> {
        let mut wrong = self.refusals.clone();
        let chains = self.chains(&mut wrong);
        self.judge_writes(&chains, &mut wrong);
        let ids: HashMap<&str, &Write> = self.writes.iter().map(|write| (&*write.id, write)).collect();
        for (key, chain) in &chains {
            if self.last.get(*key) != Some(&(chain.len() as u64)) {
                wrong.push(format!(
                    "{key} is {:?} at the end, and was raised {} times",
                    self.last.get(*key),
                    chain.len()
                ));
            }
            self.judge_times(key, chain, &ids, &mut wrong);
        }
        wrong
    }

    /// Each watch in order and without gaps, and all of them the same.
    fn chains(&self, wrong: &mut Vec<String>) -> BTreeMap<&str, Chain<'_>> {
        let mut longest: BTreeMap<&str, Chain<'_>> =
            self.last.keys().map(|key| (&**key, Vec::new())).collect();
        for (server, events) in &self.watches {
            if let Some(pair) = events.windows(2).find(|pair| pair[0].revision >= pair[1].revision) {
                wrong.push(format!("watch at server {server}: {:?} came after {:?}", pair[1], pair[0]));
            }
            let mut own: BTreeMap<&str, Chain<'_>> = BTreeMap::new();
            for event in events {
                let chain = own.entry(&event.key).or_default();
                if event.value != chain.len() as u64 + 1 {
                    wrong.push(format!("watch at server {server}: {event:?} came after {:?}", chain.last()));
                }
                chain.push(event);
            }
            for (key, chain) in own {
                let known = longest.entry(key).or_default();
                if let Some((a, b)) = known.iter().zip(&chain).find(|(a, b)| a != b) {
                    wrong.push(format!("watch at server {server}: {b:?}, another one had {a:?}"));
                }
                if chain.len() > known.len() {
                    *known = chain;
                }
            }
        }
        longest
    }

    fn judge_writes(&self, chains: &BTreeMap<&str, Chain<'_>>, wrong: &mut Vec<String>) {
        let mut done: HashMap<&str, Vec<&Event>> = HashMap::new();
        for event in chains.values().flatten() {
            done.entry(&event.id).or_default().push(event);
        }
        for write in &self.writes {
            let found = done.get(&*write.id).map(Vec::as_slice).unwrap_or_default();
            let told = format!("write {} of {} in {}", write.id, write.value, write.key);
            match (write.outcome, found) {
                (_, [_, _, ..]) => wrong.push(format!("{told} was done {} times", found.len())),
                (Outcome::Done(_), []) => wrong.push(format!("{told} was acknowledged, and is lost")),
                (Outcome::Refused, [_]) => wrong.push(format!("{told} was refused, and was done")),
                (Outcome::Done(revision), [event])
                    if event.revision != revision || event.value != write.value || event.key != write.key =>
                {
                    wrong.push(format!("{told} was acknowledged at {revision}, and is {event:?}"));
                }
                _ => {}
            }
        }
    }

    /// Whether reads and writes of a key fit into its order as they do into time.
    fn judge_times(
        &self,
        key: &str,
        chain: &Chain<'_>,
        ids: &HashMap<&str, &Write>,
        wrong: &mut Vec<String>,
    ) {
        // What is known of each value: not before its write began, and known to be reached when anybody was told of it.
        let began = |value: u64| {
            let index = usize::try_from(value).ok()?.checked_sub(1)?;
            Some(ids.get(&*chain.get(index)?.id)?.begun)
        };
        let writes =
            self.writes.iter().filter(|write| write.key == key && matches!(write.outcome, Outcome::Done(_)));
        // Of a write, what was held before it is what it read.
        let writes = writes.map(|write| (write.begun, write.ended, write.value, true));
        let reads = self.reads.iter().filter(|read| read.key == key);
        let reads = reads.map(|read| (read.begun, read.ended, read.value, false));
        let mut all: Vec<_> = writes.chain(reads).collect();
        let mut ends: Vec<(Duration, u64)> =
            all.iter().map(|(_, ended, value, _)| (*ended, *value)).collect();
        ends.sort_unstable();
        all.sort_unstable();
        let (mut reached, mut next) = (0, 0);
        for (begun, ended, value, is_write) in all {
            while next < ends.len() && ends[next].0 < begun {
                reached = reached.max(ends[next].1);
                next += 1;
            }
            let oldest = if is_write { reached + 1 } else { reached };
            if value < oldest {
                let what = if is_write { "written" } else { "read" };
                wrong.push(format!(
                    "{key}: {value} was {what} from {begun:?} to {ended:?}, after {reached} was known"
                ));
            }
            if value > chain.len() as u64 || began(value).is_some_and(|at| at > ended) {
                wrong.push(format!("{key}: {value} was read until {ended:?}, before it was written"));
            }
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of =
            |wanted: fn(&Outcome) -> bool| self.writes.iter().filter(|write| wanted(&write.outcome)).count();
        write!(
            f,
            "{} writes acknowledged, {} refused, {} unknown; {} reads; {} events",
            of(|outcome| matches!(outcome, Outcome::Done(_))),
            of(|outcome| *outcome == Outcome::Refused),
            of(|outcome| *outcome == Outcome::Unknown),
            self.reads.len(),
            self.watches.values().map(Vec::len).sum::<usize>()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(from: u64, until: u64, value: u64, outcome: Outcome) -> Write {
        let (begun, ended) = (Duration::from_millis(from), Duration::from_millis(until));
        Write { begun, ended, key: "k".to_owned(), value, id: format!("{from}"), outcome }
    }

    fn read(from: u64, until: u64, value: u64) -> Read {
        Read {
            begun: Duration::from_millis(from),
            ended: Duration::from_millis(until),
            key: "k".to_owned(),
            value,
        }
    }

    fn event(id: u64, value: u64) -> Event {
        Event { key: "k".to_owned(), value, id: id.to_string(), revision: value * 10 }
    }

    /// 1 was written from 0 to 5, 2 from 10 to 15 by a write of which nobody was told.
    fn good() -> History {
        History {
            writes: vec![
                write(0, 5, 1, Outcome::Done(10)),
                write(10, 15, 2, Outcome::Unknown),
                write(11, 12, 2, Outcome::Refused),
            ],
            reads: vec![read(1, 3, 0), read(2, 4, 1), read(12, 13, 2), read(20, 21, 2)],
            watches: BTreeMap::from([
                (0, vec![event(0, 1), event(10, 2)]),
                (1, vec![event(0, 1), event(10, 2)]),
            ]),
            refusals: Vec::new(),
            last: BTreeMap::from([("k".to_owned(), 2)]),
        }
    }

    fn wrong(change: impl FnOnce(&mut History)) -> String {
        let mut history = good();
        change(&mut history);
        history.judge().join("\n")
    }

    #[test]
    fn what_can_have_happened_is_let_pass() {
        assert_eq!(wrong(|_| {}), "");
        // A watch that is behind the others.
        assert_eq!(wrong(|h| drop(h.watches.get_mut(&1).unwrap().pop())), "");
    }

    #[test]
    fn what_cannot_have_happened_is_told() {
        let lost = wrong(|h| h.writes.push(write(30, 31, 3, Outcome::Done(30))));
        assert!(lost.contains("acknowledged, and is lost"), "{lost}");
        let refused = wrong(|h| h.writes[1].outcome = Outcome::Refused);
        assert!(refused.contains("was refused, and was done"), "{refused}");
        let twice = wrong(|h| {
            h.watches.values_mut().for_each(|events| events.push(event(10, 3)));
            h.last.insert("k".to_owned(), 3);
        });
        assert!(twice.contains("was done 2 times"), "{twice}");
        let gap = wrong(|h| drop(h.watches.get_mut(&1).unwrap().remove(0)));
        assert!(gap.contains("came after None"), "{gap}");
        let order = wrong(|h| h.watches.get_mut(&0).unwrap()[0].revision = 30);
        assert!(order.contains("watch at server 0"), "{order}");
        let end = wrong(|h| {
            h.last.insert("k".to_owned(), 1);
        });
        assert!(end.contains("at the end"), "{end}");
        let stale = wrong(|h| h.reads.push(read(22, 23, 1)));
        assert!(stale.contains("after 2 was known"), "{stale}");
        let early = wrong(|h| h.reads.push(read(6, 7, 2)));
        assert!(early.contains("before it was written"), "{early}");
        let backwards = wrong(|h| h.writes.push(write(40, 41, 1, Outcome::Done(10))));
        assert!(backwards.contains("was written from"), "{backwards}");
    }
}

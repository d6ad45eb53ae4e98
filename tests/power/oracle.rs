//! Knows what was acknowledged and what was in flight, and judges what a store holds after a restart.
//!
//! A write is *settled* when it must be there from now on: it was acknowledged as synced, a watcher saw it, a restarted store
//! served it, or (batched ones) a later revision is settled. What was begun and not settled may be there or not, whole.

use crate::lines::{Found, Held, Kind, Line, Number, Part, Rev, Seen};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Something acknowledged is gone.
    Lost,
    /// Something is there that nobody wrote like that.
    Corrupt,
    /// A revision means two things, or went back.
    Back,
    /// A watch or a list at an older revision left something out.
    Gap,
    NotStarted,
}

#[derive(Clone, Debug)]
pub struct Fault {
    pub what: What,
    pub text: String,
}

#[derive(Clone, Debug)]
struct Write {
    kind: Kind,
    parts: Vec<Part>,
    revision: Option<Rev>,
    settled: bool,
}

#[derive(Clone, Debug, Default)]
struct Key {
    /// What it held from which revision on.
    past: BTreeMap<Rev, Option<Held>>,
    /// Begun and not settled.
    possible: Vec<Number>,
    /// Before this revision `past` may be wrong: a deletion in flight happened, nobody knows when.
    unsure: Rev,
}

impl Key {
    fn now(&self) -> Option<(Rev, &Held)> {
        self.past.last_key_value().and_then(|(rev, held)| held.as_ref().map(|held| (*rev, held)))
    }

    fn then(&self, at: Rev) -> Option<(Rev, &Held)> {
        self.past.range(..=at).next_back().and_then(|(rev, held)| held.as_ref().map(|held| (*rev, held)))
    }
}

/// What a child told of its start.
#[derive(Clone, Debug, Default)]
struct Start {
    revision: Rev,
    oldest: Rev,
    objects: BTreeMap<String, Found>,
    then: BTreeMap<String, (Rev, Number)>,
    replayed: Vec<(Rev, Vec<Seen>)>,
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    writes: HashMap<Number, Write>,
    keys: BTreeMap<String, Key>,
    given: BTreeMap<Rev, Number>,
    /// Batched, acknowledged and not settled.
    loose: BTreeMap<Rev, Number>,
    /// Newest revision that anybody was told.
    top: Rev,
    /// `top` when the store was last opened: new revisions are above it.
    floor: Rev,
    start: Start,
    pub acknowledged: u64,
    pub faults: Vec<Fault>,
    pub incidents: Vec<String>,
    /// How long the last start took.
    pub ready: Option<u64>,
}

impl Oracle {
    fn fault(&mut self, what: What, text: String) {
        self.faults.push(Fault { what, text });
    }

    pub fn newest_number(&self) -> Number {
        self.writes.keys().max().copied().unwrap_or(0)
    }

    pub fn hear(&mut self, line: Line) {
        match line {
            Line::Begin { number, kind, parts } => self.begin(number, kind, parts),
            Line::Acked { number, revision } => {
                self.acknowledged += 1;
                self.happened(number, revision);
            }
            Line::Saw { revision, changes } => match self.whose(revision, &changes) {
                Some(number) => self.happened(number, revision),
                None => self.fault(What::Corrupt, format!("a watcher saw {changes:?} at {revision}")),
            },
            Line::Ready { micros, revision, oldest } => {
                self.ready = Some(micros);
                self.start = Start { revision, oldest, ..Start::default() };
                if revision < self.top {
                    let text = format!("the store is at revision {revision}, {} was seen before", self.top);
                    self.fault(What::Back, text);
                }
            }
            Line::Incident(text) => self.incidents.push(text),
            Line::Object(found) => drop(self.start.objects.insert(found.key.clone(), found)),
            Line::Replayed { revision, changes } => self.start.replayed.push((revision, changes)),
            Line::Listed(revision) => self.listed(revision),
            Line::Then { key, modified, number } => drop(self.start.then.insert(key, (modified, number))),
            Line::ListedThen(at) => self.listed_then(at),
            Line::Bad(text) => self.fault(What::Corrupt, text),
            Line::Refused { .. } | Line::Checked | Line::NotOpened(_) | Line::Closed => {}
        }
    }

    fn begin(&mut self, number: Number, kind: Kind, parts: Vec<Part>) {
        if kind != Kind::Volatile {
            for part in &parts {
                self.keys.entry(part.key.clone()).or_default().possible.push(number);
            }
        }
        self.writes.insert(number, Write { kind, parts, revision: None, settled: false });
    }

    /// The write that a commit comes from.
    fn whose(&self, revision: Rev, changes: &[Seen]) -> Option<Number> {
        let said = changes.iter().find_map(|(_, number)| *number);
        let given = || self.given.get(&revision).copied();
        let deletes = |number: &&Number| {
            self.writes.get(number).is_some_and(|write| {
                write.revision.is_none() && write.parts.iter().all(|part| part.put.is_none())
            })
        };
        let pending = || {
            let (key, _) = changes.first()?;
            self.keys.get(key)?.possible.iter().rev().find(deletes).copied()
        };
        said.or_else(given).or_else(pending).filter(|number| self.writes.contains_key(number))
    }

    /// A write was committed at a revision, as far as the outside can tell.
    fn happened(&mut self, number: Number, revision: Rev) {
        self.top = self.top.max(revision);
        let Some(write) = self.writes.get_mut(&number) else {
            return self.fault(What::Corrupt, format!("write {number} at {revision} is none"));
        };
        let kind = write.kind;
        match write.revision.replace(revision) {
            None if revision <= self.floor => {
                let text = format!("write {number} got revision {revision}, {} was seen before", self.floor);
                self.fault(What::Back, text);
            }
            Some(before) if before != revision => {
                self.fault(What::Corrupt, format!("write {number} is at {before} and at {revision}"));
            }
            _ => {}
        }
        if let Some(other) = self.given.insert(revision, number).filter(|other| *other != number) {
            self.fault(What::Back, format!("revision {revision} was given to write {other} and to {number}"));
        }
        match kind {
            Kind::Synced => self.settle(number, revision),
            Kind::Batched => drop(self.loose.insert(revision, number)),
            Kind::Volatile => {}
        }
    }

    /// From now on it must be there, and with it all that was batched before it.
    fn settle(&mut self, number: Number, revision: Rev) {
        let later = self.loose.split_off(&revision);
        for (revision, number) in std::mem::replace(&mut self.loose, later) {
            self.settle_one(number, revision);
        }
        self.loose.remove(&revision);
        self.settle_one(number, revision);
    }

    fn settle_one(&mut self, number: Number, revision: Rev) {
        let Some(write) = self.writes.get_mut(&number).filter(|write| !write.settled) else { return };
        write.settled = true;
        for part in &write.parts {
            let key = self.keys.entry(part.key.clone()).or_default();
            key.possible.retain(|other| *other > number);
            key.past.insert(revision, part.put.clone());
        }
    }

    /// Forgets what was written after a revision; says whether anything was that must have been kept.
    pub fn rewind(&mut self, revision: Rev) -> bool {
        let mut lost = false;
        for key in self.keys.values_mut() {
            lost |= !key.past.split_off(&(revision + 1)).is_empty();
        }
        for (_, number) in self.given.range(revision + 1..) {
            if let Some(write) = self.writes.get_mut(number) {
                write.settled = false;
            }
        }
        lost
    }

    // ---- after a start

    fn listed(&mut self, revision: Rev) {
        let start = std::mem::take(&mut self.start);
        self.top = self.top.max(revision);
        if revision != start.revision {
            self.fault(What::Corrupt, format!("a list is at {revision}, the store at {}", start.revision));
        }
        self.judge_replay(&start);
        self.find_landed(&start, revision);
        self.judge_list(&start);
        self.keys.values_mut().for_each(|key| key.possible.clear());
        self.loose.clear();
        self.floor = self.top;
        self.start = Start { then: BTreeMap::new(), ..start };
    }

    fn judge_replay(&mut self, start: &Start) {
        let mut last = start.oldest;
        let mut there = BTreeSet::new();
        for (revision, changes) in &start.replayed {
            if *revision <= last || *revision > start.revision {
                let text = format!("a watch tells {revision} after {last}, the newest is {}", start.revision);
                self.fault(What::Gap, text);
            }
            last = *revision;
            there.insert(*revision);
            self.judge_commit(*revision, changes);
        }
        let missing: Vec<(Rev, Number)> = self
            .given
            .range(start.oldest + 1..)
            .filter(|(revision, number)| self.writes[number].settled && !there.contains(revision))
            .map(|(revision, number)| (*revision, *number))
            .collect();
        for (revision, number) in missing {
            let text = format!("a watch from {} misses {revision} (write {number})", start.oldest);
            self.fault(What::Gap, text);
        }
    }

    fn judge_commit(&mut self, revision: Rev, changes: &[Seen]) {
        let Some(number) = self.whose(revision, changes) else {
            return self.fault(What::Corrupt, format!("a watch tells {changes:?} at {revision}"));
        };
        let write = &self.writes[&number];
        let told: BTreeMap<&str, Option<Number>> =
            changes.iter().map(|(key, n)| (key.as_str(), *n)).collect();
        let expected: BTreeMap<&str, Option<Number>> =
            write.parts.iter().map(|part| (part.key.as_str(), part.put.as_ref().map(|_| number))).collect();
        if told != expected {
            return self.fault(What::Corrupt, format!("write {number} at {revision} is told as {told:?}"));
        }
        if write.kind == Kind::Volatile {
            return self.fault(What::Corrupt, format!("volatile write {number} came back at {revision}"));
        }
        self.happened(number, revision);
        self.settle(number, revision);
    }

    /// Settles what was in flight and is there.
    fn find_landed(&mut self, start: &Start, revision: Rev) {
        let mut landed = Vec::new();
        let mut gone = Vec::new();
        for (name, key) in &self.keys {
            match start.objects.get(name) {
                Some(found) if key.possible.contains(&found.held.number) => {
                    landed.push((found.held.number, found.modified));
                }
                None if key.now().is_some() => {
                    let deletes =
                        |number: &&Number| self.writes[number].parts.iter().all(|part| part.put.is_none());
                    gone.extend(key.possible.iter().find(deletes).map(|number| (*number, name.clone())));
                }
                _ => {}
            }
        }
        for (number, revision) in landed {
            self.happened(number, revision);
            self.settle(number, revision);
        }
        for (number, name) in gone {
            self.settle(number, revision);
            self.keys.entry(name).or_default().unsure = revision;
        }
    }

    fn judge_list(&mut self, start: &Start) {
        let names: BTreeSet<&String> = self.keys.keys().chain(start.objects.keys()).collect();
        let faults: Vec<Fault> = names
            .into_iter()
            .filter_map(|name| {
                let expected = self.keys.get(name).and_then(Key::now);
                self.judge_object(name, expected, start.objects.get(name))
            })
            .collect();
        self.faults.extend(faults);
    }

    fn judge_object(
        &self,
        name: &str,
        expected: Option<(Rev, &Held)>,
        found: Option<&Found>,
    ) -> Option<Fault> {
        let fault = |what, text: String| Some(Fault { what, text: format!("{name}: {text}") });
        let (expected, found) = match (expected, found) {
            (None, None) => return None,
            (Some((revision, held)), None) => {
                return fault(What::Lost, format!("write {} at {revision} is gone", held.number));
            }
            (expected, Some(found)) => (expected, found),
        };
        let number = found.held.number;
        let Some((revision, held)) = expected.filter(|(_, held)| held.number == number) else {
            let what = if self.writes.contains_key(&number) { What::Lost } else { What::Corrupt };
            let last = self.keys.get(name).and_then(|key| key.past.last_key_value());
            let last = last.map(|(revision, held)| (revision, held.as_ref().map(|held| held.number)));
            return fault(what, format!("holds write {number} at {}, expected {last:?}", found.modified));
        };
        if *held != found.held {
            return fault(What::Corrupt, format!("holds {}, written was {held}", found.held));
        }
        let created = self.writes.get(&held.uid).and_then(|write| write.revision);
        if found.modified != revision || created.is_some_and(|created| created != found.created) {
            let text = format!(
                "is of {} and {}, written at {created:?} and {revision}",
                found.created, found.modified
            );
            return fault(What::Back, text);
        }
        None
    }

    /// Whether a key held at a revision what a volatile write had put there.
    fn was_volatile(&self, name: &str, (modified, number): (Rev, Number), at: Rev) -> bool {
        let Some(write) = self.writes.get(&number) else { return false };
        let newer =
            self.keys.get(name).and_then(|key| key.then(at)).is_none_or(|(synced, _)| synced < modified);
        write.kind == Kind::Volatile
            && write.revision == Some(modified)
            && write.parts.iter().any(|part| part.key == name)
            && modified <= at
            && newer
    }

    fn listed_then(&mut self, at: Rev) {
        let told = std::mem::take(&mut self.start.then);
        let expected: BTreeMap<String, (Rev, Number)> = self
            .keys
            .iter()
            .filter(|(_, key)| at >= key.unsure)
            .filter_map(|(name, key)| key.then(at).map(|(rev, held)| (name.clone(), (rev, held.number))))
            .collect();
        let sure = |name: &String| self.keys.get(name).is_none_or(|key| at >= key.unsure);
        // What it truly held then, had it not been volatile, is as good.
        let volatile = |(name, is): &(String, (Rev, Number))| self.was_volatile(name, *is, at);
        let told: BTreeMap<String, (Rev, Number)> = told
            .into_iter()
            .filter(|(name, _)| sure(name))
            .map(|entry| match expected.get(&entry.0) {
                Some(synced) if volatile(&entry) => (entry.0, *synced),
                _ => entry,
            })
            .collect();
        if told != expected {
            let wrong = |(name, is): (&String, &(Rev, Number))| {
                (expected.get(name) != Some(is))
                    .then(|| format!("{name} {is:?}, not {:?}", expected.get(name)))
            };
            let mut text: Vec<String> = told.iter().filter_map(wrong).collect();
            text.extend(expected.keys().filter(|name| !told.contains_key(*name)).cloned());
            self.fault(What::Gap, format!("a list at {at} tells otherwise: {}", text.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::parse;

    const BEGUN: &str = "begin 1 Synced put k./1 1 1 77";
    const HELD: &str = "object k./1 5 5 1 1 77";

    fn faults(lines: &[&str]) -> Vec<What> {
        let mut oracle = Oracle::default();
        lines.iter().for_each(|line| oracle.hear(parse(line).expect(line)));
        oracle.faults.iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn what_was_acknowledged_is_there() {
        let written = [BEGUN, "acked 1 5", "ready 9 5 0"];
        let all = ["replayed 5 k./1 1", HELD, "listed 5", "then k./1 5 1", "listed-then 5"];
        assert_eq!(faults(&[&written[..], &all[..]].concat()), []);
        assert_eq!(faults(&[&written[..], &["listed 5"]].concat()), [What::Gap, What::Lost]);
        let other = ["replayed 5 k./1 1", "object k./1 5 5 1 1 78", "listed 5"];
        assert_eq!(faults(&[&written[..], &other[..]].concat()), [What::Corrupt]);
        let moved = ["replayed 5 k./1 1", "object k./1 4 5 1 1 77", "listed 5"];
        assert_eq!(faults(&[&written[..], &moved[..]].concat()), [What::Back]);
    }

    #[test]
    fn what_was_in_flight_may_be_there_whole() {
        let two = "begin 1 Synced put k./1 1 1 77 put k./2 1 1 78";
        assert_eq!(faults(&[two, "ready 9 0 0", "listed 0"]), []);
        let both = [two, "ready 9 5 5", HELD, "object k./2 5 5 1 1 78", "listed 5"];
        assert_eq!(faults(&both), []);
        assert_eq!(faults(&[two, "ready 9 5 5", HELD, "listed 5"]), [What::Lost]);
    }

    #[test]
    fn what_was_served_stays() {
        let served = [BEGUN, "ready 9 5 5", HELD, "listed 5"];
        assert_eq!(faults(&served), []);
        assert_eq!(faults(&[&served[..], &["ready 9 5 5", "listed 5"]].concat()), [What::Lost]);
    }

    #[test]
    fn a_revision_means_one_thing() {
        let written = [BEGUN, "acked 1 5"];
        assert_eq!(
            faults(&[&written[..], &["ready 9 4 4", HELD, "listed 4"]].concat()),
            [What::Back, What::Gap]
        );
        let again = [BEGUN, "acked 1 5", "begin 2 Volatile put v./1 2 2 7", "acked 2 5"];
        assert_eq!(faults(&again), [What::Back]);
        let restarted = [BEGUN, "ready 9 9 9", "listed 9", "begin 2 Volatile put v./1 2 2 7", "acked 2 9"];
        assert_eq!(faults(&restarted), [What::Back]);
    }

    #[test]
    fn batched_writes_are_lost_at_the_end_only() {
        let batched = ["begin 1 Batched put e./1 1 1 77", "acked 1 5"];
        let gone = ["ready 9 9 9", "listed 9"];
        assert_eq!(faults(&[&batched[..], &gone[..]].concat()), []);
        let followed = [
            "begin 2 Synced put k./2 2 2 7",
            "acked 2 6",
            "ready 9 9 9",
            "object k./2 6 6 2 2 7",
            "listed 9",
        ];
        assert_eq!(faults(&[&batched[..], &followed[..]].concat()), [What::Lost]);
    }

    #[test]
    fn the_past_may_show_what_was_volatile() {
        let held =
            ["begin 1 Synced put h./1 1 1 7", "acked 1 5", "begin 2 Volatile put h./1 2 1 8", "acked 2 6"];
        let now = ["ready 9 9 5", "object h./1 5 5 1 1 7", "listed 9"];
        let then = |line| faults(&[&held[..], &now[..], &[line, "listed-then 6"]].concat());
        assert_eq!(then("then h./1 5 1"), []);
        assert_eq!(then("then h./1 6 2"), []);
        assert_eq!(then("then h./1 7 2"), [What::Gap]);
    }
}

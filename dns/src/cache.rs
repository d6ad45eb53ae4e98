//! What others have said, kept for as long as they allow.
//!
//! Answers are kept as they came and given again with the asker's id, its spelling of the name, and the time that is left.

use crate::configuration::{CacheSettings, Kept, Refresh};
use crate::wire::{HEADER_BYTES, end_of_name};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, RecordType};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Larger answers are not kept: few are, and they would fill the room of many.
const MAX_ANSWER_BYTES: usize = 4096;
/// Of all answers of one cache, with some 200 bytes of each for its key and place.
const MAX_BYTES: usize = 4 << 20;
const ENTRY_BYTES: usize = 200;
/// An old answer is asked for anew no more often than this: longer than it takes until nobody answers.
const REFRESH_INTERVAL: Duration = Duration::from_secs(8);

/// What answers are the same for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// In lower case.
    name: Box<str>,
    kind: RecordType,
    /// The asker knows EDNS, and whether it wants signatures.
    edns: Option<bool>,
    checking_disabled: bool,
}

impl Key {
    /// Of a message with one question.
    pub fn of(request: &Message) -> Option<Self> {
        let [question] = request.queries.as_slice() else { return None };
        let is_internet = question.query_class() == hickory_proto::rr::DNSClass::IN;
        is_internet.then(|| Self {
            name: question.name().to_lowercase().to_ascii().into(),
            kind: question.query_type(),
            edns: request.edns.as_ref().map(|edns| edns.flags().dnssec_ok),
            checking_disabled: request.metadata.checking_disabled,
        })
    }
}

/// By what an answer's time is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Success,
    Denial,
    Failure,
}

struct Entry {
    class: Class,
    bytes: Box<[u8]>,
    /// Where times to live stand in the bytes.
    times: Box<[u16]>,
    since: Instant,
    until: Instant,
    /// When somebody was last told to ask anew.
    refreshed: Option<Instant>,
}

/// What is known of a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// An answer, to be sent.
    Fresh(Vec<u8>),
    /// One that is too old, to be sent while it is asked anew. Who asks again soon gets it as a fresh one: one asks for all.
    Stale(Vec<u8>),
    Nothing,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Key, Entry>,
    bytes: usize,
    /// Of the entries those with records, and the others.
    counts: [usize; 2],
}

impl Class {
    /// Its place among counts.
    fn side(self) -> usize {
        usize::from(self != Self::Success)
    }
}

pub struct Cache {
    settings: CacheSettings,
    table: Mutex<Table>,
}

impl Cache {
    pub fn new(settings: CacheSettings) -> Self {
        Self { settings, table: Mutex::default() }
    }

    /// The answer to a whole question, if it is known.
    pub fn get(&self, key: &Key, question: &[u8], now: Instant) -> Known {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(key) else { return Known::Nothing };
        if now < entry.until {
            let passed = now.saturating_duration_since(entry.since).as_secs();
            return answer(entry, question, Some(passed)).map_or(Known::Nothing, Known::Fresh);
        }
        if !self.is_usable(entry, now) {
            table.remove(key);
            return Known::Nothing;
        }
        match self.settings.stale {
            Some((_, Refresh::Immediate)) => {
                let is_asked =
                    entry.refreshed.is_some_and(|at| now.saturating_duration_since(at) < REFRESH_INTERVAL);
                if !is_asked {
                    entry.refreshed = Some(now);
                }
                let form = if is_asked { Known::Fresh } else { Known::Stale };
                answer(entry, question, None).map_or(Known::Nothing, form)
            }
            _ => Known::Nothing,
        }
    }

    /// An answer that is too old, where nobody else has one.
    pub fn stale(&self, key: &Key, question: &[u8], now: Instant) -> Option<Vec<u8>> {
        let table = self.table.lock();
        let entry = table.entries.get(key).filter(|entry| self.is_usable(entry, now))?;
        answer(entry, question, None)
    }

    /// Whether it may be given, be it fresh or old.
    fn is_usable(&self, entry: &Entry, now: Instant) -> bool {
        let stale = self.settings.stale.filter(|_| entry.class != Class::Failure);
        now < entry.until + stale.map_or(Duration::ZERO, |(longest, _)| longest)
    }

    /// Keeps what somebody said to a question, if it may be kept and is about that question.
    pub fn put(&self, key: Key, answer: &[u8], now: Instant) {
        let Some(entry) = self.entry(&key, answer, now) else { return };
        let capacity = match entry.class {
            Class::Success => self.settings.success.map_or(0, |kept| kept.capacity),
            Class::Denial | Class::Failure => self.settings.denial.map_or(0, |kept| kept.capacity),
        };
        let mut table = self.table.lock();
        // A failure takes no good answer's place: that is what is given meanwhile.
        let has_good = || table.entries.get(&key).is_some_and(|held| self.is_usable(held, now));
        if entry.class == Class::Failure && has_good() {
            return;
        }
        table.remove(&key);
        let size = entry.bytes.len() + ENTRY_BYTES;
        if !table.make_room(size, capacity, entry.class) {
            return;
        }
        table.bytes += size;
        table.counts[entry.class.side()] += 1;
        table.entries.insert(key, entry);
    }

    fn entry(&self, key: &Key, answer: &[u8], now: Instant) -> Option<Entry> {
        if answer.len() > MAX_ANSWER_BYTES {
            return None;
        }
        let message = Message::from_vec(answer).ok()?;
        let own = Key::of(&message)?;
        if message.metadata.truncation || own.name != key.name || own.kind != key.kind {
            return None;
        }
        let (class, time) = self.time_of(&message)?;
        let times = places_of_times(answer)?;
        Some(Entry {
            class,
            bytes: answer.into(),
            times: times.into(),
            since: now,
            until: now + time,
            refreshed: None,
        })
    }

    /// What an answer is, and how long it may be kept (RFC 2308 for those that say no).
    fn time_of(&self, message: &Message) -> Option<(Class, Duration)> {
        let within = |kept: Kept, seconds: u32| {
            Duration::from_secs(seconds.into()).clamp(kept.shortest.min(kept.longest), kept.longest)
        };
        match message.metadata.response_code {
            ResponseCode::NoError if !message.answers.is_empty() => {
                let records = message.answers.iter().chain(&message.authorities);
                let seconds = records.map(|record| record.ttl).min()?;
                Some((Class::Success, within(self.settings.success?, seconds)))
            }
            ResponseCode::NoError | ResponseCode::NXDomain => {
                let seconds = message.authorities.iter().find_map(|record| match &record.data {
                    RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
                    _ => None,
                })?;
                Some((Class::Denial, within(self.settings.denial?, seconds)))
            }
            ResponseCode::ServFail => {
                Some((Class::Failure, self.settings.failure)).filter(|(_, time)| !time.is_zero())
            }
            _ => None,
        }
    }

    /// Answers that are kept: those with records, and the others.
    pub fn entries(&self) -> (usize, usize) {
        let [successes, others] = self.table.lock().counts;
        (successes, others)
    }
}

impl Table {
    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes.len() + ENTRY_BYTES;
            self.counts[entry.class.side()] -= 1;
        }
    }

    /// Whether there is room for so much more, where need be after the oldest went.
    fn make_room(&mut self, size: usize, capacity: usize, class: Class) -> bool {
        if capacity == 0 {
            return false;
        }
        if self.bytes + size <= MAX_BYTES && self.counts[class.side()] < capacity {
            return true;
        }
        // A tenth at once, so that a full table is not looked through for each new answer.
        let mut by_age: Vec<(Instant, Key)> =
            self.entries.iter().map(|(key, entry)| (entry.since, key.clone())).collect();
        by_age.sort_by_key(|(since, _)| *since);
        for (_, key) in by_age.iter().take(by_age.len() / 10 + 1) {
            self.remove(key);
        }
        self.bytes + size <= MAX_BYTES
    }
}

/// The kept bytes for this asker: its id, its spelling of the name, and times less what has passed (none is left of those
/// that are too old).
fn answer(entry: &Entry, question: &[u8], passed: Option<u64>) -> Option<Vec<u8>> {
    let mut bytes = entry.bytes.to_vec();
    let end = end_of_name(&bytes, HEADER_BYTES)?;
    let own_end = end_of_name(question, HEADER_BYTES)?;
    if end != own_end {
        return None;
    }
    bytes[..2].copy_from_slice(question.get(..2)?);
    // Recursion desired, as it was asked.
    bytes[2] = bytes[2] & !1 | question[2] & 1;
    bytes[HEADER_BYTES..end].copy_from_slice(&question[HEADER_BYTES..own_end]);
    for at in &entry.times {
        let at = usize::from(*at);
        let field = bytes.get_mut(at..at + 4)?;
        let time = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
        let left = passed.map_or(0, |passed| time.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX)));
        field.copy_from_slice(&left.to_be_bytes());
    }
    Some(bytes)
}

/// Where the times to live of all records stand, but that of EDNS, which means something else.
fn places_of_times(bytes: &[u8]) -> Option<Vec<u16>> {
    let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let mut at = HEADER_BYTES;
    for _ in 0..number(4)? {
        at = end_of_name(bytes, at)? + 4;
    }
    let mut places = Vec::new();
    for _ in 0..u32::from(number(6)?) + u32::from(number(8)?) + u32::from(number(10)?) {
        at = end_of_name(bytes, at)?;
        if number(at)? != u16::from(RecordType::OPT) {
            places.push(u16::try_from(at + 4).ok()?);
        }
        at += 10 + usize::from(number(at + 8)?);
    }
    (at <= bytes.len()).then_some(places)
}

#[cfg(test)]
mod tests;

//! Which lines are written, and which are only counted. Knows neither clock nor output.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;

/// For so long after it was written a line is only counted. A failure that lasts is told six times an hour.
pub const PERIOD: Duration = Duration::from_secs(600);

/// Different lines that one place in the program may write in a period; those beyond are counted together. A start
/// writes some thirty from one place, and a storm of a thousand objects a thousand.
const LINES: usize = 50;

/// What was counted of a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub line: Box<str>,
    pub times: u64,
    /// Not only this line was counted but all of its place that were too many.
    pub others: bool,
}

struct Line {
    written: Instant,
    again: u64,
}

/// A place in the program that writes lines.
#[derive(Default)]
struct Place {
    lines: HashMap<Box<str>, Line>,
    /// Those beyond [`LINES`]: since when, the first of them, and how many.
    others: Option<(Instant, Box<str>, u64)>,
}

/// Places are as many as the program has, and each remembers [`LINES`] lines.
pub struct Repeats<P = Identifier>(HashMap<P, Place>);

impl<P> Default for Repeats<P> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<P: Hash + Eq> Repeats<P> {
    /// Whether this line is to be written; otherwise it is counted.
    pub fn offer(&mut self, place: P, line: &str, now: Instant) -> bool {
        let place = self.0.entry(place).or_default();
        if let Some(known) = place.lines.get_mut(line) {
            if known.again > 0 || now < known.written + PERIOD {
                known.again += 1;
                return false;
            }
            known.written = now;
            return true;
        }
        if place.lines.len() >= LINES {
            place.lines.retain(|_, line| line.again > 0 || now < line.written + PERIOD);
        }
        if place.lines.len() >= LINES {
            place.others.get_or_insert_with(|| (now, line.into(), 0)).2 += 1;
            return false;
        }
        place.lines.insert(line.into(), Line { written: now, again: 0 });
        true
    }

    /// When the first count is to be told.
    pub fn due(&self) -> Option<Instant> {
        let counted = self.0.values().flat_map(|place| {
            let lines = place.lines.values().filter(|line| line.again > 0).map(|line| line.written);
            lines.chain(place.others.as_ref().map(|(since, ..)| *since))
        });
        counted.min().map(|since| since + PERIOD)
    }

    /// What is due by then, or everything, in the order in which it began. It is forgotten.
    pub fn take(&mut self, by: Option<Instant>) -> Vec<Told> {
        let is_due = |since: Instant| by.is_none_or(|now| since + PERIOD <= now);
        let mut told = Vec::new();
        for place in self.0.values_mut() {
            let due = place.lines.extract_if(|_, line| line.again > 0 && is_due(line.written));
            told.extend(
                due.map(|(text, line)| (line.written, Told { line: text, times: line.again, others: false })),
            );
            if let Some((since, line, times)) = place.others.take_if(|(since, ..)| is_due(*since)) {
                told.push((since, Told { line, times, others: true }));
            }
        }
        told.sort_by_key(|(since, _)| *since);
        told.into_iter().map(|(_, told)| told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(line: &str, times: u64) -> Told {
        Told { line: line.into(), times, others: false }
    }

    #[test]
    fn the_same_line_is_written_once_a_period_with_a_count() {
        let (mut repeats, begun) = (Repeats::default(), Instant::now());
        assert_eq!(repeats.due(), None);
        assert!(repeats.offer("reflector", "watch failed", begun));
        assert_eq!(repeats.due(), None, "nothing is counted yet");
        for second in 1..30_000u64 {
            assert!(!repeats.offer("reflector", "watch failed", begun + Duration::from_millis(second)));
        }
        assert!(repeats.offer("informer", "watch failed", begun), "another place");
        let due = repeats.due().unwrap();
        assert_eq!(due, begun + PERIOD);
        assert_eq!(repeats.take(Some(due - Duration::from_secs(1))), []);
        assert_eq!(repeats.take(Some(due)), [counted("watch failed", 29_999)]);
        assert_eq!(repeats.due(), None);
        assert!(repeats.offer("reflector", "watch failed", due));
        assert!(repeats.offer("reflector", "watch failed", due + PERIOD), "it came once a period");
    }

    #[test]
    fn a_place_does_not_flood_the_log_with_different_lines() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let written = |repeats: &mut Repeats<u8>, from: usize, now| {
            (from..from + 1000).filter(|n| repeats.offer(1, &format!("pod {n}"), now)).count()
        };
        assert_eq!(written(&mut repeats, 0, now), LINES);
        let others = Told { line: format!("pod {LINES}").into(), times: 950, others: true };
        assert_eq!(repeats.take(repeats.due()), [others]);
        assert_eq!(
            written(&mut repeats, 0, now + PERIOD),
            LINES,
            "what was written once is forgotten in time"
        );
        assert_eq!(written(&mut repeats, 2000, now + PERIOD), 0);
        assert_eq!(repeats.0[&1].lines.len(), LINES);
    }

    #[test]
    fn at_the_end_everything_is_told_in_order() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        for (place, line, second) in [(1, "first", 0), (2, "second", 1), (2, "second", 2), (1, "first", 3)] {
            repeats.offer(place, line, now + Duration::from_secs(second));
        }
        assert_eq!(repeats.take(None), [counted("first", 1), counted("second", 1)]);
    }
}

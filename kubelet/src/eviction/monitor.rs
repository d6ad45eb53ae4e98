//! From observations to pressures and to who is to be relieved of what, over time.
//!
//! A signal that is short is a pressure at once, and stays one for a while after it was short last, lest the node's word
//! flickers. Pods go at once for a hard threshold, for a soft one after its grace period; and until there is as much more
//! as is to be reclaimed.

use crate::configuration::eviction::{Rule, Settings};
use crate::signal::{Observations, Pressure};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// What the node is to say, and the most urgent threshold that somebody has to go for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finding {
    pub pressures: BTreeSet<Pressure>,
    pub due: Option<Rule>,
}

/// Remembers what earlier observations meant. Rules go by their place in the settings.
pub struct Monitor {
    settings: Settings,
    /// Since when rules are crossed.
    since: BTreeMap<usize, Instant>,
    /// Those that somebody had to go for at the last look.
    met: BTreeSet<usize>,
    /// When a pressure was felt last.
    felt: BTreeMap<Pressure, Instant>,
}

impl Monitor {
    pub fn new(settings: Settings) -> Self {
        Self { settings, since: BTreeMap::new(), met: BTreeSet::new(), felt: BTreeMap::new() }
    }

    pub fn look(&mut self, at: &Observations, now: Instant) -> Finding {
        let rules = self.settings.rules.iter().enumerate();
        let crossed: BTreeMap<usize, Rule> = rules
            .filter(|(index, rule)| rule.crossed(at, self.met.contains(index)))
            .map(|(index, rule)| (index, *rule))
            .collect();
        self.since.retain(|index, _| crossed.contains_key(index));
        for (index, rule) in &crossed {
            self.since.entry(*index).or_insert(now);
            self.felt.insert(rule.signal.pressure(), now);
        }
        let transition = self.settings.transition;
        self.felt.retain(|_, last| *last == now || now.saturating_duration_since(*last) < transition);
        let since = |index: &usize| self.since.get(index).copied().unwrap_or(now);
        let patient = |index: &usize, rule: &Rule| {
            rule.patience.is_none_or(|patience| now.saturating_duration_since(since(index)) >= patience)
        };
        self.met = crossed.iter().filter(|(index, rule)| patient(index, rule)).map(|(i, _)| *i).collect();
        let due = self.met.iter().filter_map(|index| crossed.get(index));
        let due = due.min_by_key(|rule| (rule.signal, rule.patience.is_some())).copied();
        Finding { pressures: self.felt.keys().copied().collect(), due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{Amount, Signal};
    use std::time::Duration;

    /// A node with 1000 bytes of memory and of disk.
    struct Node {
        monitor: Monitor,
        start: Instant,
    }

    impl Node {
        fn new(written: &str) -> Self {
            let settings = Settings::read(&serde_json::from_str(written).unwrap()).unwrap();
            Self { monitor: Monitor::new(settings), start: Instant::now() }
        }

        /// The pressures and what is due, so many seconds after the start.
        fn at(&mut self, second: u64, memory: u64, disk: u64) -> (Vec<Pressure>, Option<Signal>) {
            let amount = |available| Amount { available, capacity: 1000 };
            let amounts =
                [(Signal::MemoryAvailable, amount(memory)), (Signal::NodefsAvailable, amount(disk))].into();
            let at = Observations { amounts, imagefs_apart: false };
            let found = self.monitor.look(&at, self.start + Duration::from_secs(second));
            (found.pressures.into_iter().collect(), found.due.map(|rule| rule.signal))
        }
    }

    const HARD: &str = r#"{"evictionHard": {"memory.available": "100", "nodefs.available": "10%"},
        "evictionMinimumReclaim": {"nodefs.available": "50"}}"#;

    #[tokio::test(start_paused = true)]
    async fn a_pressure_outlives_its_cause() {
        let mut node = Node::new(HARD);
        assert_eq!(node.at(0, 500, 500), (vec![], None));
        assert_eq!(node.at(10, 99, 500), (vec![Pressure::Memory], Some(Signal::MemoryAvailable)));
        assert_eq!(node.at(20, 100, 500), (vec![Pressure::Memory], None), "nobody goes any more");
        assert_eq!(node.at(309, 500, 500), (vec![Pressure::Memory], None));
        assert_eq!(node.at(310, 500, 500), (vec![], None), "five minutes after it was short last");
        let mut quick = Node::new(
            r#"{"evictionHard": {"memory.available": "100"}, "evictionPressureTransitionPeriod": "0s"}"#,
        );
        assert_eq!(quick.at(0, 99, 500).0, [Pressure::Memory]);
        assert_eq!(quick.at(1, 100, 500).0, []);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_comes_first() {
        let mut node = Node::new(HARD);
        let both = vec![Pressure::Memory, Pressure::Disk];
        assert_eq!(node.at(0, 99, 99), (both.clone(), Some(Signal::MemoryAvailable)));
        assert_eq!(node.at(10, 100, 99), (both, Some(Signal::NodefsAvailable)));
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_the_least_is_reclaimed() {
        let mut node = Node::new(HARD);
        assert_eq!(node.at(0, 500, 149).1, None, "not short yet");
        assert_eq!(node.at(10, 500, 99).1, Some(Signal::NodefsAvailable));
        assert_eq!(node.at(20, 500, 149).1, Some(Signal::NodefsAvailable), "not enough yet");
        assert_eq!(node.at(30, 500, 150).1, None);
        assert_eq!(node.at(40, 500, 149).1, None);
    }

    #[tokio::test(start_paused = true)]
    async fn soft_thresholds_are_patient() {
        let mut node = Node::new(
            r#"{"evictionHard": {"memory.available": "100"}, "evictionSoft": {"memory.available": "200"},
                "evictionSoftGracePeriod": {"memory.available": "1m30s"}}"#,
        );
        assert_eq!(node.at(0, 199, 500), (vec![Pressure::Memory], None), "the node says so at once");
        assert_eq!(node.at(89, 199, 500).1, None);
        assert_eq!(node.at(90, 199, 500).1, Some(Signal::MemoryAvailable));
        assert_eq!(node.at(95, 200, 500).1, None);
        assert_eq!(node.at(100, 199, 500).1, None, "it begins anew");
        assert_eq!(node.at(110, 99, 500).1, Some(Signal::MemoryAvailable), "a hard one does not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_is_not_short() {
        let mut monitor = Monitor::new(Settings::default());
        assert_eq!(monitor.look(&Observations::default(), Instant::now()), Finding::default());
    }
}

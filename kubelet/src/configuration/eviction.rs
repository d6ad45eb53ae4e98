//! When the node is short of something: KubeletConfiguration's `eviction…` fields
//! (<https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>).

use crate::signal::{Amount, Observations, Signal};
use coracle_api::duration;
use coracle_api::quantity::Quantity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a pod gets to end in where a hard threshold is crossed, whatever its own grace period; upstream's second.
pub const HARD_GRACE: Duration = Duration::from_secs(1);
/// Upstream's evictionPressureTransitionPeriod.
const TRANSITION: Duration = Duration::from_secs(300);

/// By signals' names, as the configuration has it; what is left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EvictionConfiguration {
    pub eviction_hard: Option<BTreeMap<String, String>>,
    pub eviction_soft: Option<BTreeMap<String, String>>,
    pub eviction_soft_grace_period: Option<BTreeMap<String, String>>,
    pub eviction_minimum_reclaim: Option<BTreeMap<String, String>>,
    /// In seconds.
    pub eviction_max_pod_grace_period: Option<u32>,
    pub eviction_pressure_transition_period: Option<String>,
}

/// So much of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// In the resource's own unit: bytes, or a number of inodes or processes.
    Amount(u64),
    /// Of the whole, in hundredths of a percent.
    Share(u64),
}

impl Threshold {
    fn parse(text: &str) -> Option<Self> {
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().ok().filter(|p| (0.0..=100.0).contains(p))?;
            let hundredths = format!("{:.0}", percent * 100.0);
            return hundredths.parse().ok().map(Self::Share);
        }
        let amount: Quantity = text.parse().ok()?;
        u64::try_from(amount.units()).ok().map(Self::Amount)
    }

    /// As it would be written for the signal.
    fn text(self, signal: Signal) -> String {
        match self {
            Self::Amount(amount) => signal.quantity(amount).to_string(),
            Self::Share(share) if share % 100 == 0 => format!("{}%", share / 100),
            Self::Share(share) => format!("{}.{:02}%", share / 100, share % 100),
        }
    }

    fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Share(share) => {
                let whole = u128::from(capacity) * u128::from(share) / 10_000;
                u64::try_from(whole).unwrap_or(u64::MAX)
            }
        }
    }
}

/// One threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub signal: Signal,
    least: Threshold,
    /// How long a soft one must be crossed before anybody is evicted; a hard one has none.
    pub patience: Option<Duration>,
    /// How much more than the least there must be before it is over.
    reclaim: Threshold,
}

impl Rule {
    /// Whether too little is there: less than the least, or, of one that was crossed before, less than what ends that.
    pub fn crossed(&self, at: &Observations, before: bool) -> bool {
        at.amounts.get(&self.signal).is_some_and(|amount| {
            let more = if before { self.reclaim.of(amount.capacity) } else { 0 };
            amount.available < self.least.of(amount.capacity).saturating_add(more)
        })
    }

    /// The least there must be and what there is, as messages give them.
    pub fn words(&self, at: &Observations) -> (String, String) {
        let Amount { available, capacity } = at.amounts.get(&self.signal).copied().unwrap_or_default();
        let words = |amount| self.signal.quantity(amount).to_string();
        (words(self.least.of(capacity)), words(available))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub rules: Vec<Rule>,
    /// The most that a pod gets to end in where a soft threshold is crossed.
    pub max_pod_grace: Duration,
    /// For so long after it was short last the node still says that it is.
    pub transition: Duration,
}

/// Upstream's, but for process ids, for which it has none: below 2 % nothing can start.
const HARD: [(Signal, Threshold); 6] = [
    (Signal::MemoryAvailable, Threshold::Amount(100 << 20)),
    (Signal::NodefsAvailable, Threshold::Share(1000)),
    (Signal::NodefsInodesFree, Threshold::Share(500)),
    (Signal::ImagefsAvailable, Threshold::Share(1500)),
    (Signal::ImagefsInodesFree, Threshold::Share(500)),
    (Signal::PidAvailable, Threshold::Share(200)),
];

impl Default for Settings {
    fn default() -> Self {
        let rule = |(signal, least)| Rule { signal, least, patience: None, reclaim: Threshold::Amount(0) };
        Self { rules: HARD.map(rule).into(), max_pod_grace: Duration::ZERO, transition: TRANSITION }
    }
}

impl Settings {
    /// What a hard threshold keeps free of a capacity.
    pub fn kept_free(&self, signal: Signal, capacity: u64) -> u64 {
        let hard = self.rules.iter().filter(|rule| rule.signal == signal && rule.patience.is_none());
        hard.map(|rule| rule.least.of(capacity)).max().unwrap_or(0)
    }
}

/// Reads maps by signal, noting what is wrong.
struct Reader(Vec<String>);

impl Reader {
    fn map<T>(
        &mut self,
        field: &str,
        written: Option<&BTreeMap<String, String>>,
        read: impl Fn(&str) -> Option<T>,
        what: &str,
    ) -> BTreeMap<Signal, T> {
        let mut all = BTreeMap::new();
        for (name, text) in written.into_iter().flatten() {
            match (Signal::parse(name), read(text)) {
                (Ok(signal), Some(value)) => drop(all.insert(signal, value)),
                (Ok(_), None) => self.0.push(format!("{field}: \"{text}\" of {name} is {what}")),
                (Err(mistake), _) => self.0.push(format!("{field}: {mistake}")),
            }
        }
        all
    }

    fn amounts(
        &mut self,
        field: &str,
        written: Option<&BTreeMap<String, String>>,
    ) -> BTreeMap<Signal, Threshold> {
        self.map(field, written, Threshold::parse, "neither a quantity nor a percentage")
    }
}

impl Settings {
    /// Hard thresholds that are left out keep their defaults (upstream's `mergeDefaultEvictionSettings`); one of nothing,
    /// as one of 100 %, is none.
    ///
    /// # Errors
    /// All mistakes, each with its field.
    pub fn read(written: &EvictionConfiguration) -> Result<Self, Vec<String>> {
        let mut reader = Reader(Vec::new());
        let mut hard = BTreeMap::from(HARD);
        hard.extend(reader.amounts("evictionHard", written.eviction_hard.as_ref()));
        let soft = reader.amounts("evictionSoft", written.eviction_soft.as_ref());
        let patience = reader.map(
            "evictionSoftGracePeriod",
            written.eviction_soft_grace_period.as_ref(),
            duration::parse,
            "no duration such as 1m30s",
        );
        let reclaim = reader.amounts("evictionMinimumReclaim", written.eviction_minimum_reclaim.as_ref());
        let transition = written.eviction_pressure_transition_period.as_deref().map(|text| {
            duration::parse(text).unwrap_or_else(|| {
                let field = "evictionPressureTransitionPeriod";
                reader.0.push(format!("{field}: \"{text}\" is no duration such as 5m0s"));
                TRANSITION
            })
        });
        for (name, signal) in Signal::ALL {
            if soft.contains_key(&signal) && !patience.contains_key(&signal) {
                reader
                    .0
                    .push(format!("evictionSoft: {name} needs a grace period in evictionSoftGracePeriod"));
            }
        }
        let some = |least: &Threshold| !matches!(least, Threshold::Amount(0) | Threshold::Share(0 | 10_000));
        let rule = |signal: Signal, least: Threshold, patience: Option<Duration>| {
            let reclaim = reclaim.get(&signal).copied().unwrap_or(Threshold::Amount(0));
            Rule { signal, least, patience, reclaim }
        };
        let hard = hard.into_iter().map(|(signal, least)| rule(signal, least, None));
        let soft =
            soft.into_iter().map(|(signal, least)| rule(signal, least, patience.get(&signal).copied()));
        let settings = Self {
            rules: hard.chain(soft).filter(|rule| some(&rule.least)).collect(),
            max_pod_grace: Duration::from_secs(written.eviction_max_pod_grace_period.unwrap_or(0).into()),
            transition: transition.unwrap_or(TRANSITION),
        };
        if reader.0.is_empty() { Ok(settings) } else { Err(reader.0) }
    }

    /// As a configuration that says it all.
    pub fn configuration(&self) -> EvictionConfiguration {
        let map = |of: &dyn Fn(&Rule) -> Option<String>| {
            let named = |rule: &Rule| {
                let (name, _) = Signal::ALL.into_iter().find(|(_, signal)| *signal == rule.signal)?;
                Some((name.to_owned(), of(rule)?))
            };
            self.rules.iter().filter_map(named).collect::<BTreeMap<String, String>>()
        };
        let least = |rule: &Rule| rule.least.text(rule.signal);
        let mut hard = map(&|rule| rule.patience.is_none().then(|| least(rule)));
        for (name, _) in Signal::ALL {
            hard.entry(name.to_owned()).or_insert_with(|| "0%".to_owned());
        }
        EvictionConfiguration {
            eviction_hard: Some(hard),
            eviction_soft: Some(map(&|rule| rule.patience.map(|_| least(rule)))),
            eviction_soft_grace_period: Some(map(&|rule| rule.patience.map(duration::written))),
            eviction_minimum_reclaim: Some(map(&|rule| {
                (rule.reclaim != Threshold::Amount(0)).then(|| rule.reclaim.text(rule.signal))
            })),
            eviction_max_pod_grace_period: u32::try_from(self.max_pod_grace.as_secs()).ok(),
            eviction_pressure_transition_period: Some(duration::written(self.transition)),
        }
    }

    /// What a pod whose eviction another kubelet began gets at most: by which threshold it was is not known.
    pub fn resumed_grace(&self) -> Duration {
        self.max_pod_grace.max(HARD_GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &str) -> Result<Settings, Vec<String>> {
        Settings::read(&serde_json::from_str(written).unwrap())
    }

    fn crossed(settings: &Settings, signal: Signal, available: u64) -> bool {
        let amount = Amount { available, capacity: 1000 };
        let at = Observations { amounts: [(signal, amount)].into(), imagefs_apart: false };
        settings.rules.iter().any(|rule| rule.crossed(&at, false))
    }

    #[test]
    fn amounts_and_shares_are_told_apart() {
        let disk = Signal::NodefsAvailable;
        let least = |text: &str| {
            read(&format!("{{\"evictionHard\": {{\"nodefs.available\": \"{text}\"}}}}")).unwrap()
        };
        assert!(crossed(&Settings::default(), disk, 99), "less than ten percent");
        assert!(!crossed(&Settings::default(), disk, 100));
        assert!(!crossed(&least("9.5%"), disk, 99));
        assert!(!crossed(&least("99"), disk, 99));
        assert!(crossed(&least("1Ki"), disk, 99));
        assert!(!crossed(&least("0%"), disk, 0), "none at all");
        assert!(!crossed(&least("100%"), disk, 0), "none at all");
        assert!(crossed(&least("0%"), Signal::PidAvailable, 19), "the others keep their defaults");
    }

    #[test]
    fn all_of_the_disk_has_thresholds() {
        for (signal, share) in
            [(Signal::NodefsInodesFree, 50), (Signal::ImagefsAvailable, 150), (Signal::ImagefsInodesFree, 50)]
        {
            assert!(crossed(&Settings::default(), signal, share - 1), "{signal:?}");
            assert!(!crossed(&Settings::default(), signal, share), "{signal:?}");
        }
    }

    #[test]
    fn messages_give_bytes_as_quantities() {
        let amount = Amount { available: 90 << 20, capacity: 1 << 30 };
        let pids = Amount { available: 1234, capacity: 100_000 };
        let amounts = [(Signal::MemoryAvailable, amount), (Signal::PidAvailable, pids)].into();
        let at = Observations { amounts, imagefs_apart: false };
        let words = |signal| {
            let settings = Settings::default();
            settings.rules.iter().find(|rule| rule.signal == signal).unwrap().words(&at)
        };
        assert_eq!(words(Signal::MemoryAvailable), ("100Mi".to_owned(), "90Mi".to_owned()));
        assert_eq!(words(Signal::PidAvailable), ("2k".to_owned(), "1234".to_owned()));
    }

    #[test]
    fn what_is_in_force_can_be_written() {
        let settings = read(
            r#"{"evictionHard": {"memory.available": "200Mi", "nodefs.available": "9.5%", "pid.available": "0%"},
                "evictionSoft": {"memory.available": "1Gi"},
                "evictionSoftGracePeriod": {"memory.available": "1m30s"},
                "evictionMinimumReclaim": {"nodefs.inodesFree": "1k"},
                "evictionMaxPodGracePeriod": 7, "evictionPressureTransitionPeriod": "1m"}"#,
        )
        .unwrap();
        let written = settings.configuration();
        assert_eq!(Settings::read(&written).unwrap(), settings);
        let written = serde_json::to_value(written).unwrap();
        assert_eq!(written["evictionHard"]["memory.available"], "200Mi");
        assert_eq!(written["evictionHard"]["nodefs.available"], "9.50%");
        assert_eq!(written["evictionHard"]["pid.available"], "0%");
        assert_eq!(written["evictionSoftGracePeriod"]["memory.available"], "1m30s");
        assert_eq!(written["evictionPressureTransitionPeriod"], "1m0s");
    }

    #[test]
    fn all_mistakes_are_named() {
        let mistakes = read(
            r#"{"evictionHard": {"nodefs.free": "1", "nodefs.available": "much"},
                "evictionSoft": {"memory.available": "101%", "imagefs.available": "20%", "pid.available": "5%"},
                "evictionSoftGracePeriod": {"pid.available": "soon"},
                "evictionMinimumReclaim": {"memory.available": "-1"},
                "evictionPressureTransitionPeriod": "5"}"#,
        );
        let mistakes = mistakes.unwrap_err().join("\n");
        for word in [
            "evictionHard: unknown signal \"nodefs.free\"",
            "evictionHard: \"much\" of nodefs.available",
            "evictionSoft: \"101%\" of memory.available",
            "evictionSoft: imagefs.available needs a grace period",
            "evictionSoftGracePeriod: \"soon\" of pid.available is no duration",
            "evictionMinimumReclaim: \"-1\" of memory.available",
            "evictionPressureTransitionPeriod: \"5\" is no duration",
        ] {
            assert!(mistakes.contains(word), "{word} is missing from {mistakes}");
        }
        assert!(serde_json::from_str::<EvictionConfiguration>(r#"{"evictionSofter": {}}"#).is_err());
    }
}

//! When a node is short of something, under the names of upstream's kubelet flags.

use clap::Args;
use coracle_kubelet::config::{EvictionConfiguration, EvictionSettings};
use std::collections::BTreeMap;

#[derive(Args, Clone, Debug, Default)]
pub struct EvictionArgs {
    /// Below what is left of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree or
    /// pid.available the node says so, takes fewer pods and evicts some; below imagefs.available unused images go first
    /// [default: memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%,pid.available<2%]
    #[arg(long, value_name = "SIGNAL<AMOUNT,...", value_delimiter = ',')]
    pub eviction_hard: Option<Vec<String>>,
    /// The same, but pods are evicted only after the signal's grace period, and have time to end
    #[arg(long, value_name = "SIGNAL<AMOUNT,...", value_delimiter = ',')]
    pub eviction_soft: Option<Vec<String>>,
    /// For how long a soft threshold must be crossed: 1m30s
    #[arg(long, value_name = "SIGNAL=DURATION,...", value_delimiter = ',')]
    pub eviction_soft_grace_period: Option<Vec<String>>,
    /// Seconds that a pod has at the most to end in for a soft threshold [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub eviction_max_pod_grace_period: Option<u32>,
    /// How long after it was short last the node still says so [default: 5m0s]
    #[arg(long, value_name = "DURATION")]
    pub eviction_pressure_transition_period: Option<String>,
    /// How much more than its threshold is to be freed
    #[arg(long, value_name = "SIGNAL=AMOUNT,...", value_delimiter = ',')]
    pub eviction_minimum_reclaim: Option<Vec<String>>,
}

impl EvictionArgs {
    /// A flag wins over the file's field.
    ///
    /// # Errors
    /// All mistakes, each with its flag or field.
    pub fn settings(self, file: EvictionConfiguration) -> Result<EvictionSettings, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut map = |flag: &str, given: Option<Vec<String>>, between: char, file| match given {
            Some(parts) => Some(pairs(flag, &parts, between, &mut mistakes)),
            None => file,
        };
        let eviction_hard = map("eviction-hard", self.eviction_hard, '<', file.eviction_hard);
        let eviction_soft = map("eviction-soft", self.eviction_soft, '<', file.eviction_soft);
        let eviction_soft_grace_period = map(
            "eviction-soft-grace-period",
            self.eviction_soft_grace_period,
            '=',
            file.eviction_soft_grace_period,
        );
        let eviction_minimum_reclaim = map(
            "eviction-minimum-reclaim",
            self.eviction_minimum_reclaim,
            '=',
            file.eviction_minimum_reclaim,
        );
        let written = EvictionConfiguration {
            eviction_hard,
            eviction_soft,
            eviction_soft_grace_period,
            eviction_minimum_reclaim,
            eviction_max_pod_grace_period: self
                .eviction_max_pod_grace_period
                .or(file.eviction_max_pod_grace_period),
            eviction_pressure_transition_period: self
                .eviction_pressure_transition_period
                .or(file.eviction_pressure_transition_period),
        };
        match EvictionSettings::read(&written) {
            Ok(settings) if mistakes.is_empty() => Ok(settings),
            read => Err(mistakes.into_iter().chain(read.err().unwrap_or_default()).collect()),
        }
    }
}

fn pairs(
    flag: &str,
    parts: &[String],
    between: char,
    mistakes: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for part in parts {
        match part.split_once(between) {
            Some((signal, value)) => drop(all.insert(signal.trim().to_owned(), value.trim().to_owned())),
            None => mistakes.push(format!("{flag}: \"{part}\" is not of the form signal{between}value")),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn some(text: &str) -> Option<Vec<String>> {
        Some(vec![text.to_owned()])
    }

    #[test]
    fn flags_win_over_the_file() {
        let map = |value: &str| Some(BTreeMap::from([("memory.available".to_owned(), value.to_owned())]));
        let args = EvictionArgs {
            eviction_soft: some("memory.available<1Gi"),
            eviction_soft_grace_period: some("memory.available=90s"),
            eviction_max_pod_grace_period: Some(20),
            ..EvictionArgs::default()
        };
        let file = EvictionConfiguration {
            eviction_soft: map("2Gi"),
            eviction_minimum_reclaim: map("5Mi"),
            eviction_max_pod_grace_period: Some(99),
            eviction_pressure_transition_period: Some("1m".to_owned()),
            ..EvictionConfiguration::default()
        };
        let expected = EvictionConfiguration {
            eviction_soft: map("1Gi"),
            eviction_soft_grace_period: map("1m30s"),
            eviction_minimum_reclaim: map("5Mi"),
            eviction_max_pod_grace_period: Some(20),
            eviction_pressure_transition_period: Some("60s".to_owned()),
            ..EvictionConfiguration::default()
        };
        let settings = args.settings(file).expect("valid");
        assert_eq!(settings, EvictionSettings::read(&expected).expect("valid"));
        assert_eq!(settings.max_pod_grace, Duration::from_secs(20));
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = EvictionArgs {
            eviction_hard: some("nodefs.free<1"),
            eviction_soft_grace_period: some("memory.available<1m"),
            ..EvictionArgs::default()
        };
        let text = bad.settings(EvictionConfiguration::default()).expect_err("two mistakes").join("\n");
        for word in ["nodefs.free", "eviction-soft-grace-period: \"memory.available<1m\""] {
            assert!(text.contains(word), "{word} is missing from {text}");
        }
    }
}

//! When a node is short of something, under the names of upstream's kubelet flags.

use clap::Args;
use coracle_kubelet::config::Written;
use serde_json::{Value, json};
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
    /// What was given, by the names of KubeletConfiguration's fields. Mistakes go to `mistakes`.
    pub fn written(self, mistakes: &mut Vec<String>) -> Written {
        let mut map = |flag: &str, given: Option<Vec<String>>, between: char| {
            given.map(|parts| json!(pairs(flag, &parts, between, mistakes)))
        };
        let given: [(&str, Option<Value>); 6] = [
            ("evictionHard", map("eviction-hard", self.eviction_hard, '<')),
            ("evictionSoft", map("eviction-soft", self.eviction_soft, '<')),
            (
                "evictionSoftGracePeriod",
                map("eviction-soft-grace-period", self.eviction_soft_grace_period, '='),
            ),
            ("evictionMinimumReclaim", map("eviction-minimum-reclaim", self.eviction_minimum_reclaim, '=')),
            ("evictionMaxPodGracePeriod", self.eviction_max_pod_grace_period.map(Value::from)),
            ("evictionPressureTransitionPeriod", self.eviction_pressure_transition_period.map(Value::from)),
        ];
        given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))).collect()
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

    fn some(text: &str) -> Option<Vec<String>> {
        Some(vec![text.to_owned()])
    }

    #[test]
    fn flags_are_fields() {
        let args = EvictionArgs {
            eviction_soft: some("memory.available<1Gi"),
            eviction_soft_grace_period: some("memory.available=90s"),
            eviction_max_pod_grace_period: Some(20),
            ..EvictionArgs::default()
        };
        let mut mistakes = Vec::new();
        let expected = json!({
            "evictionSoft": { "memory.available": "1Gi" },
            "evictionSoftGracePeriod": { "memory.available": "90s" },
            "evictionMaxPodGracePeriod": 20,
        });
        assert_eq!(Value::Object(args.written(&mut mistakes)), expected);
        assert_eq!(mistakes, [""; 0]);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = EvictionArgs {
            eviction_hard: some("nodefs.available"),
            eviction_soft_grace_period: some("memory.available<1m"),
            ..EvictionArgs::default()
        };
        let mut mistakes = Vec::new();
        bad.written(&mut mistakes);
        let text = mistakes.join("\n");
        for word in
            ["eviction-hard: \"nodefs.available\"", "eviction-soft-grace-period: \"memory.available<1m\""]
        {
            assert!(text.contains(word), "{word} is missing from {text}");
        }
    }
}

//! Readings of a node's counters, and what two of them say.

use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A reading of one container or node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub time: Timestamp,
    /// Since it began, summed over all cores, in nanoseconds.
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
}

/// All readings of one node at about one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub node: Option<Reading>,
    /// By namespace and name of the pod, then by the name of the container.
    pub pods: BTreeMap<(String, String), BTreeMap<String, Reading>>,
}

impl Sample {
    /// From the kubelet's `/stats/summary`. What lacks a counter has no reading.
    pub fn of(summary: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
        let mut pods = BTreeMap::new();
        for pod in list(&summary["pods"]) {
            let key = (text(&pod["podRef"]["namespace"]), text(&pod["podRef"]["name"]));
            let containers = list(&pod["containers"]);
            let read = containers.iter().filter_map(|c| Some((text(&c["name"]), reading(c)?)));
            pods.insert(key, read.collect());
        }
        Self { node: reading(&summary["node"]), pods }
    }
}

fn reading(stats: &Value) -> Option<Reading> {
    Some(Reading {
        time: stats["cpu"]["time"].as_str()?.parse().ok()?,
        cpu_nanos: stats["cpu"]["usageCoreNanoSeconds"].as_u64()?,
        memory_bytes: stats["memory"]["workingSetBytes"].as_u64()?,
    })
}

/// What was used between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    pub time: Timestamp,
    pub window: Duration,
    /// Billionths of a core.
    pub nano_cores: u64,
    pub memory_bytes: u64,
}

impl Used {
    /// `None` if no time has passed, or the counter was set back: it is another container then.
    pub fn between(older: &Reading, newer: &Reading) -> Option<Self> {
        let window = Duration::try_from(newer.time.duration_since(older.time)).ok()?;
        let nanos = u128::from(newer.cpu_nanos.checked_sub(older.cpu_nanos)?);
        let per_second = (nanos * 1_000_000_000).checked_div(window.as_nanos())?;
        let nano_cores = u64::try_from(per_second).ok()?;
        Some(Self { time: newer.time, window, nano_cores, memory_bytes: newer.memory_bytes })
    }
}

/// The use of a node and of what runs there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub node: Option<Used>,
    pods: BTreeMap<(String, String), BTreeMap<String, Used>>,
}

impl Usage {
    pub fn between(older: &Sample, newer: &Sample) -> Self {
        let node = older.node.as_ref().zip(newer.node.as_ref());
        let mut pods = BTreeMap::new();
        for (key, containers) in &newer.pods {
            let Some(before) = older.pods.get(key) else { continue };
            let used = |(name, now): (&String, &Reading)| {
                Some((name.clone(), Used::between(before.get(name)?, now)?))
            };
            let used: BTreeMap<String, Used> = containers.iter().filter_map(used).collect();
            // Half a pod's use would mislead autoscalers.
            if used.len() == containers.len() && !used.is_empty() {
                pods.insert(key.clone(), used);
            }
        }
        Self { node: node.and_then(|(older, newer)| Used::between(older, newer)), pods }
    }

    /// Whether there are pods with containers of whose use nothing is known.
    pub fn lacks(&self, sample: &Sample) -> bool {
        sample.pods.iter().any(|(key, containers)| !containers.is_empty() && !self.pods.contains_key(key))
    }

    /// Adds what is known only from another time.
    pub fn complete(&mut self, other: Self) {
        self.node = self.node.or(other.node);
        for (key, used) in other.pods {
            self.pods.entry(key).or_insert(used);
        }
    }

    pub fn pod(&self, namespace: &str, name: &str) -> Option<&BTreeMap<String, Used>> {
        self.pods.get(&(namespace.to_owned(), name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary(second: u32, busy: u64, containers: &[(&str, u64)]) -> Sample {
        let stats = |busy: u64| {
            json!({ "cpu": { "time": format!("2026-01-01T00:00:{second:02}Z"), "usageCoreNanoSeconds": busy },
                "memory": { "workingSetBytes": 4096 } })
        };
        let container = |(name, busy): &(&str, u64)| {
            let mut container = stats(*busy);
            container["name"] = (*name).into();
            container
        };
        let containers: Vec<Value> = containers.iter().map(container).collect();
        let pod = json!({ "podRef": { "namespace": "n", "name": "p" }, "containers": containers });
        Sample::of(&json!({ "node": stats(busy), "pods": [pod] }))
    }

    #[test]
    fn two_readings_make_a_rate() {
        let older = summary(0, 1_000_000_000, &[("a", 0), ("b", 5)]);
        let newer = summary(10, 6_000_000_000, &[("a", 20_000_000), ("b", 5)]);
        let usage = Usage::between(&older, &newer);
        let node = usage.node.unwrap();
        assert_eq!((node.nano_cores, node.window.as_secs(), node.memory_bytes), (500_000_000, 10, 4096));
        let pod = usage.pod("n", "p").unwrap();
        assert_eq!((pod["a"].nano_cores, pod["b"].nano_cores), (2_000_000, 0));
        assert_eq!(usage.pod("n", "other"), None);
    }

    #[test]
    fn what_makes_no_rate_is_left_out() {
        let older = summary(0, 10, &[("a", 10)]);
        // Restarted; started in between; no time has passed.
        assert_eq!(Usage::between(&older, &summary(5, 11, &[("a", 9)])).pod("n", "p"), None);
        assert_eq!(Usage::between(&older, &summary(5, 11, &[("a", 12), ("b", 1)])).pod("n", "p"), None);
        assert_eq!(Usage::between(&older, &older), Usage::default());
        let mut first = Usage::between(&summary(0, 1, &[]), &summary(5, 6, &[("a", 7)]));
        assert!(first.lacks(&summary(5, 6, &[("a", 7)])) && !first.lacks(&summary(5, 6, &[])));
        first.complete(Usage::between(&summary(5, 6, &[("a", 7)]), &summary(6, 9, &[("a", 9)])));
        assert_eq!(
            (first.pod("n", "p").unwrap()["a"].nano_cores, first.node.unwrap().window.as_secs()),
            (2, 5)
        );
        assert_eq!(Sample::of(&json!({ "node": {}, "pods": [] })), Sample::default());
    }
}

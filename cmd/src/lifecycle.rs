//! When nodes count as lost, under the names of upstream's flags of its controller manager.

use crate::settings::first_of;
use crate::time::Time;
use clap::Args;
use coracle_controllers::Lifecycle;
use serde::Deserialize;

/// In the configuration file under `nodeLifecycle`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LifecycleArgs {
    /// Silence after which a node counts as lost. Several times the time between two renewals of its Lease, which is a quarter
    /// of its kubelet's nodeLeaseDurationSeconds (40) [default: 50s]
    #[arg(long, value_name = "DURATION")]
    pub node_monitor_grace_period: Option<Time>,
    /// The same for a node whose kubelet has not spoken yet [default: 1m0s]
    #[arg(long, value_name = "DURATION")]
    pub node_startup_grace_period: Option<Time>,
    /// How many lost nodes of a zone give up their pods in a second; 0 is none [default: 0.1]
    #[arg(long, value_name = "RATE")]
    pub node_eviction_rate: Option<f64>,
    /// The same in a large zone most of which is lost [default: 0.01]
    #[arg(long, value_name = "RATE")]
    pub secondary_node_eviction_rate: Option<f64>,
    /// Nodes above which a zone is large; in a smaller one no pod goes while most of it is lost [default: 50]
    #[arg(long, value_name = "N")]
    pub large_cluster_size_threshold: Option<usize>,
    /// Share of a zone's nodes that counts as most of it, at least three of them [default: 0.55]
    #[arg(long, value_name = "SHARE")]
    pub unhealthy_zone_threshold: Option<f64>,
}

impl LifecycleArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(self, other: node_monitor_grace_period, node_startup_grace_period, node_eviction_rate,
            secondary_node_eviction_rate, large_cluster_size_threshold, unhealthy_zone_threshold)
    }

    /// With upstream's defaults where nothing is said.
    pub fn checked(&self, mistakes: &mut Vec<String>) -> Lifecycle {
        let default = Lifecycle::default();
        let mut grace = |flag: &str, said: Option<Time>, default| {
            if said.is_some_and(|time| time.0.is_zero()) {
                mistakes.push(format!("{flag}: every node would be lost at once"));
            }
            said.map_or(default, |time| time.0)
        };
        let monitor_grace_period =
            grace("node-monitor-grace-period", self.node_monitor_grace_period, default.monitor_grace_period);
        let startup_grace_period =
            grace("node-startup-grace-period", self.node_startup_grace_period, default.startup_grace_period);
        let mut number = |flag: &str, said: Option<f64>, most: f64, default| {
            if said.is_some_and(|value| !(0.0..=most).contains(&value)) {
                mistakes.push(format!("{flag}: has to be between 0 and {most}"));
            }
            said.unwrap_or(default)
        };
        Lifecycle {
            monitor_grace_period,
            startup_grace_period,
            eviction_rate: number("node-eviction-rate", self.node_eviction_rate, MOST, default.eviction_rate),
            secondary_eviction_rate: number(
                "secondary-node-eviction-rate",
                self.secondary_node_eviction_rate,
                MOST,
                default.secondary_eviction_rate,
            ),
            large_cluster_size: self.large_cluster_size_threshold.unwrap_or(default.large_cluster_size),
            unhealthy_zone: number(
                "unhealthy-zone-threshold",
                self.unhealthy_zone_threshold,
                1.0,
                default.unhealthy_zone,
            ),
        }
    }
}

/// Nodes a second: more than any cluster has.
const MOST: f64 = 100_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_not_said_is_as_upstreams() {
        let mut mistakes = Vec::new();
        assert_eq!(LifecycleArgs::default().checked(&mut mistakes), Lifecycle::default());
        let said: LifecycleArgs =
            serde_saphyr::from_str("{nodeMonitorGracePeriod: 16s, nodeEvictionRate: 1}").expect("settings");
        let found = said.checked(&mut mistakes);
        assert_eq!((found.monitor_grace_period, found.eviction_rate), (Duration::from_secs(16), 1.0));
        assert_eq!(found.startup_grace_period, Duration::from_secs(60));
        assert!(mistakes.is_empty(), "{mistakes:?}");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let wrong = LifecycleArgs {
            node_monitor_grace_period: Some(Time(Duration::ZERO)),
            node_eviction_rate: Some(-1.0),
            secondary_node_eviction_rate: Some(f64::NAN),
            unhealthy_zone_threshold: Some(55.0),
            ..LifecycleArgs::default()
        };
        let mut mistakes = Vec::new();
        wrong.checked(&mut mistakes);
        assert_eq!(
            mistakes,
            [
                "node-monitor-grace-period: every node would be lost at once",
                "node-eviction-rate: has to be between 0 and 100000",
                "secondary-node-eviction-rate: has to be between 0 and 100000",
                "unhealthy-zone-threshold: has to be between 0 and 1",
            ]
        );
    }
}

//! How long pods have to end when the machine is about to be shut down
//! (<https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#graceful-node-shutdown>).

use super::documents::Written;
use super::reader::Reader;
use coracle_api::duration::written;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

/// From this priority on a pod is critical to the cluster; upstream's.
const CRITICAL: i32 = 2_000_000_000;

/// Pods of this priority, up to the next one's, have so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShutdownPeriod {
    pub priority: i32,
    pub shutdown_grace_period_seconds: u64,
}

impl ShutdownPeriod {
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_period_seconds)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// From the lowest priority to the highest, one after the other; none where pods are left to the machine's end.
    pub periods: Vec<ShutdownPeriod>,
    /// Whether they were given by priority.
    by_priority: bool,
}

impl ShutdownSettings {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let whole = reader.duration("shutdownGracePeriod").unwrap_or_default();
        let critical = reader.duration("shutdownGracePeriodCriticalPods").unwrap_or_default();
        let name = "shutdownGracePeriodByPodPriority";
        let mut periods: Vec<ShutdownPeriod> = reader.get(name).unwrap_or_default();
        periods.sort_by_key(|period| period.priority);
        if critical > whole {
            let why = format!("{} is more than shutdownGracePeriod, {}", written(critical), written(whole));
            reader.mistake("shutdownGracePeriodCriticalPods", why);
        }
        for (name, time) in [("shutdownGracePeriod", whole), ("shutdownGracePeriodCriticalPods", critical)] {
            if !time.is_zero() && time < Duration::from_secs(1) {
                reader.mistake(name, format!("{} is neither 0 nor at least 1s", written(time)));
            }
        }
        if !periods.is_empty() && !whole.is_zero() {
            reader.mistake(name, "it cannot be had together with shutdownGracePeriod");
        }
        if periods.windows(2).any(|two| two[0].priority == two[1].priority) {
            reader.mistake(name, "a priority is named twice");
        }
        if !periods.is_empty() {
            return Self { periods, by_priority: true };
        }
        let period = |priority, time: Duration| ShutdownPeriod {
            priority,
            shutdown_grace_period_seconds: time.as_secs(),
        };
        let both = [period(0, whole.saturating_sub(critical)), period(CRITICAL, critical)];
        Self { periods: both.into_iter().filter(|_| !whole.is_zero()).collect(), by_priority: false }
    }

    pub fn show(&self, all: &mut Written) {
        if self.by_priority {
            all.insert("shutdownGracePeriodByPodPriority".to_owned(), json!(self.periods));
            return;
        }
        let of = |priority| self.periods.iter().find(|p| p.priority == priority).map(ShutdownPeriod::time);
        let (others, critical) = (of(0).unwrap_or_default(), of(CRITICAL).unwrap_or_default());
        all.insert("shutdownGracePeriod".to_owned(), json!(written(others + critical)));
        all.insert("shutdownGracePeriodCriticalPods".to_owned(), json!(written(critical)));
    }
}

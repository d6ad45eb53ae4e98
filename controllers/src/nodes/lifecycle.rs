//! When a node counts as lost, and how fast nodes that are lost give up their pods.

use std::time::Duration;

/// Upstream's flags of its controller manager, by their names and with their defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lifecycle {
    /// `--node-monitor-grace-period`: silence after which a node counts as gone. Has to be several times the time between
    /// two renewals of its Lease (10 s unless its kubelet is told otherwise), or nodes that live are taken for lost.
    pub monitor_grace_period: Duration,
    /// `--node-startup-grace-period`: the same for a node whose kubelet has not spoken yet.
    pub startup_grace_period: Duration,
    /// `--node-eviction-rate`: nodes a second of a zone; with 0 none gives up its pods.
    pub eviction_rate: f64,
    /// `--secondary-node-eviction-rate`: the same in a large zone most of which is down.
    pub secondary_eviction_rate: f64,
    /// `--large-cluster-size-threshold`: nodes above which a zone is large; in a smaller one none is let go while most of it
    /// is down.
    pub large_cluster_size: usize,
    /// `--unhealthy-zone-threshold`: share of a zone's nodes, 0 to 1, that must be down to call it disrupted; never fewer
    /// than three nodes.
    pub unhealthy_zone: f64,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            // Five missed renewals.
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster_size: 50,
            unhealthy_zone: 0.55,
        }
    }
}

/// The pause between two nodes at this rate a second; `None`: there is no second.
pub(super) fn pause(rate: f64) -> Option<Duration> {
    if rate > 0.0 { Duration::try_from_secs_f64(1.0 / rate).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_pause() {
        assert_eq!(pause(0.1), Some(Duration::from_secs(10)));
        assert_eq!(pause(2.0), Some(Duration::from_millis(500)));
        assert_eq!((pause(0.0), pause(-1.0), pause(f64::NAN)), (None, None, None));
    }
}

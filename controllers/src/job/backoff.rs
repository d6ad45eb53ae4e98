//! How long a Job waits before it replaces pods that fail: 10 s, doubled with each failure in a row, 10 min at most.

use super::policy::statuses;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's first and longest delays.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(10);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(600);

/// Failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    failures: u32,
    last: Option<Timestamp>,
}

impl Record {
    /// With pods that have ended since.
    pub fn with(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let mut record = if success.is_some() { Self::default() } else { self };
        for at in failed.iter().map(|pod| finished_at(pod)).filter(|at| success.is_none_or(|s| *at > s)) {
            record.failures += 1;
            record.last = record.last.max(Some(at));
        }
        record
    }

    /// What is left of the delay.
    pub fn remaining(&self, now: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// What is left of the delay after `failures` in a row, the last of them at `last`.
pub fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    let delay = FIRST_RETRY_INTERVAL.saturating_mul(1 << doublings.min(16)).min(MAX_RETRY_INTERVAL);
    let elapsed = now.as_millisecond() - last.as_millisecond();
    match u64::try_from(elapsed) {
        Ok(elapsed) => delay.saturating_sub(Duration::from_millis(elapsed)),
        // The node's clock is a little ahead of ours.
        Err(_) if elapsed.unsigned_abs() < millis(MAX_RETRY_INTERVAL) => delay,
        // The clock was set back, and nobody knows since when the failure waits.
        Err(_) => Duration::ZERO,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// When its last container ended; for a pod that never ran, the best guess.
pub fn finished_at(pod: &Pod) -> Timestamp {
    let ended = statuses(pod).filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let unready = conditions.filter(|c| c.type_ == "Ready" && c.status == "False");
    let times = [
        ended.map(|t| t.0).max(),
        pod.metadata.deletion_timestamp.as_ref().map(|t| t.0),
        unready.filter_map(|c| c.last_transition_time.as_ref()).map(|t| t.0).next(),
        pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
    ];
    times.into_iter().flatten().next().unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ended(second: u32) -> Arc<Pod> {
        let at = format!("2026-01-01T00:00:{second:02}Z");
        Arc::new(
            serde_json::from_value(json!({ "status": { "containerStatuses": [{ "name": "c", "ready": false,
                "restartCount": 0, "image": "", "imageID": "",
                "state": { "terminated": { "exitCode": 1, "finishedAt": at } } }] } }))
            .unwrap(),
        )
    }

    #[test]
    fn a_failure_in_the_future_holds_nothing_up() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let left = |now: &str| remaining(1, at("2026-01-02T00:00:00Z"), at(now)).as_secs();
        assert_eq!(left("2026-01-02T00:00:04Z"), 6);
        assert_eq!(left("2026-01-01T23:59:58Z"), 10, "clocks of two machines differ a little");
        assert_eq!(left("2026-01-01T00:00:00Z"), 0, "the clock was set back");
    }

    #[test]
    fn delays_double_and_a_success_ends_them() {
        let now = "2026-01-01T00:00:20Z".parse().unwrap();
        let left = |record: Record| record.remaining(now).as_secs();
        let one = Record::default().with(&[], &[ended(15)]);
        assert_eq!(left(one), 5);
        let two = one.with(&[], &[ended(18)]);
        assert_eq!(left(two), 18);
        assert_eq!(left(two.with(&[ended(19)], &[])), 0);
        assert_eq!(left(two.with(&[ended(16)], &[ended(17)])), 7);
        assert_eq!(left(two), 18);
    }
}

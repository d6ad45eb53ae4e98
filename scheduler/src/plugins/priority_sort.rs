//! The order of the queue: higher priority first, then who came first.

use crate::framework::QueuedPod;
use crate::framework::{Plugin, Point};
use std::cmp::Ordering;

pub const POINTS: &[Point] = &[Point::QueueSort];

pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> Ordering {
        b.pod.priority.cmp(&a.pod.priority).then(a.since.cmp(&b.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::pod;
    use serde_json::json;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn priority_counts_more_than_time() {
        let now = Instant::now();
        let queued = |priority: Option<i32>, seconds: u64| QueuedPod {
            pod: Arc::new(pod(json!({"spec": {"containers": [], "priority": priority}}))),
            since: now + Duration::from_secs(seconds),
        };
        let cases = [
            (queued(Some(2), 9), queued(Some(1), 0), Ordering::Less),
            (queued(Some(1), 1), queued(Some(1), 2), Ordering::Less),
            (queued(Some(-1), 0), queued(None, 9), Ordering::Greater),
            (queued(None, 3), queued(Some(0), 3), Ordering::Equal),
        ];
        for (a, b, order) in cases {
            assert_eq!(PrioritySort.less(&a, &b), order);
            assert_eq!(PrioritySort.less(&b, &a), order.reverse());
        }
    }
}

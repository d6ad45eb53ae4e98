//! Pods with scheduling gates stay out of the queue until the last gate is removed (KEP-3521).

use crate::cache::PodInfo;
use crate::framework::{ClusterEvent, Plugin, Point, Status};

pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue]
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Status {
        let gates = pod.spec().and_then(|s| s.scheduling_gates.as_deref()).unwrap_or_default();
        if gates.is_empty() {
            return Status::Success;
        }
        let names: Vec<&str> = gates.iter().map(|g| g.name.as_str()).collect();
        Status::unresolvable(format!("waiting for scheduling gates: [{}]", names.join(" ")))
    }

    fn helps(&self, _pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        matches!(event, ClusterEvent::PodUpdated(_))
    }
}

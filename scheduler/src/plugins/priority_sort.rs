//! The order of the queue: higher priority first, then who came first.

use crate::cache::PodInfo;
use crate::framework::{Plugin, Point};
use std::cmp::Ordering;

pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::QueueSort]
    }

    fn less(&self, a: &PodInfo, b: &PodInfo) -> Ordering {
        b.priority.cmp(&a.priority).then(a.queued_at.cmp(&b.queued_at))
    }
}

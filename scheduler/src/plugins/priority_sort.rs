//! The order of the queue: higher priority first, then who came first.

use crate::framework::{Plugin, Point};
use crate::queue::QueuedPod;
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

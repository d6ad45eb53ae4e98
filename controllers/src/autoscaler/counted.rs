//! What is counted of autoscalers.

use super::judge::{Opinion, Trouble};
use crate::common::levels::{Levels, Tally};
use crate::metrics::{Metric, Metrics};
use coracle_client::ObjectKey;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// What was done about the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    #[default]
    None,
    Up,
    Down,
}

impl Action {
    pub fn of(before: i32, wanted: i32) -> Self {
        match wanted.cmp(&before) {
            Ordering::Less => Self::Down,
            Ordering::Equal => Self::None,
            Ordering::Greater => Self::Up,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Up => "scale_up",
            Self::Down => "scale_down",
        }
    }
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Error {
    #[default]
    None,
    /// Of who wrote the autoscaler.
    Spec,
    Internal,
}

impl Error {
    pub fn of(trouble: &Trouble) -> Self {
        if trouble.reason == "InvalidMetricSourceType" { Self::Spec } else { Self::Internal }
    }

    fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub action: Action,
    pub error: Error,
}

pub struct Counted {
    metrics: Arc<Metrics>,
    number: Tally,
    desired: Levels,
}

impl Counted {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        let number = Tally::new(metrics.clone(), Metric::Scalers);
        let desired = Levels::new(metrics.clone(), Metric::ScalerDesired);
        Self { metrics, number, desired }
    }

    /// One was looked at.
    pub fn looked(&self, key: &ObjectKey, outcome: Outcome, desired: i32, duration: Duration) {
        self.number.set(key, Some(Vec::new()));
        self.desired.set(key, &[&key.namespace, &key.name], desired);
        let labels = [outcome.action.label(), outcome.error.label()];
        self.metrics.add(Metric::ScalerLooks, &labels, 1);
        self.metrics.observe(Metric::ScalerLookDuration, &labels, duration);
    }

    /// One is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.number.set(key, None);
        self.desired.forget(key);
    }

    /// One metric of a target with so many replicas was judged.
    pub fn judged(&self, type_: &str, before: i32, answer: &Result<Opinion, Trouble>, duration: Duration) {
        let (action, error) = match answer {
            Ok(opinion) => (Action::of(before, opinion.replicas), Error::None),
            Err(trouble) => (Action::None, Error::of(trouble)),
        };
        let labels = [action.label(), error.label(), type_];
        self.metrics.add(Metric::ScalerMetrics, &labels, 1);
        self.metrics.observe(Metric::ScalerMetricDuration, &labels, duration);
    }
}

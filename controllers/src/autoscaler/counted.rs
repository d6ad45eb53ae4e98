//! What is counted of autoscalers.

use super::judge::{Opinion, Trouble};
use crate::common::tally::Tally;
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
}

impl Counted {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        let number = Tally::new(metrics.clone(), Metric::Scalers);
        // Kept over restarts of the controller, which sees all of them again.
        metrics.set_all(Metric::ScalerDesired, std::iter::empty());
        Self { metrics, number }
    }

    /// One was looked at.
    pub fn looked(&self, key: &ObjectKey, outcome: Outcome, desired: i32, duration: Duration) {
        self.number.set(key, Some(Vec::new()));
        self.metrics.set(Metric::ScalerDesired, &[&key.namespace, &key.name], desired.into());
        let labels = [outcome.action.label(), outcome.error.label()];
        self.metrics.add(Metric::ScalerLooks, &labels, 1);
        self.metrics.observe(Metric::ScalerLookDuration, &labels, duration);
    }

    /// One is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.number.set(key, None);
        self.metrics.remove(Metric::ScalerDesired, &[&key.namespace, &key.name]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_goes_with_its_autoscaler() {
        let metrics = Arc::<Metrics>::default();
        let counted = Counted::new(metrics.clone());
        let shown = || {
            let mut page = coracle_metrics::Text::default();
            metrics.render(&mut page);
            let page = page.finish();
            let desired = "horizontal_pod_autoscaler_controller_desired_replicas{";
            page.lines().filter_map(|line| line.strip_prefix(desired)).map(str::to_owned).collect::<Vec<_>>()
        };
        let (a, b) = (ObjectKey::new("n", "a"), ObjectKey::new("n", "b"));
        for (key, desired) in [(&a, 3), (&b, 1), (&a, 4)] {
            counted.looked(key, Outcome::default(), desired, Duration::ZERO);
        }
        let (of_a, of_b) = (r#"namespace="n",hpa_name="a"} 4"#, r#"namespace="n",hpa_name="b"} 1"#);
        assert_eq!(shown(), [of_a, of_b]);
        counted.forget(&a);
        assert_eq!(shown(), [of_b]);
        Counted::new(metrics.clone());
        assert!(shown().is_empty(), "another run sees all of them again");
    }
}

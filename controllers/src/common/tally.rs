//! Gauges that count objects.

use crate::metrics::{Metric, Metrics};
use coracle_client::ObjectKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// A gauge that counts objects by labels which they change.
pub struct Tally {
    metrics: Arc<Metrics>,
    metric: Metric,
    of: Mutex<HashMap<ObjectKey, Vec<&'static str>>>,
}

impl Tally {
    pub fn new(metrics: Arc<Metrics>, metric: Metric) -> Self {
        // Kept over restarts of the controllers, which see all objects again.
        metrics.set_all(metric, std::iter::empty());
        Self { metrics, metric, of: Mutex::default() }
    }

    /// The object counts under these labels from now on; `None`: it is gone, or does not count.
    pub fn set(&self, key: &ObjectKey, labels: Option<Vec<&'static str>>) {
        let mut of = self.of.lock();
        let before = match &labels {
            Some(labels) => of.insert(key.clone(), labels.clone()),
            None => of.remove(key),
        };
        if before == labels {
            return;
        }
        before.iter().for_each(|before| self.metrics.add(self.metric, before, -1));
        labels.iter().for_each(|now| self.metrics.add(self.metric, now, 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_metrics::Text;

    fn shown(metrics: &Metrics, name: &str) -> Vec<String> {
        let mut page = Text::default();
        metrics.render(&mut page);
        let page = page.finish();
        let mut lines: Vec<_> = page.lines().filter(|l| l.starts_with(name)).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn an_object_counts_once() {
        let metrics = Arc::<Metrics>::default();
        let tally = Tally::new(metrics.clone(), Metric::SlicesDistributions);
        let name = "endpoint_slice_controller_services_count_by_traffic_distribution";
        let key = ObjectKey::new("n", "a");
        for (labels, close, node) in
            [(Some("PreferClose"), 1, 0), (Some("PreferSameNode"), 0, 1), (None, 0, 0)]
        {
            tally.set(&key, labels.map(|label| vec![label]));
            let lines = shown(&metrics, name);
            assert_eq!(lines[0], format!("{name}{{traffic_distribution=\"PreferClose\"}} {close}"));
            let other = format!("{name}{{traffic_distribution=\"PreferSameNode\"}} {node}");
            assert!(lines.get(1).is_none_or(|line| *line == other), "{lines:?}");
        }
    }
}

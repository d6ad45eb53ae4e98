//! What the controllers count.

use super::support::{World, until};
use coracle_controllers::metrics::Metrics;
use coracle_metrics::Text;

/// The lines of their page.
pub fn lines(metrics: &Metrics) -> Vec<String> {
    let mut page = Text::default();
    metrics.render(&mut page);
    page.finish().lines().map(str::to_owned).collect()
}

impl World {
    /// Waits until the controllers have counted that.
    pub async fn until_counted(&self, sample: &str) {
        let lines = || self.counted.get().map_or_else(Vec::new, |lines| lines());
        let counted = || async { lines().iter().any(|line| line == sample).then_some(()) };
        until(sample, counted, || async { lines().join("\n") }).await;
    }
}

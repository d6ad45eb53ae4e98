//! What the controllers count.

use super::support::{World, until};
use coracle_client::metrics::families::Page;
use coracle_controllers::metrics::Metrics;

/// The samples of a page of metrics: name, labels, value.
#[derive(Default)]
struct Samples(Vec<String>);

impl Page for Samples {
    fn head(&mut self, _: &str, _: &str, _: &str) {}

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.0.push(format!("{name} {} {value}", labels.join(",")));
    }
}

/// The lines of their page.
pub fn lines(metrics: &Metrics) -> Vec<String> {
    let mut page = Samples::default();
    metrics.render(&mut page);
    page.0
}

impl World {
    /// Waits until the controllers have counted that.
    pub async fn until_counted(&self, sample: &str) {
        let lines = || self.counted.get().map_or_else(Vec::new, |lines| lines());
        let counted = || async { lines().iter().any(|line| line == sample).then_some(()) };
        until(sample, counted, || async { lines().join("\n") }).await;
    }
}

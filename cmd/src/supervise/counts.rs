//! What is counted of components, for the metrics.

use coracle_metrics::Text;
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Counts {
    /// Restarts and hangs by component.
    components: Mutex<BTreeMap<&'static str, (u64, u64)>>,
}

impl Counts {
    pub fn started(&self, component: &'static str) {
        self.components.lock().entry(component).or_default();
    }

    pub fn restarted(&self, component: &'static str) {
        self.components.lock().entry(component).or_default().0 += 1;
    }

    pub fn hung(&self, component: &'static str) {
        self.components.lock().entry(component).or_default().1 += 1;
    }

    pub fn render(&self, text: &mut Text) {
        let components = self.components.lock();
        text.head(
            "coracle_component_restarts_total",
            "Times that a component ended by itself and was started again.",
            "counter",
        );
        for (name, (restarts, _)) in components.iter() {
            text.sample("coracle_component_restarts_total", &[("component", name)], restarts);
        }
        text.head("coracle_component_hangs_total", "Times that a component was found hanging.", "counter");
        for (name, (_, hangs)) in components.iter() {
            text.sample("coracle_component_hangs_total", &[("component", name)], hangs);
        }
    }
}

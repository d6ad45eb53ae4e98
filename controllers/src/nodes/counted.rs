//! What is counted of the nodes of a zone.

use super::plan;
use super::zones::{EXCLUDED, zone};
use crate::metrics::{Metric, Metrics};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
struct Inner {
    nodes: HashMap<String, (String, bool)>,
    /// Nodes of a zone, and those of them that are up.
    zones: HashMap<String, (i64, i64)>,
}

pub struct ByZone {
    metrics: Arc<Metrics>,
    inner: Mutex<Inner>,
}

impl ByZone {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, inner: Mutex::default() }
    }

    /// The node is as given; `None`: it is gone.
    pub fn look_at(&self, name: &str, node: Option<&Node>) {
        let counts = node.filter(|node| !node.labels().contains_key(EXCLUDED));
        let now = counts
            .map(|node| (zone(node), plan::condition(node, "Ready").is_some_and(|c| c.status == "True")));
        let mut inner = self.inner.lock();
        let before = match &now {
            Some(now) => inner.nodes.insert(name.to_owned(), now.clone()),
            None => inner.nodes.remove(name),
        };
        if before == now {
            return;
        }
        for (change, (zone, ready)) in before.map(|b| (-1, b)).into_iter().chain(now.map(|n| (1, n))) {
            let count = inner.zones.entry(zone.clone()).or_default();
            count.0 += change;
            count.1 += change * i64::from(ready);
            self.show(&zone, *count);
        }
    }

    fn show(&self, zone: &str, (all, ready): (i64, i64)) {
        self.metrics.set(Metric::ZoneSize, &[zone], all);
        self.metrics.set(Metric::ZoneUnhealthy, &[zone], all - ready);
        let share = if all == 0 { 100 } else { 100 * ready / all };
        self.metrics.set(Metric::ZoneHealth, &[zone], share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_zone_is_told_of_by_its_nodes() {
        let metrics = Arc::<Metrics>::default();
        let zones = ByZone::new(metrics.clone());
        let node = |ready: &str| -> Node {
            serde_json::from_value(json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": "z" } },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] } }))
            .unwrap()
        };
        let shown = || {
            let mut page = coracle_metrics::Text::default();
            metrics.render(&mut page);
            let page = page.finish();
            let of = |name: &str| {
                let line = page.lines().find(|line| line.starts_with(&format!("node_collector_{name}{{")));
                line.and_then(|line| line.rsplit(' ').next()?.parse::<i64>().ok())
            };
            [of("zone_size"), of("unhealthy_nodes_in_zone"), of("zone_health")].map(Option::unwrap_or_default)
        };
        for (name, node, expected) in [
            ("a", Some(node("True")), [1, 0, 100]),
            ("b", Some(node("Unknown")), [2, 1, 50]),
            ("b", Some(node("True")), [2, 0, 100]),
            ("a", Some(node("False")), [2, 1, 50]),
            ("b", None, [1, 1, 0]),
            ("a", None, [0, 0, 100]),
        ] {
            zones.look_at(name, node.as_ref());
            assert_eq!(shown(), expected, "{name}");
        }
    }
}

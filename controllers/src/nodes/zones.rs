//! How fast the nodes of a zone may lose their pods. One node that is down is replaced at once; a zone of which most is
//! down is more likely to be cut off than dead, and a cluster of which everything is down, to be watched by somebody
//! blind.
//!
//! <https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction>

use super::lifecycle::{Lifecycle, pause};
use super::plan;
use coracle_api::well_known;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nodes on which a zone's state does not depend.
pub const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// How long a count of all nodes is good for.
const FRESH_PERIOD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    ready: usize,
    down: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Normal,
    Partial,
    Full,
}

impl Count {
    fn all(self) -> usize {
        self.ready + self.down
    }

    fn share_down(self) -> f64 {
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        number(self.down) / number(self.all())
    }

    /// `most` is the share of nodes that must be down to call it disrupted.
    fn state(self, most: f64) -> State {
        if self.ready == 0 && self.down > 0 {
            State::Full
        } else if self.down > 2 && self.share_down() >= most {
            State::Partial
        } else {
            State::Normal
        }
    }
}

/// Whether a node that is down may be told to give up its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    Granted,
    /// Not yet.
    Wait,
    /// No node is up: nobody may, and who was told is told otherwise.
    Withdrawn,
}

#[derive(Default)]
struct Inner {
    counts: HashMap<String, Count>,
    counted: Option<Instant>,
    /// When a node of the zone was last granted leave.
    granted: HashMap<String, Instant>,
    /// Whether no node was up at the last count.
    blind: bool,
    /// When a node was first up again after none had been.
    resumed: Option<Instant>,
}

pub struct Zones {
    lifecycle: Lifecycle,
    inner: Mutex<Inner>,
}

/// Region and zone by their labels, the retired ones first; empty without either. Upstream's, which its metrics show.
pub fn zone(node: &Node) -> String {
    let label = |keys: [&str; 2]| keys.into_iter().find_map(|key| node.labels().get(key)).map_or("", |l| l);
    let region = label([well_known::BETA_REGION, well_known::REGION]);
    let zone = label([well_known::BETA_ZONE, well_known::ZONE]);
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

fn count(nodes: &[Arc<Node>]) -> HashMap<String, Count> {
    let mut counts: HashMap<String, Count> = HashMap::new();
    for node in nodes.iter().filter(|n| !n.labels().contains_key(EXCLUDED)) {
        let count = counts.entry(zone(node)).or_default();
        let ready = plan::condition(node, "Ready").is_some_and(|c| c.status == "True");
        if ready { count.ready += 1 } else { count.down += 1 }
    }
    counts
}

/// The pause between two nodes of a zone; `None`: none is let go.
fn interval(count: Count, lifecycle: &Lifecycle) -> Option<Duration> {
    match count.state(lifecycle.unhealthy_zone) {
        State::Normal | State::Full => pause(lifecycle.eviction_rate),
        State::Partial if count.all() > lifecycle.large_cluster_size => {
            pause(lifecycle.secondary_eviction_rate)
        }
        State::Partial => None,
    }
}

impl Inner {
    /// Counts all nodes, unless that was done just now.
    fn look(&mut self, most: f64, now: Instant, all: impl FnOnce() -> Vec<Arc<Node>>) {
        if self.counted.is_some_and(|at| now.duration_since(at) <= FRESH_PERIOD) {
            return;
        }
        self.counts = count(&all());
        self.counted = Some(now);
        let mut states = self.counts.values().map(|count| count.state(most));
        // Without a node that counts nothing can be said of the whole.
        let blind = !self.counts.is_empty() && states.all(|state| state == State::Full);
        if self.blind && !blind {
            self.resumed = Some(now);
            // Upstream's limiters begin empty then.
            self.granted = self.counts.keys().map(|zone| (zone.clone(), now)).collect();
        }
        self.blind = blind;
    }
}

impl Zones {
    pub fn new(lifecycle: Lifecycle) -> Self {
        Self { lifecycle, inner: Mutex::default() }
    }

    /// When a node was first up again after none had been, if ever: what kept all of them silent need not have ended for
    /// all at once, so their silence counts from then. `all` lists every node.
    pub fn resumed(&self, now: Instant, all: impl FnOnce() -> Vec<Arc<Node>>) -> Option<Instant> {
        let mut inner = self.inner.lock();
        inner.look(self.lifecycle.unhealthy_zone, now, all);
        inner.resumed
    }

    /// Whether no node was up when they were last counted: whoever hears of one must look again.
    pub fn is_blind(&self) -> bool {
        self.inner.lock().blind
    }

    /// Asks for a node that is down. `told` is one that has leave already, and keeps it. `all` lists every node.
    pub fn ask(&self, node: &Node, told: bool, now: Instant, all: impl FnOnce() -> Vec<Arc<Node>>) -> Leave {
        let mut inner = self.inner.lock();
        inner.look(self.lifecycle.unhealthy_zone, now, all);
        if inner.blind {
            return Leave::Withdrawn;
        }
        if told {
            return Leave::Granted;
        }
        let zone = zone(node);
        let count = inner.counts.get(&zone).copied().unwrap_or_default();
        let Some(pause) = interval(count, &self.lifecycle) else { return Leave::Wait };
        if inner.granted.get(&zone).is_some_and(|last| now.duration_since(*last) < pause) {
            return Leave::Wait;
        }
        inner.granted.insert(zone, now);
        Leave::Granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, zone: &str, ready: bool) -> Arc<Node> {
        let ready = if ready { "True" } else { "Unknown" };
        let metadata = json!({ "name": name, "labels": { "topology.kubernetes.io/zone": zone } });
        let status = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap())
    }

    fn zones() -> Zones {
        Zones::new(Lifecycle::default())
    }

    fn zone_of(ready: usize, down: usize) -> Vec<Arc<Node>> {
        let up = (0..ready).map(|i| node(&format!("up-{i}"), "z", true));
        up.chain((0..down).map(|i| node(&format!("down-{i}"), "z", false))).collect()
    }

    #[test]
    fn nodes_go_one_after_the_other_and_none_when_all_are_down() {
        for (ready, down, first, second) in [
            (1, 1, Leave::Granted, Leave::Wait),
            (1, 2, Leave::Granted, Leave::Wait),
            (2, 3, Leave::Wait, Leave::Wait),
            (30, 31, Leave::Granted, Leave::Wait),
            (20, 40, Leave::Granted, Leave::Wait),
            (0, 1, Leave::Withdrawn, Leave::Withdrawn),
            (0, 9, Leave::Withdrawn, Leave::Withdrawn),
        ] {
            let zones = zones();
            let nodes = zone_of(ready, down);
            let last = nodes.last().unwrap().clone();
            let ask = || zones.ask(&last, false, Instant::now(), || nodes.clone());
            assert_eq!((ask(), ask()), (first, second), "{ready} up, {down} down");
        }
    }

    #[test]
    fn a_zone_that_is_all_down_beside_one_that_is_up_goes_on() {
        let nodes = vec![node("a", "x", false), node("b", "x", false), node("c", "y", true)];
        let zones = zones();
        assert_eq!(zones.ask(&nodes[0], false, Instant::now(), || nodes.clone()), Leave::Granted);
        assert_eq!(zones.ask(&nodes[1], false, Instant::now(), || nodes.clone()), Leave::Wait);
        assert_eq!(zones.ask(&nodes[1], true, Instant::now(), || nodes.clone()), Leave::Granted);
    }

    #[test]
    fn when_the_first_node_is_up_again_the_others_get_time() {
        let (zones, began) = (zones(), Instant::now());
        let (dark, light) = (zone_of(0, 3), zone_of(2, 1));
        let late = light.last().unwrap().clone();
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(zones.ask(&late, true, at(0), || dark.clone()), Leave::Withdrawn);
        assert_eq!(zones.resumed(at(100), || dark.clone()), None);
        assert!(zones.is_blind());
        assert_eq!(zones.resumed(at(200), || light.clone()), Some(at(200)));
        assert!(!zones.is_blind());
        assert_eq!(zones.ask(&late, false, at(205), || light.clone()), Leave::Wait);
        assert_eq!(zones.ask(&late, false, at(210), || light.clone()), Leave::Granted);
        assert_eq!(zones.resumed(at(300), || light.clone()), Some(at(200)), "once");
    }

    #[test]
    fn nodes_that_do_not_count_go_one_after_the_other() {
        let mut excluded = Node::clone(&node("a", "x", false));
        excluded.labels_mut().insert(EXCLUDED.to_owned(), String::new());
        let nodes = vec![Arc::new(excluded)];
        let zones = zones();
        assert_eq!(zones.ask(&nodes[0], false, Instant::now(), || nodes.clone()), Leave::Granted);
        assert_eq!(zones.ask(&nodes[0], false, Instant::now(), || nodes.clone()), Leave::Wait);
    }

    #[test]
    fn pauses_follow_the_size_of_the_zone() {
        let pause =
            |ready, down| interval(Count { ready, down }, &Lifecycle::default()).map(|pause| pause.as_secs());
        assert_eq!(pause(10, 2), Some(10));
        assert_eq!(pause(9, 11), None, "the threshold itself is most of them");
        assert_eq!(pause(4, 6), None);
        assert_eq!(pause(20, 40), Some(100));
        assert_eq!(pause(0, 40), Some(10));
        let other = Lifecycle {
            eviction_rate: 0.0,
            secondary_eviction_rate: 2.0,
            large_cluster_size: 5,
            unhealthy_zone: 0.9,
            ..Lifecycle::default()
        };
        assert_eq!(interval(Count { ready: 4, down: 6 }, &other), None, "none goes at this rate");
        assert_eq!(interval(Count { ready: 1, down: 9 }, &other), Some(Duration::from_millis(500)));
    }
}

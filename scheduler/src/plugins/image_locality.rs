//! Nodes that have a pod's images already score higher, the more so the larger they are and the more nodes have them.

use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{CycleState, MAX_NODE_SCORE, Plugin, Point, Reuse, Status};
use std::sync::atomic::Ordering;

const NAME: &str = "ImageLocality";
pub const POINTS: &[Point] = &[Point::PreScore, Point::Score];

/// Below it an image is pulled in no time, above (a container) it makes no more difference; upstream's numbers.
const MIN_THRESHOLD: i64 = 23 * 1024 * 1024;
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * 1024 * 1024;

pub struct ImageLocality;

struct Wanted {
    images: Vec<String>,
    /// How many images there are.
    count: i64,
    nodes: i64,
}

/// The name as container runtimes report it: with a tag.
fn normalized(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || image.contains('@') { image.to_owned() } else { format!("{image}:latest") }
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        _nodes: &[usize],
    ) -> Status {
        let images: Vec<String> = pod.images().into_iter().map(normalized).collect();
        let count = i64::try_from(images.len().max(1)).unwrap_or(i64::MAX);
        let nodes = i64::try_from(snapshot.node_count().max(1)).unwrap_or(i64::MAX);
        state.put(NAME, Wanted { images, count, nodes });
        Status::Success
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> i64 {
        let Some(wanted) = state.get::<Wanted>(NAME) else { return 0 };
        if node.images.is_empty() {
            return 0;
        }
        let mut sum: i64 = 0;
        for image in wanted.images.iter().filter_map(|name| node.images.get(name)) {
            let spread = i64::try_from(image.nodes.load(Ordering::Relaxed)).unwrap_or(wanted.nodes);
            sum += i64::try_from(i128::from(image.bytes) * i128::from(spread) / i128::from(wanted.nodes))
                .unwrap_or(i64::MAX);
        }
        let most = MAX_CONTAINER_THRESHOLD * wanted.count;
        let sum = sum.clamp(MIN_THRESHOLD, most);
        MAX_NODE_SCORE * (sum - MIN_THRESHOLD) / (most - MIN_THRESHOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{pod, snapshot};
    use serde_json::{Value, json};

    fn node(name: &str, images: &[(&str, i64)]) -> Value {
        let images: Vec<Value> =
            images.iter().map(|(n, bytes)| json!({"names": [n], "sizeBytes": bytes})).collect();
        json!({"metadata": {"name": name}, "status": {"images": images}})
    }

    #[test]
    fn large_images_that_many_nodes_have_count_most() {
        const MIB: i64 = 1024 * 1024;
        let nodes = [
            node("a", &[("app:1", 250 * MIB), ("tool:latest", 2000 * MIB)]),
            node("b", &[("app:1", 250 * MIB)]),
        ];
        let snapshot = snapshot(&nodes, &[]);
        let score = |image: &str, name: &str| {
            let pod = pod(json!({"spec": {"containers": [{"name": "c", "image": image}]}}));
            let mut state = CycleState::default();
            ImageLocality.pre_score(&mut state, &pod, &snapshot, &[]);
            ImageLocality.score(&state, &pod, snapshot.node_named(name).expect("a node"))
        };
        assert_eq!(score("app:1", "a"), 23);
        assert_eq!(score("app:1", "b"), 23);
        assert_eq!(score("tool", "a"), 100);
        assert_eq!(score("tool", "b"), 0);
    }

    #[test]
    fn images_of_volumes_count_like_those_of_containers() {
        let snapshot = snapshot(&[node("a", &[("data:1", 2000 * 1024 * 1024)]), node("b", &[])], &[]);
        let pod = pod(json!({"spec": {"containers": [{"name": "c", "image": "app:1"}],
            "volumes": [{"name": "v", "image": {"reference": "data:1"}}]}}));
        let mut state = CycleState::default();
        ImageLocality.pre_score(&mut state, &pod, &snapshot, &[]);
        let score =
            |name: &str| ImageLocality.score(&state, &pod, snapshot.node_named(name).expect("a node"));
        // Half of the size, as one of two nodes has it, of the most that two images can be worth.
        assert_eq!((score("a"), score("b")), (49, 0));
    }
}

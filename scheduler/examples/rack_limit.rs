//! A plugin from end to end: no rack may hold more than so many pods of one app, and emptier racks are better.
//!
//! `cargo run -p coracle-scheduler --example rack_limit` schedules six pods onto four nodes in two racks and prints
//! where they went; `cargo test -p coracle-scheduler --example rack_limit` runs the plugin's own tests. A scheduler
//! with it is [`coracle_scheduler::run`] with [`Options::registry`](coracle_scheduler::Options::registry) extended as
//! in [`registry`].

use coracle_scheduler::Config;
use coracle_scheduler::cache::{NodeInfo, PodInfo, Snapshot};
use coracle_scheduler::core::SchedulerState;
use coracle_scheduler::framework::{
    ClusterEvent, CycleState, Framework, MAX_NODE_SCORE, NodeScore, Plugin, Point, Reuse, Status,
};
use coracle_scheduler::plugins::{ArgumentErrors, Arguments, Handle, Registry, testing};
use coracle_scheduler::queue::Popped;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

const NAME: &str = "RackLimit";
const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::Score];

/// The plugin. `args` are `maxPods` (how many of an app a rack may hold) and `label` (of the rack, on nodes).
struct RackLimit {
    most: i64,
    label: String,
}

/// What PreFilter leaves for Filter and Score: pods of the same app by rack.
struct Racks(HashMap<String, i64>);

impl RackLimit {
    fn new(_handle: &Handle, arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let most = arguments.integer("maxPods", 1..=1000).unwrap_or(2);
        let label = arguments.read("label").unwrap_or_else(|| "rack".to_owned());
        arguments.finish().map(|()| Self { most, label })
    }

    fn count(&self, state: &CycleState, node: &NodeInfo) -> i64 {
        let rack = node.label(&self.label).unwrap_or_default();
        state.get::<Racks>(NAME).and_then(|racks| racks.0.get(rack)).copied().unwrap_or(0)
    }

    fn adjust(&self, state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        if app(other) != app(pod) {
            return;
        }
        if let (Some(racks), Some(rack)) = (state.get_mut::<Racks>(NAME), node.label(&self.label)) {
            *racks.0.entry(rack.to_owned()).or_insert(0) += by;
        }
    }
}

fn app(pod: &PodInfo) -> Option<&String> {
    pod.labels()?.get("app")
}

impl Plugin for RackLimit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    /// The counts are kept from pod to pod, and corrected by `add_pod` and `remove_pod`.
    fn reuse(&self) -> Reuse {
        Reuse::State
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Status {
        if app(pod).is_none() {
            return Status::Skip;
        }
        state.put(NAME, Racks(HashMap::new()));
        for node in snapshot.nodes() {
            node.pods.iter().for_each(|other| self.adjust(state, pod, other, node, 1));
        }
        Status::Success
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) {
        self.adjust(state, pod, added, node, 1);
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo) {
        self.adjust(state, pod, removed, node, -1);
    }

    fn filter(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Status {
        if self.count(state, node) >= self.most {
            return Status::unschedulable("node(s) were in a rack with too many pods of the app");
        }
        Status::Success
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> i64 {
        self.most - self.count(state, node)
    }

    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        for score in scores {
            score.score = score.score * MAX_NODE_SCORE / self.most;
        }
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::PodGone { pod: gone, .. } => app(gone) == app(pod),
            ClusterEvent::NodeAdded(_) | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::NodeUpdated { changed, .. } => changed.labels,
            _ => false,
        }
    }

    fn advice(&self, _pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        Some(format!("move a pod of the app out of the rack of {}", node.name))
    }
}

/// Upstream's plugins and this one.
fn registry() -> Registry {
    let mut registry = Registry::in_tree();
    registry.add(NAME, POINTS, RackLimit::new);
    registry
}

/// A configuration as its users write it.
const CONFIGURATION: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: RackLimit
        weight: 10
  pluginConfig:
  - name: RackLimit
    args: {maxPods: 2}
";

fn node(name: &str, rack: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"rack": rack}},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}}})
}

fn replica(n: usize) -> PodInfo {
    testing::pod(
        json!({"metadata": {"name": format!("web-{n}"), "namespace": "default", "uid": format!("u{n}"),
        "labels": {"app": "web"}}, "spec": {"containers": []}}),
    )
}

/// Schedules replicas one after the other, without an API: where each went, or why it did not.
fn schedule(replicas: usize) -> Result<Vec<String>, String> {
    let registry = registry();
    let parsed = Config::parse(CONFIGURATION, &registry).map_err(|mistakes| mistakes.to_string())?;
    let profile = &parsed.config.profiles[0];
    let framework = Framework::new(profile, &registry, &Handle::offline()).map_err(|e| e.to_string())?;
    let framework = Arc::new(framework);
    let mut core = SchedulerState::new([framework.clone()], 0, parsed.config.backoff);
    let racks = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")];
    core.snapshot = testing::snapshot(&racks.map(|(name, rack)| node(name, rack)), &[]);
    let mut told = Vec::new();
    for n in 0..replicas {
        let pod = Arc::new(replica(n));
        let popped =
            Popped { pod, framework: framework.clone(), attempts: 1, first: Instant::now(), flushed: false };
        let mut found = core.find(&popped);
        told.push(match found.feasible {
            Ok(slots) => {
                let totals = core.score(&popped, &mut found.class, &slots).map_err(|e| format!("{e:?}"))?;
                let slot = core.choose(&totals).ok_or("no node")?;
                core.reserve(&popped, &mut found.class, slot, Instant::now())
                    .map_err(|(_, status)| status.message())?
            }
            Err(failure) => format!("{failure:?}"),
        });
        core.done(&popped, found.class);
    }
    Ok(told)
}

fn main() -> Result<(), String> {
    for (n, told) in schedule(6)?.iter().enumerate() {
        println!("web-{n}: {told}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_replicas_fill_two_racks_and_the_fifth_waits() {
        let told = schedule(5).expect("a schedule");
        let in_rack = |rack: &str| told[..4].iter().filter(|node| node.starts_with(rack)).count();
        assert_eq!((in_rack("a"), in_rack("b")), (2, 2), "{told:?}");
        assert!(told[4].contains("too many pods of the app"), "{told:?}");
    }

    #[test]
    fn racks_alternate() {
        let told = schedule(2).expect("a schedule");
        assert_ne!(told[0][..1], told[1][..1], "{told:?}");
    }

    #[test]
    fn wrong_arguments_are_refused_with_their_path() {
        let wrong = CONFIGURATION.replace("maxPods: 2", "maxPods: 0");
        let mistakes = Config::parse(&wrong, &registry()).expect_err("refused").to_string();
        assert_eq!(
            mistakes,
            "profiles[0].pluginConfig[0].args.maxPods: Invalid value: 0: not in valid range [1, 1000]"
        );
    }

    #[test]
    fn only_pods_of_the_app_that_go_help() {
        let plugin = RackLimit::new(&Handle::offline(), &Value::Null).expect("defaults");
        let other = testing::pod(
            json!({"metadata": {"name": "x", "labels": {"app": "db"}}, "spec": {"containers": []}}),
        );
        let pod = replica(0);
        assert!(plugin.queueing_hint(&pod, &ClusterEvent::PodGone { pod: &replica(1), node: "a1" }));
        assert!(!plugin.queueing_hint(&pod, &ClusterEvent::PodGone { pod: &other, node: "a1" }));
    }
}

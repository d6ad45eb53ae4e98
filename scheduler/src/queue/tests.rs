use super::*;
use crate::config::Profile;
use crate::framework::{Point, Status};
use crate::plugins::Registry;
use crate::plugins::testing::{node, pod};
use serde_json::json;

struct Binder;

#[async_trait::async_trait]
impl Plugin for Binder {
    fn name(&self) -> &'static str {
        "Binder"
    }
    fn points(&self) -> &'static [Point] {
        &[Point::Bind]
    }
    async fn bind(&self, _pod: &PodInfo, _node: &str) -> Status {
        Status::Success
    }
}

fn framework() -> Arc<Framework> {
    let mut registry = Registry::empty();
    crate::plugins::add_pure(&mut registry);
    registry.add(Binder);
    let names = ["SchedulingGates", "PrioritySort", "NodeResourcesFit", "TaintToleration", "Binder"];
    let plugins = names.iter().map(|n| ((*n).to_owned(), 1)).collect();
    let profile = Profile { scheduler_name: "s".to_owned(), plugins };
    Arc::new(Framework::new(&profile, &registry).expect("a profile"))
}

fn queue() -> Queue {
    Queue::new((Duration::from_secs(1), Duration::from_secs(10)))
}

fn waiting(uid: &str, priority: i32, gates: &[&str]) -> Arc<PodInfo> {
    let gates: Vec<_> = gates.iter().map(|g| json!({"name": g})).collect();
    Arc::new(pod(json!({"metadata": {"name": uid, "uid": uid}, "spec": {"priority": priority,
        "schedulingGates": gates,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})))
}

fn popped(queue: &mut Queue, now: Instant) -> Vec<String> {
    std::iter::from_fn(|| queue.pop(now)).map(|p| p.pod.uid.clone()).collect()
}

#[test]
fn higher_priority_first_then_first_come() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    for (uid, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
        queue.set(waiting(uid, priority, &[]), &framework, true, now);
    }
    assert_eq!(popped(&mut queue, now), ["b", "d", "a", "c"]);
}

#[test]
fn gated_pods_wait_for_their_last_gate() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &["x"]), &framework, true, now);
    queue.on_event(&ClusterEvent::Timeout, now);
    assert!(queue.pop(now).is_none());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    assert_eq!(popped(&mut queue, now), ["a"]);
}

#[test]
fn only_events_that_help_the_rejecting_plugin_move_a_pod() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.pop(now).expect("active");
    queue.unschedulable("a", vec!["NodeResourcesFit"]);
    let later = now + Duration::from_secs(60);
    let small = node(json!({"status": {"allocatable": {"cpu": "500m", "pods": "9"}}}));
    let large = node(json!({"status": {"allocatable": {"cpu": "2", "pods": "9"}}}));
    queue.on_event(&ClusterEvent::NodeAdded(&small), later);
    queue.on_event(&ClusterEvent::StorageChanged, later);
    assert!(queue.pop(later).is_none());
    queue.on_event(&ClusterEvent::NodeAdded(&large), later);
    assert_eq!(popped(&mut queue, later), ["a"]);
}

#[test]
fn back_off_doubles_to_its_limit() {
    let (mut queue, framework, start) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, start);
    let mut now = start;
    for expected in [1, 2, 4, 8, 10, 10] {
        queue.pop(now).expect("its turn");
        queue.retry("a", now);
        assert_eq!(queue.next_release(), Some(now + Duration::from_secs(expected)));
        now += Duration::from_secs(expected);
    }
}

#[test]
fn nobody_waits_longer_than_five_minutes() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.pop(now).expect("active");
    queue.unschedulable("a", vec!["TaintToleration"]);
    assert_eq!(queue.next_release(), Some(now + LEFT_OVER));
    assert!(queue.pop(now + LEFT_OVER - Duration::from_secs(1)).is_none());
    assert_eq!(popped(&mut queue, now + LEFT_OVER), ["a"]);
}

#[test]
fn a_removed_pod_is_never_popped() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.remove("a");
    assert!(queue.pop(now).is_none());
}

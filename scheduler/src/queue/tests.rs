use super::*;
use crate::config::Profile;
use crate::framework::{ObjectKind, Point, Status};
use crate::plugins::testing::{node, pod};
use crate::plugins::{Handle, Registry};
use proptest::prelude::*;
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
    let mut registry = Registry::in_tree();
    registry.add("Binder", &[Point::Bind], |_, _| Ok(Binder));
    let mut profile = Profile::default_for("s", &registry);
    profile.plugins.insert(Point::Bind, vec![("Binder".to_owned(), 0)]);
    Arc::new(Framework::new(&profile, &registry, &Handle::offline()).expect("a profile"))
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

fn refused_by(plugin: &'static str) -> Rejection {
    Rejection { plugins: vec![plugin], pending: false, nominated: None }
}

/// A pod that came back unschedulable at `now`.
fn stuck(queue: &mut Queue, uid: &str, plugin: &'static str, now: Instant) {
    queue.set(waiting(uid, 0, &[]), &framework(), true, now);
    queue.pop(now).expect("active");
    queue.unschedulable(uid, refused_by(plugin), now);
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
    assert_eq!(queue.pending(), Pending { gated: 1, ..Pending::default() });
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    assert_eq!(popped(&mut queue, now), ["a"]);
}

#[test]
fn only_events_that_help_the_rejecting_plugin_move_a_pod() {
    let (mut queue, now) = (queue(), Instant::now());
    stuck(&mut queue, "a", "NodeResourcesFit", now);
    let later = now + Duration::from_secs(60);
    let small = node(json!({"status": {"allocatable": {"cpu": "500m", "pods": "9"}}}));
    let large = node(json!({"status": {"allocatable": {"cpu": "2", "pods": "9"}}}));
    queue.on_event(&ClusterEvent::NodeAdded(&small), later);
    let storage = ClusterEvent::Object { kind: ObjectKind::StorageClass, namespace: "", name: "s" };
    queue.on_event(&storage, later);
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
        assert!(queue.pop(now).is_none(), "errors are not retried early");
        assert_eq!(queue.next_release(), Some(now + Duration::from_secs(expected)));
        now += Duration::from_secs(expected);
    }
}

#[test]
fn back_off_is_cut_short_when_nobody_else_waits() {
    let (mut queue, now) = (queue(), Instant::now());
    stuck(&mut queue, "a", "NodeResourcesFit", now);
    queue.on_event(&ClusterEvent::Timeout, now);
    queue.set(waiting("b", 0, &[]), &framework(), true, now);
    assert_eq!(queue.pending().backoff, 1);
    assert_eq!(popped(&mut queue, now), ["b", "a"]);
}

#[test]
fn nobody_waits_longer_than_five_minutes() {
    let (mut queue, now) = (queue(), Instant::now());
    stuck(&mut queue, "a", "TaintToleration", now);
    assert_eq!(queue.next_release(), Some(now + LEFT_OVER_TIMEOUT));
    assert!(queue.pop(now + LEFT_OVER_TIMEOUT - Duration::from_secs(1)).is_none());
    let flushed = queue.pop(now + LEFT_OVER_TIMEOUT).map(|popped| popped.flushed);
    assert_eq!(flushed, Some(true), "no event helped it");
    queue.unschedulable("a", refused_by("TaintToleration"), now + LEFT_OVER_TIMEOUT);
    queue.on_event(&ClusterEvent::Timeout, now + LEFT_OVER_TIMEOUT * 2);
    assert_eq!(queue.pop(now + LEFT_OVER_TIMEOUT * 2).map(|popped| popped.flushed), Some(false));
}

#[test]
fn a_removed_pod_is_never_popped() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.remove("a");
    assert!(queue.pop(now).is_none());
}

#[test]
fn an_event_during_the_binding_is_not_lost() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.pop(now).expect("active");
    queue.on_event(&ClusterEvent::Timeout, now);
    queue.unschedulable("a", refused_by("TaintToleration"), now);
    assert_eq!(queue.pending().unschedulable, 0);
    assert_eq!(popped(&mut queue, now), ["a"]);
}

#[test]
fn a_change_of_the_pod_during_its_cycle_is_not_lost() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    for (worth_a_try, again) in [(false, 0), (true, 1)] {
        queue.set(waiting("a", 0, &[]), &framework, true, now);
        queue.pop(now).expect("active");
        queue.set(waiting("a", 1, &[]), &framework, worth_a_try, now);
        queue.unschedulable("a", refused_by("TaintToleration"), now);
        assert_eq!(queue.pending().backoff, again, "worth a try: {worth_a_try}");
        queue.remove("a");
    }
}

#[test]
fn the_room_that_a_pod_gives_back_itself_does_not_help_it() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    for uid in ["a", "b"] {
        queue.set(waiting(uid, 0, &[]), &framework, true, now);
        queue.pop(now).expect("active");
        queue.unschedulable(uid, refused_by("NodeResourcesFit"), now);
    }
    let later = now + Duration::from_secs(60);
    queue.on_event(&ClusterEvent::PodGone { pod: &waiting("a", 0, &[]), node: "n" }, later);
    assert_eq!(popped(&mut queue, later), ["b"]);
}

#[test]
fn room_on_a_node_is_for_those_who_wait_for_it_there() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    for (uid, node) in [("here", Some("n1")), ("there", Some("n2")), ("anywhere", None)] {
        queue.set(waiting(uid, 0, &[]), &framework, true, now);
        queue.pop(now).expect("active");
        let nominated = node.map(str::to_owned);
        queue.unschedulable(uid, Rejection { nominated, ..refused_by("NodeResourcesFit") }, now);
    }
    let later = now + Duration::from_secs(60);
    let gone = waiting("gone", 0, &[]);
    queue.on_event(&ClusterEvent::PodGone { pod: &gone, node: "n1" }, later);
    let mut moved = popped(&mut queue, later);
    moved.sort();
    assert_eq!(moved, ["anywhere", "here"]);
    queue.unnominated("there");
    queue.on_event(&ClusterEvent::PodGone { pod: &gone, node: "n1" }, later);
    assert_eq!(popped(&mut queue, later), ["there"], "it waits for nothing in particular any more");
}

#[test]
fn room_that_was_only_kept_helps_nobody_of_higher_priority() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    for (uid, priority) in [("lower", 5), ("equal", 10), ("higher", 20)] {
        queue.set(waiting(uid, priority, &[]), &framework, true, now);
        queue.pop(now).expect("active");
        queue.unschedulable(uid, refused_by("NodeResourcesFit"), now);
    }
    let later = now + Duration::from_secs(60);
    let gone = waiting("gone", 10, &[]);
    queue.on_withdrawal(&gone, "n", later);
    assert_eq!(popped(&mut queue, later), ["equal", "lower"]);
    queue.on_event(&ClusterEvent::PodGone { pod: &gone, node: "n" }, later);
    assert_eq!(popped(&mut queue, later), ["higher"]);
}

#[test]
fn a_preempting_pod_that_lost_its_room_is_tried_again() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.pop(now).expect("active");
    let nominated = Some("n1".to_owned());
    queue.preempting("a", Rejection { nominated, ..refused_by("NodeResourcesFit") }, now);
    queue.unnominated("a");
    queue.force("a");
    let later = now + Duration::from_secs(60);
    assert!(queue.pop(later).is_none(), "its victims are still being told");
    queue.preempted("a", true, later);
    assert_eq!(popped(&mut queue, later), ["a"]);
}

#[test]
fn a_preempting_pod_rests_until_its_victims_know() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    let small = node(json!({"status": {"allocatable": {"cpu": "500m", "pods": "9"}}}));
    let large = node(json!({"status": {"allocatable": {"cpu": "2", "pods": "9"}}}));
    for (event, worked, again) in [
        (ClusterEvent::NodeAdded(&small), true, 0),
        // What helped while they were being told is not lost.
        (ClusterEvent::NodeAdded(&large), true, 1),
        (ClusterEvent::NodeAdded(&small), false, 1),
    ] {
        queue.set(waiting("a", 0, &[]), &framework, true, now);
        queue.pop(now).expect("active");
        queue.preempting("a", refused_by("NodeResourcesFit"), now);
        queue.on_event(&event, now);
        assert!(queue.pop(now).is_none());
        queue.preempted("a", worked, now);
        assert_eq!(popped(&mut queue, now).len(), again, "{worked}");
        queue.remove("a");
    }
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.pop(now).expect("active");
    queue.preempting("a", refused_by("NodeResourcesFit"), now);
    queue.preempted("a", true, now);
    let later = now + Duration::from_secs(60);
    queue.on_event(&ClusterEvent::NodeAdded(&large), later);
    assert_eq!(popped(&mut queue, later), ["a"]);
}

#[test]
fn errors_and_refusals_back_off_each_by_themselves() {
    let (mut queue, framework, mut now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    // Keeps the queue busy, so that nobody's back-off is cut short.
    let busy = |queue: &mut Queue, now| queue.set(waiting("b", 9, &[]), &framework, true, now);
    for (refused, expected) in
        [(false, 1), (false, 2), (true, 1), (true, 2), (true, 4), (false, 1), (true, 8), (true, 10)]
    {
        assert_eq!(queue.pop(now).expect("its turn").pod.uid, "a");
        // A binding that fails takes its time: the pause begins when it has failed.
        now += Duration::from_secs(30);
        if refused {
            queue.on_event(&ClusterEvent::Timeout, now);
            queue.unschedulable("a", refused_by("NodeResourcesFit"), now);
        } else {
            queue.retry("a", now);
        }
        busy(&mut queue, now);
        assert_eq!(queue.next_release(), Some(now + Duration::from_secs(expected)), "{refused} {expected}");
        queue.remove("b");
        now += Duration::from_secs(expected);
    }
}

/// A door that is shut and opened from outside.
struct Door(Arc<std::sync::atomic::AtomicBool>);

impl Plugin for Door {
    fn name(&self) -> &'static str {
        "Door"
    }
    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue]
    }
    fn pre_enqueue(&self, _pod: &PodInfo) -> Status {
        let open = self.0.load(std::sync::atomic::Ordering::Relaxed);
        if open { Status::Success } else { Status::unresolvable("shut") }
    }
}

#[test]
fn a_pod_is_kept_out_whenever_it_would_come_back() {
    let open = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let mut registry = Registry::in_tree();
    let door = open.clone();
    registry.add("Door", &[Point::PreEnqueue], move |_, _| Ok(Door(door.clone())));
    let mut profile = Profile::default_for("s", &registry);
    profile.plugins.insert(Point::PreEnqueue, vec![("Door".to_owned(), 0)]);
    let framework = Arc::new(Framework::new(&profile, &registry, &Handle::offline()).expect("a profile"));
    let (mut queue, now) = (queue(), Instant::now());
    let shut = |shut: bool| open.store(!shut, std::sync::atomic::Ordering::Relaxed);
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    queue.pop(now).expect("active");
    queue.unschedulable("a", refused_by("TaintToleration"), now);
    shut(true);
    let later = now + Duration::from_secs(60);
    queue.on_event(&ClusterEvent::Timeout, later);
    assert_eq!(queue.pending(), Pending { gated: 1, ..Pending::default() });
    assert!(queue.pop(later + LEFT_OVER_TIMEOUT).is_none());
    shut(false);
    queue.on_event(&ClusterEvent::Timeout, later);
    assert_eq!(popped(&mut queue, later), ["a"]);
    queue.unschedulable("a", refused_by("TaintToleration"), later);
    shut(true);
    assert!(queue.pop(later + LEFT_OVER_TIMEOUT).is_none(), "not even who has waited for too long");
}

#[test]
fn the_same_failure_is_news_only_once() {
    let (mut queue, framework, now) = (queue(), framework(), Instant::now());
    queue.set(waiting("a", 0, &[]), &framework, true, now);
    assert!(queue.is_news("a", "no room", now));
    assert!(!queue.is_news("a", "no room", now));
    assert!(queue.is_news("a", "no port", now));
    assert!(queue.is_news("a", "no port", now + LEFT_OVER_TIMEOUT));
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    Remove(u8),
    Pop,
    Fail(u8),
    Retry(u8),
    Event,
    Later(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6u8).prop_map(Step::Add),
        (0..6u8).prop_map(Step::Remove),
        Just(Step::Pop),
        (0..6u8).prop_map(Step::Fail),
        (0..6u8).prop_map(Step::Retry),
        Just(Step::Event),
        (0..20u64).prop_map(Step::Later),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, no pod is in two cycles at once, and every pod that is there comes out in the end.
    #[test]
    fn no_pod_is_lost_or_doubled(steps in steps()) {
        let (mut queue, framework, mut now) = (queue(), framework(), Instant::now());
        let (mut there, mut cycling) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        for step in steps {
            match step {
                Step::Add(n) => {
                    queue.set(waiting(&n.to_string(), i32::from(n), &[]), &framework, true, now);
                    there.insert(n.to_string());
                }
                Step::Remove(n) => {
                    queue.remove(&n.to_string());
                    there.remove(&n.to_string());
                    cycling.remove(&n.to_string());
                }
                Step::Pop => {
                    if let Some(popped) = queue.pop(now) {
                        prop_assert!(there.contains(&popped.pod.uid));
                        prop_assert!(cycling.insert(popped.pod.uid.clone()), "twice in a cycle");
                    }
                }
                Step::Fail(n) if cycling.remove(&n.to_string()) => {
                    queue.unschedulable(&n.to_string(), refused_by("NodeResourcesFit"), now);
                }
                Step::Retry(n) if cycling.remove(&n.to_string()) => queue.retry(&n.to_string(), now),
                Step::Event => queue.on_event(&ClusterEvent::Timeout, now),
                Step::Later(seconds) => now += Duration::from_secs(seconds),
                _ => {}
            }
        }
        let out: std::collections::HashSet<String> =
            popped(&mut queue, now + LEFT_OVER_TIMEOUT * 2).into_iter().collect();
        let expected: std::collections::HashSet<String> = there.difference(&cycling).cloned().collect();
        prop_assert_eq!(out, expected);
    }
}

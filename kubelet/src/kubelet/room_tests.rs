use super::*;
use crate::kubelet::PodEntry;
use serde_json::{Value, json};
use std::time::Duration;

fn pod(uid: &str, resources: Value, priority: i32) -> Arc<Pod> {
    let spec = json!({ "priority": priority, "containers": [{ "name": "c", "resources": resources }] });
    Arc::new(serde_json::from_value(json!({ "metadata": { "uid": uid }, "spec": spec })).unwrap())
}

fn cpu(request: &str) -> Value {
    json!({ "requests": { "cpu": request } })
}

fn guaranteed(cpu: &str) -> Value {
    let amounts = json!({ "cpu": cpu, "memory": "10" });
    json!({ "requests": amounts, "limits": amounts })
}

const NODE: Allocatable = Allocatable { cpu_millis: 4000, memory_bytes: 1000, ephemeral_storage_bytes: 0 };

#[test]
fn room_is_what_the_others_leave() {
    let other = pod("o", json!({ "requests": { "cpu": "3", "memory": "100" } }), 0);
    let mut gone = Pod::clone(&other);
    gone.status = serde_json::from_value(json!({ "phase": "Succeeded" })).unwrap();
    let beside = |resources: Value| room(&pod("p", resources, 0), [other.as_ref(), &gone].into_iter(), &NODE);
    assert_eq!(beside(cpu("1")), Ok(()));
    assert_eq!(
        beside(cpu("1100m")),
        Err(Pending::Deferred(
            "Node didn't have enough resource: cpu, requested: 1100, used: 3000, capacity: 4000".to_owned()
        ))
    );
    assert_eq!(
        beside(json!({ "requests": { "cpu": "5", "memory": "2000" } })),
        Err(Pending::Infeasible {
            detail: "insufficient_node_allocatable",
            message: "Node didn't have enough capacity: memory, requested: 2000, capacity: 1000".to_owned()
        })
    );
}

/// Pods that have `has` and want `wants`, in the order in which they began to wait.
fn slots(all: &[(&str, Value, Value, i32)]) -> PodEntries {
    let began = Instant::now();
    let slot = |(at, (uid, has, wants, priority)): (usize, &(&str, Value, Value, i32))| {
        let since = began + Duration::from_secs(at as u64);
        let waiting = Some(Waiting { pod: pod(uid, wants.clone(), *priority), since });
        (uid.to_string(), PodEntry { waiting, ..PodEntry::new(pod(uid, has.clone(), *priority)) })
    };
    all.iter().enumerate().map(slot).collect()
}

fn granted(slots: &PodEntries) -> Vec<&str> {
    let mut all: Vec<&str> =
        slots.iter().filter(|(_, slot)| slot.granted.is_some()).map(|(uid, _)| uid.as_str()).collect();
    all.sort_unstable();
    all
}

#[test]
fn who_comes_first_gets_the_room() {
    // One CPU is free, and each of two wants it.
    for (name, first, second) in [
        ("the higher priority", (cpu("1"), cpu("2"), 10), (cpu("2"), cpu("3"), 5)),
        ("the guaranteed one", (guaranteed("1"), guaranteed("2"), 0), (cpu("2"), cpu("3"), 0)),
        ("who waits longer", (cpu("1"), cpu("2"), 0), (cpu("2"), cpu("3"), 0)),
        ("priority before class", (cpu("1"), cpu("2"), 1), (guaranteed("2"), guaranteed("3"), 0)),
    ] {
        for order in [[0, 1], [1, 0]] {
            if name == "who waits longer" && order == [1, 0] {
                continue;
            }
            let both = [("a", &first), ("b", &second)];
            let all = order.map(|at| {
                let (uid, (has, wants, priority)) = both[at];
                (uid, has.clone(), wants.clone(), *priority)
            });
            let mut slots = slots(&all);
            let without = give(&mut slots, &NODE, Trigger::Resized);
            assert_eq!(granted(&slots), ["a"], "{name}");
            assert_eq!(slots["a"].granted.as_ref().unwrap().trigger.name(), "pod_resized");
            assert!(matches!(without["b"], Pending::Deferred(_)), "{name}");
            assert!(slots["a"].waiting.is_none() && slots["b"].waiting.is_some(), "{name}");
        }
    }
}

#[test]
fn who_gives_something_up_makes_room_for_the_others() {
    let mut slots =
        slots(&[("a", cpu("1"), cpu("3"), 100), ("b", cpu("3"), cpu("1"), 0), ("c", cpu("0"), cpu("9"), 0)]);
    let without = give(&mut slots, &NODE, Trigger::Resized);
    assert_eq!(granted(&slots), ["a", "b"], "b shrinks first, and a takes what it gave up");
    assert!(matches!(without["c"], Pending::Infeasible { .. }));
    assert!(slots["c"].waiting.is_none(), "what can never be granted is not tried again");
    // Room that was granted counts at once, and is there again when its pod goes.
    slots.get_mut("c").unwrap().waiting = Some(Waiting { pod: pod("c", cpu("1"), 0), since: Instant::now() });
    assert!(give(&mut slots, &NODE, Trigger::Resized).contains_key("c"));
    slots.remove("a");
    assert!(give(&mut slots, &NODE, Trigger::Resized).is_empty());
    assert!(!slots["c"].inbox.take().is_empty(), "its worker is told");
}

#[test]
fn one_without_room_is_no_reason_for_others_to_wait() {
    let mut slots = slots(&[("a", cpu("1"), cpu("4"), 100), ("b", cpu("1"), cpu("2"), 0)]);
    let without = give(&mut slots, &NODE, Trigger::Resized);
    assert_eq!((granted(&slots), without.len()), (vec!["b"], 1));
}

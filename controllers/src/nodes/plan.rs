//! What a node's conditions mean: the taints it should carry, and how long a pod endures them.

use coracle_api::toleration::Toleration;
use coracle_api::well_known;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const NOT_READY: &str = well_known::NOT_READY;
const UNREACHABLE: &str = well_known::UNREACHABLE;
const UNSCHEDULABLE: &str = well_known::UNSCHEDULABLE;
const NO_SCHEDULE: &str = "NoSchedule";
pub const NO_EXECUTE: &str = "NoExecute";
/// Conditions that mean a NoSchedule taint when they are true.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", well_known::MEMORY_PRESSURE),
    ("DiskPressure", well_known::DISK_PRESSURE),
    ("PIDPressure", well_known::PID_PRESSURE),
    ("NetworkUnavailable", well_known::NETWORK_UNAVAILABLE),
];
/// Conditions that nobody vouches for when the kubelet is silent.
const VOUCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// A time further in the future than this is the work of a clock that was wrong.
const TRUST_PERIOD: SignedDuration = SignedDuration::from_mins(1);

pub fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == type_)
}

fn status_of<'a>(node: &'a Node, type_: &str) -> &'a str {
    condition(node, type_).map_or("Unknown", |c| c.status.as_str())
}

/// The conditions of a node whose kubelet is silent; equal to the present ones when they say so already.
pub fn silent(node: &Node, now: Timestamp) -> Vec<NodeCondition> {
    let mut all = node.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    for type_ in VOUCHED {
        match all.iter_mut().find(|c| c.type_ == type_) {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
            }
            None => all.push(NodeCondition {
                type_: type_.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    all
}

/// The taint of a node that is down, by how it is; `None` for one that is ready, or whose kubelet has not spoken.
pub fn down(node: &Node) -> Option<&'static str> {
    match condition(node, "Ready")?.status.as_str() {
        "True" => None,
        "False" => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    }
}

/// Whether the node has been told to give up its pods because it is down.
pub fn is_told(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|t| t.effect == NO_EXECUTE && [NOT_READY, UNREACHABLE].contains(&t.key.as_str()))
}

fn wanted(node: &Node, leave: bool) -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    if condition(node, "Ready").is_none() {
        // Registered, but its kubelet has not spoken: nothing may come, and nothing has to go.
        all.push((NOT_READY, NO_SCHEDULE));
    }
    if let Some(key) = down(node) {
        all.push((key, NO_SCHEDULE));
        all.extend(leave.then_some((key, NO_EXECUTE)));
    }
    let pressures = PRESSURES.iter().filter(|(type_, _)| status_of(node, type_) == "True");
    all.extend(pressures.map(|(_, key)| (*key, NO_SCHEDULE)));
    if node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false) {
        all.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    all
}

fn is_ours(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key) || PRESSURES.iter().any(|(_, k)| *k == key)
}

/// The node's taints as they should be: those that follow from its conditions, and everybody else's untouched. `leave`:
/// the pods of a node that is down shall go. A taint of
/// ours that a clock since set back has put into the future counts from now, or pods would endure it for as long.
pub fn taints(node: &Node, leave: bool, now: Timestamp) -> Vec<Taint> {
    let present = node.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    let wanted = wanted(node, leave);
    let stays = |t: &Taint| !is_ours(t) || wanted.contains(&(t.key.as_str(), t.effect.as_str()));
    let mut all: Vec<Taint> = present.into_iter().filter(stays).collect();
    for taint in all.iter_mut().filter(|t| is_ours(t)) {
        let ahead = taint.time_added.as_ref().is_some_and(|t| t.0.duration_since(now) > TRUST_PERIOD);
        if ahead {
            taint.time_added = Some(Time(now));
        }
    }
    for (key, effect) in wanted {
        if !all.iter().any(|t| t.key == key && t.effect == effect) {
            let taint = Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() };
            all.push(Taint { time_added: Some(Time(now)), ..taint });
        }
    }
    all
}

/// When the pod has to leave a node with these taints: `None` for never. Every NoExecute taint that is tolerated for a while
/// counts from when it was added, or, if that is not told, from `seen`, as one does that is not tolerated at all; of several
/// tolerations for one the first holds.
pub fn end(pod: &Pod, taints: &[Taint], seen: Timestamp) -> Option<Timestamp> {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    let of = |taint: &Taint| -> Option<Timestamp> {
        let Some(matching) = tolerations.iter().find(|t| Toleration::from(*t).tolerates(taint.into())) else {
            return Some(seen);
        };
        let seconds = matching.toleration_seconds?;
        let since = taint.time_added.as_ref().map_or(seen, |t| t.0);
        Some(since.saturating_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(Timestamp::MAX))
    };
    taints.iter().filter(|t| t.effect == NO_EXECUTE).filter_map(of).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(ready: &str, spec: Value) -> Node {
        serde_json::from_value(json!({ "metadata": { "name": "n" }, "spec": spec,
            "status": { "conditions": [{ "type": "Ready", "status": ready }, { "type": "DiskPressure", "status": "False" }] } }))
        .unwrap()
    }

    fn show(taints: &[Taint]) -> Vec<String> {
        taints.iter().map(|t| format!("{}:{}", t.key.rsplit('/').next().unwrap(), t.effect)).collect()
    }

    #[test]
    fn taints_follow_conditions_and_leave_others_alone() {
        let own = json!({ "taints": [{ "key": "mine", "effect": "NoSchedule" }, { "key": UNREACHABLE, "effect": "NoExecute" }] });
        let cases = [
            (node("True", json!({})), vec![]),
            (node("False", json!({})), vec!["not-ready:NoSchedule", "not-ready:NoExecute"]),
            (
                node("Unknown", own.clone()),
                vec!["mine:NoSchedule", "unreachable:NoExecute", "unreachable:NoSchedule"],
            ),
            (node("True", own), vec!["mine:NoSchedule"]),
            (node("True", json!({ "unschedulable": true })), vec!["unschedulable:NoSchedule"]),
            (Node::default(), vec!["not-ready:NoSchedule"]),
        ];
        for (node, expected) in cases {
            assert_eq!(show(&taints(&node, true, Timestamp::UNIX_EPOCH)), expected);
        }
    }

    #[test]
    fn without_leave_the_pods_of_a_node_that_is_down_stay() {
        let told = json!({ "taints": [{ "key": UNREACHABLE, "effect": "NoExecute" }] });
        let node = node("Unknown", told);
        assert!(is_told(&node));
        assert_eq!(show(&taints(&node, false, Timestamp::UNIX_EPOCH)), ["unreachable:NoSchedule"]);
    }

    #[test]
    fn a_silent_kubelet_makes_everything_unknown_once() {
        let node = node("True", json!({}));
        let all = silent(&node, Timestamp::UNIX_EPOCH);
        let ready = all.iter().find(|c| c.type_ == "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("Unknown", Some("NodeStatusUnknown")));
        let never = all.iter().find(|c| c.type_ == "PIDPressure").unwrap();
        assert_eq!(never.reason.as_deref(), Some("NodeStatusNeverUpdated"));
        let mut again = node;
        again.status.as_mut().unwrap().conditions = Some(all.clone());
        assert_eq!(silent(&again, Timestamp::now()), all);
    }

    #[test]
    fn a_taint_from_the_future_counts_from_now() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let taint =
            |key: &str, second| json!({ "key": key, "effect": NO_EXECUTE, "timeAdded": Time(at(second)) });
        let spec = json!({ "taints": [taint(UNREACHABLE, 86_500), taint("mine", 86_500)] });
        let times = |now| -> Vec<i64> {
            let all = taints(&node("Unknown", spec.clone()), true, at(now));
            all.iter().filter_map(|t| t.time_added.as_ref()).map(|t| t.0.as_second()).collect()
        };
        assert_eq!(times(100), [100, 86_500, 100], "the clock was set back");
        assert_eq!(times(86_480), [86_500, 86_500, 86_480], "a little is no more than two clocks differ");
    }

    #[test]
    fn a_pod_endures_what_it_tolerates() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let taint = Taint {
            key: "k".into(),
            effect: NO_EXECUTE.into(),
            time_added: Some(Time(at(100))),
            ..Taint::default()
        };
        let cases = [
            (json!([]), Some(0)),
            (json!([{ "operator": "Exists" }]), None),
            (
                json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30 }]),
                Some(20),
            ),
            (json!([{ "key": "k", "operator": "Exists", "tolerationSeconds": 5 }]), Some(0)),
            (json!([{ "key": "k", "value": "other" }]), Some(0)),
            (json!([{ "key": "k", "operator": "Exists", "effect": "NoSchedule" }]), Some(0)),
        ];
        for (tolerations, expected) in cases {
            let pod: Pod =
                serde_json::from_value(json!({ "spec": { "containers": [], "tolerations": tolerations } }))
                    .unwrap();
            let left = |taint: &Taint, seen: Timestamp| {
                let end = end(&pod, std::slice::from_ref(taint), seen)?;
                Some(end.duration_since(at(110)).as_secs().max(0))
            };
            assert_eq!(left(&taint, at(0)), expected, "{tolerations}");
            let untold = Taint { time_added: None, ..taint.clone() };
            assert_eq!(left(&untold, at(100)), expected, "{tolerations}, seen at 100");
        }
    }
}

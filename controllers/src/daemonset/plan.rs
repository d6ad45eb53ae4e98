//! Which daemons come and go: one on every node that wants one, replaced a few at a time.

use super::pod::{fate, hash_of, node_of};
use crate::common::{pods, resolve};
use coracle_client::informer::deleting;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSetSpec, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A daemon that ended, and what is said about it.
pub struct Ended {
    pub pod: Arc<Pod>,
    pub reason: &'static str,
    pub warning: bool,
    pub message: String,
}

#[derive(Default)]
pub struct Plan {
    /// Names of nodes.
    pub create: Vec<String>,
    pub delete: Vec<Arc<Pod>>,
    /// Deleted too, each after its own back-off.
    pub ended: Vec<Ended>,
}

/// A node and the set's pods on it.
pub struct Place {
    pub node: String,
    pub runs: bool,
    pub stays: bool,
    pub pods: Vec<Arc<Pod>>,
}

/// Every node, and every node that is gone but has pods that never came to it: those that did, the collector of pods
/// removes.
pub fn places(spec: &DaemonSetSpec, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> Vec<Place> {
    let mut by_node: BTreeMap<&str, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        by_node.entry(node_of(pod).unwrap_or_default()).or_default().push(pod.clone());
    }
    let mut places: Vec<Place> = nodes
        .iter()
        .map(|node| {
            let (runs, stays) = fate(spec, node);
            let name = node.name_any();
            Place { runs, stays, pods: by_node.remove(name.as_str()).unwrap_or_default(), node: name }
        })
        .collect();
    for (node, mut pods) in by_node {
        pods.retain(|pod| pods::node_name(pod).is_none());
        places.push(Place { node: node.to_owned(), runs: false, stays: false, pods });
    }
    places
}

/// Which pod of a node comes first: one that is there, then the oldest.
pub fn age(pod: &Arc<Pod>) -> impl Ord + use<> {
    (
        pods::node_name(pod).is_none(),
        pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
        pod.metadata.name.clone(),
    )
}

pub struct Rollout<'a> {
    pub spec: &'a DaemonSetSpec,
    /// Of the present template.
    pub hash: &'a str,
    pub now: Timestamp,
}

fn rolling(spec: &DaemonSetSpec) -> Option<Option<&RollingUpdateDaemonSet>> {
    let strategy = spec.update_strategy.as_ref();
    let rolls = strategy.and_then(|s| s.type_.as_deref()) != Some("OnDelete");
    rolls.then(|| strategy.and_then(|s| s.rolling_update.as_ref()))
}

impl Rollout<'_> {
    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.spec.min_ready_seconds.unwrap_or(0), self.now)
    }

    fn is_new(&self, pod: &Pod) -> bool {
        hash_of(pod) == self.hash
    }

    fn share(value: Option<&IntOrString>, default: i32, of: usize) -> usize {
        let of = i32::try_from(of).unwrap_or(i32::MAX);
        let share = value.map_or(default, |value| resolve(value, of, true));
        usize::try_from(share).unwrap_or(0)
    }

    /// Pods beyond one for each node, for a while.
    fn surge(&self, wanted: usize) -> usize {
        let rolling = rolling(self.spec).flatten();
        Self::share(rolling.and_then(|r| r.max_surge.as_ref()), 0, wanted)
    }

    fn may_be_down(&self, wanted: usize) -> usize {
        let rolling = rolling(self.spec).flatten();
        let down = Self::share(rolling.and_then(|r| r.max_unavailable.as_ref()), 1, wanted);
        if down == 0 && self.surge(wanted) == 0 { 1 } else { down }
    }

    pub fn plan(&self, places: &[Place]) -> Plan {
        let mut plan = Plan::default();
        let wanted = places.iter().filter(|p| p.runs).count();
        let surges = rolling(self.spec).is_some() && self.surge(wanted) > 0;
        places.iter().for_each(|place| self.manage(place, surges, &mut plan));
        if rolling(self.spec).is_some() && plan.create.is_empty() {
            let running: Vec<&Place> = places.iter().filter(|p| p.stays).collect();
            if surges {
                self.roll_surging(&running, self.surge(wanted), &mut plan);
            } else {
                self.roll(&running, self.may_be_down(wanted), &mut plan);
            }
        }
        plan
    }

    fn manage(&self, place: &Place, surges: bool, plan: &mut Plan) {
        if !place.stays {
            plan.delete.extend(place.pods.iter().filter(|p| !deleting(p.as_ref())).cloned());
            return;
        }
        let (mut ended, mut running) = (false, Vec::new());
        for pod in place.pods.iter().filter(|p| !deleting(p.as_ref())) {
            if pods::is_terminal(pod) {
                plan.ended.push(report(pod, &place.node));
                ended = true;
            } else {
                running.push(pod.clone());
            }
        }
        let leaving = place.pods.iter().any(|p| deleting(p.as_ref()));
        if running.is_empty() {
            // A surge need not wait until there is room.
            if place.runs && (surges || !ended && !leaving) {
                plan.create.push(place.node.clone());
            }
            return;
        }
        // Of each template the oldest stays; two templates may share a node only while a surge replaces one.
        running.sort_by_cached_key(age);
        if surges {
            let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| self.is_new(pod));
            plan.delete.extend(new.into_iter().skip(1));
            plan.delete.extend(old.into_iter().skip(1));
        } else {
            plan.delete.extend(running.into_iter().skip(1));
        }
    }

    /// The living pods of a node: the new one and the old one.
    fn pair<'p>(&self, place: &'p Place) -> (Option<&'p Arc<Pod>>, Option<&'p Arc<Pod>>) {
        let mut living = place.pods.iter().filter(|p| pods::is_active(p));
        let new = living.clone().find(|p| self.is_new(p));
        (new, living.find(|p| !self.is_new(p)))
    }

    /// Deletes old pods: those that are down already in any case, and of the others as many as may be down beside them and
    /// the new ones that are.
    fn roll(&self, places: &[&Place], limit: usize, plan: &mut Plan) {
        let (mut down, mut gone, mut candidates) = (0, Vec::new(), Vec::new());
        for place in places {
            match self.pair(place) {
                (Some(new), None) if self.is_available(new) => {}
                (None, Some(old)) if self.is_available(old) => candidates.push(old.clone()),
                (None, Some(old)) => {
                    gone.push(old.clone());
                    down += 1;
                }
                _ => down += 1,
            }
        }
        plan.delete.extend(gone);
        plan.delete.extend(candidates.into_iter().take(limit.saturating_sub(down)));
    }

    /// Adds new pods beside the old ones, and deletes an old one once its successor works.
    fn roll_surging(&self, places: &[&Place], limit: usize, plan: &mut Plan) {
        let (mut surging, mut candidates) = (0, Vec::new());
        for place in places.iter().filter(|p| p.runs) {
            match self.pair(place) {
                (None, Some(old)) if self.is_available(old) => candidates.push(place.node.clone()),
                (None, Some(_)) => plan.create.push(place.node.clone()),
                (Some(new), Some(old)) if self.is_available(new) => plan.delete.push(old.clone()),
                (Some(_), Some(_)) => surging += 1,
                _ => {}
            }
        }
        plan.create.extend(candidates.into_iter().take(limit.saturating_sub(surging)));
    }
}

fn report(pod: &Arc<Pod>, node: &str) -> Ended {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let failed = pods::phase(pod) == "Failed";
    let (reason, message) = if failed {
        ("FailedDaemonPod", format!("Found failed daemon pod {name} on node {node}, will try to kill it"))
    } else {
        (
            "SucceededDaemonPod",
            format!("Found succeeded daemon pod {name} on node {node}, will try to delete it"),
        )
    };
    Ended { pod: pod.clone(), reason, warning: failed, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// `ar1`: node a, ready, of template 1; `d` down, `f` failed, `t` terminating, `p` not there yet.
    fn pod(text: &str) -> Arc<Pod> {
        let (node, state, hash) = (&text[..1], &text[1..2], &text[2..]);
        let phase = if state == "f" { "Failed" } else { "Running" };
        let ready = if state == "r" { "True" } else { "False" };
        let mut pod = json!({ "metadata": { "name": text, "labels": { "controller-revision-hash": hash } },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] } });
        if state == "p" {
            let fields = json!([{ "key": "metadata.name", "operator": "In", "values": [node] }]);
            let required = json!({ "nodeSelectorTerms": [{ "matchFields": fields }] });
            let affinity = json!({ "requiredDuringSchedulingIgnoredDuringExecution": required });
            pod["spec"] = json!({ "containers": [], "affinity": { "nodeAffinity": affinity } });
        }
        if state == "t" {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn run(rolling: Value, nodes: &str, pods: &str) -> String {
        let spec: DaemonSetSpec = serde_json::from_value(json!({ "selector": {}, "template": {},
            "updateStrategy": rolling }))
        .unwrap();
        let nodes: Vec<Arc<Node>> = nodes
            .chars()
            .map(|c| {
                Arc::new(serde_json::from_value(json!({ "metadata": { "name": c.to_string() } })).unwrap())
            })
            .collect();
        let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let plan = Rollout { spec: &spec, hash: "2", now }.plan(&places(&spec, &nodes, &pods));
        let create = plan.create.iter().map(|node| format!("+{node}"));
        let delete = plan.delete.iter().map(|pod| format!("-{}", pod.name_any()));
        let ended = plan.ended.iter().map(|ended| format!("!{}", ended.pod.name_any()));
        create.chain(delete).chain(ended).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_on_every_node() {
        let rolling = || json!({ "type": "RollingUpdate" });
        for (nodes, pods, expected) in [
            ("ab", "", "+a +b"),
            ("ab", "ar2 br2", ""),
            ("ab", "ar2 bt2", ""),
            ("ab", "ar2 bf2", "!bf2"),
            ("a", "ar2 br2", ""),
            ("a", "ar2 bp2", "-bp2"),
            ("a", "ar2 ad2", "-ar2"),
            ("a", "ap1 ar2", "-ap1"),
        ] {
            assert_eq!(run(rolling(), nodes, pods), expected, "{nodes}: {pods}");
        }
    }

    #[test]
    fn updates_keep_to_their_limits() {
        let update = |down: i32, surge: i32| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": down, "maxSurge": surge } });
        for (strategy, pods, expected) in [
            (update(1, 0), "ar1 br1 cr1", "-ar1"),
            (update(2, 0), "ar1 br1 cr1", "-ar1 -br1"),
            (update(1, 0), "ad2 br1 cr1", ""),
            (update(1, 0), "ar1 bd1 cr1", "-bd1"),
            (update(2, 0), "ar1 bd1 cr1", "-bd1 -ar1"),
            (update(1, 0), "ad2 bd1 cr1", "-bd1"),
            (update(1, 0), "ar2 br1 cr2", "-br1"),
            (update(0, 1), "ar1 br1 cr1", "+a"),
            (update(0, 1), "ar1 ad2 br1 cr1", ""),
            (update(0, 1), "ad1 ad2 br1 cr1", ""),
            (update(0, 1), "ad1 br1 cr1", "+a +b"),
            (update(0, 1), "at1 br2 cr2", "+a"),
            (update(1, 0), "at1 br2 cr2", ""),
            (update(0, 1), "ar1 ar2 br1 cr1", "+b -ar1"),
            (json!({ "type": "OnDelete" }), "ar1 br1 cr1", ""),
        ] {
            assert_eq!(run(strategy.clone(), "abc", pods), expected, "{strategy}: {pods}");
        }
    }
}

//! What a StatefulSet does next: one thing at a time, or everything at once.

use super::identity::{corrected, ordinal, revision};
use crate::common::{pods, resolve};
use coracle_client::informer::deleting;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::sync::Arc;

#[derive(Debug)]
pub enum Step {
    /// The pod of an ordinal.
    Create(i32),
    Delete(Arc<Pod>),
    /// Labels of the identity.
    Correct(Arc<Pod>),
    /// The claims of a pod that waits: one may have been deleted under it.
    Claims(i32),
}

/// The set's pods in their places.
pub struct Places {
    pub start: i32,
    /// From the first ordinal on.
    pub replicas: Vec<Option<Arc<Pod>>>,
    /// Outside the range, the highest ordinal first.
    pub condemned: Vec<Arc<Pod>>,
    min_ready: i32,
    now: Timestamp,
}

pub fn start(spec: &StatefulSetSpec) -> i32 {
    spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0)
}

pub fn is_rolling(spec: &StatefulSetSpec) -> bool {
    spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref()) != Some("OnDelete")
}

fn rolling(spec: &StatefulSetSpec) -> Option<&RollingUpdateStatefulSetStrategy> {
    spec.update_strategy.as_ref()?.rolling_update.as_ref()
}

impl Places {
    pub fn of(set: &StatefulSet, spec: &StatefulSetSpec, pods: &[Arc<Pod>], now: Timestamp) -> Self {
        let (name, start) = (set.name_any(), start(spec));
        let count = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let mut places = Self {
            start,
            replicas: vec![None; count],
            condemned: Vec::new(),
            min_ready: spec.min_ready_seconds.unwrap_or(0),
            now,
        };
        for pod in pods {
            let Some(ordinal) = ordinal(&name, pod) else { continue };
            match usize::try_from(ordinal - start).ok().and_then(|i| places.replicas.get_mut(i)) {
                Some(place) => *place = Some(pod.clone()),
                None => places.condemned.push(pod.clone()),
            }
        }
        places.condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal(&name, pod)));
        places
    }

    pub fn is_available(&self, pod: &Pod) -> bool {
        is_running_and_ready(pod) && pods::is_available(pod, self.min_ready, self.now)
    }

    /// The first pod, by ordinal, that does not do its work.
    fn first_unhealthy(&self) -> Option<&Arc<Pod>> {
        let unhealthy = |pod: &&Arc<Pod>| !self.is_available(pod) || deleting(pod.as_ref());
        let mut all = self.replicas.iter().flatten().chain(self.condemned.iter().rev());
        all.find(unhealthy)
    }
}

pub fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

/// `update` is the name of the revision that pods shall have.
pub fn plan(set: &StatefulSet, spec: &StatefulSetSpec, places: &Places, update: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    if deleting(set) {
        return steps;
    }
    let ordered = spec.pod_management_policy.as_deref() != Some("Parallel");
    let settled = fill(places, ordered, &mut steps) && drain(places, ordered, &mut steps);
    if settled && is_rolling(spec) {
        roll(spec, places, ordered, update, &mut steps);
    }
    steps
}

/// Whether to go on.
fn fill(places: &Places, ordered: bool, steps: &mut Vec<Step>) -> bool {
    for (ordinal, place) in (places.start..).zip(&places.replicas) {
        let Some(pod) = place else {
            steps.push(Step::Create(ordinal));
            if ordered {
                return false;
            }
            continue;
        };
        if pods::is_terminal(pod) {
            if !deleting(pod.as_ref()) {
                steps.push(Step::Delete(pod.clone()));
            }
            if ordered {
                return false;
            }
            continue;
        }
        if pods::phase(pod) == "Pending" {
            steps.push(Step::Claims(ordinal));
        }
        steps.extend(corrected(pod, ordinal).map(|pod| Step::Correct(Arc::new(pod))));
        if ordered && (deleting(pod.as_ref()) || !places.is_available(pod)) {
            return false;
        }
    }
    true
}

fn drain(places: &Places, ordered: bool, steps: &mut Vec<Step>) -> bool {
    let unhealthy = places.first_unhealthy().and_then(|pod| pod.metadata.uid.clone());
    for pod in &places.condemned {
        if deleting(pod.as_ref()) {
            if ordered {
                return false;
            }
            continue;
        }
        let waits = !places.is_available(pod) && pod.metadata.uid != unhealthy;
        if ordered && waits {
            return false;
        }
        steps.push(Step::Delete(pod.clone()));
        if ordered {
            return false;
        }
    }
    true
}

/// Replaces old pods from the highest ordinal down, as many at once as may be unavailable. Where order does not matter,
/// those that do not work anyway go first, and cost nothing.
fn roll(spec: &StatefulSetSpec, places: &Places, ordered: bool, update: &str, steps: &mut Vec<Step>) {
    let rolling = rolling(spec);
    let partition = usize::try_from(rolling.and_then(|r| r.partition).unwrap_or(0)).unwrap_or(0);
    let count = i32::try_from(places.replicas.len()).unwrap_or(i32::MAX);
    let limit =
        rolling.and_then(|r| r.max_unavailable.as_ref()).map_or(1, |limit| resolve(limit, count, false));
    let works = |pod: &Arc<Pod>| places.is_available(pod) && !deleting(pod.as_ref());
    let down = places.replicas.iter().filter(|place| !place.as_ref().is_some_and(works)).count();
    let budget = usize::try_from(limit.max(1)).unwrap_or(1).saturating_sub(down);
    let from_the_top = places.replicas.iter().skip(partition).rev().flatten();
    let old = from_the_top.filter(|pod| revision(pod) != update && !deleting(pod.as_ref())).cloned();
    let (free, counted): (Vec<_>, Vec<_>) = old.partition(|pod| !ordered && !works(pod));
    steps.extend(free.into_iter().chain(counted.into_iter().take(budget)).map(Step::Delete));
}

/// Whether a new pod of this ordinal still has the current revision.
pub fn keeps_current(spec: &StatefulSetSpec, current_replicas: i32, ordinal: i32) -> bool {
    let index = ordinal - start(spec);
    is_rolling(spec)
        && match rolling(spec) {
            None => index < current_replicas,
            Some(rolling) => index < rolling.partition.unwrap_or(0),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(spec: Value) -> StatefulSet {
        let mut full = json!({ "replicas": 3, "serviceName": "s", "selector": {}, "template": {} });
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": full })).unwrap()
    }

    /// `0r1` is the ready pod 0 of revision 1; `r` ready, `p` pending, `f` failed, `t` terminating.
    fn pod(text: &str) -> Arc<Pod> {
        let (ordinal, state, revision) = (&text[..1], &text[1..2], &text[2..]);
        let phase = match state {
            "p" => "Pending",
            "f" => "Failed",
            _ => "Running",
        };
        let ready = if state == "r" { "True" } else { "False" };
        let name = format!("web-{ordinal}");
        let mut pod = json!({ "metadata": { "name": name, "uid": name, "labels": {
                "controller-revision-hash": revision, "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": ordinal } },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready,
                "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
        if state == "t" {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn steps(spec: Value, pods: &str) -> String {
        let set = set(spec);
        let spec = set.spec.as_ref().unwrap();
        let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
        let places = Places::of(&set, spec, &pods, "2026-01-02T00:00:00Z".parse().unwrap());
        let show = |step: Step| match step {
            Step::Create(ordinal) => format!("+{ordinal}"),
            Step::Delete(pod) => format!("-{}", &pod.name_any()[4..]),
            Step::Correct(pod) => format!("={}", &pod.name_any()[4..]),
            Step::Claims(_) => String::new(),
        };
        plan(&set, spec, &places, "2")
            .into_iter()
            .map(show)
            .filter(|step| !step.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn one_thing_at_a_time() {
        for (pods, expected) in [
            ("", "+0"),
            ("0p2", ""),
            ("0r2", "+1"),
            ("0r2 1f2", "-1"),
            ("0r2 1t2", ""),
            ("0r2 2r2", "+1"),
            ("0r2 1r2 2r2", ""),
            ("0r2 1r2 2r2 3r2 4r2", "-4"),
            ("0r2 1r2 2r2 3r2 4p2", "-4"),
            ("0r2 1r2 2r2 3p2 4p2", ""),
            ("0r2 1p2 2r2 3r2", ""),
            ("0r1 1r1 2r1", "-2"),
            ("0r1 1r1 2p2", ""),
            ("0r1 1r1 2r2", "-1"),
        ] {
            assert_eq!(steps(json!({}), pods), expected, "{pods}");
        }
    }

    #[test]
    fn the_first_that_is_not_available_may_go_and_the_others_wait() {
        let none = json!({ "replicas": 0, "minReadySeconds": 200_000 });
        assert_eq!(steps(none.clone(), "0r2"), "-0");
        assert_eq!(steps(none, "0r2 1r2"), "");
    }

    #[test]
    fn policies_change_the_order() {
        let parallel = json!({ "podManagementPolicy": "Parallel" });
        assert_eq!(steps(parallel.clone(), "1p2"), "+0 +2");
        assert_eq!(steps(parallel.clone(), "0p2 1p2 2p2 3p2 4r2"), "-4 -3");
        assert_eq!(steps(parallel.clone(), "0p1 1r1 2r1"), "-0", "what does not work goes first and alone");
        assert_eq!(steps(parallel.clone(), "0p1 1p1 2r2"), "-1 -0");
        assert_eq!(steps(parallel.clone(), "0r1 1r1 2p2"), "", "one is down already");
        let mut two_free = parallel;
        two_free["updateStrategy"] =
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
        assert_eq!(steps(two_free, "0p1 1r1 2r1"), "-0 -2");
        let partition =
            json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 2 } } });
        assert_eq!(steps(partition.clone(), "0r1 1r1 2r1"), "-2");
        assert_eq!(steps(partition, "0r1 1r1 2r2"), "");
        assert_eq!(steps(json!({ "updateStrategy": { "type": "OnDelete" } }), "0r1 1r1 2r1"), "");
        let two = json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } } });
        assert_eq!(steps(two.clone(), "0r1 1r1 2r1"), "-2 -1");
        assert_eq!(steps(two, "0r1 1r1 2r2"), "-1 -0");
        let half = json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "60%" } } });
        assert_eq!(steps(half, "0r1 1r1 2r1"), "-2", "a share is rounded down");
        assert_eq!(steps(json!({ "ordinals": { "start": 2 } }), "0r2 2r2 3r2 4r2"), "-0");
    }
}

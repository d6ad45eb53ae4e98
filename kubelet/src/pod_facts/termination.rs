//! Why a pod shall not run any more, and how long it has.

use coracle_api::pod::{self, is_terminal_phase};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use std::time::Duration;

/// Said by the kubelet of pods that it ends itself, and by others of those that they end.
pub const DISRUPTION: &str = "DisruptionTarget";
pub const BY_KUBELET: &str = "TerminationByKubelet";
/// The condition of a pod whose containers all begin anew.
pub const RESTARTING: &str = "AllContainersRestarting";

/// A pod's own grace period where it names none.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// Why the kubelet itself ends a pod: what the pod's status says then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub reason: &'static str,
    pub message: String,
    /// Instead of the pod's own grace period.
    pub grace: Option<Duration>,
    /// Whether a condition says that it is not the pod's own fault.
    pub disrupts: bool,
}

impl Eviction {
    /// For want of something that the node has too little of.
    pub const EVICTED: &str = "Evicted";
    /// For a critical pod.
    pub const PREEMPTING: &str = "Preempting";
    /// For the end of the machine.
    pub const TERMINATED: &str = "Terminated";

    /// What a kubelet before this one began: its pod has not ended yet, and its status says why it is to. Who was evicted
    /// has at most `most`, for how long he was given is not written anywhere.
    pub fn resumed(pod: &Pod, most: Duration) -> Option<Self> {
        let status = pod.status.as_ref().filter(|_| !is_over(pod))?;
        let (reason, grace) = match status.reason.as_deref()? {
            Self::EVICTED => (Self::EVICTED, Some(most.min(own_grace(pod.spec.as_ref())))),
            Self::PREEMPTING => (Self::PREEMPTING, None),
            Self::TERMINATED => (Self::TERMINATED, Some(most.min(own_grace(pod.spec.as_ref())))),
            _ => return None,
        };
        let said = |kind: &str, why: &str| {
            let mut all = status.conditions.iter().flatten();
            all.any(|c| c.type_ == kind && c.status == "True" && c.reason.as_deref() == Some(why))
        };
        let message = status.message.clone().unwrap_or_default();
        Some(Self { reason, message, grace, disrupts: said(DISRUPTION, BY_KUBELET) })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Termination {
    /// The object is being deleted, or gone; maybe the kubelet had begun to end the pod before.
    Deleted { grace: Duration, evicted: Option<Eviction> },
    /// It ran its course, or its status already says so.
    Finished,
    /// It was active longer than `activeDeadlineSeconds`.
    DeadlineExceeded,
    /// The node needs what it has.
    Evicted(Eviction),
}

impl Termination {
    /// Whoever wants the pod's end soonest has his way. `removed`: the object is gone from its source; `late`: the
    /// deadline is over.
    pub fn of(pod: &Pod, removed: bool, evicted: Option<&Eviction>, late: bool) -> Option<Self> {
        let own = own_grace(pod.spec.as_ref());
        if let Some(grace) = deletion_grace(pod).or(removed.then_some(own)) {
            let grace = evicted.map_or(grace, |eviction| grace.min(eviction.grace.unwrap_or(own)));
            return Some(Self::Deleted { grace, evicted: evicted.cloned() });
        }
        if let Some(eviction) = evicted {
            return Some(Self::Evicted(eviction.clone()));
        }
        let reason = pod.status.as_ref().and_then(|s| s.reason.as_deref());
        if reason == Some("DeadlineExceeded") {
            return Some(Self::DeadlineExceeded);
        }
        if is_over(pod) {
            return Some(Self::Finished);
        }
        late.then_some(Self::DeadlineExceeded)
    }

    /// What the containers get to end in.
    pub fn grace(&self, spec: Option<&PodSpec>) -> Duration {
        match self {
            Self::Deleted { grace, .. } | Self::Evicted(Eviction { grace: Some(grace), .. }) => *grace,
            _ => own_grace(spec),
        }
    }

    /// How the kubelet itself ends the pod.
    pub fn eviction(&self) -> Option<&Eviction> {
        match self {
            Self::Evicted(eviction) | Self::Deleted { evicted: Some(eviction), .. } => Some(eviction),
            _ => None,
        }
    }

    /// Reason and message of the status of a pod that ends because somebody wants it to, and so has failed.
    pub fn words(&self) -> Option<(&str, &str)> {
        match self {
            Self::DeadlineExceeded => {
                Some(("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"))
            }
            other => other.eviction().map(|eviction| (eviction.reason, eviction.message.as_str())),
        }
    }
}

/// Whether the pod has ended for good and takes nothing of the node any more.
pub fn is_over(pod: &Pod) -> bool {
    pod::is_terminal(pod)
}

/// Whether the status says that its pod has ended for good.
pub fn is_terminal(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal_phase)
}

/// `terminationGracePeriodSeconds`
pub fn own_grace(spec: Option<&PodSpec>) -> Duration {
    let own = spec.and_then(|s| s.termination_grace_period_seconds);
    own.map_or(DEFAULT_GRACE, grace_of)
}

/// Negative seconds count as one, as the API server has it.
pub fn grace_of(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
}

/// How long a pod that is being deleted has; `None` while it is not.
pub fn deletion_grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds;
    let given = seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    Some(given.unwrap_or_else(|| own_grace(pod.spec.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(metadata: Value, status: Value) -> Pod {
        let spec = json!({ "containers": [], "terminationGracePeriodSeconds": 20 });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    }

    fn eviction(grace: Option<u64>) -> Eviction {
        let grace = grace.map(Duration::from_secs);
        Eviction { reason: Eviction::EVICTED, message: "m".to_owned(), grace, disrupts: true }
    }

    #[test]
    fn whoever_wants_the_end_soonest_has_his_way() {
        let deleted = |seconds: i64| json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": seconds });
        for (metadata, removed, evicted, seconds) in [
            (deleted(30), false, None, 30),
            (deleted(30), false, Some(eviction(Some(1))), 1),
            (deleted(30), false, Some(eviction(None)), 20),
            (deleted(0), false, Some(eviction(Some(1))), 0),
            (json!({}), true, None, 20),
            (json!({}), true, Some(eviction(Some(1))), 1),
            (json!({}), false, Some(eviction(Some(1))), 1),
            (json!({}), false, Some(eviction(None)), 20),
        ] {
            let pod = pod(metadata.clone(), json!({ "phase": "Running" }));
            let ending = Termination::of(&pod, removed, evicted.as_ref(), false).unwrap();
            let grace = ending.grace(pod.spec.as_ref());
            assert_eq!(grace, Duration::from_secs(seconds), "{metadata} {removed} {evicted:?}");
            assert_eq!(ending.words(), evicted.as_ref().map(|e| (e.reason, e.message.as_str())));
        }
        let running = |status: Value, late| Termination::of(&pod(json!({}), status), false, None, late);
        assert_eq!(running(json!({ "phase": "Running" }), false), None);
        assert_eq!(running(json!({ "phase": "Running" }), true), Some(Termination::DeadlineExceeded));
        assert_eq!(running(json!({ "phase": "Failed" }), true), Some(Termination::Finished));
    }

    #[test]
    fn what_another_kubelet_began_is_gone_on_with() {
        let most = Duration::from_secs(5);
        let status = |phase: &str, reason: &str| {
            let condition = json!({ "type": DISRUPTION, "status": "True", "reason": BY_KUBELET });
            json!({ "phase": phase, "reason": reason, "message": "m", "conditions": [condition] })
        };
        let resumed = |phase, reason| Eviction::resumed(&pod(json!({}), status(phase, reason)), most);
        assert_eq!(resumed("Running", "Evicted"), Some(eviction(Some(5))));
        let preempting = resumed("Running", "Preempting").unwrap();
        assert_eq!((preempting.reason, preempting.grace), (Eviction::PREEMPTING, None));
        assert_eq!(resumed("Failed", "Evicted"), None);
        assert_eq!(resumed("Running", "DeadlineExceeded"), None);
        let own_fault = json!({ "phase": "Running", "reason": "Evicted" });
        assert!(!Eviction::resumed(&pod(json!({}), own_fault), most).unwrap().disrupts);
    }
}

//! How many pods a budget lets go.

use super::scale::Wanted;
use crate::common::{pods, resolve};
use coracle_api::condition::set_condition;
use coracle_client::informer::deleting;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long an eviction may take to become a deletion; upstream's.
const EVICTION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);
const ALLOWED: &str = "DisruptionAllowed";

/// Whether the owners' sizes count, rather than the pods that are there.
pub fn asks_owners(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// Pods expected, and how many of them shall be healthy.
fn aims(spec: &PodDisruptionBudgetSpec, pods: usize, wanted: &Wanted) -> (i32, i32) {
    if let Some(down) = &spec.max_unavailable {
        return (wanted.pods, (wanted.pods - resolve(down, wanted.pods, true)).max(0));
    }
    match &spec.min_available {
        Some(number @ IntOrString::Int(_)) => {
            (i32::try_from(pods).unwrap_or(i32::MAX), resolve(number, 0, true))
        }
        Some(share) => (wanted.pods, resolve(share, wanted.pods, true)),
        None => (0, 0),
    }
}

/// What a budget comes to.
pub struct Count {
    pub status: PodDisruptionBudgetStatus,
    /// When to look again because an eviction may have come to nothing.
    pub again: Option<Duration>,
    /// Pods whose eviction was granted, and that are there still.
    pub not_deleted: Vec<Arc<Pod>>,
}

pub fn status(
    budget: &PodDisruptionBudget,
    spec: &PodDisruptionBudgetSpec,
    pods: &[Arc<Pod>],
    wanted: &Wanted,
    now: Timestamp,
) -> Count {
    let (expected, desired) = aims(spec, pods.len(), wanted);
    let old = budget.status.clone().unwrap_or_default();
    let Disrupted { left: disrupted, again, not_deleted } = disrupted(&old, pods, now);
    let healthy = pods.iter().filter(|pod| {
        !deleting(pod.as_ref()) && !disrupted.contains_key(&pod.name_any()) && pods::is_ready(pod)
    });
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let generation = budget.metadata.generation;
    let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
    let status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: generation,
        conditions: Some(conditions(
            old.conditions.unwrap_or_default(),
            allowed > 0,
            reason,
            "",
            generation,
            now,
        )),
    };
    Count { status, again, not_deleted }
}

/// Upstream's warning, with the selector as Go shows it.
pub fn unmanaged(spec: &PodDisruptionBudgetSpec) -> String {
    let selector = spec.selector.clone().unwrap_or_default();
    let labels = selector.match_labels.unwrap_or_default();
    let labels: String = labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.unwrap_or_default();
    let expressions: String = expressions
        .iter()
        .map(|e| {
            let values = e.values.as_deref().unwrap_or_default().join(" ");
            format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", e.key, e.operator)
        })
        .collect();
    format!(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}) were found to be unmanaged. As a result, the \
         status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
         pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    )
}

/// The status of a budget that cannot be counted: nothing may go.
pub fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    // What was declared last has not been understood, and the status says so.
    let generation = status.observed_generation;
    status.disruptions_allowed = Some(0);
    let old = status.conditions.take().unwrap_or_default();
    status.conditions = Some(conditions(old, false, "SyncFailed", why, generation, now));
    status
}

/// Evictions under way: granted, and their pods not deleted yet.
#[derive(Default)]
struct Disrupted {
    left: BTreeMap<String, Time>,
    again: Option<Duration>,
    not_deleted: Vec<Arc<Pod>>,
}

fn disrupted(status: &PodDisruptionBudgetStatus, pods: &[Arc<Pod>], now: Timestamp) -> Disrupted {
    let mut found = Disrupted::default();
    for pod in pods.iter().filter(|pod| !deleting(pod.as_ref())) {
        let granted = status.disrupted_pods.as_ref().and_then(|all| all.get(&pod.name_any()));
        let Some(granted) = granted else { continue };
        let Ok(due) = granted.0.checked_add(EVICTION_TIMEOUT) else { continue };
        if due > now {
            let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
            found.again = Some(found.again.map_or(wait, |least| least.min(wait)));
            found.left.insert(pod.name_any(), granted.clone());
        } else {
            found.not_deleted.push(pod.clone());
        }
    }
    found
}

fn conditions(
    mut all: Vec<Condition>,
    allowed: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let value = if allowed { "True" } else { "False" };
    let condition = Condition {
        type_: ALLOWED.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    set_condition(&mut all, condition);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, ready: bool) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({ "metadata": { "name": name },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] } }))
            .unwrap(),
        )
    }

    /// Expected, desired, healthy, allowed.
    fn count(spec: Value, status: Value, ready: usize, wanted: i32) -> [i32; 4] {
        let budget: PodDisruptionBudget = serde_json::from_value(
            json!({ "metadata": { "generation": 3 }, "spec": spec, "status": status }),
        )
        .unwrap();
        let pods: Vec<_> = (0..4).map(|i| pod(&format!("p{i}"), i < ready)).collect();
        let wanted = Wanted { pods: wanted, unmanaged: Vec::new() };
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let Count { status, .. } = super::status(&budget, budget.spec.as_ref().unwrap(), &pods, &wanted, now);
        let number = |n: Option<i32>| n.unwrap();
        [status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed]
            .map(number)
    }

    #[test]
    fn budgets_by_number_and_by_share() {
        for (spec, ready, wanted, expected) in [
            (json!({ "minAvailable": 2 }), 4, 0, [4, 2, 4, 2]),
            (json!({ "minAvailable": 2 }), 1, 0, [4, 2, 1, 0]),
            (json!({ "minAvailable": "50%" }), 3, 5, [5, 3, 3, 0]),
            (json!({ "maxUnavailable": 1 }), 4, 4, [4, 3, 4, 1]),
            (json!({ "maxUnavailable": "30%" }), 4, 4, [4, 2, 4, 2]),
            (json!({ "maxUnavailable": 9 }), 4, 4, [4, 0, 4, 4]),
            (json!({}), 4, 4, [0, 0, 4, 0]),
        ] {
            assert_eq!(count(spec.clone(), json!({}), ready, wanted), expected, "{spec}");
        }
    }

    #[test]
    fn an_eviction_under_way_counts_until_it_has_taken_too_long() {
        let spec = || json!({ "minAvailable": 2 });
        let granted = |at: &str| json!({ "disruptedPods": { "p0": at } });
        assert_eq!(count(spec(), granted("2026-01-01T00:00:30Z"), 4, 0), [4, 2, 3, 1]);
        assert_eq!(count(spec(), granted("2025-12-31T23:50:00Z"), 4, 0), [4, 2, 4, 2]);
        let status = |at| serde_json::from_value(granted(at)).unwrap();
        let late = |at| disrupted(&status(at), &[pod("p0", true)], "2026-01-01T00:01:00Z".parse().unwrap());
        assert_eq!(late("2025-12-31T23:50:00Z").not_deleted.len(), 1);
        let on_time = late("2026-01-01T00:00:30Z");
        assert_eq!((on_time.not_deleted.len(), on_time.again), (0, Some(Duration::from_secs(90))));
    }

    #[test]
    fn what_cannot_be_counted_lets_nothing_go_and_is_not_observed() {
        let budget = json!({ "metadata": { "generation": 3 }, "spec": {},
            "status": { "observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 4 } });
        let status = failed(&serde_json::from_value(budget).unwrap(), "why", Timestamp::UNIX_EPOCH);
        let told = &status.conditions.as_ref().unwrap()[0];
        assert_eq!((status.disruptions_allowed, status.observed_generation), (Some(0), Some(2)));
        assert_eq!(
            (told.reason.as_str(), told.message.as_str(), told.observed_generation),
            ("SyncFailed", "why", Some(2))
        );
    }
}

//! What a Job says about pods that fail and indexes that suffice: podFailurePolicy and successPolicy.

use super::indexes::Indexes;
use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule, SuccessPolicy,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

/// What becomes of a pod that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Count,
    Ignore,
    FailIndex,
    /// With the reason in words.
    FailJob(String),
}

impl Action {
    /// As rules name it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Ignore => "Ignore",
            Self::FailIndex => "FailIndex",
            Self::FailJob(_) => "FailJob",
        }
    }
}

/// What the first rule that fits the pod says; without one it counts.
pub fn on_failure(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Action {
    by_rule(policy, pod).unwrap_or(Action::Count)
}

/// What the first rule that fits the pod says.
pub fn by_rule(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Option<Action> {
    let rules = policy.map(|p| p.rules.as_slice()).unwrap_or_default();
    let mut fitting = rules.iter().enumerate().filter_map(|(i, rule)| Some((i, rule, fits(rule, pod)?)));
    let (i, rule, what) = fitting.next()?;
    Some(match rule.action.as_str() {
        "Ignore" => Action::Ignore,
        "FailIndex" => Action::FailIndex,
        "FailJob" => Action::FailJob(format!("{what} matching FailJob rule at index {i}")),
        _ => Action::Count,
    })
}

/// How the rule fits, in words.
fn fits(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    if let Some(codes) = &rule.on_exit_codes {
        let (container, code) = exit_code(codes, pod)?;
        return Some(format!("Container {container} for pod {name} failed with exit code {code}"));
    }
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let found = conditions.iter().find(|c| {
        patterns.iter().any(|p| p.type_ == c.type_ && p.status.as_deref().unwrap_or("True") == c.status)
    })?;
    Some(format!("Pod {name} has condition {}", found.type_))
}

/// The first container that ended with a code of the rule's. Success never matches, not even `NotIn`.
fn exit_code(rule: &PodFailurePolicyOnExitCodesRequirement, pod: &Pod) -> Option<(String, i32)> {
    let ended = |c: &ContainerStatus| {
        let code = c.state.as_ref()?.terminated.as_ref()?.exit_code;
        Some((c.name.clone(), code))
    };
    statuses(pod)
        .filter(|c| rule.container_name.as_ref().is_none_or(|name| *name == c.name))
        .filter_map(ended)
        .find(|(_, code)| *code != 0 && rule.values.contains(code) == (rule.operator == "In"))
}

/// Of containers and init containers.
pub fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let own = status.and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
    let init = status.and_then(|s| s.init_container_statuses.as_deref()).unwrap_or_default();
    own.iter().chain(init)
}

/// The first rule that the succeeded indexes satisfy, in words.
pub fn on_success(policy: &SuccessPolicy, succeeded: &Indexes, completions: i32) -> Option<String> {
    let enough = |count: usize, wanted: i32| usize::try_from(wanted).is_ok_and(|wanted| count >= wanted);
    let satisfied = policy.rules.iter().position(|rule| {
        let named = rule.succeeded_indexes.as_deref().map(|text| Indexes::parse(text, completions));
        match (named, rule.succeeded_count) {
            (Some(named), Some(count)) => enough(succeeded.common(&named), count),
            (Some(named), None) => succeeded.common(&named) == named.len(),
            (None, Some(count)) => enough(succeeded.len(), count),
            (None, None) => false,
        }
    });
    satisfied.map(|i| format!("Matched rules at index {i}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(codes: &[(&str, i32)], conditions: serde_json::Value) -> Pod {
        let statuses: Vec<_> = codes
            .iter()
            .map(|(name, code)| {
                json!({ "name": name, "ready": false, "restartCount": 0, "image": "", "imageID": "",
                    "state": { "terminated": { "exitCode": code } } })
            })
            .collect();
        serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n" },
            "status": { "phase": "Failed", "containerStatuses": statuses, "conditions": conditions } }))
        .unwrap()
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy: PodFailurePolicy = serde_json::from_value(json!({ "rules": [
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
            { "action": "FailJob", "onExitCodes": { "containerName": "main", "operator": "In", "values": [3, 4] } },
            { "action": "FailIndex", "onExitCodes": { "operator": "NotIn", "values": [1] } } ] }))
        .unwrap();
        let disrupted = json!([{ "type": "DisruptionTarget", "status": "True" }]);
        let fail = "Container main for pod n/p failed with exit code 3 matching FailJob rule at index 1";
        for (pod, expected) in [
            (pod(&[("main", 3)], disrupted), Action::Ignore),
            (pod(&[("main", 3)], json!([])), Action::FailJob(fail.to_owned())),
            (pod(&[("side", 3)], json!([])), Action::FailIndex),
            (pod(&[("main", 1)], json!([])), Action::Count),
            (pod(&[("main", 0)], json!([])), Action::Count),
        ] {
            assert_eq!(on_failure(Some(&policy), &pod), expected);
        }
    }

    #[test]
    fn rules_of_success() {
        let policy: SuccessPolicy = serde_json::from_value(json!({ "rules": [
            { "succeededIndexes": "0,2-3" }, { "succeededIndexes": "5-9", "succeededCount": 2 }, { "succeededCount": 6 } ] }))
        .unwrap();
        for (done, rule) in [("0,2", None), ("0,2-3", Some(0)), ("1,5,9", Some(1)), ("0,1,2,4,5,10", Some(2))]
        {
            let matched = on_success(&policy, &Indexes::parse(done, 12), 12);
            assert_eq!(matched, rule.map(|i| format!("Matched rules at index {i}")), "{done}");
        }
    }
}

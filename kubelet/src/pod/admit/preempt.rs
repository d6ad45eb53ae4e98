//! Who makes room for a critical pod: as few as possible, and best effort before burstable before guaranteed.

use super::resources::{InsufficientResource, requested};
use crate::pod_facts::critical::{is_critical, priority};
use crate::pod_facts::qos::{self, QosClass};
use k8s_openapi::api::core::v1::Pod;
use std::cmp::Ordering;

fn gives_way(pod: &Pod, to: &Pod) -> bool {
    (is_critical(to) && !is_critical(pod))
        || priority(to).zip(priority(pod)).is_some_and(|(to, own)| to > own)
}

/// What is still needed of a resource.
#[derive(Clone)]
struct Need<'a> {
    resource: &'a str,
    amount: i128,
}

fn of(pod: &Pod, resource: &str) -> i128 {
    if resource == "pods" { 1 } else { requested(pod, resource) }
}

fn without<'a>(needs: &[Need<'a>], pods: &[&Pod]) -> Vec<Need<'a>> {
    let left = needs.iter().map(|need| {
        let given: i128 = pods.iter().map(|pod| of(pod, need.resource)).sum();
        Need { amount: need.amount - given, ..need.clone() }
    });
    left.filter(|need| need.amount > 0).collect()
}

/// What of the needs one pod leaves open, in millionths squared: each resource counts alike.
fn distance(needs: &[Need<'_>], pod: &Pod) -> i128 {
    let open = needs.iter().map(|need| {
        let left = (need.amount - of(pod, need.resource)).max(0);
        let share = left.saturating_mul(1_000_000) / need.amount.max(1);
        share * share
    });
    open.sum()
}

/// Those that fill the needs best, one after the other; of equals the smaller.
fn nearest<'p>(mut pods: Vec<&'p Pod>, mut needs: Vec<Need<'_>>) -> Vec<&'p Pod> {
    let mut chosen = Vec::new();
    while !needs.is_empty() && !pods.is_empty() {
        let size = |pod: &Pod| (requested(pod, "memory"), requested(pod, "cpu"));
        let order = |a: &Pod, b: &Pod| -> Ordering {
            distance(&needs, a).cmp(&distance(&needs, b)).then_with(|| size(a).cmp(&size(b)))
        };
        let Some(best) = (0..pods.len()).min_by(|a, b| order(pods[*a], pods[*b])) else { break };
        let best = pods.swap_remove(best);
        needs = without(&needs, &[best]);
        chosen.push(best);
    }
    chosen
}

/// Who is to go; `None` where even all of them would not do.
pub fn victims<'p>(
    pod: &Pod,
    others: &[&'p Pod],
    shortages: &[InsufficientResource],
) -> Option<Vec<&'p Pod>> {
    let needs: Vec<Need<'_>> =
        shortages.iter().map(|s| Need { resource: &s.resource, amount: s.missing() }).collect();
    let class = |class: QosClass| -> Vec<&'p Pod> {
        others.iter().copied().filter(|p| gives_way(p, pod) && qos::class(*p) == class).collect()
    };
    let (best, burstable, guaranteed) =
        (class(QosClass::BestEffort), class(QosClass::Burstable), class(QosClass::Guaranteed));
    let all = [best.clone(), burstable.clone(), guaranteed.clone()].concat();
    if !without(&needs, &all).is_empty() {
        return None;
    }
    // The dearer are asked for no more than the cheaper, all of them, leave open.
    let guaranteed = nearest(guaranteed, without(&needs, &[best.clone(), burstable.clone()].concat()));
    let burstable = nearest(burstable, without(&needs, &[best.clone(), guaranteed.clone()].concat()));
    let best = nearest(best, without(&needs, &[burstable.clone(), guaranteed.clone()].concat()));
    Some([best, burstable, guaranteed].concat())
}

/// What upstream says of shortages that nobody can fill.
pub fn hopeless(shortages: &[InsufficientResource]) -> String {
    let list: String =
        shortages.iter().map(|s| format!("(res: {}, q: {}), ", s.resource, s.missing())).collect();
    format!(
        "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of \
         pods to preempt: no set of running pods found to reclaim resources: [{list}]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_facts::critical::SYSTEM_CRITICAL;
    use serde_json::{Value, json};

    fn pod(name: &str, priority: i32, resources: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "priority": priority,
            "containers": [{ "name": "c", "resources": resources }] } }))
        .unwrap()
    }

    fn chosen(others: &[Pod], missing: &[(&str, i128)]) -> Option<Vec<String>> {
        let shortages: Vec<InsufficientResource> = missing
            .iter()
            .map(|(resource, amount)| InsufficientResource {
                resource: (*resource).to_owned(),
                requested: *amount,
                used: 0,
                capacity: 0,
            })
            .collect();
        let critical = pod("critical", SYSTEM_CRITICAL, json!({}));
        let others: Vec<&Pod> = others.iter().collect();
        let found = victims(&critical, &others, &shortages)?;
        Some(found.iter().map(|p| p.metadata.name.clone().unwrap()).collect())
    }

    #[test]
    fn as_few_and_as_cheap_as_possible_go() {
        let cpu = |amount: &str| json!({ "requests": { "cpu": amount } });
        let whole = json!({ "cpu": "1", "memory": "1Gi" });
        let guaranteed = pod("guaranteed", 0, json!({ "requests": whole, "limits": whole }));
        let others =
            [pod("none", 0, json!({})), pod("small", 0, cpu("200m")), pod("big", 0, cpu("600m")), guaranteed];
        assert_eq!(chosen(&others, &[("cpu", 100)]).unwrap(), ["small"]);
        assert_eq!(chosen(&others, &[("cpu", 500)]).unwrap(), ["big"]);
        assert_eq!(chosen(&others, &[("cpu", 700)]).unwrap(), ["big", "small"]);
        assert_eq!(chosen(&others, &[("cpu", 900)]).unwrap(), ["guaranteed"]);
        assert_eq!(chosen(&others, &[("pods", 1)]).unwrap(), ["none"]);
        assert_eq!(chosen(&others, &[("cpu", 9000)]), None);
        let critical = [pod("critical", SYSTEM_CRITICAL, cpu("1"))];
        assert_eq!(chosen(&critical, &[("cpu", 100)]), None);
    }
}

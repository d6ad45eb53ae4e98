//! Which victims a PodDisruptionBudget protects.

use crate::cache::PodInfo;
use crate::framework::Cluster;
use coracle_api::selector::LabelSelector;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

struct Budget {
    selector: LabelSelector,
    allowed: i64,
    /// Pods whose disruption is counted already.
    disrupted: HashSet<String>,
}

/// The budgets of every namespace that has some.
#[derive(Default)]
pub struct Budgets {
    by_namespace: HashMap<String, Vec<Budget>>,
}

fn budget(object: &Value) -> Option<Budget> {
    let selector = LabelSelector::from_object(&object["spec"]["selector"]).ok()?;
    let disrupted = object["status"]["disruptedPods"].as_object();
    Some(Budget {
        selector,
        allowed: object["status"]["disruptionsAllowed"].as_i64().unwrap_or(0),
        disrupted: disrupted.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
    })
}

impl Budgets {
    pub fn of(cluster: &dyn Cluster) -> Self {
        let mut by_namespace: HashMap<String, Vec<Budget>> = HashMap::new();
        for object in cluster.disruption_budgets() {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            if let Some(budget) = budget(&object) {
                by_namespace.entry(namespace.to_owned()).or_default().push(budget);
            }
        }
        Self { by_namespace }
    }

    /// Splits potential victims into those whose eviction violates a budget and the others, each in the same order.
    pub fn split(&self, pods: &[Arc<PodInfo>]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
        if self.by_namespace.is_empty() {
            return (Vec::new(), pods.to_vec());
        }
        let mut left: HashMap<(&str, usize), i64> = HashMap::new();
        let (mut violating, mut others) = (Vec::new(), Vec::new());
        for pod in pods {
            let namespace = pod.key.namespace.as_str();
            let mut violates = false;
            for (i, budget) in self.by_namespace.get(namespace).into_iter().flatten().enumerate() {
                if budget.disrupted.contains(&pod.key.name) || !budget.protects(pod) {
                    continue;
                }
                let left = left.entry((namespace, i)).or_insert(budget.allowed);
                *left -= 1;
                violates |= *left < 0;
            }
            if violates { &mut violating } else { &mut others }.push(pod.clone());
        }
        (violating, others)
    }
}

impl Budget {
    /// For the scheduler an empty selector selects nothing, as upstream.
    fn protects(&self, pod: &PodInfo) -> bool {
        if self.selector.is_everything() {
            return false;
        }
        let Some(labels) = pod.labels().filter(|l| !l.is_empty()) else { return false };
        self.selector.matches_with(|key| labels.get(key).map(String::as_str))
    }
}

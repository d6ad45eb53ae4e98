//! Terms of pod affinity and topology spread, parsed once per pod.

use coracle_api::selector::LabelSelector;
use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector as TypedSelector, LabelSelectorRequirement,
};
use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// One term: the pods it means, and the part of the cluster they share with the pod that has it.
#[derive(Clone, Debug)]
pub struct AffinityTerm {
    /// Namespaces named in the term; the pod's own when it names and selects none.
    pub namespaces: Vec<String>,
    /// Matches nothing when the term has no namespaceSelector.
    pub namespace_selector: LabelSelector,
    pub selector: LabelSelector,
    pub topology_key: String,
    /// 1 to 100 for preferred terms; 0 for required ones.
    pub weight: i64,
}

impl AffinityTerm {
    /// `namespace_labels` are those of `namespace`; they are asked for only when the term selects namespaces.
    pub fn matches<'l>(
        &self,
        namespace: &str,
        labels: Option<&Labels>,
        namespace_labels: impl FnOnce() -> Option<&'l Labels>,
    ) -> bool {
        let named = self.namespaces.iter().any(|n| n == namespace);
        (named || self.selects(namespace_labels)) && matches(&self.selector, labels)
    }

    fn selects<'l>(&self, namespace_labels: impl FnOnce() -> Option<&'l Labels>) -> bool {
        if self.namespace_selector == LabelSelector::nothing() {
            return false;
        }
        self.namespace_selector.is_everything() || matches(&self.namespace_selector, namespace_labels())
    }
}

/// Whether labels satisfy a selector.
pub fn matches(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    selector.matches_with(|key| labels.and_then(|l| l.get(key)).map(String::as_str))
}

/// The terms of one pod. Absent from pods without any, which are most.
#[derive(Clone, Debug, Default)]
pub struct PodAffinities {
    pub required: Vec<AffinityTerm>,
    pub preferred: Vec<AffinityTerm>,
    pub required_anti: Vec<AffinityTerm>,
    pub preferred_anti: Vec<AffinityTerm>,
}

impl PodAffinities {
    pub fn of(namespace: &str, labels: Option<&Labels>, spec: &PodSpec) -> Option<Box<Self>> {
        let affinity = spec.affinity.as_ref()?;
        let parse = |term: &PodAffinityTerm, weight: i32| parse(namespace, labels, term, weight);
        let mut all = Self::default();
        if let Some(terms) = &affinity.pod_affinity {
            let (required, preferred) = (
                &terms.required_during_scheduling_ignored_during_execution,
                &terms.preferred_during_scheduling_ignored_during_execution,
            );
            all.required = required.iter().flatten().map(|t| parse(t, 0)).collect();
            all.preferred =
                preferred.iter().flatten().map(|t| parse(&t.pod_affinity_term, t.weight)).collect();
        }
        if let Some(terms) = &affinity.pod_anti_affinity {
            let (required, preferred) = (
                &terms.required_during_scheduling_ignored_during_execution,
                &terms.preferred_during_scheduling_ignored_during_execution,
            );
            all.required_anti = required.iter().flatten().map(|t| parse(t, 0)).collect();
            all.preferred_anti =
                preferred.iter().flatten().map(|t| parse(&t.pod_affinity_term, t.weight)).collect();
        }
        (!all.is_empty()).then(|| Box::new(all))
    }

    fn is_empty(&self) -> bool {
        let lists = [&self.required, &self.preferred, &self.required_anti, &self.preferred_anti];
        lists.iter().all(|l| l.is_empty())
    }
}

/// A selector that cannot be read matches nothing: the API refuses it when the pod is created.
fn selector(typed: Option<&TypedSelector>) -> LabelSelector {
    let value = typed.and_then(|s| serde_json::to_value(s).ok());
    value.and_then(|v| LabelSelector::from_object(&v).ok()).unwrap_or_else(LabelSelector::nothing)
}

/// The selector with `In` (or `NotIn`) for those of the keys that the pod itself has (KEP-3633, KEP-3243).
fn with_keys(
    typed: Option<&TypedSelector>,
    labels: Option<&Labels>,
    keys: &Option<Vec<String>>,
    mismatch: &Option<Vec<String>>,
) -> LabelSelector {
    let Some(typed) = typed else { return LabelSelector::nothing() };
    let mut extended = typed.clone();
    for (list, operator) in [(keys, "In"), (mismatch, "NotIn")] {
        for key in list.iter().flatten() {
            let Some(value) = labels.and_then(|l| l.get(key)) else { continue };
            extended.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            });
        }
    }
    selector(Some(&extended))
}

fn parse(namespace: &str, labels: Option<&Labels>, term: &PodAffinityTerm, weight: i32) -> AffinityTerm {
    let mut namespaces = term.namespaces.clone().unwrap_or_default();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.push(namespace.to_owned());
    }
    AffinityTerm {
        namespaces,
        namespace_selector: selector(term.namespace_selector.as_ref()),
        selector: with_keys(
            term.label_selector.as_ref(),
            labels,
            &term.match_label_keys,
            &term.mismatch_label_keys,
        ),
        topology_key: term.topology_key.clone(),
        weight: i64::from(weight),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    DoNotSchedule,
    ScheduleAnyway,
}

/// One topology spread constraint.
#[derive(Clone, Debug)]
pub struct Spread {
    pub max_skew: i64,
    pub topology_key: String,
    pub when: WhenUnsatisfiable,
    pub selector: LabelSelector,
    pub min_domains: i64,
    /// Whether only nodes count that the pod's node affinity and selector allow.
    pub honor_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honor_taints: bool,
}

impl Spread {
    pub fn of(labels: Option<&Labels>, spec: &PodSpec) -> Vec<Self> {
        let constraints = spec.topology_spread_constraints.iter().flatten();
        constraints.map(|c| Self::parse(labels, c)).collect()
    }

    pub fn parse(labels: Option<&Labels>, constraint: &TopologySpreadConstraint) -> Self {
        let soft = constraint.when_unsatisfiable == "ScheduleAnyway";
        Self {
            max_skew: i64::from(constraint.max_skew),
            topology_key: constraint.topology_key.clone(),
            when: if soft { WhenUnsatisfiable::ScheduleAnyway } else { WhenUnsatisfiable::DoNotSchedule },
            selector: with_keys(
                constraint.label_selector.as_ref(),
                labels,
                &constraint.match_label_keys,
                &None,
            ),
            min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}

//! The pod's own terms, with the namespaces that they select looked up.

use crate::cache::{AffinityTerm, PodInfo};
use crate::framework::Cluster;
use coracle_api::selector::LabelSelector;
use std::collections::BTreeMap;

/// Copies of a pod's terms whose namespaces are all named.
#[derive(Default)]
pub struct Own {
    pub required: Vec<AffinityTerm>,
    pub required_anti: Vec<AffinityTerm>,
    pub preferred: Vec<AffinityTerm>,
    pub preferred_anti: Vec<AffinityTerm>,
}

impl Own {
    pub fn of(pod: &PodInfo, cluster: &dyn Cluster) -> Self {
        let Some(terms) = &pod.affinities else { return Self::default() };
        let resolve = |list: &[AffinityTerm]| list.iter().map(|t| resolved(t, cluster)).collect();
        Self {
            required: resolve(&terms.required),
            required_anti: resolve(&terms.required_anti),
            preferred: resolve(&terms.preferred),
            preferred_anti: resolve(&terms.preferred_anti),
        }
    }
}

fn resolved(term: &AffinityTerm, cluster: &dyn Cluster) -> AffinityTerm {
    // All and none need no names.
    if term.namespace_selector.is_everything() || term.namespace_selector == LabelSelector::nothing() {
        return term.clone();
    }
    let mut resolved = term.clone();
    for (name, labels) in cluster.namespaces() {
        if term.namespace_selector.matches_with(|key| labels.get(key).map(String::as_str)) {
            resolved.namespaces.push(name);
        }
    }
    resolved.namespace_selector = LabelSelector::nothing();
    resolved
}

/// Whether a term of one's own means the other pod.
pub fn matches(term: &AffinityTerm, other: &PodInfo, labels: Option<&BTreeMap<String, String>>) -> bool {
    term.matches(&other.key.namespace, other.labels(), || labels)
}

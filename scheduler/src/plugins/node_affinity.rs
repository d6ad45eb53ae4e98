//! `nodeSelector` and node affinity: required terms filter, preferred ones score.

use super::{ArgumentErrors, Arguments, affinity, normalize};
use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::framework::{ClusterEvent, CycleState, NodeScore, Plugin, Point, Reuse, Status};
use coracle_client::placement::{any_term_matches, term_matches};
use k8s_openapi::api::core::v1::{NodeAffinity as Terms, NodeSelectorTerm, PreferredSchedulingTerm};
use serde_json::Value;
use std::collections::HashSet;

const NAME: &str = "NodeAffinity";
pub const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

#[derive(Default)]
pub struct NodeAffinity {
    /// Applies to every pod of the profile, in addition to its own.
    added: Option<Terms>,
}

fn preferred(terms: Option<&Terms>) -> &[PreferredSchedulingTerm] {
    terms.and_then(|t| t.preferred_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
}

/// The names that the terms leave, when each of them names nodes: as the pods of a DaemonSet do.
fn named(terms: &[NodeSelectorTerm]) -> Option<HashSet<String>> {
    let mut names = HashSet::new();
    for term in terms {
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let mut by_name = fields.iter().filter(|f| f.key == "metadata.name" && f.operator == "In");
        let first = by_name.next()?.values.as_deref().unwrap_or_default();
        let rest: Vec<_> = by_name.filter_map(|f| f.values.as_ref()).collect();
        names.extend(first.iter().filter(|name| rest.iter().all(|values| values.contains(name))).cloned());
    }
    Some(names)
}

/// What is wrong with terms in a configuration; those of pods were checked by the API.
fn mistakes_in(added: &Terms) -> ArgumentErrors {
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let hard = added.required_during_scheduling_ignored_during_execution.iter();
    let hard = hard.flat_map(|r| r.node_selector_terms.iter().enumerate());
    let hard = hard.map(|(i, term)| (format!("{required}.nodeSelectorTerms[{i}]"), term));
    let soft = self::preferred(Some(added)).iter().enumerate();
    let soft = soft.map(|(i, term)| (format!("{preferred}[{i}].preference"), &term.preference));
    let told = |(path, term): (String, &NodeSelectorTerm)| {
        let whys = affinity::mistakes_in(term).into_iter();
        whys.map(|why| format!("addedAffinity.{path}.{why}")).collect::<Vec<_>>()
    };
    hard.chain(soft).flat_map(told).collect()
}

impl NodeAffinity {
    pub fn new(arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let added: Option<Terms> = arguments.read("addedAffinity");
        let mut mistakes = added.as_ref().map(mistakes_in).unwrap_or_default();
        mistakes.extend(arguments.finish().err().unwrap_or_default());
        if mistakes.is_empty() { Ok(Self { added }) } else { Err(mistakes) }
    }

    fn added_allows(&self, node: &NodeInfo) -> bool {
        let required =
            self.added.as_ref().and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        required.is_none_or(|r| any_term_matches(&r.node_selector_terms, node))
    }

    fn matches(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        self.added_allows(node) && affinity::allows(pod, node)
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _snapshot: &Snapshot) -> Status {
        let required =
            affinity::of(pod).and_then(|t| t.required_during_scheduling_ignored_during_execution.as_ref());
        let selector = pod.spec().and_then(|s| s.node_selector.as_ref());
        if required.is_none() && selector.is_none_or(std::collections::BTreeMap::is_empty) {
            return if self.added.is_none() { Status::Skip } else { Status::Success };
        }
        let terms = required.map(|r| r.node_selector_terms.as_slice()).unwrap_or_default();
        if let Some(names) = named(terms).filter(|_| !terms.is_empty()) {
            if names.is_empty() {
                return Status::unresolvable("pod affinity terms conflict");
            }
            state.only_nodes(NAME, names);
        }
        Status::Success
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if !self.added_allows(node) {
            return Status::unresolvable("node(s) didn't match scheduler-enforced node affinity");
        }
        if !affinity::allows(pod, node) {
            return Status::unresolvable("node(s) didn't match Pod's node affinity/selector");
        }
        Status::Success
    }

    fn pre_score(
        &self,
        _state: &mut CycleState,
        pod: &PodInfo,
        _snapshot: &Snapshot,
        _nodes: &[usize],
    ) -> Status {
        let none = preferred(affinity::of(pod)).is_empty() && preferred(self.added.as_ref()).is_empty();
        if none { Status::Skip } else { Status::Success }
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let terms = preferred(affinity::of(pod)).iter().chain(preferred(self.added.as_ref()));
        let matching = terms.filter(|t| term_matches(&t.preference, node));
        matching.map(|t| i64::from(t.weight)).sum()
    }

    fn normalize(&self, _state: &CycleState, _pod: &PodInfo, scores: &mut [NodeScore]) {
        normalize::by_highest(scores, false);
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => self.matches(pod, node),
            ClusterEvent::NodeUpdated { node, changed } => changed.labels && self.matches(pod, node),
            ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            _ => false,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let selector = pod.spec().and_then(|s| s.node_selector.as_ref());
        let missing = selector.into_iter().flatten().find(|(k, v)| node.label(k) != Some(v.as_str()));
        Some(match missing {
            Some((key, value)) => format!("kubectl label nodes {} {key}={value}", node.name),
            None => "change the pod's required node affinity, or the node's labels".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{node, pod, snapshot};
    use serde_json::json;

    fn plain() -> NodeAffinity {
        NodeAffinity::default()
    }

    #[test]
    fn every_operator_decides_as_upstream() {
        let labelled = node(json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}}));
        let cases = [
            (json!({"key": "zone", "operator": "In", "values": ["a", "b"]}), true),
            (json!({"key": "zone", "operator": "In", "values": ["b"]}), false),
            (json!({"key": "zone", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "absent", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "zone", "operator": "Exists"}), true),
            (json!({"key": "zone", "operator": "DoesNotExist"}), false),
            (json!({"key": "cores", "operator": "Gt", "values": ["4"]}), true),
            (json!({"key": "cores", "operator": "Lt", "values": ["8"]}), false),
            (json!({"key": "zone", "operator": "Gt", "values": ["4"]}), false),
        ];
        for (expression, fits) in cases {
            let pod = pod(json!({"spec": {"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}}));
            let status = plain().filter(&CycleState::default(), &pod, &labelled);
            assert_eq!(status.is_success(), fits, "{expression}");
        }
    }

    fn for_node(name: &str) -> Value {
        json!({"spec": {"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}}})
    }

    #[test]
    fn node_selector_and_match_fields_both_count() {
        let n1 = node(json!({"metadata": {"name": "n1", "labels": {"disk": "ssd"}}}));
        let wants = |disk: &str, name: &str| {
            let mut value = for_node(name);
            value["spec"]["nodeSelector"] = json!({"disk": disk});
            pod(value)
        };
        assert!(plain().matches(&wants("ssd", "n1"), &n1));
        assert!(!plain().matches(&wants("hdd", "n1"), &n1));
        assert!(!plain().matches(&wants("ssd", "n2"), &n1));
    }

    #[test]
    fn a_named_node_is_all_that_is_looked_at() {
        let mut state = CycleState::default();
        let snapshot = snapshot(&[json!({"metadata": {"name": "n1"}})], &[]);
        assert_eq!(plain().pre_filter(&mut state, &pod(for_node("n1")), &snapshot), Status::Success);
        let (names, plugins) = state.remaining_nodes().expect("restricted");
        assert_eq!((names, plugins), (HashSet::from(["n1"]), vec![NAME]));
    }

    #[test]
    fn the_added_affinity_holds_for_every_pod() {
        let arguments = json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "team", "operator": "Exists"}]}]}}});
        let plugin = NodeAffinity::new(&arguments).expect("arguments");
        let any = pod(json!({"spec": {"containers": []}}));
        let status = plugin.filter(&CycleState::default(), &any, &node(json!({"metadata": {"name": "n"}})));
        assert_eq!(status.reasons(), ["node(s) didn't match scheduler-enforced node affinity"]);
        assert_eq!(
            NodeAffinity::new(&json!({"adedAffinity": {}})).err(),
            Some(vec!["adedAffinity: Forbidden: unknown field".to_owned()])
        );
        let wrong = json!({"addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
                [{"matchExpressions": [{"key": "a", "operator": "In"}], "matchFields": [{"key": "b", "operator": "In"}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference":
                {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}, {"key": "a", "operator": "Is"}]}}]}});
        let told = NodeAffinity::new(&wrong).err().unwrap_or_default();
        let starts = [
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values",
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key",
            "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values",
            "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[1].operator",
        ];
        assert_eq!(told.len(), starts.len(), "{told:#?}");
        assert!(told.iter().zip(starts).all(|(why, start)| why.starts_with(start)), "{told:#?}");
    }
}

//! The pod of a DaemonSet on one node.

use crate::common::pod_control::pod_from;
use coracle_api::toleration;
use coracle_api::well_known;
use coracle_client::placement::selects;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};
use kube::ResourceExt;

pub const HASH: &str = "controller-revision-hash";
const GENERATION: &str = "pod-template-generation";
/// Counts the templates that the set has had.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
const NODE_NAME: &str = "metadata.name";

/// Taints that a daemon endures, because nodes have them while daemons are needed most.
const ENDURED: [(&str, &str); 6] = [
    (well_known::NOT_READY, "NoExecute"),
    (well_known::UNREACHABLE, "NoExecute"),
    (well_known::DISK_PRESSURE, "NoSchedule"),
    (well_known::MEMORY_PRESSURE, "NoSchedule"),
    (well_known::PID_PRESSURE, "NoSchedule"),
    (well_known::UNSCHEDULABLE, "NoSchedule"),
];
/// Endured by daemons in the node's own network.
const NO_NETWORK: (&str, &str) = (well_known::NETWORK_UNAVAILABLE, "NoSchedule");

/// Whether a daemon shall run on the node, and whether one that runs there may stay.
pub fn fate(spec: &DaemonSetSpec, node: &Node) -> (bool, bool) {
    let mut pod = spec.template.spec.clone().unwrap_or_default();
    let named = pod.node_name.as_deref().unwrap_or_default();
    if !(named.is_empty() || named == node.name_any()) || !selects(&pod, node) {
        return (false, false);
    }
    endure(&mut pod);
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let tolerations = pod.tolerations.as_deref().unwrap_or_default();
    let repels = |taint: &&Taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            && !tolerations.iter().any(|t| toleration::Toleration::from(t).tolerates((*taint).into()))
    };
    let mut repelling = taints.iter().filter(repels).peekable();
    match repelling.peek() {
        None => (true, true),
        Some(_) => (false, !repelling.any(|taint| taint.effect == "NoExecute")),
    }
}

fn endure(pod: &mut PodSpec) {
    let network = pod.host_network.unwrap_or(false).then_some(NO_NETWORK);
    let tolerations = pod.tolerations.get_or_insert_default();
    for (key, effect) in ENDURED.into_iter().chain(network) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        // One of the template's for the same taint gives way, with its time: a daemon stays.
        let same = |t: &&mut Toleration| {
            (&t.key, &t.operator, &t.value, &t.effect)
                == (&toleration.key, &toleration.operator, &toleration.value, &toleration.effect)
        };
        match tolerations.iter_mut().find(same) {
            Some(own) => *own = toleration,
            None => tolerations.push(toleration),
        }
    }
}

/// The pod for a node: the scheduler may put it there and nowhere else.
pub fn pod(set: &DaemonSet, spec: &DaemonSetSpec, hash: &str, node: &str) -> Pod {
    let mut pod = pod_from(set, &spec.template);
    pod.labels_mut().insert(HASH.to_owned(), hash.to_owned());
    if let Some(generation) = set.annotations().get(TEMPLATE_GENERATION) {
        pod.labels_mut().insert(GENERATION.to_owned(), generation.clone());
    }
    let inner = pod.spec.get_or_insert_default();
    endure(inner);
    pin(inner, node);
    pod
}

/// Replaces what fields the affinity asks for by the node's name, in every term.
fn pin(spec: &mut PodSpec, node: &str) {
    let name = NodeSelectorRequirement {
        key: NODE_NAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let selector = &mut affinity.required_during_scheduling_ignored_during_execution;
    let terms = &mut selector.get_or_insert_with(NodeSelector::default).node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    terms.iter_mut().for_each(|term| term.match_fields = Some(vec![name.clone()]));
}

/// The node that a pod is on, or made for.
pub fn node_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|n| !n.is_empty()) {
        return Some(node);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().filter_map(|term| term.match_fields.as_ref());
    let name = fields.flatten().find(|field| field.key == NODE_NAME)?;
    name.values.as_ref()?.first().map(String::as_str)
}

pub fn hash_of(pod: &Pod) -> &str {
    pod.labels().get(HASH).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(taints: Value, unschedulable: bool) -> Node {
        serde_json::from_value(json!({ "metadata": { "name": "n", "labels": { "disk": "ssd" } },
            "spec": { "taints": taints, "unschedulable": unschedulable } }))
        .unwrap()
    }

    fn set(pod: Value) -> DaemonSet {
        serde_json::from_value(json!({ "metadata": { "name": "d" }, "spec": { "selector": {},
            "template": { "spec": pod } } }))
        .unwrap()
    }

    #[test]
    fn which_nodes_have_a_daemon() {
        let taint = |effect: &str| json!([{ "key": "k", "effect": effect }]);
        let cases = [
            (json!({}), json!([]), (true, true)),
            (json!({ "nodeName": "other" }), json!([]), (false, false)),
            (json!({ "nodeSelector": { "disk": "ssd" } }), json!([]), (true, true)),
            (json!({ "nodeSelector": { "disk": "hdd" } }), json!([]), (false, false)),
            (json!({}), taint("NoSchedule"), (false, true)),
            (json!({}), taint("NoExecute"), (false, false)),
            (json!({}), taint("PreferNoSchedule"), (true, true)),
            (json!({ "tolerations": [{ "operator": "Exists" }] }), taint("NoExecute"), (true, true)),
            (
                json!({}),
                json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" }]),
                (true, true),
            ),
        ];
        for (mut pod, taints, expected) in cases {
            pod["containers"] = json!([]);
            let set = set(pod.clone());
            assert_eq!(
                fate(set.spec.as_ref().unwrap(), &node(taints.clone(), true)),
                expected,
                "{pod} {taints}"
            );
        }
    }

    #[test]
    fn a_pod_is_pinned_to_its_node_and_found_there() {
        let expressions = json!([{ "key": "disk", "operator": "In", "values": ["ssd"] }]);
        let terms = json!([{ "matchExpressions": expressions }, {}]);
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        let set = set(json!({ "containers": [], "affinity": { "nodeAffinity": required } }));
        let pod = pod(&set, set.spec.as_ref().unwrap(), "h", "n");
        assert_eq!((node_of(&pod), hash_of(&pod)), (Some("n"), "h"));
        let affinity = pod.spec.unwrap().affinity.unwrap().node_affinity.unwrap();
        let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
        assert!(terms.iter().all(|t| t.match_fields.is_some()) && terms[0].match_expressions.is_some());
    }
}

//! The pod's requests must fit into what the node has left; the scoring strategy says which node is better.

use super::strategy::Strategy;
use crate::cache::{NodeInfo, PodInfo, Resources};
use crate::framework::{Cluster, ClusterEvent, CycleState, ObjectKind, Plugin, Point, Reuse, Status};
use crate::plugins::dynamic_resources::extended;
use crate::plugins::{ArgumentErrors, Arguments, Handle};
use coracle_api::validation::qualified_name;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

pub const POINTS: &[Point] = &[Point::Filter, Point::Score];

#[derive(Default)]
pub struct NodeResourcesFit {
    /// Extended resources that somebody else looks after, by name and by what stands before the slash.
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    strategy: Strategy,
    /// Knows which resources devices back; absent where there are no devices.
    cluster: Option<Arc<dyn Cluster>>,
}

/// One resource that is short.
struct Short<'a> {
    /// Absent for the number of pods.
    resource: Option<&'a str>,
    wanted: i64,
    free: i64,
    /// Whether an empty node would be short of it too.
    hopeless: bool,
}

impl Short<'_> {
    fn reason(&self) -> Cow<'static, str> {
        match self.resource {
            None => "Too many pods".into(),
            Some("cpu") => "Insufficient cpu".into(),
            Some("memory") => "Insufficient memory".into(),
            Some(name) => format!("Insufficient {name}").into(),
        }
    }
}

impl NodeResourcesFit {
    pub fn new(handle: &Handle, arguments: &Value) -> Result<Self, ArgumentErrors> {
        let mut arguments = Arguments::new(arguments);
        let mut mistakes = Vec::new();
        let plugin = Self {
            ignored: arguments.read("ignoredResources").unwrap_or_default(),
            ignored_groups: arguments.read("ignoredResourceGroups").unwrap_or_default(),
            strategy: Strategy::parse(&arguments.take("scoringStrategy").unwrap_or_default(), &mut mistakes),
            cluster: Some(handle.cluster.clone()),
        };
        for (i, name) in plugin.ignored.iter().enumerate() {
            for why in qualified_name(name) {
                mistakes.push(format!("ignoredResources[{i}]: Invalid value: {name:?}: {why}"));
            }
        }
        for (i, group) in plugin.ignored_groups.iter().enumerate() {
            let slash = group.contains('/').then(|| "resource group name can't contain '/'".to_owned());
            for why in slash.into_iter().chain(qualified_name(group)) {
                mistakes.push(format!("ignoredResourceGroups[{i}]: Invalid value: {group:?}: {why}"));
            }
        }
        mistakes.extend(arguments.finish().err().unwrap_or_default());
        if mistakes.is_empty() { Ok(plugin) } else { Err(mistakes) }
    }

    /// Of extended resources alone: huge pages and the like are Kubernetes' own.
    fn is_ignored(&self, name: &str) -> bool {
        let Some((group, _)) = name.split_once('/') else { return false };
        self.ignored.iter().any(|i| i == name) || self.ignored_groups.iter().any(|g| g == group)
    }

    /// Whether the resource comes from devices on this node, which DynamicResources looks after.
    fn is_dynamic(&self, name: &str, node: &NodeInfo) -> bool {
        let cluster = self.cluster.as_deref().filter(|_| !extended::has_plugin(node, name));
        cluster.is_some_and(|cluster| extended::class_of(cluster, name).is_some())
    }

    fn shortages<'p>(&self, pod: &'p PodInfo, node: &NodeInfo) -> Vec<Short<'p>> {
        self.shortages_beside(pod, node, node.pods.len(), &node.requested)
    }

    /// What is short beside so many pods that have requested so much.
    fn shortages_beside<'p>(
        &self,
        pod: &'p PodInfo,
        node: &NodeInfo,
        pods: usize,
        used: &Resources,
    ) -> Vec<Short<'p>> {
        let mut short = Vec::new();
        let pods = i64::try_from(pods).unwrap_or(i64::MAX);
        if pods >= node.allowed_pods {
            short.push(Short { resource: None, wanted: 1, free: node.allowed_pods - pods, hopeless: false });
        }
        let mut need = |name: &'p str, wanted: i64, allocatable: i64, used: i64| {
            if wanted > 0 && wanted > allocatable - used {
                let (free, hopeless) = (allocatable - used, wanted > allocatable);
                short.push(Short { resource: Some(name), wanted, free, hopeless });
            }
        };
        let (wanted, has) = (&pod.requests, &node.allocatable);
        need("cpu", wanted.milli_cpu, has.milli_cpu, used.milli_cpu);
        need("memory", wanted.memory_bytes, has.memory_bytes, used.memory_bytes);
        let storage = "ephemeral-storage";
        need(storage, wanted.ephemeral_storage_bytes, has.ephemeral_storage_bytes, used.get(storage));
        for (name, amount) in wanted.scalar.iter().filter(|(name, _)| !self.is_ignored(name)) {
            if has.get(name) - used.get(name) < *amount && self.is_dynamic(name, node) {
                continue;
            }
            need(name, *amount, has.get(name), used.get(name));
        }
        short
    }

    /// Whether the pod fits on the node once it is empty: who is there now may have to make room.
    fn could_fit(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        self.shortages_beside(pod, node, 0, &Resources::default()).is_empty()
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    fn reuse(&self) -> Reuse {
        Reuse::Node
    }

    fn filter(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let short = self.shortages(pod, node);
        if short.is_empty() {
            return Status::Success;
        }
        let hopeless = short.iter().any(|s| s.hopeless);
        let reasons = short.iter().map(Short::reason).collect();
        if hopeless { Status::Unresolvable(reasons) } else { Status::Unschedulable(reasons) }
    }

    fn score(&self, _state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64 {
        self.strategy.score(pod, node)
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => self.could_fit(pod, node),
            ClusterEvent::NodeUpdated { node, changed } => changed.allocatable && self.could_fit(pod, node),
            ClusterEvent::PodChanged { shrank, .. } => *shrank,
            // A pod that asked for nothing gives back its place among the pods of its node.
            ClusterEvent::PodGone { .. } | ClusterEvent::PodUpdated(_) | ClusterEvent::Timeout => true,
            ClusterEvent::Object { kind: ObjectKind::DeviceClass, .. } => !pod.requests.scalar.is_empty(),
            _ => false,
        }
    }

    fn advice(&self, pod: &PodInfo, node: &NodeInfo) -> Option<String> {
        let missing = self.shortages(pod, node).into_iter().map(|s| match s.resource {
            None => format!("the node already holds the {} pods it may", node.allowed_pods),
            Some("cpu") => format!("{}m of cpu asked, {}m free", s.wanted, s.free),
            Some(name) => format!("{} of {name} asked, {} free", s.wanted, s.free),
        });
        let text = missing.collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then(|| format!("{text}: lower the requests, or make room"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NodeChange;
    use crate::plugins::testing::{node, pod};
    use serde_json::json;

    fn asking(cpu: &str, memory: &str) -> PodInfo {
        pod(json!({"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}))
    }

    fn sized() -> NodeInfo {
        node(json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "2"}}}))
    }

    #[test]
    fn reasons_are_upstreams() {
        let mut busy = sized();
        busy.add(Arc::new(asking("600m", "100Mi")));
        let plugin = NodeResourcesFit::default();
        let filter = |p: &PodInfo, n: &NodeInfo| plugin.filter(&CycleState::default(), p, n);
        assert_eq!(filter(&asking("400m", "1Mi"), &busy), Status::Success);
        assert_eq!(filter(&asking("500m", "1Mi"), &busy), Status::unschedulable("Insufficient cpu"));
        assert_eq!(filter(&asking("2", "1Mi"), &busy), Status::unresolvable("Insufficient cpu"));
        assert_eq!(
            filter(&asking("500m", "1Gi"), &busy),
            Status::Unschedulable(vec!["Insufficient cpu".into(), "Insufficient memory".into()])
        );
        busy.add(Arc::new(asking("0", "0")));
        assert_eq!(filter(&asking("1m", "1Mi"), &busy), Status::unschedulable("Too many pods"));
        assert_eq!(
            plugin.advice(&asking("500m", "1Mi"), &busy).as_deref(),
            Some(
                "the node already holds the 2 pods it may; 500m of cpu asked, 400m free: lower the requests, or make room"
            )
        );
    }

    #[test]
    fn ignored_resources_are_somebody_elses() {
        let wants = pod(json!({"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"example.com/a": "1", "other.com/b": "1"}}}]}}));
        let refusal = |arguments: Value| {
            let plugin = NodeResourcesFit::new(&Handle::offline(), &arguments).expect("arguments");
            plugin.filter(&CycleState::default(), &wants, &sized()).message()
        };
        assert_eq!(refusal(json!({})), "Insufficient example.com/a, Insufficient other.com/b");
        assert_eq!(refusal(json!({"ignoredResources": ["other.com/b"]})), "Insufficient example.com/a");
        assert_eq!(refusal(json!({"ignoredResourceGroups": ["example.com"]})), "Insufficient other.com/b");
        let pages = pod(json!({"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"hugepages-2Mi": "2Mi"}}}]}}));
        let arguments = json!({"ignoredResources": ["hugepages-2Mi"]});
        let plugin = NodeResourcesFit::new(&Handle::offline(), &arguments).expect("arguments");
        let said = plugin.filter(&CycleState::default(), &pages, &sized()).message();
        assert_eq!(said, "Insufficient hugepages-2Mi", "not an extended resource");
        let wrong = json!({"ignoredResourceGroups": ["a/b"]});
        assert!(NodeResourcesFit::new(&Handle::offline(), &wrong).is_err());
        let wrong = json!({"ignoredResources": ["-a"]});
        let why = NodeResourcesFit::new(&Handle::offline(), &wrong).err().unwrap_or_default().join("; ");
        assert!(
            why.starts_with("ignoredResources[0]: Invalid value: \"-a\": name part must consist"),
            "{why}"
        );
    }

    #[test]
    fn only_what_gives_room_wakes_the_pod() {
        let (plugin, wants) = (NodeResourcesFit::default(), asking("500m", "1Mi"));
        let mut other = asking("1", "1Mi");
        other.key.name = "other".to_owned();
        assert!(plugin.queueing_hint(&wants, &ClusterEvent::PodGone { pod: &other, node: "n" }));
        let idle = pod(json!({"metadata": {"name": "idle"}, "spec": {"containers": [{"name": "c"}]}}));
        assert!(
            plugin.queueing_hint(&wants, &ClusterEvent::PodGone { pod: &idle, node: "n" }),
            "a place on the node"
        );
        for shrank in [true, false] {
            let event = ClusterEvent::PodChanged { pod: &other, shrank };
            assert_eq!(plugin.queueing_hint(&wants, &event), shrank, "labels give no room");
        }
        assert!(plugin.queueing_hint(&wants, &ClusterEvent::NodeAdded(&sized())));
        assert!(!plugin.queueing_hint(&asking("2", "1Mi"), &ClusterEvent::NodeAdded(&sized())));
        // Who fills a node that grew may be less important than who waits.
        let mut full = sized();
        full.add(Arc::new(asking("1", "1Mi")));
        let changed = NodeChange { allocatable: true, ..NodeChange::default() };
        assert!(plugin.queueing_hint(&wants, &ClusterEvent::NodeUpdated { node: &full, changed }));
        let changed = NodeChange { labels: true, ..NodeChange::default() };
        assert!(!plugin.queueing_hint(&wants, &ClusterEvent::NodeUpdated { node: &full, changed }));
    }
}

//! Upstream's plugins, one file or folder each, and the registry that knows them by name.

mod affinity;
mod arguments;
mod default_binder;
mod default_preemption;
mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_resources;
mod node_unschedulable;
mod normalize;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
mod volumes;

pub mod testing;

pub use arguments::Arguments;

use crate::framework::{Cluster, NoCluster, Plugin, Point, WaitingPods};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What plugins are made with.
#[derive(Clone)]
pub struct Handle {
    /// Absent where nothing is written: while a configuration is checked, and in tests.
    pub client: Option<kube::Client>,
    pub cluster: Arc<dyn Cluster>,
    pub waiting: WaitingPods,
}

impl Handle {
    /// Of a scheduler that has no API.
    pub fn offline() -> Self {
        Self::with(Arc::new(NoCluster))
    }

    pub fn with(cluster: Arc<dyn Cluster>) -> Self {
        Self { client: None, cluster, waiting: WaitingPods::default() }
    }
}

/// Mistakes in a plugin's arguments, each with its path inside them.
pub type Mistakes = Vec<String>;

type Factory = Arc<dyn Fn(&Handle, &Value) -> Result<Arc<dyn Plugin>, Mistakes> + Send + Sync>;

#[derive(Clone)]
struct Entry {
    points: &'static [Point],
    make: Factory,
}

/// The plugins that profiles can name. Adding one is a file and a call of [`Registry::add`].
#[derive(Clone, Default)]
pub struct Registry {
    entries: BTreeMap<&'static str, Entry>,
}

impl Registry {
    /// An empty registry, for tests of single plugins.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The plugins of this crate.
    pub fn in_tree() -> Self {
        let mut registry = Self::empty();
        add_nodes(&mut registry);
        add_pods(&mut registry);
        volumes::register(&mut registry);
        registry
    }

    /// Makes a plugin known under its name. `make` gets the plugin's `args` of a profile's pluginConfig, null where it
    /// has none, and refuses them with all mistakes. A plugin of the same name takes the place of an earlier one.
    pub fn add<P: Plugin>(
        &mut self,
        name: &'static str,
        points: &'static [Point],
        make: impl Fn(&Handle, &Value) -> Result<P, Mistakes> + Send + Sync + 'static,
    ) {
        let make: Factory =
            Arc::new(move |handle, arguments| Ok(Arc::new(make(handle, arguments)?) as Arc<dyn Plugin>));
        self.entries.insert(name, Entry { points, make });
    }

    /// `None` when there is no plugin of this name.
    pub fn make(
        &self,
        name: &str,
        handle: &Handle,
        arguments: &Value,
    ) -> Option<Result<Arc<dyn Plugin>, Mistakes>> {
        self.entries.get(name).map(|entry| (entry.make)(handle, arguments))
    }

    /// The extension points of a plugin.
    pub fn points(&self, name: &str) -> Option<&'static [Point]> {
        self.entries.get(name).map(|entry| entry.points)
    }
}

/// For plugins without arguments.
fn none(arguments: &Value) -> Result<(), Mistakes> {
    Arguments::new(arguments).finish()
}

fn add_nodes(registry: &mut Registry) {
    use node_resources::{NodeResourcesBalancedAllocation as Balanced, NodeResourcesFit as Fit};
    registry.add("NodeUnschedulable", node_unschedulable::POINTS, |_, args| {
        none(args).map(|()| node_unschedulable::NodeUnschedulable)
    });
    registry.add("NodeName", node_name::POINTS, |_, args| none(args).map(|()| node_name::NodeName));
    registry.add("TaintToleration", taint_toleration::POINTS, |_, args| {
        none(args).map(|()| taint_toleration::TaintToleration)
    });
    registry.add("NodeAffinity", node_affinity::POINTS, |_, args| node_affinity::NodeAffinity::new(args));
    registry.add("NodeDeclaredFeatures", node_declared_features::POINTS, |_, args| {
        none(args).map(|()| node_declared_features::NodeDeclaredFeatures)
    });
    registry.add("NodePorts", node_ports::POINTS, |_, args| none(args).map(|()| node_ports::NodePorts));
    registry.add("NodeResourcesFit", node_resources::FIT_POINTS, Fit::new);
    registry.add("NodeResourcesBalancedAllocation", node_resources::BALANCED_POINTS, |_, args| {
        Balanced::new(args)
    });
    registry.add("ImageLocality", image_locality::POINTS, |_, args| {
        none(args).map(|()| image_locality::ImageLocality)
    });
}

fn add_pods(registry: &mut Registry) {
    registry.add("SchedulingGates", scheduling_gates::POINTS, |_, args| {
        none(args).map(|()| scheduling_gates::SchedulingGates)
    });
    registry.add("PrioritySort", priority_sort::POINTS, |_, args| {
        none(args).map(|()| priority_sort::PrioritySort)
    });
    registry.add("PodTopologySpread", pod_topology_spread::POINTS, |handle, args| {
        pod_topology_spread::PodTopologySpread::new(handle, args)
    });
    registry.add("InterPodAffinity", inter_pod_affinity::POINTS, |handle, args| {
        inter_pod_affinity::InterPodAffinity::new(handle, args)
    });
    registry.add("DynamicResources", dynamic_resources::POINTS, |handle, args| {
        dynamic_resources::DynamicResources::new(handle, args)
    });
    registry.add("DefaultPreemption", default_preemption::POINTS, |handle, args| {
        default_preemption::DefaultPreemption::new(handle, args)
    });
    registry.add("DefaultBinder", default_binder::POINTS, |handle, args| {
        none(args).map(|()| default_binder::DefaultBinder::new(handle.client.clone()))
    });
}

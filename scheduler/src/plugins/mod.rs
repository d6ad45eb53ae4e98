//! Upstream's plugins, one file or folder each.

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

pub use crate::framework::{ArgumentErrors, Handle, Registry};
use serde_json::Value;

impl Registry {
    /// The plugins of this crate.
    pub fn in_tree() -> Self {
        let mut registry = Self::empty();
        add_nodes(&mut registry);
        add_pods(&mut registry);
        volumes::register(&mut registry);
        registry
    }
}

/// For plugins without arguments.
fn none(arguments: &Value) -> Result<(), ArgumentErrors> {
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

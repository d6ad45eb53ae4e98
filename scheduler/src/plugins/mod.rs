//! Upstream's plugins, one file each, and the registry that knows them by name.

mod affinity;
mod default_binder;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod normalize;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;

#[cfg(test)]
pub(crate) mod testing;

use crate::framework::Plugin;
use coracle_client::Context;
use std::sync::Arc;

/// The plugins that profiles can name. Adding one is a file and a call of [`Registry::add`].
#[derive(Default)]
pub struct Registry {
    plugins: Vec<Arc<dyn Plugin>>,
}

impl Registry {
    /// An empty registry, for tests of single plugins.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The plugins of this crate. Those that read volumes start their informers here.
    pub fn in_tree(context: &Context) -> Self {
        let mut registry = Self::empty();
        add_pure(&mut registry);
        registry.add(volume_binding::VolumeBinding::new(context));
        registry.add(default_binder::DefaultBinder::new(context.client.clone()));
        registry
    }

    /// A plugin of the same name takes the place of an earlier one.
    pub fn add(&mut self, plugin: impl Plugin) {
        self.plugins.retain(|p| p.name() != plugin.name());
        self.plugins.push(Arc::new(plugin));
    }

    pub fn get(&self, name: &str) -> Option<Arc<dyn Plugin>> {
        self.plugins.iter().find(|p| p.name() == name).cloned()
    }
}

/// Adds the plugins that need neither client nor informers.
pub(crate) fn add_pure(registry: &mut Registry) {
    registry.add(scheduling_gates::SchedulingGates);
    registry.add(priority_sort::PrioritySort);
    registry.add(node_unschedulable::NodeUnschedulable);
    registry.add(node_name::NodeName);
    registry.add(taint_toleration::TaintToleration);
    registry.add(node_affinity::NodeAffinity);
    registry.add(node_ports::NodePorts);
    registry.add(node_resources_fit::NodeResourcesFit);
    registry.add(node_resources_balanced_allocation::NodeResourcesBalancedAllocation);
}

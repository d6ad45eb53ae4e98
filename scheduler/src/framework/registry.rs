//! How plugins are made, and the registry that knows them by name.

use super::{Cluster, NoCluster, Plugin, Point, WaitingPods};
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

/// ArgumentErrors in a plugin's arguments, each with its path inside them.
pub type ArgumentErrors = Vec<String>;

type Factory = Arc<dyn Fn(&Handle, &Value) -> Result<Arc<dyn Plugin>, ArgumentErrors> + Send + Sync>;

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

    /// Makes a plugin known under its name. `make` gets the plugin's `args` of a profile's pluginConfig, null where it
    /// has none, and refuses them with all mistakes. A plugin of the same name takes the place of an earlier one.
    pub fn add<P: Plugin>(
        &mut self,
        name: &'static str,
        points: &'static [Point],
        make: impl Fn(&Handle, &Value) -> Result<P, ArgumentErrors> + Send + Sync + 'static,
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
    ) -> Option<Result<Arc<dyn Plugin>, ArgumentErrors>> {
        self.entries.get(name).map(|entry| (entry.make)(handle, arguments))
    }

    /// The extension points of a plugin.
    pub fn points(&self, name: &str) -> Option<&'static [Point]> {
        self.entries.get(name).map(|entry| entry.points)
    }
}

//! All webhooks of one sort, compiled.

use super::hook::{Hook, compile};
use coracle_api::Object;
use coracle_component_base::metrics::Metrics;
use coracle_requests::ObjectReader;
use coracle_requests::value::str_at;
use coracle_webhook::Client;
use parking_lot::RwLock;
use std::sync::Arc;

/// What configurations were compiled to, and from which state of them.
#[derive(Default)]
pub(super) struct Compiled {
    changed_at: Option<u64>,
    /// In the order of their names.
    configurations: Vec<Configuration>,
}

struct Configuration {
    uid: String,
    generation: i64,
    hooks: Vec<Arc<Hook>>,
}

impl Compiled {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Hook>> {
        self.configurations.iter().flat_map(|configuration| &configuration.hooks)
    }

    pub fn is_empty(&self) -> bool {
        self.configurations.is_empty()
    }
}

/// Kept until a configuration changes; a change counts from the moment its write is acknowledged.
pub(super) struct Hooks {
    pub client: Client,
    read: Arc<dyn ObjectReader>,
    resource: &'static str,
    compiled: RwLock<Arc<Compiled>>,
}

impl Hooks {
    /// `resource` is where the configurations are kept.
    pub fn new(read: Arc<dyn ObjectReader>, resource: &'static str) -> Self {
        Self { client: Client::new(read.clone()), read, resource, compiled: RwLock::default() }
    }

    /// `None` if there are none. What is compiled for it is counted.
    pub fn now(&self, metrics: &Metrics) -> Option<Arc<Compiled>> {
        let changed_at = self.read.changed_at(self.resource);
        let known = self.compiled.read();
        if changed_at.is_some() && known.changed_at == changed_at {
            return (!known.is_empty()).then(|| known.clone());
        }
        let before = known.clone();
        drop(known);
        let fresh = Arc::new(self.compile(&before, changed_at, metrics));
        *self.compiled.write() = fresh.clone();
        (!fresh.is_empty()).then_some(fresh)
    }

    /// `changed_at` was read before the configurations are: what is newer is found the next time.
    fn compile(&self, before: &Compiled, changed_at: Option<u64>, metrics: &Metrics) -> Compiled {
        let mut all = self.read.list(self.resource, "");
        all.sort_by(|a, b| str_at(a, "metadata.name").cmp(str_at(b, "metadata.name")));
        let configurations = all.iter().map(|object| configuration(before, object, metrics)).collect();
        Compiled { changed_at, configurations }
    }
}

/// Keeps what has not changed, and so its connections.
fn configuration(before: &Compiled, object: &Object, metrics: &Metrics) -> Configuration {
    let uid = str_at(object, "metadata.uid").to_owned();
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    let same = |known: &&Configuration| !uid.is_empty() && known.uid == uid && known.generation == generation;
    let hooks = match before.configurations.iter().find(same) {
        Some(known) => known.hooks.clone(),
        None => {
            let hooks = compile(object);
            let compiled = hooks.iter().flat_map(|hook| hook.conditions.expressions());
            compiled.for_each(|expression| expression.count_compilation(metrics));
            hooks
        }
    };
    Configuration { uid, generation, hooks }
}

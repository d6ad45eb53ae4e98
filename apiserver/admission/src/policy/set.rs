//! The policies in force, compiled when they are asked for and kept as long as nothing has changed.

use super::compiled::{Binding, Policy, text};
use coracle_component_base::metrics::Metrics;
use coracle_requests::ObjectReader;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A policy with those that bind it, in the order of their names. Policies that nobody binds are not here.
#[derive(Debug)]
pub struct Bound<P> {
    pub policy: Arc<P>,
    pub bindings: Vec<Arc<Binding>>,
}

/// In the order of their names, in which they are applied.
pub type Set<P> = Vec<Bound<P>>;

struct State<P> {
    /// When policies and bindings last changed; `None` where that is not known.
    at: Option<(u64, u64)>,
    set: Arc<Set<P>>,
    /// Compiled policies by name, with the version they were compiled of.
    compiled: BTreeMap<String, (String, Arc<P>)>,
}

pub struct Cached<P>(Mutex<State<P>>);

impl<P> Default for Cached<P> {
    fn default() -> Self {
        Self(Mutex::new(State { at: None, set: Arc::default(), compiled: BTreeMap::new() }))
    }
}

impl<P: Policy> Cached<P> {
    /// `None` when there are no policies at all. What is compiled for it is counted.
    pub fn get(&self, read: &dyn ObjectReader, metrics: &Metrics) -> Option<Arc<Set<P>>> {
        let now = read.changed_at(P::POLICIES).zip(read.changed_at(P::BINDINGS));
        let mut state = self.0.lock();
        if now.is_none() || state.at != now {
            state.rebuild(read, metrics);
            state.at = now;
        }
        (!state.set.is_empty()).then(|| state.set.clone())
    }
}

impl<P: Policy> State<P> {
    fn rebuild(&mut self, read: &dyn ObjectReader, metrics: &Metrics) {
        let mut bindings: BTreeMap<String, BTreeMap<String, Arc<Binding>>> = BTreeMap::new();
        for object in read.list(P::BINDINGS, "") {
            let binding = Arc::new(Binding::compile(&object));
            let policy = text(&object["spec"], "policyName").to_owned();
            bindings.entry(policy).or_default().insert(binding.name.clone(), binding);
        }
        let mut compiled = BTreeMap::new();
        let mut set = Set::new();
        for object in read.list(P::POLICIES, "") {
            let metadata = &object["metadata"];
            let (name, version) = (text(metadata, "name"), text(metadata, "resourceVersion"));
            let Some(bindings) = bindings.remove(name) else { continue };
            let policy = match self.compiled.get(name) {
                Some((known, policy)) if known == version && !version.is_empty() => policy.clone(),
                _ => {
                    let policy = P::compile(&object);
                    policy.expressions().iter().for_each(|one| one.count_compilation(metrics));
                    Arc::new(policy)
                }
            };
            compiled.insert(name.to_owned(), (version.to_owned(), policy.clone()));
            set.push(Bound { policy, bindings: bindings.into_values().collect() });
        }
        set.sort_by(|a, b| a.policy.common().name.cmp(&b.policy.common().name));
        (self.compiled, self.set) = (compiled, Arc::new(set));
    }
}

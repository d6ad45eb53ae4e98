//! What the cache holds of each resource, and for how long it remembers what was.

use super::by_field::ByField;
use super::event::Event;
use super::history::History;
use super::object::CachedObject;
use super::{Objects, Snapshot};
use coracle_store::{Commit, Limits, Revision};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often old events are looked for, at a commit. Each look costs a glance at every resource.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Resource {
    pub objects: Objects,
    pub by_field: ByField,
    pub history: History,
    pub changed_at: Revision,
}

impl Resource {
    pub fn of(name: &str) -> Self {
        Self { by_field: ByField::of(name), ..Self::default() }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub revision: Revision,
    pub resources: HashMap<Box<str>, Resource>,
    /// The last change of any resource that is not in `resources` any more.
    forgotten: Revision,
    /// What the newest revision was at each sweep within the age of the store's history.
    sweeps: VecDeque<(Instant, Revision)>,
}

impl State {
    pub fn at(revision: Revision) -> Self {
        Self { revision, ..Self::default() }
    }

    pub fn snapshot(&self, resource: &str) -> Snapshot {
        let found = self.resources.get(resource).map(|r| (r.objects.clone(), r.by_field.clone()));
        let (objects, by_field) = found.unwrap_or_default();
        Snapshot { revision: self.revision, objects, by_field }
    }

    pub fn changed_at(&self, resource: &str) -> Revision {
        self.resources.get(resource).map_or(self.forgotten, |r| r.changed_at)
    }

    /// Makes a whole commit visible at once.
    pub fn record(&mut self, commit: &Commit, events: &[(&str, Arc<Event>)], now: Instant) {
        let before = self.revision;
        for (resource, event) in events {
            if !self.resources.contains_key(*resource) {
                let mut fresh = Resource::of(resource);
                fresh.history.start_at(before);
                self.resources.insert((*resource).into(), fresh);
            }
            let Some(entry) = self.resources.get_mut(*resource) else { continue };
            // Not what the event calls previous: that may have been unreadable, and not here.
            let before = event.apply_to(&mut entry.objects);
            entry.by_field.change(event.current.as_deref(), before.as_deref());
            entry.changed_at = commit.revision;
            entry.history.push(event.clone());
        }
        self.revision = before.max(commit.revision);
        self.sweep(now);
    }

    /// Forgets events that are older than the store's history, and resources of which nothing else is left: those of
    /// definitions that were deleted.
    fn sweep(&mut self, now: Instant) {
        if self.sweeps.back().is_some_and(|(last, _)| now.saturating_duration_since(*last) < SWEEP_INTERVAL) {
            return;
        }
        self.sweeps.push_back((now, self.revision));
        let age = Limits::default().age;
        let is_old = |(at, _): &mut (Instant, Revision)| now.saturating_duration_since(*at) > age;
        let mut old = None;
        while let Some((_, revision)) = self.sweeps.pop_front_if(is_old) {
            old = Some(revision);
        }
        if let Some(old) = old {
            self.forget(old);
        }
    }

    fn forget(&mut self, old: Revision) {
        let mut forgotten = self.forgotten;
        self.resources.retain(|_, resource| {
            resource.history.forget(old);
            let left = !resource.objects.is_empty() || !resource.history.is_empty();
            if !left {
                forgotten = forgotten.max(resource.changed_at);
            }
            left
        });
        self.forgotten = forgotten;
    }

    /// A resource is served no more. What watched it starts anew, should it come back.
    pub fn end(&mut self, resource: &str) {
        if let Some(ended) = self.resources.get_mut(resource) {
            ended.history.start_at(ended.changed_at);
        }
    }

    /// The objects of each resource.
    pub fn all(&self) -> Vec<(Box<str>, Objects)> {
        self.resources.iter().map(|(name, resource)| (name.clone(), resource.objects.clone())).collect()
    }

    pub fn figures(&self) -> HashMap<Box<str>, (Objects, usize)> {
        let of = |resource: &Resource| (resource.objects.clone(), resource.history.bytes());
        self.resources.iter().map(|(name, resource)| (name.clone(), of(resource))).collect()
    }
}

/// Of objects, without the lock.
pub(super) fn bytes_of(objects: &Objects) -> usize {
    objects.values().map(|object: &Arc<CachedObject>| object.weight()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_store::KeyValue;

    fn commit(state: &mut State, resource: &'static str, there: bool, now: Instant) {
        let revision = Revision(state.revision.0 + 1);
        let key = format!("{resource}/a/b").into();
        let stored = KeyValue { key, value: "{}".into(), created: revision, modified: revision };
        let object = Some(Arc::new(CachedObject::new(&stored, None)));
        let (now_there, before) = if there { (object, None) } else { (None, object) };
        let event = Arc::new(Event::new(revision, now_there, before));
        state.record(&Commit { revision, changes: Vec::new(), durable: true }, &[(resource, event)], now);
    }

    /// Of a value that could not be read until now, the store says that there was one before.
    #[test]
    fn an_object_that_was_not_here_is_indexed_whatever_was_before() {
        struct NodeName;
        impl coracle_strategy::SelectableFields for NodeName {
            fn fields(&self, object: &coracle_api::Object) -> Vec<(&'static str, String)> {
                vec![("spec.nodeName", object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())]
            }
        }
        let (mut state, revision) = (State::default(), Revision(1));
        let (key, value) = ("pods./a/b".into(), r#"{"metadata":{},"spec":{"nodeName":"n"}}"#.into());
        let stored = KeyValue { key, value, created: revision, modified: revision };
        let pod = Arc::new(CachedObject::new(&stored, Some(&NodeName)));
        let event = Arc::new(Event::new(revision, Some(pod.clone()), Some(pod)));
        let commit = Commit { revision, changes: Vec::new(), durable: true };
        state.record(&commit, &[("pods.", event)], Instant::now());
        let snapshot = state.snapshot("pods.");
        let found = snapshot.by_field.keys("spec.nodeName", "n", None).expect("it is indexed");
        assert_eq!(found.map(|key| &**key).collect::<Vec<_>>(), ["pods./a/b"]);
    }

    #[test]
    fn what_is_older_than_the_history_is_forgotten_and_a_change_is_never_denied() {
        let (mut state, begun) = (State::default(), Instant::now());
        commit(&mut state, "gone.example.com", true, begun);
        commit(&mut state, "gone.example.com", false, begun + SWEEP_INTERVAL);
        commit(&mut state, "pods.", true, begun + SWEEP_INTERVAL * 2);
        let later = begun + Limits::default().age + SWEEP_INTERVAL * 4;
        assert_eq!(state.resources.len(), 2);
        commit(&mut state, "nodes.", true, later);
        assert!(!state.resources.contains_key("gone.example.com"));
        assert_eq!(state.changed_at("gone.example.com"), Revision(2), "at or after its last change");
        let pods = &state.resources["pods."];
        assert!(pods.history.is_empty() && !pods.objects.is_empty());
        assert_eq!(state.changed_at("pods."), Revision(3));
        assert!(!state.resources["nodes."].history.is_empty());
    }
}

//! The watch cache: the present state of everything, its recent history, and those who watch it.
//!
//! The store's writer applies its commits here, in order, before it acknowledges them. Readers take a snapshot of a
//! persistent map in O(1) and hold no lock while they answer. All watchers of a resource see the same events in the same
//! order, each serialized once.

mod by_field;
mod changes;
mod event;
mod history;
mod index;
mod object;
mod rest;
mod routes;
mod served;
mod state;
mod watcher;

pub use by_field::ByField;
pub use changes::{Changes, any_changed};
pub use coracle_component_base::metrics::Figures;
pub use event::{Event, OTHER_ENCODINGS, Seen, frame, pieces};
pub use history::History;
pub use object::CachedObject;
pub use rest::pack_what_rests;
pub use served::{Defined, ServedResources};
pub use watcher::{Filter, Item, QUEUE_EVENTS, Watcher};

use coracle_api::Object;
use coracle_component_base::metrics::Metrics;
use coracle_requests::{CustomVersion, ObjectReader};
use coracle_store::{Change, Commit, KeyValue, Range, Revision, Store, StoreError};
use coracle_strategy::SelectableFields;
use coracle_strategy::apiextensions::DEFINITIONS;
use imbl::OrdMap;
use parking_lot::{Mutex, RwLock};
use routes::Watchers;
use served::IndexFields;
use state::{Resource, State};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Objects by storage key.
pub type Objects = OrdMap<Arc<str>, Arc<CachedObject>>;

/// Objects that are indexed in less time than it takes to start a thread that does half of them.
const INDEXED_BY_ONE: usize = 500;

/// One resource at one revision. Cloning is O(1).
#[derive(Clone)]
pub struct Snapshot {
    pub revision: Revision,
    pub objects: Objects,
    /// Of a revision of before nothing is indexed.
    pub by_field: ByField,
}

pub struct Cache {
    store: Arc<dyn Store>,
    served: Arc<dyn ServedResources>,
    metrics: Arc<Metrics>,
    state: RwLock<State>,
    /// Locked before `state` wherever both are.
    watchers: Arc<Mutex<Watchers>>,
    revision: watch::Sender<Revision>,
}

/// Why a watch cannot start.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("history after revision {asked:?} is gone, the oldest is {oldest:?}")]
    TooOld { asked: Revision, oldest: Revision },
    #[error("reading history")]
    Store(#[source] StoreError),
}

impl Cache {
    /// Loads the present state and follows the store until it closes. `served` says how custom resources are indexed, and
    /// is told their definitions.
    pub async fn start(
        store: Arc<dyn Store>,
        served: Arc<dyn ServedResources>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StoreError> {
        let listing = store.range(Range::default()).await?;
        let cache = Arc::new(Self {
            store: store.clone(),
            served,
            metrics,
            state: RwLock::new(State::at(listing.revision)),
            watchers: Arc::default(),
            revision: watch::Sender::new(listing.revision),
        });
        // The definitions say how the objects of custom resources are indexed.
        let is_definition = |stored: &&KeyValue| resource_of(&stored.key) == Some(DEFINITIONS);
        let (definitions, others): (Vec<_>, Vec<_>) = listing.items.iter().partition(is_definition);
        cache.load(&definitions, listing.revision);
        let defined = cache.served.define(&cache.snapshot(DEFINITIONS).objects);
        cache.follow_definitions(&defined, &mut cache.watchers.lock());
        cache.load(&others, listing.revision);
        let following = Following(Arc::downgrade(&cache));
        let follower = move |commits: &[Arc<Commit>]| following.tell(commits);
        store.follow(listing.revision, Box::new(follower))?;
        Ok(cache)
    }

    /// The figures of the server whose resources these are.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    fn load(&self, stored: &[&KeyValue], revision: Revision) {
        let mut loaded: HashMap<Box<str>, Resource> = HashMap::new();
        for object in self.indexed(stored) {
            let Some(name) = resource_of(&object.key) else { continue };
            if !loaded.contains_key(name) {
                loaded.insert(name.into(), Resource::of(name));
            }
            if let Some(resource) = loaded.get_mut(name) {
                resource.by_field.change(Some(&object), None);
                resource.objects.insert(object.key.clone(), object);
            }
        }
        for resource in loaded.values_mut() {
            resource.history.start_at(revision);
            // Deletions before the load are unknown, so nothing is known to be older than it.
            resource.changed_at = revision;
        }
        self.state.write().resources.extend(loaded);
    }

    /// Objects of stored values, in their order, made by as many threads as that is worth.
    fn indexed(&self, stored: &[&KeyValue]) -> Vec<Arc<CachedObject>> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = stored.len().div_ceil(threads).max(INDEXED_BY_ONE);
        let work = |part: &[&KeyValue]| -> Vec<_> { part.iter().map(|stored| self.object(stored)).collect() };
        std::thread::scope(|scope| {
            let mut parts = stored.chunks(share);
            let first = parts.next().unwrap_or_default();
            let others: Vec<_> = parts.map(|part| (part, scope.spawn(move || work(part)))).collect();
            let mut all = work(first);
            for (part, thread) in others {
                all.extend(thread.join().unwrap_or_else(|_| work(part)));
            }
            all
        })
    }

    fn object(&self, stored: &KeyValue) -> Arc<CachedObject> {
        let fields = resource_of(&stored.key).and_then(|name| self.fields_of(name));
        Arc::new(CachedObject::new(stored, fields.as_deref()))
    }

    fn fields_of(&self, resource: &str) -> Option<IndexFields> {
        IndexFields::of(resource, &*self.served)
    }

    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Returns when everything up to `revision` is visible here and queued for watchers; false after `patience`.
    pub async fn wait_for(&self, revision: Revision, patience: Duration) -> bool {
        if self.revision() >= revision {
            return true;
        }
        let mut seen = self.revision.subscribe();
        let reached = tokio::time::timeout(patience, seen.wait_for(|now| *now >= revision)).await;
        matches!(reached, Ok(Ok(_)))
    }

    /// A revision at or after the last change of the resource; equal values mean nothing changed in between.
    pub fn changed_at(&self, resource: &str) -> Revision {
        self.state.read().changed_at(resource)
    }

    /// What each resource costs, by its `<plural>.<group>`.
    pub fn figures(&self) -> BTreeMap<Box<str>, Figures> {
        let all = self.state.read().figures();
        let mut figures: BTreeMap<_, _> = all
            .into_iter()
            .map(|(name, (objects, history_bytes))| {
                let bytes = state::bytes_of(&objects);
                (name, Figures { objects: objects.len(), bytes, history_bytes, watches: 0 })
            })
            .collect();
        for (resource, watches) in self.watchers.lock().counts() {
            figures.entry(resource).or_default().watches = watches;
        }
        figures
    }

    pub fn snapshot(&self, resource: &str) -> Snapshot {
        self.state.read().snapshot(resource)
    }

    /// The resource as it was at `revision`, as long as the store's history reaches back so far.
    pub async fn snapshot_at(&self, resource: &str, revision: Revision) -> Result<Snapshot, StoreError> {
        let now = self.snapshot(resource);
        if revision > now.revision {
            return Err(StoreError::Future { asked: revision, newest: now.revision });
        }
        // Even of what has not changed since: a page's token ends when it is as old as upstream's compaction is.
        let floor = self.store.compaction_floor();
        if revision < floor {
            return Err(StoreError::Compacted { asked: revision, oldest: floor });
        }
        if self.changed_at(resource) <= revision {
            return Ok(Snapshot { revision, ..now });
        }
        let range = Range { prefix: format!("{resource}/"), at: Some(revision), ..Range::default() };
        let listing = self.store.range(range).await?;
        let fields = self.fields_of(resource);
        let fields = fields.as_deref();
        // What has not changed since is not read again.
        let object = |stored: &KeyValue| match now.objects.get(&*stored.key) {
            Some(known) if known.revision == stored.modified => known.clone(),
            _ => Arc::new(CachedObject::new(stored, fields)),
        };
        let objects = listing.items.iter().map(|stored| (stored.key.clone(), object(stored))).collect();
        Ok(Snapshot { revision, objects, by_field: ByField::default() })
    }

    pub fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<CachedObject>> {
        let key = format!("{resource}/{namespace}/{name}");
        self.state.read().resources.get(resource)?.objects.get(key.as_str()).cloned()
    }

    /// Watches from now on; the snapshot is the state that the events start from.
    pub fn watch(&self, resource: &str, filter: Filter) -> (Snapshot, Watcher) {
        let mut watchers = self.watchers.lock();
        let snapshot = self.snapshot(resource);
        (snapshot, watchers.add(&self.watchers, resource, filter))
    }

    /// Watches from `after` on; the events up to now come from the history here or, if they are older, in the
    /// store.
    pub async fn watch_from(
        &self,
        resource: &str,
        filter: Filter,
        after: Revision,
    ) -> Result<(Vec<Item>, Watcher), WatchError> {
        let (now, recent, watcher) = {
            let mut watchers = self.watchers.lock();
            let state = self.state.read();
            let watcher = watchers.add(&self.watchers, resource, filter);
            let recent = match state.resources.get(resource) {
                Some(r) if r.changed_at <= after => Some(Vec::new()),
                Some(r) => r.history.after(after, &watcher.filter),
                None => None,
            };
            (state.revision, recent, watcher)
        };
        let past = match recent {
            Some(items) => items,
            None => self.replay(resource, &watcher.filter, after, now).await?,
        };
        Ok((past, watcher))
    }

    /// Events of the store's history with `after < revision <= until`.
    async fn replay(
        &self,
        resource: &str,
        filter: &Filter,
        after: Revision,
        until: Revision,
    ) -> Result<Vec<Item>, WatchError> {
        let mut items = Vec::new();
        if after >= until {
            return Ok(items);
        }
        let mut commits = self.store.watch("", after).map_err(|e| match e {
            StoreError::Compacted { oldest, .. } => WatchError::TooOld { asked: after, oldest },
            other => WatchError::Store(other),
        })?;
        // Revisions that were reserved and never used have no commit, hence the patience.
        while let Ok(commit) = tokio::time::timeout(Duration::from_millis(100), commits.recv()).await {
            // The store has closed, or cannot tell what happened then.
            let Some(commit) = commit else { return Err(WatchError::TooOld { asked: after, oldest: until }) };
            if commit.revision > until {
                break;
            }
            for change in commit.changes.iter().filter(|c| resource_of(&c.key) == Some(resource)) {
                let event = Arc::new(self.event(commit.revision, change, resource, None));
                if let Some(seen) = filter.view(&event) {
                    items.push((seen, event));
                }
            }
            if commit.revision == until {
                break;
            }
        }
        Ok(items)
    }

    fn event(
        &self,
        revision: Revision,
        change: &Change,
        resource: &str,
        previous: Option<Arc<CachedObject>>,
    ) -> Event {
        let fields = self.fields_of(resource);
        let fields = fields.as_deref();
        let current = change.value.as_ref().map(|value| {
            let stored = KeyValue {
                key: change.key.clone(),
                value: value.clone(),
                created: change.created,
                modified: revision,
            };
            Arc::new(CachedObject::new(&stored, fields))
        });
        let previous =
            previous.or_else(|| change.previous.as_ref().map(|p| Arc::new(CachedObject::new(p, fields))));
        Event::new(revision, current, previous)
    }

    /// Those to be woken are added to `wake`.
    fn apply(&self, commit: &Commit, wake: &mut Vec<Waker>) {
        let watchers = &mut *self.watchers.lock();
        let mut events = Vec::with_capacity(commit.changes.len());
        for change in &commit.changes {
            let Some(resource) = resource_of(&change.key) else { continue };
            let known =
                self.state.read().resources.get(resource).and_then(|r| r.objects.get(&change.key).cloned());
            events.push((resource, Arc::new(self.event(commit.revision, change, resource, known))));
        }
        let defined = self.define(&events);
        self.state.write().record(commit, &events, Instant::now());
        if let Some(defined) = defined {
            self.follow_definitions(&defined, watchers);
        }
        for (resource, event) in &events {
            watchers.offer(resource, event, wake);
        }
    }

    /// Tells of the definitions as these events leave them; `None` if they are about none.
    fn define(&self, events: &[(&str, Arc<Event>)]) -> Option<Vec<Defined>> {
        let mut changes = events.iter().filter(|(resource, _)| *resource == DEFINITIONS).peekable();
        changes.peek()?;
        let mut definitions = self.snapshot(DEFINITIONS).objects;
        for (_, event) in changes {
            event.apply_to(&mut definitions);
        }
        Some(self.served.define(&definitions))
    }

    /// Watches of custom resources that are served otherwise now, or no more, end: their clients come back and see the
    /// new form. What is to be selected by new fields is indexed anew.
    fn follow_definitions(&self, all: &[Defined], watchers: &mut Watchers) {
        for defined in all {
            let before = watchers.serials.insert(defined.key.clone(), defined.serial);
            if before.is_none() {
                self.metrics.resource_served(&defined.key);
            }
            if before.is_some_and(|serial| serial != defined.serial) {
                watchers.end(&defined.key);
                self.index_anew(&defined.key, &*defined.index);
            }
        }
        let known: HashSet<&str> = all.iter().map(|defined| &*defined.key).collect();
        let gone = watchers.serials.keys().filter(|key| !known.contains(&***key));
        for key in gone.cloned().collect::<Vec<_>>() {
            watchers.serials.remove(&key);
            watchers.end(&key);
            self.state.write().end(&key);
            self.metrics.resource_gone(&key);
        }
    }

    /// Only what follows the store changes objects, and this is it: nothing is held while they are read.
    fn index_anew(&self, resource: &str, fields: &dyn SelectableFields) {
        let objects = self.snapshot(resource).objects;
        let selects = |object: &CachedObject| fields.fields(&Object::Null).len() != object.selectable();
        if !objects.values().next().is_some_and(|o| selects(o) || o.selectable() > 0) {
            return;
        }
        let anew = |object: &Arc<CachedObject>| {
            let (key, value, modified) = (object.key.clone(), object.raw.clone(), object.revision);
            let stored = KeyValue { key, value, created: modified, modified };
            (object.key.clone(), Arc::new(CachedObject::new(&stored, Some(fields))))
        };
        let indexed = objects.values().map(anew).collect();
        if let Some(entry) = self.state.write().resources.get_mut(resource) {
            entry.objects = indexed;
        }
    }
}

/// The store's hold on its cache. When the store lets go, all watches end.
struct Following(Weak<Cache>);

impl Following {
    /// False when there is no cache any more.
    fn tell(&self, commits: &[Arc<Commit>]) -> bool {
        let Some(cache) = self.0.upgrade() else { return false };
        let mut wake = Vec::new();
        commits.iter().for_each(|commit| cache.apply(commit, &mut wake));
        wake.into_iter().for_each(Waker::wake);
        if let Some(newest) = commits.last() {
            cache.revision.send_replace(newest.revision);
        }
        true
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(cache) = self.0.upgrade() {
            cache.watchers.lock().close();
        }
    }
}

/// The `<plural>.<group>` of a storage key; `None` for keys of another shape.
fn resource_of(key: &str) -> Option<&str> {
    let (resource, rest) = key.split_once('/')?;
    (resource.contains('.') && rest.contains('/')).then_some(resource)
}

/// The objects of one namespace, or of all where it is empty, after an optional key.
pub fn within<'a>(
    objects: &'a Objects,
    resource: &str,
    namespace: &str,
    after: Option<&str>,
) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
    let prefix =
        if namespace.is_empty() { format!("{resource}/") } else { format!("{resource}/{namespace}/") };
    let start = match after {
        Some(key) if key > prefix.as_str() => Bound::Excluded(key),
        _ => Bound::Included(prefix.as_str()),
    };
    let rest = objects.range::<_, str>((start, Bound::Unbounded));
    rest.map(|(_, object)| object).take_while(move |object| object.key.starts_with(&prefix))
}

impl ObjectReader for Cache {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.find(resource, namespace, name).map(|object| object.decode())
    }

    /// From the index: nothing is decoded.
    fn labels(&self, resource: &str, namespace: &str, name: &str, wanted: &[&str]) -> Vec<(String, String)> {
        let object = self.find(resource, namespace, name);
        let value = |key: &str| Some(object.as_ref()?.label(key)?.to_owned());
        wanted.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect()
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        let snapshot = self.snapshot(resource);
        within(&snapshot.objects, resource, namespace, None).map(|object| object.decode()).collect()
    }

    fn changed_at(&self, resource: &str) -> Option<u64> {
        Some(Self::changed_at(self, resource).0)
    }

    fn resource_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<coracle_api::Resource>> {
        self.served.resource_of_kind(group, version, kind)
    }

    fn resource_of_plural(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<Arc<coracle_api::Resource>> {
        self.served.resource_of_plural(group, version, plural)
    }

    fn custom_version(&self, group: &str, version: &str, plural: &str) -> Option<Arc<dyn CustomVersion>> {
        self.served.custom_version(group, version, plural)
    }

    fn list_where(&self, resource: &str, namespace: &str, field: &str, value: &str) -> Vec<Arc<Object>> {
        let snapshot = self.snapshot(resource);
        let all = within(&snapshot.objects, resource, namespace, None);
        all.filter(|object| object.field(field) == Some(value)).map(|object| object.decode()).collect()
    }
}

#[cfg(test)]
mod tests;

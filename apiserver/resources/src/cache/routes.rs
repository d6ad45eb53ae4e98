//! Who is to be asked about which object: watchers in order of what they name.
//!
//! A thousand kubelets that each watch the pods of their node, or clients that each watch one object, cost an event
//! one look into a table instead of a thousand questions.

use super::event::Event;
use super::object::CachedObject;
use super::watcher::{Filter, Handle, Queue, Watcher};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

/// Where a watcher is found. An object that it could see leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    All,
    Namespace(String),
    /// `<namespace>/<name>`
    Object(String),
    /// In any namespace, or in none.
    Name(String),
    Field(String, String),
}

/// A table with so many times the room that it needs gives it back. More often would cost every watch that ends.
const ROOM: usize = 4;

type ByText = HashMap<String, Vec<Handle>>;

/// The watchers of one resource.
#[derive(Default)]
struct Table {
    all: Vec<Handle>,
    namespaces: ByText,
    objects: ByText,
    names: ByText,
    fields: HashMap<String, ByText>,
}

impl Table {
    fn slot(&mut self, route: &Route) -> &mut Vec<Handle> {
        match route {
            Route::All => &mut self.all,
            Route::Namespace(text) => self.namespaces.entry(text.clone()).or_default(),
            Route::Object(text) => self.objects.entry(text.clone()).or_default(),
            Route::Name(text) => self.names.entry(text.clone()).or_default(),
            Route::Field(field, value) => {
                self.fields.entry(field.clone()).or_default().entry(value.clone()).or_default()
            }
        }
    }

    fn remove(&mut self, route: &Route, id: u64) {
        let slot = self.slot(route);
        slot.retain(|handle| handle.id != id);
        if slot.capacity() > ROOM * slot.len() {
            slot.shrink_to_fit();
        }
        match route {
            Route::All => {}
            Route::Namespace(text) => drop_empty(&mut self.namespaces, text),
            Route::Object(text) => drop_empty(&mut self.objects, text),
            Route::Name(text) => drop_empty(&mut self.names, text),
            Route::Field(field, value) => {
                if let Some(values) = self.fields.get_mut(field) {
                    drop_empty(values, value);
                    if values.is_empty() {
                        self.fields.remove(field);
                    }
                }
            }
        }
    }

    fn len(&self) -> usize {
        let texts = [&self.namespaces, &self.objects, &self.names].into_iter().chain(self.fields.values());
        self.all.len() + texts.flat_map(HashMap::values).map(Vec::len).sum::<usize>()
    }

    fn offer(&mut self, event: &Arc<Event>, wake: &mut Vec<Waker>) {
        let Some(object) = event.current.as_ref().or(event.previous.as_ref()) else { return };
        let mut tell = |handles: Option<&mut Vec<Handle>>| {
            if let Some(handles) = handles {
                handles.retain(|handle| handle.offer(event, wake));
            }
        };
        tell(Some(&mut self.all));
        if !self.namespaces.is_empty() {
            tell(self.namespaces.get_mut(object.namespace()));
        }
        if !self.objects.is_empty() {
            let named = object.key.split_once('/').map_or("", |(_, rest)| rest);
            tell(self.objects.get_mut(named));
        }
        if !self.names.is_empty() {
            tell(self.names.get_mut(object.name()));
        }
        for (field, values) in &mut self.fields {
            let value = |o: &Option<Arc<CachedObject>>| {
                o.as_ref().and_then(|o| o.field(field)).unwrap_or_default().to_owned()
            };
            let (now, before) = (value(&event.current), value(&event.previous));
            tell(values.get_mut(&now));
            if now != before {
                tell(values.get_mut(&before));
            }
        }
    }
}

fn drop_empty(table: &mut ByText, text: &str) {
    if table.get(text).is_some_and(Vec::is_empty) {
        table.remove(text);
        if table.capacity() > ROOM * table.len() {
            table.shrink_to_fit();
        }
    }
}

/// Every watcher there is.
#[derive(Default)]
pub(super) struct Watchers {
    resources: HashMap<Box<str>, Table>,
    last: u64,
    closed: bool,
    /// The definitions of custom resources whose present form has been followed, by their serial numbers.
    pub serials: HashMap<Box<str>, u64>,
}

impl Watchers {
    /// `shared` is where `self` is kept, for the watcher's end.
    pub fn add(&mut self, shared: &Arc<Mutex<Self>>, resource: &str, filter: Filter) -> Watcher {
        self.last += 1;
        let (id, route) = (self.last, filter.route());
        let (filter, queue) = (Arc::new(filter), Arc::new(Queue::default()));
        let handle = Watcher::handle(id, filter.clone(), queue.clone());
        if self.closed {
            drop(handle);
        } else {
            self.resources.entry(resource.into()).or_default().slot(&route).push(handle);
        }
        let registration = Registration { watchers: shared.clone(), resource: resource.into(), route, id };
        Watcher::new(filter, queue, registration)
    }

    /// Queues the event for all whom it concerns.
    pub fn offer(&mut self, resource: &str, event: &Arc<Event>, wake: &mut Vec<Waker>) {
        if let Some(table) = self.resources.get_mut(resource) {
            table.offer(event, wake);
        }
    }

    /// Ends the watches of one resource, after what is queued for them.
    pub fn end(&mut self, resource: &str) {
        self.resources.remove(resource);
    }

    /// Ends every watch, and those to come.
    pub fn close(&mut self) {
        self.closed = true;
        self.resources.clear();
    }

    /// Watches of each resource that has any.
    pub fn counts(&self) -> impl Iterator<Item = (Box<str>, usize)> {
        self.resources.iter().map(|(name, table)| (name.clone(), table.len())).filter(|(_, count)| *count > 0)
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.counts().map(|(_, count)| count).sum()
    }
}

/// Takes the watcher off the table when its request is over.
pub(super) struct Registration {
    watchers: Arc<Mutex<Watchers>>,
    resource: Box<str>,
    route: Route,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut watchers = self.watchers.lock();
        if let Some(table) = watchers.resources.get_mut(&self.resource) {
            table.remove(&self.route, self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Seen;
    use coracle_store::{KeyValue, Revision};
    use coracle_strategy as strategy;
    use serde_json::json;

    fn pod(namespace: &str, name: &str, node: &str) -> Option<Arc<CachedObject>> {
        let value = json!({"metadata": {"labels": {"node": node}}, "spec": {"nodeName": node}}).to_string();
        let stored = KeyValue {
            key: format!("pods./{namespace}/{name}").into(),
            value: value.into(),
            created: Revision(1),
            modified: Revision(1),
        };
        Some(Arc::new(CachedObject::new(&stored, Some(strategy::for_resource("", "pods")))))
    }

    fn on_node(node: &'static str) -> Filter {
        let selects = Box::new(move |o: &CachedObject| o.field("spec.nodeName") == Some(node));
        Filter {
            field: Some(("spec.nodeName".into(), node.into())),
            selects: Some(selects),
            ..Filter::default()
        }
    }

    fn of(namespace: Option<&str>, name: Option<&str>) -> Filter {
        Filter { namespace: namespace.map(Into::into), name: name.map(Into::into), ..Filter::default() }
    }

    fn seen(watcher: &mut Watcher) -> Vec<Seen> {
        std::iter::from_fn(|| watcher.try_next()).map(|(seen, _)| seen).collect()
    }

    #[test]
    fn everybody_gets_what_is_theirs() {
        let shared = Arc::new(Mutex::new(Watchers::default()));
        let add = |filter| shared.lock().add(&shared, "pods.", filter);
        let filters = [
            (of(None, None), vec![Seen::Added, Seen::Modified, Seen::Deleted]),
            (of(Some("a"), None), vec![Seen::Added, Seen::Modified, Seen::Deleted]),
            (of(Some("b"), None), vec![]),
            (of(None, Some("web")), vec![Seen::Added, Seen::Modified, Seen::Deleted]),
            (of(Some("a"), Some("web")), vec![Seen::Added, Seen::Modified, Seen::Deleted]),
            (of(Some("b"), Some("web")), vec![]),
            (on_node("n1"), vec![Seen::Added, Seen::Deleted]),
            (on_node("n2"), vec![Seen::Added, Seen::Deleted]),
            (on_node("n3"), vec![]),
        ];
        let mut watchers: Vec<_> = filters.into_iter().map(|(f, expected)| (add(f), expected)).collect();
        let (first, second) = (pod("a", "web", "n1"), pod("a", "web", "n2"));
        for event in [(first.clone(), None), (second.clone(), first), (None, second)] {
            let event = Arc::new(Event::new(Revision(2), event.0, event.1));
            shared.lock().offer("pods.", &event, &mut Vec::new());
        }
        for (at, (watcher, expected)) in watchers.iter_mut().enumerate() {
            assert_eq!(seen(watcher), *expected, "watcher {at}");
        }
        assert_eq!(shared.lock().count(), 9);
        drop(watchers);
        assert_eq!(shared.lock().count(), 0);
        assert!(shared.lock().resources["pods."].fields.is_empty());
    }

    #[test]
    fn watches_that_ended_leave_no_room_behind() {
        let shared = Arc::new(Mutex::new(Watchers::default()));
        let add = |n: usize| {
            let filter =
                if n.is_multiple_of(2) { of(None, None) } else { of(Some("a"), Some(&format!("web-{n}"))) };
            shared.lock().add(&shared, "pods.", filter)
        };
        let watchers: Vec<_> = (0..2000).map(add).collect();
        assert_eq!(shared.lock().count(), 2000);
        drop(watchers);
        let watchers = shared.lock();
        let table = &watchers.resources["pods."];
        assert_eq!((table.all.capacity(), table.objects.capacity()), (0, 0));
    }

    #[tokio::test]
    async fn closing_ends_watches_after_what_is_queued() {
        let shared = Arc::new(Mutex::new(Watchers::default()));
        let mut watcher = shared.lock().add(&shared, "pods.", of(None, None));
        let event = Arc::new(Event::new(Revision(1), pod("a", "b", "n"), None));
        shared.lock().offer("pods.", &event, &mut Vec::new());
        shared.lock().close();
        assert!(watcher.next().await.is_some());
        assert!(watcher.next().await.is_none());
        assert!(!watcher.overflowed());
        let mut late = shared.lock().add(&shared, "pods.", of(None, None));
        assert!(late.next().await.is_none());
    }
}
